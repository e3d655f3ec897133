"""What more GPUs, nodes or ranks bring: times, costs and accuracy by count, from a study or a table.

This module alone names the counted parameters and the metrics with which a trainer reports times.
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
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Point, State
from sweeps.trial.metrics import CPU, GPU, POWER, USE, MetricsLine
from sweeps.wording import text

COUNTED = ("gpus", "nodes", "ranks")
"""`gpus` (0 is the CPU) and `ranks` are per node. The count is nodes times gpus, or on CPUs nodes times ranks."""
EPOCH_TIME, SPEED = "epoch_time", "images_per_second"  # metrics of an epoch, in s and 1/s
EPOCHS_TO_STABLE, TIME_TO_STABLE = "epochs_to_stable", "time_to_stable"  # metrics of a trial, the latter in s
SINGULAR = {"GPUs": "GPU", "processes": "process", "nodes": "node"}  # by unit
_MOST_SERIES = 10  # because a figure with more series is illegible
_QUARTILES = 1.349  # standard deviations between the quartiles of a normal distribution

Size = tuple[int, int, int]  # the count, the number of nodes, the GPUs per node


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The measurements of a trial, or the medians of several; None if nothing was measured."""

    count: int
    nodes: int
    devices: int  # number of devices for the hours
    images_s: float | None = None
    use_percent: float | None = None  # mean use of its GPUs, or of the CPU, of which 100 is a core
    watts: float | None = None  # mean power of all its GPUs together
    objective: float | None = None
    epochs_to_stable: float | None = None
    time_to_stable_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sample(Measurement):
    """A trial, or a line of a table."""

    series: str = ""  # values of the other parameters
    epoch_s: list[float]  # duration of each epoch, without the first of each attempt, which includes tracing
    course: list[tuple[float, float]] = field(default_factory=list)  # seconds of training so far, objective


@dataclass(frozen=True, kw_only=True)
class Count(Measurement):
    """The samples with one count on one number of nodes, combined."""

    trials: int
    epoch_s: float
    shortest_s: float
    longest_s: float
    noise: float  # standard deviation of the epochs relative to their median, from quartiles because of stragglers
    speed_up: float  # relative to the smallest count
    efficiency: float  # speed-up relative to the count; 1 is ideal
    target_s: float | None  # seconds of training until the target was reached; inf if it was not


@dataclass(frozen=True)
class Series:
    """The counts, smallest first, for one combination of the other parameters' values."""

    name: str
    counts: list[Count]
    target: float | None  # target of the objective: given, or reached by all counts


@dataclass(frozen=True)
class Scaling:
    """The contents of a scaling page."""

    title: str
    unit: str  # GPUs, processes or nodes
    hours: str  # unit of cost: GPU-hours, process-hours or node-hours
    objective: str
    time: str = "epoch time"  # name of epoch_s: "total time" for a table without epochs
    series: Sequence[Series] = ()
    forecast_counts: Sequence[int] = ()
    remarks: Sequence[str] = ()  # sentences about what is left out, and why

    def label(self, count: Count, with_unit: bool = True) -> str:
        """Return `1 GPU` or `4 GPUs on 2 nodes`, or without the unit `4 on 2 nodes`."""
        unit = SINGULAR[self.unit] if count.count == 1 else self.unit
        nodes = f" on {count.nodes} nodes" if count.nodes > 1 and self.unit != "nodes" else ""
        return f"{count.count}{f' {unit}' * with_unit}{nodes}"


def measure_scaling(study: StudySnapshot, target: float | None = None, counts: Sequence[int] = ()) -> Scaling | None:
    """Return how the study scales, with forecasts for `counts`; None without two sizes and trials with EPOCH_TIME."""
    points = _points(study)
    sizes = {number: size for number, point in points.items() if (size := parse_size(point))}
    if len({*sizes.values()}) < 2:
        return None
    on_gpus = any(gpus for _, _, gpus in sizes.values())
    has_ranks = any(count > nodes for count, nodes, _ in sizes.values())
    unit = "GPUs" if on_gpus else "processes" if has_ranks else "nodes"
    samples: dict[int, Sample] = {}
    left_out: dict[str, list[TrialRecord]] = {}
    for trial in study.rows:
        size = sizes.get(trial.number)
        problem = _problem(trial, size, on_gpus)
        if size and not problem:
            sample = _measure(trial, size, study.objective[0], on_gpus)
            if sample.epoch_s:
                samples[trial.number] = sample
                continue
            problem = f"no {EPOCH_TIME} except of the first epoch, which includes tracing"
        left_out.setdefault(problem, []).append(trial)
    if not samples:
        return None
    excluded = {"gpus", "nodes", *(() if on_gpus else COUNTED), study.seed_key.lstrip("+~")}
    names = _names([{n: v for n, v in points[number].items() if n not in excluded} for number in samples])
    named = [replace(sample, series=name) for name, sample in zip(names, samples.values(), strict=True)]
    remarks = [f"Left out: trial {_first_of(trials)}: {problem}." for problem, trials in left_out.items()]
    has_gpus = any(trial.attempts[-1].gpus for trial in study.rows if trial.number in samples)
    hours = f"{'GPU' if has_gpus else SINGULAR[unit]}-hours"
    scaling = Scaling(study.name, unit, hours, study.objective[0], forecast_counts=counts, remarks=remarks)
    return compare(scaling, named, study.directions[0] == "maximize", target)


