"""What more GPUs, nodes or ranks brought: times, costs and accuracy by count, measured in a study or told in a table.

The names that are counted, and the names by which a trainer tells its times, are written here alone.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import attrgetter

from sweeps.results.notes import text_of
from sweeps.results.summary import Row, Summary, parameters, text
from sweeps.trial.folder import POWER, SYSTEM_METRICS, MetricsLine, TrialFolder
from sweeps.trial.job import State

COUNTED = ("gpus", "nodes", "ranks")
"""The parameters whose product is the count: `gpus` (0 is the CPU, which counts as one) and `ranks` are a node's."""
REPETITION = "seed"  # the parameter whose values are repetitions of one trial
EPOCH_TIME, SPEED = "epoch_time", "images_per_second"  # of an epoch, in s and 1/s
EPOCHS_TO_STABLE, TIME_TO_STABLE = "epochs_to_stable", "time_to_stable"  # of a trial; the latter in s
ONE = {"GPUs": "GPU", "processes": "process", "nodes": "node"}  # what can be counted
_MOST_SERIES = 10  # as many as a figure has colors


@dataclass(frozen=True)
class Sample:
    """One trial, or one line of a table. Empty or None is what nobody told."""

    series: str  # the values of the other parameters; "" if there are none
    count: int
    nodes: int
    devices: int  # those that its hours are hours of
    epoch_s: list[float]  # of each epoch, without the first of each attempt, which traces
    images_s: list[float] = field(default_factory=list)
    objective: float | None = None
    course: list[tuple[float, float]] = field(default_factory=list)  # seconds of training so far, objective there
    epochs_to_stable: float | None = None
    time_to_stable_s: float | None = None
    use_percent: float | None = None  # of its GPUs, on average; without any of the CPU, of which 100 is a core
    watts: float | None = None  # of its GPUs together, on average


@dataclass(frozen=True)
class Count:
    """What one count did: medians over its trials. None is what nobody told."""

    count: int
    trials: int
    epoch_s: float
    shortest_s: float
    longest_s: float
    speed_up: float  # against the smallest count
    efficiency: float  # speed_up for each time that the count is larger; 1 is ideal
    images_s: float | None
    use_percent: float | None
    watts: float | None
    objective: float | None
    epochs_to_stable: float | None
    time_to_stable_s: float | None
    stable_hours: float | None  # of all devices, until the objective was stable
    stable_kwh: float | None
    target_s: float | None  # of training, until the target was reached; inf if it was not
    target_hours: float | None


@dataclass(frozen=True)
class Series:
    """The counts, smallest first, of one combination of the other parameters' values."""

    name: str
    counts: list[Count]
    target: float | None  # what the objective is to reach: as asked, or what all of its counts reached


@dataclass(frozen=True)
class Scaling:
    """All that a scaling page shows."""

    title: str
    unit: str  # what is counted, in the plural: GPUs, processes, nodes
    hours: str  # what the cost is counted in: GPU-hours, process-hours, node-hours
    objective: str
    time: str  # what epoch_s holds: epoch time, or total time in a table that tells no more
    series: list[Series]
    remarks: list[str]  # what a reader must know: what is not in it, and why

    @property
    def largest(self) -> int:
        return max((count.count for one in self.series for count in one.counts), default=0)

    def counted(self, count: int) -> str:
        """1 GPU, 2 GPUs."""
        return f"{count} {ONE[self.unit] if count == 1 else self.unit}"


def of_study(summary: Summary, target: float | None = None) -> Scaling | None:
    """None unless the study swept something that is counted. `target` is what its first objective is to reach."""
    sizes = {row.number: size(row.params) for row in summary.rows}
    if len({found.count for found in sizes.values() if found}) < 2:
        return None
    on_gpus = any(found.gpus for found in sizes.values() if found)
    compared = [row for row in summary.rows if not _why_not(row, on_gpus)]
    others = [name for name in parameters(compared) if bare(name) not in (*COUNTED, REPETITION)]
    others = [name for name in others if len({str(row.params.get(name)) for row in compared}) > 1]
    samples: list[Sample] = []
    left_out: dict[str, list[Row]] = {}
    for row in summary.rows:
        if not (why_not := _why_not(row, on_gpus)):
            told = (f"{bare(n)}={text(row.params[n], digits=4)}" for n in others if n in row.params)
            sample = _measure(row, " ".join(told), summary, on_gpus)
            samples += [sample] if sample.epoch_s else []
            why_not = "" if sample.epoch_s else "of no epoch but the first of an attempt, which traces, is a time known"
        if why_not:
            left_out.setdefault(why_not, []).append(row)
    remarks = [f"Trial {_alike(rows)} is not in it: {why}." for why, rows in left_out.items()]
    swept = {bare(name) for name in parameters(summary.rows)}
    unit = "GPUs" if on_gpus else "nodes" if swept.isdisjoint(("gpus", "ranks")) else "processes"
    if on_gpus and any(sample.nodes > 1 for sample in samples):
        remarks.append("GPU use, power and energy are those of each trial's first node.")
    hours = "GPU-hours" if samples and all(row.attempts[-1].gpus for row in compared) else f"{ONE[unit]}-hours"
    scaling = Scaling(summary.name, unit, hours, summary.objective[0], "epoch time", [], remarks)
    return compare(scaling, samples, summary.directions[0] == "maximize", target)


