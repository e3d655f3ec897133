"""What more GPUs, nodes or ranks brought: times, costs and accuracy by count, measured in a study or told in a table.

The names that are counted, and the names by which a trainer tells its times, are written here alone.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, chain
from typing import Any

from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.results.notes import text_of
from sweeps.trial.folder import CPU, GPU, POWER, USE, MetricsLine, TrialFolder
from sweeps.trial.job import Point, State
from sweeps.wording import text

COUNTED = ("gpus", "nodes", "ranks")
"""`gpus` (0 is the CPU) and `ranks` are a node's. The count is nodes times gpus, or on CPUs nodes times ranks."""
EPOCH_TIME, SPEED = "epoch_time", "images_per_second"  # of an epoch, in s and 1/s
EPOCHS_TO_STABLE, TIME_TO_STABLE = "epochs_to_stable", "time_to_stable"  # of a trial; the latter in s
SINGULAR = {"GPUs": "GPU", "processes": "process", "nodes": "node"}  # what can be counted
_MOST_SERIES = 10  # as many as a figure has colors
_QUARTILES = 1.349  # standard deviations between those of a normal distribution

Size = tuple[int, int, int]  # the count, nodes, GPUs of a node


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a trial told, or the medians of several. None is what nobody told."""

    count: int
    nodes: int
    devices: int  # those that its hours are hours of
    images_s: float | None = None
    use_percent: float | None = None  # of its GPUs, on average; without any of the CPU, of which 100 is a core
    watts: float | None = None  # of its GPUs together, on average
    objective: float | None = None
    epochs_to_stable: float | None = None
    time_to_stable_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sample(Measurement):
    """One trial, or one line of a table."""

    series: str = ""  # the values of the other parameters
    epoch_s: list[float]  # of each epoch, without the first of each attempt, which traces
    course: list[tuple[float, float]] = field(default_factory=list)  # seconds of training so far, objective there


@dataclass(frozen=True, kw_only=True)
class Count(Measurement):
    """What one count on so many nodes did."""

    trials: int
    epoch_s: float
    shortest_s: float
    longest_s: float
    noise: float  # standard deviation of the epochs by their median, from the quartiles: a straggler is none
    speed_up: float  # against the smallest count
    efficiency: float  # speed_up for each time that the count is larger; 1 is ideal
    target_s: float | None  # of training, until the target was reached; inf if it was not


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
    time: str = "epoch time"  # what epoch_s holds: or total time, in a table that tells no more
    series: Sequence[Series] = ()
    wanted: Sequence[int] = ()  # the counts to forecast
    remarks: Sequence[str] = ()  # what a reader must know: what is not in it, and why

    def counted(self, count: Count, unit: str | None = None) -> str:
        """1 GPU, 4 GPUs on 2 nodes; with unit="" 4 on 2 nodes."""
        unit = f" {SINGULAR[self.unit] if count.count == 1 else self.unit}" if unit is None else unit
        return f"{count.count}{unit}{f' on {count.nodes} nodes' if count.nodes > 1 and self.unit != 'nodes' else ''}"


def measure_scaling(summary: StudySnapshot, target: float | None = None, wanted: Sequence[int] = ()) -> Scaling | None:
    """None unless the study tried two sizes of what is counted, and trials reported EPOCH_TIME. `target` is what its
    first objective is to reach, `wanted` are counts to forecast.
    """
    points = _points(summary)
    sizes = {number: found for number, point in points.items() if (found := size(point))}
    if count_sizes(summary) < 2:
        return None
    on_gpus = any(gpus for _, _, gpus in sizes.values())
    unit = "GPUs" if on_gpus else "processes" if any(count > nodes for count, nodes, _ in sizes.values()) else "nodes"
    samples: dict[int, Sample] = {}
    left_out: dict[str, list[TrialRecord]] = {}
    for row in summary.rows:
        if not (why_not := _why_not(row, sizes.get(row.number), on_gpus)):
            sample = _measure(row, sizes[row.number], summary.objective[0], on_gpus)
            samples |= {row.number: sample} if sample.epoch_s else {}
            why_not = "" if sample.epoch_s else f"no {EPOCH_TIME} but of the first epoch, which traces"
        if why_not:
            left_out.setdefault(why_not, []).append(row)
    if not samples:
        return None
    counted = {"gpus", "nodes", *(() if on_gpus else COUNTED), summary.seed_key.lstrip("+~")}
    names = _names([{n: v for n, v in points[number].items() if n not in counted} for number in samples])
    named = [replace(sample, series=name) for name, sample in zip(names, samples.values(), strict=True)]
    remarks = [f"Trial {_alike(rows)} is not in it: {why}." for why, rows in left_out.items()]
    on_gpus = any(row.attempts[-1].gpus for row in summary.rows if row.number in samples)
    hours = f"{'GPU' if on_gpus else SINGULAR[unit]}-hours"
    scaling = Scaling(summary.name, unit, hours, summary.objective[0], wanted=wanted, remarks=remarks)
    return compare(scaling, named, summary.directions[0] == "maximize", target)


def count_sizes(summary: StudySnapshot) -> int:
    """How many sizes of what is counted the study tried."""
    return len({*map(size, _points(summary).values())} - {None})


def _points(summary: StudySnapshot) -> dict[int, Point]:
    """What each trial has, of what is counted also what all have."""
    fixed: Point = {name: value for name in COUNTED if (value := summary.fixed.get(name, "")).isdecimal()}
    return {row.number: fixed | {n.lstrip("+~"): value for n, value in row.params.items()} for row in summary.rows}


def compare(scaling: Scaling, samples: Iterable[Sample], maximize: bool = True, target: float | None = None) -> Scaling:
    """`scaling` with series made from the samples (one or more), and counts to forecast: twice the largest, if none."""
    groups: dict[str, dict[tuple[int, int], list[Sample]]] = {}
    for sample in sorted(samples, key=lambda sample: (sample.count, sample.nodes)):
        groups.setdefault(sample.series, {}).setdefault((sample.count, sample.nodes), []).append(sample)
    by_size = sorted(groups, key=lambda name: (-len(groups[name]), name))
    shown, others = sorted(by_size[:_MOST_SERIES]), by_size[_MOST_SERIES:]
    series = [_series(name, [*groups[name].values()], maximize, target) for name in shown]
    alone = [f"{scaling.counted(one.counts[0])} {one.name}".rstrip() for one in series if len(one.counts) == 1]
    remarks = [f"Measured on one count alone, with nothing to compare: {'; '.join(alone)}."] if alone else []
    remarks += [f"Of {len(groups)} series, these are not shown: {text_of(others)}."] if others else []
    wanted = scaling.wanted or [2 * max(count.count for one in series for count in one.counts)]
    return replace(scaling, series=series, wanted=wanted, remarks=[*remarks, *scaling.remarks])


def size(point: Mapping[str, object]) -> Size | None:
    """What a configuration runs on. None if something that is counted is no whole number, or too small."""
    told = [str(point.get(name, least)) for name, least in zip(COUNTED, (0, 1, 1), strict=True)]
    gpus, nodes, ranks = (int(value) if value.isdecimal() else -1 for value in told)
    return (nodes * (gpus or ranks), nodes, gpus) if gpus >= 0 and min(nodes, ranks) > 0 else None


def _names(points: Sequence[Point]) -> list[str]:
    """What differs in the points: numbers with four digits, or with all if fewer would take two for one."""
    differ = [n for n in dict.fromkeys(chain(*points)) if len({str(point.get(n)) for point in points}) > 1]
    told = [[(n, point[n]) for n in differ if n in point] for point in points]
    short = [" ".join(f"{n}={text(value, digits=4)}" for n, value in cells) for cells in told]
    exact = [" ".join(f"{n}={value}" for n, value in cells) for cells in told]
    return short if len({*short}) == len({*exact}) else exact


def _alike(rows: Sequence[TrialRecord]) -> str:
    others = text_of([str(row.number) for row in rows[1:]])
    return f"{rows[0].number} ({rows[0].name}{f'; and {others} alike' if others else ''})"


def _why_not(row: TrialRecord, found: Size | None, on_gpus: bool) -> str:
    """Why a trial cannot be compared; empty if it can."""
    if row.state not in (State.COMPLETED, State.PRUNED):
        return f"{row.failure_signature[0]}, {row.error.partition(chr(10))[0]}".rstrip(",. ")
    if found is None:
        return "what it ran on is no whole number"
    return "it ran on the CPU" if on_gpus and not found[2] else ""


def _measure(row: TrialRecord, found: Size, objective: str, on_gpus: bool) -> Sample:
    folder = TrialFolder(row.folder)
    lines: list[MetricsLine] = []
    began: list[float] = []
    with suppress(OSError):  # of one trial alone
        lines = [line for line in folder.read_metrics().values if 0 < line.metrics.get(EPOCH_TIME, 0.0) < math.inf]
    with suppress(OSError):
        began = [time for attempt in folder.attempts() if (time := attempt.began()) is not None]
    firsts = {next((i for i, line in enumerate(lines) if line.time > time), -1) for time in began} | {0}
    steady = [line.metrics for i, line in enumerate(lines) if i not in firsts]
    trained = list(accumulate(line.metrics[EPOCH_TIME] for line in lines))
    course = [(s, line.metrics.get(objective, math.nan)) for s, line in zip(trained, lines, strict=True)]
    course += [(trained[-1], value) for value in row.objective[:1] if trained]
    done = row.state is not State.PRUNED  # else it was fast or slow, but nobody let it get anywhere
    told = {name: value for name, value in row.metrics.items() if done and 0 < value < math.inf}
    use, watts = _mean_usage(folder, lines, on_gpus)
    return Sample(
        count=found[0],
        nodes=found[1],
        devices=row.attempts[-1].gpus or found[0],
        epoch_s=[metrics[EPOCH_TIME] for metrics in steady],
        images_s=_of_known(speed for metrics in steady if 0 < (speed := metrics.get(SPEED, 0.0)) < math.inf),
        course=[(seconds, value) for seconds, value in course if done and math.isfinite(value)],
        objective=row.objective[0] if done and row.objective else None,
        epochs_to_stable=told.get(EPOCHS_TO_STABLE),
        time_to_stable_s=told.get(TIME_TO_STABLE),
        use_percent=use,
        watts=watts,
    )


def _mean_usage(folder: TrialFolder, lines: Sequence[MetricsLine], on_gpus: bool) -> tuple[float | None, float | None]:
    """The use of a GPU, or of the CPU, in percent, and the power of the GPUs of all nodes in watts."""
    use, watts, kind = [], [], GPU if on_gpus else CPU
    for samples in folder.usage():
        during = [s.metrics for s in samples if lines and lines[0].time <= s.time <= lines[-1].time]
        use += [v for metrics in during for n, v in metrics.items() if n.startswith(kind) and n.endswith(USE)]
        power = [[v for n, v in metrics.items() if n.endswith(POWER)] for metrics in during]
        watts.append(_of_known((sum(each) if each else None for each in power), statistics.fmean))
    return _of_known(use, statistics.fmean), _of_known(watts, math.fsum)


def _series(name: str, groups: Sequence[Sequence[Sample]], maximize: bool, target: float | None) -> Series:
    most, worst = (statistics.median_low, min) if maximize else (statistics.median_high, max)
    reached = [_of_known([s.objective for s in group], most) for group in groups]  # by more than half of them
    known = [value for value in reached if value is not None]
    if target is None and known and len(known) == len(reached):
        target = worst(known)
    counts: list[Count] = []
    for group in groups:
        counts.append(_count(group, counts[0] if counts else None, target, maximize))
    return Series(name, counts, target)


def _count(group: Sequence[Sample], smallest: Count | None, target: float | None, maximize: bool) -> Count:
    epochs, count = [seconds for sample in group for seconds in sample.epoch_s], group[0].count
    epoch_s, quarters = statistics.median(epochs), statistics.quantiles(epochs * 2, method="inclusive")  # two at least
    speed_up = smallest.epoch_s / epoch_s if smallest else 1.0
    medians: dict[str, Any] = {one.name: _of_known(getattr(s, one.name) for s in group) for one in fields(Measurement)}
    return Count(
        **medians | {"count": count, "nodes": group[0].nodes},
        trials=len(group),
        epoch_s=epoch_s,
        shortest_s=min(epochs),
        longest_s=max(epochs),
        noise=(quarters[2] - quarters[0]) / _QUARTILES / epoch_s,
        speed_up=speed_up,
        efficiency=speed_up * smallest.count / count if smallest else 1.0,
        target_s=None if target is None else _median_time(target, group, maximize),
    )


def _median_time(target: float, group: Sequence[Sample], maximize: bool) -> float | None:
    """Seconds of training until the objective reached it; inf if it did not. None if nobody told."""
    sign = 1 if maximize else -1
    courses = [sample.course for sample in group if sample.course]
    times = [next((s for s, value in course if sign * value >= sign * target), math.inf) for course in courses]
    return statistics.median(times) if times else None


def _of_known(values: Iterable[float | None], of: Callable[[list[float]], float] = statistics.median) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return of(known) if known else None
