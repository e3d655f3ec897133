"""What this machine has for trials, and what a trial asks of it."""

import itertools
import math
import os
from dataclasses import dataclass

import psutil
import pynvml
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.settings import LocalLauncherConf, read
from sweeps.trial.job import Request

USUAL_GB = 1.0  # what a process without a limit is taken to use, to say how many fit in


@dataclass(frozen=True)
class Machine:
    """The CPU cores by their numbers, the GPUs by their ids, and the memory in GB."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...]
    memory_gb: float

    @classmethod
    def here(cls) -> "Machine":
        """Return what this process may use."""
        return cls(tuple(sorted(os.sched_getaffinity(0))), tuple(visible_gpus()), psutil.virtual_memory().total / 1e9)

    def request(self, config: DictConfig) -> Request:
        """Return what this composed trial asks for. Raises UserError if this machine has less."""
        wanted = read(config.hydra.launcher, LocalLauncherConf)
        if wanted.nodes > 1:
            ask = f"Train in ranks={wanted.nodes} processes here, or send trials to a cluster: hydra/launcher=slurm"
            raise UserError(f"nodes={wanted.nodes}: this machine is one node. {ask}")
        each, ranks = self._cores_of_a_rank(wanted), wanted.tasks_per_node
        named = "cpus_per_task" if ranks == 1 else f"{ranks} ranks of {each} cores"
        for name, need, has, unit in (
            ("gpus", wanted.gpus_per_node, len(self.gpus), "GPUs"),
            (named, each * ranks, len(self.cores), "CPU cores"),
            ("mem_gb", wanted.mem_gb or 0, math.floor(self.memory_gb), "GB of memory"),
        ):
            if need > has:
                ask = f"Ask for {has} at most, or send trials to a cluster: hydra/launcher=slurm"
                raise UserError(f"{name}={need}: this machine has {has or 'no'} {unit}. {ask}")
        return Request(wanted.gpus_per_node, each * ranks, wanted.mem_gb, wanted.timeout_min)

    def _cores_of_a_rank(self, wanted: LocalLauncherConf) -> int:
        if wanted.cpus_per_task is not None:
            return wanted.cpus_per_task
        gpus, all_gpus = wanted.gpus_per_node, len(self.gpus)
        return max(1, len(self.cores) * gpus // all_gpus // wanted.tasks_per_node) if 0 < gpus <= all_gpus else 1

    def at_once(self, config: DictConfig) -> tuple[int, str]:
        """Return how many trials of this configuration fit, and what bounds them. Raises UserError if none does."""
        wanted, settings = self.request(config), read(config.hydra.launcher, LocalLauncherConf)
        each_gb = wanted.mem_gb or USUAL_GB * settings.tasks_per_node
        bounds = [
            (len(self.gpus), wanted.gpus, "GPUs", "gpus_per_node"),
            (len(self.cores), wanted.cores or 0, "CPU cores", "cpus_per_task"),
            (math.floor(self.memory_gb), each_gb, "GB of memory", "mem_gb"),
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
