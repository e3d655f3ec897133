"""Trials as forks of a warm process on this machine, each with GPUs, cores and memory of its own."""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.launchers.contract import Exit, TrialJob
from sweeps.launchers.forks import Forks
from sweeps.launchers.gpus import visible_gpus
from sweeps.locks import wait_until_gone
from sweeps.settings import LocalLauncherConf, read
from sweeps.trial_folder import State


@dataclass
class _Slot:
    """What one running trial owns. `deadline` is None once the trial has been killed."""

    cores: list[int]
    gpus: list[str]
    mem_gb: float
    timeout_min: float | None
    deadline: float | None


class LocalTrials:
    """The local launcher, as our loop sees it (`sweeps.launchers.contract.TrialLauncher`)."""

    def __init__(self, preload: Sequence[str], log: Path) -> None:
        self._forks = Forks(preload, log)
        self._cores = sorted(os.sched_getaffinity(0))
        self._gpus = visible_gpus()
        self._mem_gb = psutil.virtual_memory().total / 1e9
        self._all_cores, self._all_gpus = len(self._cores), len(self._gpus)
        self._least_cores, self._wants_gpus = 1, False
        self._slots: dict[int, _Slot] = {}

    def check(self, config: DictConfig) -> None:
        wanted = read(config.hydra.launcher, LocalLauncherConf)
        check_machine(wanted, self._all_gpus)
        self._least_cores = min(self._least_cores, self._share(wanted))
        self._wants_gpus = self._wants_gpus or wanted.gpus_per_node > 0

    def open(self) -> None:
        self._forks.open()

    def has_room(self, ahead: bool = False) -> bool:
        return self._forks.ready and len(self._cores) >= self._least_cores

    def submit(self, job: TrialJob) -> bool:
        wanted = read(job.config.hydra.launcher, LocalLauncherConf)
        cores = self._share(wanted)
        if (
            not self._forks.ready
            or cores > len(self._cores)
            or wanted.gpus_per_node > len(self._gpus)
            or wanted.mem_gb > self._mem_gb
        ):
            return False
        timeout_s = math.inf if wanted.timeout_min is None else wanted.timeout_min * 60
        slot = _Slot(
            [self._cores.pop(0) for _ in range(cores)],
            [self._gpus.pop(0) for _ in range(wanted.gpus_per_node)],
            wanted.mem_gb,
            wanted.timeout_min,
            time.monotonic() + timeout_s,
        )
        self._mem_gb -= wanted.mem_gb
        self._slots[job.number] = slot
        self._forks.start(job, slot.cores, slot.gpus, threads=cores or 1)
        return True

    def adopt(self, job: TrialJob) -> bool:
        """Local trials are killed when their driver goes; wait until the last one is."""
        wait_until_gone(job.folder.attempts()[-1] / "alive")
        return False

    def poll(self, timeout_s: float) -> list[Exit]:
        self._kill_overdue()
        over = self._forks.poll(timeout_s)
        for one in over:
            slot = self._slots.pop(one.number)
            self._cores += slot.cores
            self._gpus += slot.gpus
            self._mem_gb += slot.mem_gb
        return over

    def notes(self) -> list[str]:
        if self._all_gpus and not self._wants_gpus:
            return [
                f"this machine has {self._all_gpus} GPUs, and no trial asks for one; add gpus=1 to use them"
            ]
        return []

    def cancel(self, number: int) -> None:
        self._kill(number, State.CANCELLED, "it was cancelled")

    def withdraw(self) -> None:
        """A trial that was submitted has begun."""

    def close(self, keep: bool = False) -> None:
        self._forks.close()

    def _share(self, wanted: LocalLauncherConf) -> int:
        """How many cores a trial owns."""
        if wanted.cpus_per_task is not None:
            return wanted.cpus_per_task
        gpus = wanted.gpus_per_node
        return max(1, self._all_cores * gpus // self._all_gpus) if gpus else 1

    def _kill_overdue(self) -> None:
        for number, slot in self._slots.items():
            if slot.deadline is not None and time.monotonic() > slot.deadline:
                why = f"it ran longer than timeout_min={slot.timeout_min}"
                self._kill(number, State.TIMED_OUT, why)

    def _kill(self, number: int, state: State, why: str) -> None:
        self._slots[number].deadline = None
        self._forks.kill(number, state, why)


def check_machine(wanted: LocalLauncherConf, gpus: int) -> None:
    """Raises UserError if a trial wants more than this machine has, which has `gpus`."""
    cores, memory_gb = len(os.sched_getaffinity(0)), math.floor(psutil.virtual_memory().total / 1e9)
    for name, need, has, unit in (
        ("gpus", wanted.gpus_per_node, gpus, "GPUs"),
        ("cpus_per_task", wanted.cpus_per_task or 1, cores, "CPU cores"),
        ("mem_gb", wanted.mem_gb, memory_gb, "GB of memory"),
    ):
        if need > has:
            raise UserError(
                f"{name}={need}: this machine has {has or 'no'} {unit}. "
                f"Ask for {has} at most, or send trials to a cluster: hydra/launcher=slurm"
            )