def compare(scaling: Scaling, samples: Sequence[Sample], maximize: bool = True, target: float | None = None) -> Scaling:
    """`scaling` with series made from the samples."""
    tried: dict[str, set[int]] = {}
    for sample in samples:
        tried.setdefault(sample.series, set()).add(sample.count)
    remarks = []
    if len(tried) > _MOST_SERIES or (len(tried) > 1 and max(map(len, tried.values())) == 1):
        samples, remark = _best_of_each_count(scaling, samples, maximize)
        remarks.append(remark)
    groups: dict[str, dict[int, list[Sample]]] = {}
    for sample in sorted(samples, key=attrgetter("count")):
        groups.setdefault(sample.series, {}).setdefault(sample.count, []).append(sample)
    series = [_series(name, groups[name], maximize, target) for name in sorted(groups)]
    for one in series:
        if len(one.counts) == 1:
            alone = scaling.counted(one.counts[0].count)
            remarks.append(f"{one.name + ': ' if one.name else ''}only {alone} measured, nothing to compare it with.")
    return replace(scaling, series=series, remarks=[*remarks, *scaling.remarks])


@dataclass(frozen=True)
class Size:
    """What a configuration runs on."""

    count: int
    nodes: int
    gpus: int  # of a node; 0 is the CPU


def size(point: Mapping[str, object]) -> Size | None:
    """None if something in `point` that is counted is no whole number, or too small."""
    asked = {bare(name): value for name, value in point.items()}
    found = [(asked.get(name, least), least) for name, least in zip(COUNTED, (0, 1, 1), strict=True)]
    sizes = [value for value, least in found if type(value) is int and value >= least]
    return Size(max(sizes[0], 1) * sizes[1] * sizes[2], sizes[1], sizes[0]) if len(sizes) == len(found) else None


def bare(name: str) -> str:
    """A parameter's name, without Hydra's sign for one that its config lacks."""
    return name.lstrip("+~")


def _alike(rows: Sequence[Row]) -> str:
    others = text_of([str(row.number) for row in rows[1:]])
    return f"{rows[0].number} ({rows[0].name}{f'; and {others} alike' if others else ''})"


def _why_not(row: Row, on_gpus: bool) -> str:
    """Why a trial cannot be compared; empty if it can."""
    if row.state not in (State.COMPLETED, State.PRUNED):
        return f"{row.state.replace('_', ' ')}, {row.error.partition(chr(10))[0]}".rstrip(",. ")
    found = size(row.params)
    if found is None:
        return "what it ran on is no whole number"
    return "it ran on the CPU" if on_gpus and not found.gpus else ""


def _measure(row: Row, series: str, summary: Summary, on_gpus: bool) -> Sample:
    folder, found = TrialFolder(row.folder), size(row.params)
    assert found
    lines: list[MetricsLine] = []
    usage: list[MetricsLine] = []
    began: list[float] = []
    with suppress(OSError):  # of one trial alone
        lines = folder.read_metrics().values
        usage = folder.read_metrics(name=SYSTEM_METRICS).values
        began = [time for attempt in folder.attempts() if (time := attempt.began()) is not None]
    firsts = {next((i for i, line in enumerate(lines) if line.time > time), -1) for time in began} | {0}
    lasted = _durations(lines, began)
    steady = [i for i in range(len(lines)) if i not in firsts and lasted[i] > 0]
    used = _mean_usage([u for u in usage if lines and lines[0].time <= u.time <= lines[-1].time], on_gpus)
    told = {name: value for name, value in row.metrics.items() if 0 < value < math.inf}
    objective, name = (row.objective[0] if row.objective else None), summary.objective[0]
    reports = zip(accumulate(lasted), lines, strict=True)
    course = [(seconds, line.metrics[name]) for seconds, line in reports if name in line.metrics]
    if row.state is State.PRUNED:  # fast or slow, but nobody let it get anywhere
        objective, course = None, []
    return Sample(
        series,
        found.count,
        found.nodes,
        row.attempts[-1].gpus or found.count,
        [lasted[i] for i in steady],
        [speed for i in steady if 0 < (speed := lines[i].metrics.get(SPEED, 0.0)) < math.inf],
        objective,
        course or ([] if objective is None else [(sum(lasted), objective)]),
        told.get(EPOCHS_TO_STABLE),
        told.get(TIME_TO_STABLE),
        *used,
    )