def count_sizes(study: StudySnapshot) -> int:
    """Return how many sizes the study tried."""
    return len({*map(parse_size, _points(study).values())} - {None})


def _points(study: StudySnapshot) -> dict[int, Point]:
    """Return the params of each trial, with the counted parameters that are fixed."""
    fixed: Point = {name: value for name in COUNTED if (value := study.fixed.get(name, "")).isdecimal()}
    return {trial.number: fixed | {n.lstrip("+~"): v for n, v in trial.params.items()} for trial in study.rows}


def compare(scaling: Scaling, samples: Iterable[Sample], maximize: bool = True, target: float | None = None) -> Scaling:
    """Return the scaling with series of the samples, and by default a forecast for twice the largest count."""
    groups: dict[str, dict[tuple[int, int], list[Sample]]] = {}
    for sample in sorted(samples, key=lambda sample: (sample.count, sample.nodes)):
        groups.setdefault(sample.series, {}).setdefault((sample.count, sample.nodes), []).append(sample)
    by_size = sorted(groups, key=lambda name: (-len(groups[name]), name))
    shown, hidden = sorted(by_size[:_MOST_SERIES]), by_size[_MOST_SERIES:]
    all_series = [_series(name, [*groups[name].values()], maximize, target) for name in shown]
    single = [f"{scaling.label(s.counts[0])} {s.name}".rstrip() for s in all_series if len(s.counts) == 1]
    remarks = [f"Measured for a single count, so not compared: {'; '.join(single)}."] if single else []
    remarks += [f"Series not shown ({len(hidden)} of {len(groups)}): {text_of(hidden)}."] if hidden else []
    counts = scaling.forecast_counts or [2 * max(count.count for series in all_series for count in series.counts)]
    return replace(scaling, series=all_series, forecast_counts=counts, remarks=[*remarks, *scaling.remarks])


def parse_size(point: Mapping[str, object]) -> Size | None:
    """Return the size on which a configuration runs; None if a counted value is no whole number or too small."""
    cells = [str(point.get(name, default)) for name, default in zip(COUNTED, (0, 1, 1), strict=True)]
    gpus, nodes, ranks = (int(cell) if cell.isdecimal() else -1 for cell in cells)
    return (nodes * (gpus or ranks), nodes, gpus) if gpus >= 0 and min(nodes, ranks) > 0 else None


def _names(points: Sequence[Point]) -> list[str]:
    """Return names of the differing values: with four digits, or exact if four would make two names equal."""
    differing = [n for n in dict.fromkeys(chain(*points)) if len({str(point.get(n)) for point in points}) > 1]
    cells = [[(n, point[n]) for n in differing if n in point] for point in points]
    short = [" ".join(f"{n}={text(value, digits=4)}" for n, value in pairs) for pairs in cells]
    exact = [" ".join(f"{n}={value}" for n, value in pairs) for pairs in cells]
    return short if len({*short}) == len({*exact}) else exact


def _first_of(trials: Sequence[TrialRecord]) -> str:
    more = text_of([str(trial.number) for trial in trials[1:]])
    return f"{trials[0].number} ({trials[0].name}{f'; also {more}' if more else ''})"


def _problem(trial: TrialRecord, size: Size | None, on_gpus: bool) -> str:
    """Return why a trial cannot be compared; empty if it can."""
    if trial.state not in (State.COMPLETED, State.PRUNED):
        return f"{trial.failure_signature[0]}, {trial.error.partition(chr(10))[0]}".rstrip(",. ")
    if size is None:
        return f"a value of {', '.join(COUNTED)} is no valid count"
    return "it ran on the CPU" if on_gpus and not size[2] else ""


