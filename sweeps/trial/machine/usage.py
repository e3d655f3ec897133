"""What an attempt used of the resources that it requested, from its samples
(`sweeps.trial.machine.system_metrics`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from sweeps.trial.metrics import CPU, OWN_MEMORY, POWER, USE, MetricsLine, is_gpu_use

_MEMORY = "system/memory_usage_megabytes"
_GB = 2**30 / 1e6  # SLURM's unit of memory, in MB of 1e6 bytes
_BUSY = 5.0  # mean utilization (%) from which a GPU counts as used
_IDLE = 1.0  # utilization (%) below which a GPU is idle


@dataclass(frozen=True)
class Usage:
    """The use of resources in one attempt. What was not sampled is None, or absent."""

    energy_kwh: float | None = None
    gpu_use: float | None = None  # mean utilization of the GPUs (%)
    used: dict[str, float] = field(default_factory=dict)
    """mem_gb and cores of the largest node, busy_gpus, and gpu_memory: the largest part (0 to 1) of
    a shared GPU's."""


def measure(nodes: Iterable[Sequence[MetricsLine]], since: float) -> Usage:
    """Return the use of resources from `since` on (seconds since 1970), from the samples of each
    node."""
    joules: list[float] = []
    gpus: list[list[float]] = []
    peaks: list[float] = []
    gpu_percent: list[float] = []
    cores: list[float] = []
    for lines in nodes:
        before = since
        core_s = 0.0
        on_node: dict[str, list[float]] = {}
        for line in (line for line in lines if line.time >= since):
            elapsed_s = line.time - before
            before = line.time
            joules += [
                watts * elapsed_s for name, watts in line.metrics.items() if name.endswith(POWER)
            ]
            core_s += line.metrics.get(f"{CPU}{USE}", 0.0) / 100 * elapsed_s
            peaks += [line.metrics[_MEMORY] / _GB] if _MEMORY in line.metrics else []
            gpu_percent += [
                value for name, value in line.metrics.items() if name.endswith(OWN_MEMORY)
            ]
            for name in filter(is_gpu_use, line.metrics):
                on_node.setdefault(name, []).append(line.metrics[name])
        cores += [core_s / (before - since)] if before > since else []
        gpus += on_node.values()
    used = {"mem_gb": max(peaks, default=0.0), "cores": max(cores, default=0.0)}
    used["gpu_memory"] = max(gpu_percent, default=0.0) / 100
    used = {name: round(value, 3) for name, value in used.items() if value}
    used |= {"busy_gpus": sum(fmean(values) >= _BUSY for values in gpus)} if gpus else {}
    utilization = [value for values in gpus for value in values]
    return Usage(
        sum(joules) / 3.6e6 if joules else None, fmean(utilization) if utilization else None, used
    )


def find_idle_gpus(newest_first: Iterable[MetricsLine], since: float, idle_s: float) -> set[str]:
    """Return the metrics of the GPUs that were idle in each sample of the last `idle_s` seconds.

    Empty if the samples from `since` on (seconds since 1970) cover less time.
    """
    idle: set[str] = set()
    newest = None
    for line in newest_first:
        names = {name for name, value in line.metrics.items() if is_gpu_use(name) and value < _IDLE}
        idle = names if newest is None else idle & names
        newest = line.time if newest is None else newest
        if not idle or line.time < since:
            return set()
        if newest - line.time >= idle_s:
            return idle
    return set()
