"""What more GPUs, nodes or ranks bring: times, costs and accuracy by count, from samples.

This module alone names the counted parameters and the metrics with which a trainer reports times.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

from sweeps.show.notes import text_of

COUNTED = ("gpus", "nodes", "ranks")
"""`gpus` (0 is the CPU) and `ranks` are per node. The count is nodes times gpus, or on CPUs nodes
times ranks."""
EPOCH_TIME = "epoch_time"  # metric of an epoch, in s
SPEED = "images_per_second"  # metric of an epoch
EPOCHS_TO_STABLE = "epochs_to_stable"  # metric of a trial
TIME_TO_STABLE = "time_to_stable"  # metric of a trial, in s
SINGULAR = {"GPUs": "GPU", "processes": "process", "nodes": "node"}  # by unit
_MOST_SERIES = 10  # because a figure with more series is illegible
_QUARTILES = 1.349  # standard deviations between the quartiles of a normal distribution

_SAME = 0.05  # largest relative difference of two times that one law explains

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
    tracing_s: float | None = None  # what the first epochs of attempts took longer than the others


@dataclass(frozen=True, kw_only=True)
class Sample(Measurement):
    """A trial, or a line of a table."""

    series: str = ""  # values of the other parameters
    # duration of each epoch, without the first of each attempt, which includes tracing
    epoch_s: list[float]
    # seconds of training without tracing, objective
    course: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Count(Measurement):
    """The samples with one count on one number of nodes, combined."""

    trials: int
    epoch_s: float
    shortest_s: float
    longest_s: float
    # standard deviation of the epochs relative to their median, from quartiles because of
    # stragglers
    noise: float
    speed_up: float  # relative to the smallest count
    efficiency: float  # speed-up relative to the count; 1 is ideal
    target_s: float | None  # seconds of training until the target was reached; inf if it was not


Groups = list[list[Sample]]
BySize = dict[tuple[int, int], list[Sample]]
"""Samples by count and number of nodes."""


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


def compare(
    scaling: Scaling, samples: Iterable[Sample], maximize: bool = True, target: float | None = None
) -> Scaling:
    """Return the scaling with series of the samples, and by default a forecast for twice the
    largest count."""
    groups = _group(samples)
    by_size = sorted(groups, key=lambda name: (-len(groups[name]), name))
    hidden = by_size[_MOST_SERIES:]
    laws: dict[str, Groups] = {}
    for name in sorted(by_size[:_MOST_SERIES]):
        laws |= split_by_law(name, groups[name], scaling)
    all_series = [_series(name, group, maximize, target) for name, group in laws.items()]
    remarks = _single(scaling, all_series)
    if hidden:
        remarks.append(f"Series not shown ({len(hidden)} of {len(groups)}): {text_of(hidden)}.")
    largest = max(count.count for series in all_series for count in series.counts)
    return replace(
        scaling,
        series=all_series,
        forecast_counts=scaling.forecast_counts or [2 * largest],
        remarks=[*remarks, *scaling.remarks],
    )


def _single(scaling: Scaling, all_series: Iterable[Series]) -> list[str]:
    """Return a sentence on the series of a single count, if there are any."""
    single = [series for series in all_series if len(series.counts) == 1]
    names = [f"{scaling.label(series.counts[0])} {series.name}".rstrip() for series in single]
    return [f"Measured for a single count, so not compared: {'; '.join(names)}."] if names else []


def _group(samples: Iterable[Sample]) -> dict[str, BySize]:
    """Return the samples by series, and by count and nodes, the smallest first."""
    groups: dict[str, BySize] = {}
    for sample in sorted(samples, key=lambda sample: (sample.count, sample.nodes)):
        by_size = groups.setdefault(sample.series, {})
        by_size.setdefault((sample.count, sample.nodes), []).append(sample)
    return groups


def split_by_law(name: str, by_size: BySize, scaling: Scaling) -> dict[str, Groups]:
    """Return the samples by series: one, or if equal counts on one and on several nodes differ, one
    for each law.

    Within a node, time depends on the number of devices; across nodes with the same devices on
    each, on the network.
    """
    whole = {name: [*by_size.values()]}
    if _follow_one_law(by_size):
        return whole
    laws: dict[str, Groups] = {}
    for (count, nodes), group in by_size.items():
        per_node = count // nodes
        unit = scaling.unit if per_node > 1 else SINGULAR[scaling.unit]
        if nodes == 1:
            laws.setdefault(f"{name} within one node".strip(), []).append(group)
        if any(n > 1 and c // n == per_node for c, n in by_size):
            laws.setdefault(f"{name} across nodes of {per_node} {unit}".strip(), []).append(group)
    return laws if any(len(groups) > 1 for groups in laws.values()) else whole


def _follow_one_law(by_size: BySize) -> bool:
    """Return whether equal counts take equal times, on one and on several nodes."""
    times_by_count: dict[int, list[float]] = {}
    for (count, _), group in by_size.items():
        median_s = statistics.median(chain(*(sample.epoch_s for sample in group)))
        times_by_count.setdefault(count, []).append(median_s)
    return all(max(times) <= (1 + _SAME) * min(times) for times in times_by_count.values())


def parse_size(point: Mapping[str, object]) -> Size | None:
    """Return the size on which a configuration runs; None if a counted value is no whole number or
    too small."""
    cells = [
        str(point.get(name, default)) for name, default in zip(COUNTED, (0, 1, 1), strict=True)
    ]
    gpus, nodes, ranks = (int(cell) if cell.isdecimal() else -1 for cell in cells)
    return (nodes * (gpus or ranks), nodes, gpus) if gpus >= 0 and min(nodes, ranks) > 0 else None


def _series(
    name: str, groups: Sequence[Sequence[Sample]], maximize: bool, target: float | None
) -> Series:
    median, worst = (statistics.median_low, min) if maximize else (statistics.median_high, max)
    # by more than half of the samples
    reached = [combine([s.objective for s in group], median) for group in groups]
    values = [value for value in reached if value is not None]
    if target is None and values and len(values) == len(reached):
        target = worst(values) or None  # because an accuracy of 0 needs no training
    counts: list[Count] = []
    for group in groups:
        counts.append(_count(group, counts[0] if counts else None, target, maximize))
    return Series(name, counts, target)


def _count(
    group: Sequence[Sample], smallest: Count | None, target: float | None, maximize: bool
) -> Count:
    epochs = [seconds for sample in group for seconds in sample.epoch_s]
    count = group[0].count
    epoch_s = statistics.median(epochs)
    # doubled, because it needs two values
    quartiles = statistics.quantiles(epochs * 2, method="inclusive")
    speed_up = smallest.epoch_s / epoch_s if smallest else 1.0
    names = [field.name for field in fields(Measurement)]
    medians: dict[str, Any] = {
        name: combine(getattr(sample, name) for sample in group) for name in names
    }
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
    """Return the seconds of training until the objective reached the target; inf if it did not,
    None if unknown."""
    sign = 1 if maximize else -1
    courses = [sample.course for sample in group if sample.course]
    times = [
        next((s for s, value in course if sign * value >= sign * target), math.inf)
        for course in courses
    ]
    return statistics.median(times) if times else None


def combine(
    values: Iterable[float | None], by: Callable[[list[float]], float] = statistics.median
) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return by(finite) if finite else None