def _durations(lines: Sequence[MetricsLine], began: Sequence[float]) -> list[float]:
    """How long each epoch took (s), as the trainer told; else from the report before it, or the attempt's begin."""
    lasted = []
    for before, line in zip([None, *lines], lines, strict=False):
        since = [time for time in [*began, *([before.time] if before else [])] if time <= line.time]
        told = line.metrics.get(EPOCH_TIME, 0.0)
        lasted.append(told if 0 < told < math.inf else line.time - max(since, default=line.time))
    return lasted


def _mean_usage(lines: Sequence[MetricsLine], on_gpus: bool) -> tuple[float | None, float | None]:
    """The use of a GPU, or of the CPU, in percent, and the power of all GPUs in watts."""
    ends = ("gpu_", "_utilization_percentage") if on_gpus else ("cpu_", "utilization_percentage")
    use = [
        v
        for line in lines
        for n, v in line.metrics.items()
        if n.startswith(f"system/{ends[0]}") and n.endswith(ends[1])
    ]
    watts = [found for line in lines if (found := [v for n, v in line.metrics.items() if n.endswith(POWER)])]
    return _of_known(use, statistics.fmean), _of_known([sum(each) for each in watts], statistics.fmean)


def _best_of_each_count(scaling: Scaling, samples: Sequence[Sample], maximize: bool) -> tuple[list[Sample], str]:
    """Of each count the repetitions of its best combination, as one series."""
    best: dict[int, Sample] = {}
    for sample in sorted(samples, key=lambda s: (_rank(s.objective, maximize), statistics.median(s.epoch_s))):
        best.setdefault(sample.count, sample)
    kept = [replace(s, series="") for s in samples if s.series == best[s.count].series]
    by = f"by {scaling.objective}" if any(s.objective is not None for s in samples) else "by time"
    chosen = "; ".join(f"{scaling.counted(count)}: {best[count].series}" for count in sorted(best))
    many = len({s.series for s in samples})
    return kept, f"Of the {many} combinations of other values, those compared are each count's best {by}. {chosen}."


def _rank(objective: float | None, maximize: bool) -> float:
    return math.inf if objective is None else -objective if maximize else objective


def _series(name: str, groups: Mapping[int, Sequence[Sample]], maximize: bool, target: float | None) -> Series:
    most, worst = (statistics.median_low, min) if maximize else (statistics.median_high, max)
    reached = [_of_known([s.objective for s in group], most) for group in groups.values()]  # by more than half of them
    known = [value for value in reached if value is not None]
    if target is None and known and len(known) == len(reached):
        target = worst(known)
    counts: list[Count] = []
    for group in groups.values():
        counts.append(_count(group, counts[0] if counts else None, target, maximize))
    return Series(name, counts, target)


def _count(group: Sequence[Sample], smallest: Count | None, target: float | None, maximize: bool) -> Count:
    epochs = [seconds for sample in group for seconds in sample.epoch_s]
    epoch_s, count, devices = statistics.median(epochs), group[0].count, group[0].devices
    speed_up = smallest.epoch_s / epoch_s if smallest else 1.0
    stable_s, watts = _of_known([s.time_to_stable_s for s in group]), _of_known([s.watts for s in group])
    target_s = None if target is None else _of_known([_time_to(target, s, maximize) for s in group])
    return Count(
        count=count,
        trials=len(group),
        epoch_s=epoch_s,
        shortest_s=min(epochs),
        longest_s=max(epochs),
        speed_up=speed_up,
        efficiency=speed_up * smallest.count / count if smallest else 1.0,
        images_s=_of_known([speed for s in group for speed in s.images_s]),
        use_percent=_of_known([s.use_percent for s in group]),
        watts=watts,
        objective=_of_known([s.objective for s in group]),
        epochs_to_stable=_of_known([s.epochs_to_stable for s in group]),
        time_to_stable_s=stable_s,
        stable_hours=None if stable_s is None else stable_s * devices / 3600,
        stable_kwh=None if stable_s is None or watts is None else stable_s * watts / 3.6e6,
        target_s=target_s,
        target_hours=None if target_s is None else target_s * devices / 3600,
    )


def _time_to(target: float, sample: Sample, maximize: bool) -> float | None:
    """Seconds of training until the objective reached it; inf if it did not."""
    arrived = (seconds for seconds, value in sample.course if (value >= target if maximize else value <= target))
    return next(arrived, math.inf) if sample.course else None


def _of_known(values: Iterable[float | None], of: Callable[[list[float]], float] = statistics.median) -> float | None:
    known = [value for value in values if value is not None]
    return of(known) if known else None