def _measure(trial: TrialRecord, size: Size, objective: str, on_gpus: bool) -> Sample:
    folder = TrialFolder(trial.folder)
    lines: list[MetricsLine] = []
    started_at: list[float] = []
    with suppress(OSError):  # because one unreadable trial must not affect the others
        lines = [line for line in folder.read_metrics().values if 0 < line.metrics.get(EPOCH_TIME, 0.0) < math.inf]
    with suppress(OSError):
        started_at = [time for attempt in folder.attempts() if (time := attempt.began()) is not None]
    firsts = {next((i for i, line in enumerate(lines) if line.time > time), -1) for time in started_at} | {0}
    steady = [line.metrics for i, line in enumerate(lines) if i not in firsts]
    trained_s = list(accumulate(line.metrics[EPOCH_TIME] for line in lines))
    course = [(s, line.metrics.get(objective, math.nan)) for s, line in zip(trained_s, lines, strict=True)]
    course += [(trained_s[-1], value) for value in trial.objective[:1] if trained_s]
    is_whole = trial.state is not State.PRUNED  # because a pruned trial has valid speeds, but no final results
    results = {name: value for name, value in trial.metrics.items() if is_whole and 0 < value < math.inf}
    use_percent, watts = _mean_usage(folder, lines, on_gpus)
    return Sample(
        count=size[0],
        nodes=size[1],
        devices=trial.attempts[-1].gpus or size[0],
        epoch_s=[metrics[EPOCH_TIME] for metrics in steady],
        images_s=_combine(speed for metrics in steady if 0 < (speed := metrics.get(SPEED, 0.0)) < math.inf),
        course=[(seconds, value) for seconds, value in course if is_whole and math.isfinite(value)],
        objective=trial.objective[0] if is_whole and trial.objective else None,
        epochs_to_stable=results.get(EPOCHS_TO_STABLE),
        time_to_stable_s=results.get(TIME_TO_STABLE),
        use_percent=use_percent,
        watts=watts,
    )


def _mean_usage(folder: TrialFolder, lines: Sequence[MetricsLine], on_gpus: bool) -> tuple[float | None, float | None]:
    """Return the use of a GPU, or of the CPU, in percent, and the power of the GPUs of all nodes in watts."""
    use, watts, kind = [], [], GPU if on_gpus else CPU
    for samples in folder.usage():
        during = [s.metrics for s in samples if lines and lines[0].time <= s.time <= lines[-1].time]
        use += [v for metrics in during for n, v in metrics.items() if n.startswith(kind) and n.endswith(USE)]
        power = [[v for n, v in metrics.items() if n.endswith(POWER)] for metrics in during]
        watts.append(_combine((sum(each) if each else None for each in power), statistics.fmean))
    return _combine(use, statistics.fmean), _combine(watts, math.fsum)


def _series(name: str, groups: Sequence[Sequence[Sample]], maximize: bool, target: float | None) -> Series:
    median, worst = (statistics.median_low, min) if maximize else (statistics.median_high, max)
    reached = [_combine([s.objective for s in group], median) for group in groups]  # by more than half of the samples
    values = [value for value in reached if value is not None]
    if target is None and values and len(values) == len(reached):
        target = worst(values)
    counts: list[Count] = []
    for group in groups:
        counts.append(_count(group, counts[0] if counts else None, target, maximize))
    return Series(name, counts, target)


def _count(group: Sequence[Sample], smallest: Count | None, target: float | None, maximize: bool) -> Count:
    epochs, count = [seconds for sample in group for seconds in sample.epoch_s], group[0].count
    epoch_s = statistics.median(epochs)
    quartiles = statistics.quantiles(epochs * 2, method="inclusive")  # doubled, because it needs two values
    speed_up = smallest.epoch_s / epoch_s if smallest else 1.0
    names = [field.name for field in fields(Measurement)]
    medians: dict[str, Any] = {name: _combine(getattr(sample, name) for sample in group) for name in names}
    return Count(
        **medians | {"count": count, "nodes": group[0].nodes},
        trials=len(group),
        epoch_s=epoch_s,
        shortest_s=min(epochs),
        longest_s=max(epochs),
        noise=(quartiles[2] - quartiles[0]) / _QUARTILES / epoch_s,
        speed_up=speed_up,
        efficiency=speed_up * smallest.count / count if smallest else 1.0,
        target_s=None if target is None else _median_time(target, group, maximize),
    )


def _median_time(target: float, group: Sequence[Sample], maximize: bool) -> float | None:
    """Return the seconds of training until the objective reached the target; inf if it did not, None if unknown."""
    sign = 1 if maximize else -1
    courses = [sample.course for sample in group if sample.course]
    times = [next((s for s, value in course if sign * value >= sign * target), math.inf) for course in courses]
    return statistics.median(times) if times else None


def _combine(values: Iterable[float | None], by: Callable[[list[float]], float] = statistics.median) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return by(finite) if finite else None
