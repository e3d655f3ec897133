"""What an attempt used of the resources that it requested, from its samples
(`sweeps.trial.machine.system_metrics`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
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
    gpu_use: list[list[float]] = []  # of each GPU (%)
    largest = {"mem_gb": 0.0, "cores": 0.0, "gpu_memory": 0.0}
    for lines in nodes:
        for name, samples in _samples_by_name(lines, since).items():
            values = [value for value, _ in samples]
            if name.endswith(POWER):
                joules += [value * seconds for value, seconds in samples]
            elif is_gpu_use(name):
                gpu_use.append(values)
            elif name.endswith(OWN_MEMORY):
                largest["gpu_memory"] = max(largest["gpu_memory"], max(values) / 100)
            elif name == _MEMORY:
                largest["mem_gb"] = max(largest["mem_gb"], max(values) / _GB)
            elif name == f"{CPU}{USE}":
                largest["cores"] = max(largest["cores"], _mean_cores(samples))

    used = _rounded(largest)
    use = None
    if gpu_use:
        used["busy_gpus"] = sum(fmean(values) >= _BUSY for values in gpu_use)
        use = fmean(chain.from_iterable(gpu_use))
    return Usage(sum(joules) / 3.6e6 if joules else None, use, used)


def _mean_cores(samples: Sequence[tuple[float, float]]) -> float:
    """Return how many cores were busy, from utilizations (%) and their seconds."""
    core_s = sum(value / 100 * seconds for value, seconds in samples)
    total_s = sum(seconds for _, seconds in samples)
    return core_s / total_s if total_s > 0 else 0.0


def _rounded(amounts: Mapping[str, float]) -> dict[str, float]:
    """Return the amounts that are more than 0."""
    rounded = {name: round(amount, 3) for name, amount in amounts.items()}
    return {name: amount for name, amount in rounded.items() if amount}


def _samples_by_name(
    lines: Sequence[MetricsLine], since: float
) -> dict[str, list[tuple[float, float]]]:
    """Return the values of each metric, each with the seconds since the sample before."""
    samples: dict[str, list[tuple[float, float]]] = {}
    before = since
    for line in lines:
        if line.time >= since:
            for name, value in line.metrics.items():
                samples.setdefault(name, []).append((value, line.time - before))
            before = line.time
    return samples


def find_idle_gpus(newest_first: Iterable[MetricsLine], since: float, idle_s: float) -> set[str]:
    """Return the metrics of the GPUs that were idle in each sample of the last `idle_s` seconds.

    Empty if the samples from `since` on (seconds since 1970) cover less time.
    """
    idle: set[str] | None = None
    newest = 0.0
    for line in newest_first:
        names = {name for name, value in line.metrics.items() if is_gpu_use(name) and value < _IDLE}
        if idle is None:
            idle = names
            newest = line.time
        idle &= names
        if not idle or line.time < since:
            return set()
        if newest - line.time >= idle_s:
            return idle
    return set()
