"""Trials as forks of a warm process on this machine, each with its own GPUs, cores and memory."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from sweeps.hydra.settings import LocalLauncherConf, read
from sweeps.launchers.contract import TrialLauncher, await_end
from sweeps.launchers.local.forks import Forks
from sweeps.launchers.local.gpus import Gpus
from sweeps.launchers.local.machine import DEFAULT_GB, Machine
from sweeps.trial.job import Outcome, Request, State, World
from sweeps.trial.run.sent_job import Job, SentJob


@dataclass
class _Slot:
    """The resources of one running trial."""

    cores: list[int]
    gpus: list[str]
    gpu_part: float  # number of its GPUs, or its part of a shared GPU
    mem_gb: float
    deadline: float


class LocalTrials(TrialLauncher):
    """The local launcher (`sweeps.launchers.contract.TrialLauncher`)."""

    name = "local"

    def __init__(self, preload: Sequence[str], log: Path) -> None:
        self._forks = Forks(preload, log)
        self._machine = Machine.here()
        self._cores = [*self._machine.cores]
        self._gpus = Gpus(self._machine.gpus)
        self._free_gb = self._machine.memory_gb
        self._min_cores = 1
        self._uses_gpus = False
        self._slots: dict[int, _Slot] = {}

    def request(self, config: DictConfig) -> Request:
        request = self._machine.request(config)
        self._min_cores = min(self._min_cores, request.cores or 0)
        self._uses_gpus = self._uses_gpus or request.gpus > 0
        return request

    def open(self) -> None:
        self._forks.open()

    def has_room(self, ahead: bool = False) -> bool:
        return self._forks.ready and len(self._cores) >= self._min_cores

    def submit(self, job: Job) -> bool:
        request = job.request
        settings = read(job.config.hydra.launcher, LocalLauncherConf)
        size = settings.tasks_per_node
        cores = request.cores or 0
        mem_gb = request.mem_gb or DEFAULT_GB * size
        fits = self._forks.ready and cores <= len(self._cores) and mem_gb <= self._free_gb
        gpus = self._gpus.take(request.gpus) if fits else None
        if gpus is None:
            return False
        own_cores = self._cores[:cores]
        deadline = time.monotonic() + (request.timeout_min or math.inf) * 60
        self._slots[job.number] = _Slot(own_cores, gpus, request.gpus, mem_gb, deadline)
        del self._cores[:cores]
        self._free_gb -= mem_gb
        world = World(size=size, addresses=("127.0.0.1",) * size, timeout_s=settings.rank_timeout_s)
        threads = max(1, cores // size)
        self._forks.start(SentJob.of(job), own_cores, gpus, threads, request.mem_gb, world)
        return True

    def adopt(self, job: Job) -> bool:
        """Wait until the trial, which dies with its driver, has ended. Raises UserError if it is
        alive after 30 s."""
        await_end(job.attempt_folder)
        return False

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        for number, slot in self._slots.items():
            if time.monotonic() > slot.deadline:
                end = Outcome(State.TIMED_OUT, "it ran longer than hydra.launcher.timeout_min")
                self._forks.kill(number, end)
        over = self._forks.poll(timeout_s)
        for number, _ in over:
            slot = self._slots.pop(number)
            self._cores += slot.cores
            self._gpus.release(slot.gpus, slot.gpu_part)
            self._free_gb += slot.mem_gb
        return over

    def notes(self) -> list[str]:
        if self._uses_gpus or not self._machine.gpus:
            return []
        return [
            f"this machine has {len(self._machine.gpus)} GPUs, and no trial requests a GPU. Add"
            " gpus=1 to use them"
        ]

    def cancel_pending(self) -> None: ...  # because each submitted trial has started

    def close(self, keep: bool = False) -> None:
        self._forks.close()
