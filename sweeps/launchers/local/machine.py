"""The resources of this machine, and the share of one trial."""

import math
import os
from dataclasses import dataclass

import psutil
import pynvml
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.settings import LocalLauncherConf, read
from sweeps.launchers.local.gpus import gpus_on_node
from sweeps.trial.job import Request
from sweeps.trial.machine import gpus

DEFAULT_GB = 1.0  # assumed memory of a process without a limit
_ON_A_CLUSTER = "send trials to a cluster: -m hydra/launcher=slurm"


@dataclass(frozen=True)
class Machine:
    """The CPU cores by number, the GPUs by id, and the memory in GB."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...]
    memory_gb: float

    @classmethod
    def here(cls) -> "Machine":
        """Return the resources that this process may use."""
        cores = sorted(os.sched_getaffinity(0))
        memory_gb = psutil.virtual_memory().total / 1e9
        return cls(tuple(cores), tuple(visible_gpus()), memory_gb)

    def request(self, config: DictConfig) -> Request:
        """Return the resources of this composed trial. Raises UserError if this machine has
        less."""
        settings = read(config.hydra.launcher, LocalLauncherConf)
        if settings.nodes > 1:
            advice = f"Train in ranks={settings.nodes} processes here, or {_ON_A_CLUSTER}"
            raise UserError(f"nodes={settings.nodes}: this machine is one node.\n{advice}")
        ranks = settings.tasks_per_node
        rank_cores = self._cores_per_rank(settings)
        cores = ranks * rank_cores
        gpu_count = settings.gpus_per_node or 0
        of_app = OmegaConf.select(config.hydra.launcher._get_root(), "gpus")
        gpus_name = "gpus" if of_app == gpu_count else "hydra.launcher.gpus_per_node"
        cores_name = "hydra.launcher.cpus_per_task"
        if ranks > 1:
            cores_name = f"{ranks} ranks of {rank_cores} cores"
        _refuse_more(gpus_name, gpu_count, len(self.gpus), "GPUs")
        _refuse_more(cores_name, cores, len(self.cores), "CPU cores")
        memory_gb = math.floor(self.memory_gb)
        _refuse_more("hydra.launcher.mem_gb", settings.mem_gb or 0, memory_gb, "GB of memory")

        return Request(
            gpus_on_node(settings, gpu_count),
            cores,
            settings.mem_gb,
            settings.timeout_min,
            ranks=ranks,
            co2_g_per_kwh=settings.co2_g_per_kwh,
        )

    def _cores_per_rank(self, settings: LocalLauncherConf) -> int:
        if settings.cpus_per_task is not None:
            return settings.cpus_per_task
        count = settings.gpus_per_node or 0
        every = len(self.gpus)
        sharers = settings.tasks_per_node * settings.trials_per_gpu
        if not 0 < count <= every:
            return 1
        return max(1, len(self.cores) * count // every // sharers)

    def at_once(self, config: DictConfig) -> tuple[int, str]:
        """Return how many trials of this configuration fit, and the limit in words. Raises
        UserError if none fits."""
        request = self.request(config)
        settings = read(config.hydra.launcher, LocalLauncherConf)
        trial_gb = request.mem_gb or DEFAULT_GB * settings.tasks_per_node
        gpus_name = "gpus_per_node" if request.gpus >= 1 else "trials_per_gpu"
        limits = [
            (len(self.gpus), request.gpus, "GPUs", gpus_name),
            (len(self.cores), request.cores or 0, "CPU cores", "cpus_per_task"),
            (math.floor(self.memory_gb), trial_gb, "GB of memory", "mem_gb"),
        ]
        # because of 1/49 GPU
        counts = [(int(round(limit[0] / limit[1], 6)), *limit) for limit in limits if limit[1]]
        count, total, each, unit, name = min(counts)
        limit = f"this machine has {total} {unit}, and each takes {each:g} (hydra.launcher.{name})"
        return count, limit


def _refuse_more(name: str, required: float, available: int, unit: str) -> None:
    """Raise UserError if the setting `name` requires more than this machine has."""
    if required <= available:
        return
    is_setting = name.isidentifier() or "." in name
    most = f"Type {name}={available}" if is_setting else f"Ask for {available}"
    or_less = " or less" if available else ""
    raise UserError(
        f"{name}={required}: this machine has {available or 'no'} {unit}.\n{most}{or_less}, or"
        f" {_ON_A_CLUSTER}"
    )


def visible_gpus() -> list[str]:
    """Return the ids of the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES; none
    without a driver."""
    try:
        every = gpus.names_here()
    except pynvml.NVMLError:
        return []
    return gpus.names_in(os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(every)))
