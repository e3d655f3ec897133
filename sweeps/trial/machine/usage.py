"""What an attempt used of the resources that it requested, from its samples
(`sweeps.trial.machine.system_metrics`)."""

from collections.abc import Iterable, Sequence
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


@dataclass
class _Samples:
    """The samples of one node, added up."""

    joules: list[float] = field(default_factory=list)
    core_s: float = 0.0
    seconds: float = 0.0
    memory_gb: list[float] = field(default_factory=list)
    gpu_memory: list[float] = field(default_factory=list)  # parts of a shared GPU's (%)
    gpu_use: dict[str, list[float]] = field(default_factory=dict)  # of each GPU (%)

    def add(self, line: MetricsLine, seconds: float) -> None:
        """Add the sample at the end of so many seconds."""
        self.seconds += seconds
        for name, value in line.metrics.items():
            if name.endswith(POWER):
                self.joules.append(value * seconds)
            elif name.endswith(OWN_MEMORY):
                self.gpu_memory.append(value)
            elif is_gpu_use(name):
                self.gpu_use.setdefault(name, []).append(value)
            elif name == f"{CPU}{USE}":
                self.core_s += value / 100 * seconds
            elif name == _MEMORY:
                self.memory_gb.append(value / _GB)


def measure(nodes: Iterable[Sequence[MetricsLine]], since: float) -> Usage:
    """Return the use of resources from `since` on (seconds since 1970), from the samples of each
    node."""
    of_nodes = [_add_up(lines, since) for lines in nodes]
    joules = [joule for node in of_nodes for joule in node.joules]
    gpus = [values for node in of_nodes for values in node.gpu_use.values()]
    peaks = [peak for node in of_nodes for peak in node.memory_gb]
    parts = [percent / 100 for node in of_nodes for percent in node.gpu_memory]
    cores = [node.core_s / node.seconds for node in of_nodes if node.seconds > 0]
    largest = {"mem_gb": peaks, "cores": cores, "gpu_memory": parts}
    used = {}
    for name, values in largest.items():
        if most := round(max(values, default=0.0), 3):
            used[name] = most
    use = None
    if gpus:
        used["busy_gpus"] = sum(fmean(values) >= _BUSY for values in gpus)
        use = fmean(chain.from_iterable(gpus))
    return Usage(sum(joules) / 3.6e6 if joules else None, use, used)


def _add_up(lines: Sequence[MetricsLine], since: float) -> _Samples:
    samples = _Samples()
    before = since
    for line in lines:
        if line.time >= since:
            samples.add(line, line.time - before)
            before = line.time
    return samples


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
