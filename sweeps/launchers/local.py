"""Trials as forks of a warm process on this machine, each with GPUs, cores and memory of its own."""

import itertools
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pynvml
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.files import holder
from sweeps.launchers.contract import TrialLauncher
from sweeps.launchers.forks import Forks
from sweeps.settings import LocalLauncherConf, read
from sweeps.trial.job import End, Job, Request, State, World

_USUAL_GB = 1.0  # what a trial without a limit is taken to use, to say how many fit in
_PATIENCE_S = 30.0


@dataclass
class _Slot:
    """What one running trial owns."""

    cores: list[int]
    gpus: list[str]
    mem_gb: float
    deadline: float


class LocalTrials(TrialLauncher):
    """The local launcher, as our loop sees it."""

    def __init__(self, preload: Sequence[str], log: Path) -> None:
        self._forks = Forks(preload, log)
        self._cores = sorted(os.sched_getaffinity(0))
        self._gpus = visible_gpus()
        self._free_gb = psutil.virtual_memory().total / 1e9
        self._all_cores, self._all_gpus, self._all_gb = len(self._cores), len(self._gpus), math.floor(self._free_gb)
        self._least_cores, self._wants_gpus = 1, False
        self._slots: dict[int, _Slot] = {}

    def request(self, config: DictConfig) -> Request:
        wanted = read(config.hydra.launcher, LocalLauncherConf)
        each, gpus, ranks = wanted.cpus_per_task, wanted.gpus_per_node, wanted.tasks_per_node
        if wanted.nodes > 1:
            ask = f"Train in ranks={wanted.nodes} processes here, or send trials to a cluster: hydra/launcher=slurm"
            raise UserError(f"nodes={wanted.nodes}: this machine is one node. {ask}")
        if each is None:
            each = max(1, self._all_cores * gpus // self._all_gpus // ranks) if 0 < gpus <= self._all_gpus else 1
        cores = each * ranks
        named = "cpus_per_task" if ranks == 1 else f"{ranks} ranks of {each} cores"
        for name, need, has, unit in (
            ("gpus", gpus, self._all_gpus, "GPUs"),
            (named, cores, self._all_cores, "CPU cores"),
            ("mem_gb", wanted.mem_gb or 0, self._all_gb, "GB of memory"),
        ):
            if need > has:
                ask = f"Ask for {has} at most, or send trials to a cluster: hydra/launcher=slurm"
                raise UserError(f"{name}={need}: this machine has {has or 'no'} {unit}. {ask}")
        self._least_cores = min(self._least_cores, cores)
        self._wants_gpus = self._wants_gpus or gpus > 0
        return Request(gpus, cores, wanted.mem_gb, wanted.timeout_min)

    def open(self) -> None:
        self._forks.open()

    def has_room(self, ahead: bool = False) -> bool:
        return self._forks.ready and len(self._cores) >= self._least_cores

    def submit(self, job: Job) -> bool:
        wanted, settings = job.request, read(job.config.hydra.launcher, LocalLauncherConf)
        size = settings.tasks_per_node
        cores, mem_gb = wanted.cores or 0, wanted.mem_gb or _USUAL_GB * size
        fits = cores <= len(self._cores) and wanted.gpus <= len(self._gpus) and mem_gb <= self._free_gb
        if not (self._forks.ready and fits):
            return False
        slot = self._slots[job.number] = _Slot(
            [self._cores.pop(0) for _ in range(cores)],
            [self._gpus.pop(0) for _ in range(wanted.gpus)],
            mem_gb,
            time.monotonic() + (wanted.timeout_min or math.inf) * 60,
        )
        self._free_gb -= mem_gb
        world = World(size=size, addresses=("127.0.0.1",) * size, timeout_s=settings.rank_timeout_s)
        self._forks.start(job, slot.cores, slot.gpus, max(1, cores // world.size), wanted.mem_gb, world)
        return True

    def adopt(self, job: Job) -> bool:
        """A local trial is killed when its driver goes: wait until it is. Raises UserError if it lives after 30 s."""
        deadline = time.monotonic() + _PATIENCE_S
        while by := next(filter(None, map(holder, job.attempt_folder.path.glob("alive*"))), None):
            if time.monotonic() > deadline:
                raise UserError(f"{job.attempt_folder.path} still runs in {by}; end that process, then start again")
            time.sleep(0.05)
        return False

    def poll(self, timeout_s: float) -> list[tuple[int, End]]:
        for number, slot in self._slots.items():
            if time.monotonic() > slot.deadline:
                self._forks.kill(number, State.TIMED_OUT, "it ran longer than hydra.launcher.timeout_min allows")
        over = self._forks.poll(timeout_s)
        for number, _ in over:
            slot = self._slots.pop(number)
            self._cores += slot.cores
            self._gpus += slot.gpus
            self._free_gb += slot.mem_gb
        return over

    def notes(self) -> list[str]:
        if self._wants_gpus or not self._all_gpus:
            return []
        return [f"this machine has {self._all_gpus} GPUs, and no trial asks for one; add gpus=1 to use them"]

    def withdraw(self) -> None:
        """A trial that was submitted has begun."""

    def close(self, keep: bool = False) -> None:
        self._forks.close()


def at_once(config: DictConfig) -> tuple[int, str]:
    """How many trials of this configuration run here at a time, and what bounds them. Raises UserError if none can."""
    here, settings = LocalTrials([], Path()), read(config.hydra.launcher, LocalLauncherConf)
    wanted = here.request(config)
    each_gb = wanted.mem_gb or _USUAL_GB * settings.tasks_per_node
    bounds = [
        (len(here._gpus), wanted.gpus, "GPUs", "gpus_per_node"),
        (len(here._cores), wanted.cores or 0, "CPU cores", "cpus_per_task"),
        (here._all_gb, each_gb, "GB of memory", "mem_gb"),
    ]
    count, has, each, unit, name = min(
        (int(has / each), has, each, unit, name) for has, each, unit, name in bounds if each
    )
    return count, f"this machine has {has} {unit}, and each takes {each:g} (hydra.launcher.{name})"


def visible_gpus() -> list[str]:
    """The ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. None without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    every = [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
    pynvml.nvmlShutdown()
    # CUDA reads the list up to the first invalid entry, and -1 is how one hides every GPU.
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(every)).split(",")
    return list(itertools.takewhile(lambda entry: entry not in {"", "-1"}, map(str.strip, allowed)))
