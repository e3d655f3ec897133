"""Figures over two quantities: the heat map of two parameters, the Pareto front and its
hypervolume."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from sweeps.analysis.pareto_front import reference
from sweeps.base.wording import short
from sweeps.record.study import StudySnapshot, TrialRecord, Trials
from sweeps.show.figures import drawing
from sweeps.show.figures.axes import Axis
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData, kind_of, value_of
from sweeps.show.scales import Layout, Scale, scale_of
from sweeps.trial.job import Point

_FEWEST = 6  # trials needed for contours
_SIDE = 30  # points of contours along an axis


def heat_map(source: FigureData) -> Figure | None:
    """Return the first objective over the only two parameters, or the two most important numbers.

    A grid has a cell per combination, with the best value. A search has its trials and contours.
    """
    pair = _pair(source)
    if len(pair) != 2 or not source.completed:
        return None
    trials = _with_both(source, pair)
    done = _completed(source, trials)
    if not done:
        return None
    across, up = pair
    # seeds share a point
    points = {(trial.params[across.name], trial.params[up.name]) for trial in done}
    if len(across.labels) * len(up.labels) <= 2 * len(points):
        others = [trial for trial in trials if kind_of(trial) != "completed"]
        data = [_cells(source, done, across, up), *_marks(source, others, pair, has_cells=True)]
        return _over_pair(source, data, pair, drawing.cell_axis)
    if across.categories or up.categories:
        return None
    data = [*_contours(source, done, across, up), *_marks(source, trials, pair)]
    return _over_pair(source, data, pair, drawing.parameter_axis)


def _completed(source: FigureData, trials: Trials) -> list[TrialRecord]:
    """Return which of the trials have a final value, the best one last."""
    numbers = {trial.number for trial in trials}
    ranked = [trial for trial in source.findings.top if trial.number in numbers]
    return [trial for trial in reversed(ranked) if source.value(trial) is not None]


def _over_pair(
    source: FigureData,
    data: Sequence[Trace],
    pair: Sequence[Axis],
    make_axis: Callable[[Axis], Layout],
) -> Figure:
    xaxis, yaxis = map(make_axis, pair)
    return drawing.make_figure(data, 420, xaxis=xaxis, yaxis=yaxis, **source.color_layout(bar=True))


def _with_both(source: FigureData, pair: Sequence[Axis]) -> list[TrialRecord]:
    """Return the trials that have both parameters."""
    trials, _ = source.select(drawing.MOST_POINTS)
    return [t for t in trials if all(t.params.get(axis.name) is not None for axis in pair)]


def _marks(
    source: FigureData, trials: Trials, pair: Sequence[Axis], has_cells: bool = False
) -> list[Trace]:
    data = []
    for kind, group in source.group_by_kind(trials).items():
        x, y = (
            [drawing.axis_value(axis, trial.params.get(axis.name), has_cells) for trial in group]
            for axis in pair
        )
        trace = drawing.make_marks(source, kind, x, y, group)
        if kind == "completed":
            trace["marker"] |= {"size": 10, "line": {"color": "--card", "width": 1.5}}
        data.append(trace)
    return data


def _pair(source: FigureData) -> list[Axis]:
    """Return the axes of numbers, or the two most important of them, or any two axes if there are
    only two."""
    pair = [axis for axis in source.axes if not axis.categories or len(source.axes) == 2]
    if len(pair) > 2 and source.has_enough:
        shares = source.study.importance
        ranked = sorted(
            (axis for axis in pair if axis.name in shares), key=lambda axis: -shares[axis.name]
        )
        return [axis for axis in pair if axis in ranked[:2]]
    return pair


def _cells(source: FigureData, done: Trials, across: Axis, up: Axis) -> Trace:
    """Return a cell for each combination."""
    values = _cell_values(source, done, across, up)
    grid = [[values.get((a, b), (None, None)) for a in across.labels] for b in up.labels]
    x, y = (drawing.escape(axis.name) for axis in (across, up))
    return drawing.heat_map(
        [*map(drawing.escape, across.labels)],
        [*map(drawing.escape, up.labels)],
        z=[[None if v is None else source.scale.color(v) for v, _ in line] for line in grid],
        text=[["" if value is None else f"{value:.4g}" for value, _ in line] for line in grid],
        customdata=[[number for _, number in line] for line in grid],
        hovertemplate=f"{x} %{{x}}, {y} %{{y}}: %{{text}}<extra></extra>",
        xgap=2,
        ygap=2,
    )


def _cell_values(
    source: FigureData, done: Trials, across: Axis, up: Axis
) -> dict[tuple[str, str], tuple[float | None, int]]:
    """Return the value of the last (best) trial of each combination, or the mean over seeds, and
    the number of a trial."""

    def cell(params: Point) -> tuple[str, str]:
        return across.label(params.get(across.name)), up.label(params.get(up.name))

    values = {cell(trial.params): (source.value(trial), trial.number) for trial in done}
    for configuration in reversed(source.findings.ranking.configurations):
        if configuration.values:
            first = (configuration.rows or configuration.raced)[0]
            values[cell(configuration.params)] = fmean(configuration.values), first.number
    return values


def _contours(source: FigureData, done: Trials, across: Axis, up: Axis) -> list[Trace]:
    """Return contours of the objective; none for too few trials."""
    if len(done) < _FEWEST:
        return []
    trials = done[-200:]
    x, y = ([axis.position(trial.params[axis.name]) for trial in trials] for axis in (across, up))
    # because a label would be the logarithm
    labels = {"showlabels": not source.scale.log, "labelfont": {"size": 10, "color": "--ink"}}
    places = [i / (_SIDE - 1) for i in range(_SIDE)]
    contour = {
        "type": "contour",
        "x": [across.number_at(place) for place in places],
        "y": [up.number_at(place) for place in places],
        "z": _smooth(x, y, [source.color(trial) or 0.0 for trial in trials]),
        "ncontours": 12,
        "contours": {"coloring": "heatmap", **labels},
        "line": {"width": 0.6, "color": "--muted"},
        "coloraxis": "coloraxis",
        "opacity": 0.4,
        "hoverinfo": "skip",
    }
    return [contour]


def _smooth(x: Sequence[float], y: Sequence[float], values: Sequence[float]) -> list[list[float]]:
    """Return a Gaussian kernel regression (Nadaraya 1964, Watson 1964) over the unit square, NaN
    far from all points."""
    import numpy as np

    side = np.linspace(0, 1, _SIDE)
    width = max(0.07, 0.35 * len(values) ** -0.5)
    # by up, across, point
    gaps = (side[None, :, None] - np.array(x)) ** 2 + (side[:, None, None] - np.array(y)) ** 2
    nearest = gaps.min(axis=-1)
    weights = np.exp((nearest[..., None] - gaps) / (2 * width**2))
    smooth = weights @ values / weights.sum(axis=-1)
    smooth[nearest >= (2.5 * width) ** 2] = math.nan
    rows: list[list[float]] = smooth.tolist()
    return rows


def front(source: FigureData) -> Figure | None:
    """Return the first two objectives of all trials with the Pareto front; None for a single
    objective."""
    pairs = _pairs(source)
    if not pairs:
        return None
    scales = [scale_of(column, clips=False) for column in zip(*pairs.values(), strict=True)]
    trials = [trial for trial in source.trials if trial.number in pairs]
    numbers = source.findings.front
    on_front = [trial for trial in trials if trial.number in numbers]
    on_front.sort(key=lambda trial: pairs[trial.number])
    others = source.group_by_kind(trial for trial in trials if trial.number not in numbers)
    data = [
        _dominated(kind, _place_marks(source, kind, group, pairs, scales))
        for kind, group in others.items()
    ]
    data.append(_place_marks(source, "completed", on_front, pairs, scales) | _front_style())
    notes = filter(None, dict.fromkeys(scale.note for scale in scales))
    return drawing.make_figure(data, note=" ".join(notes), **_objective_axes(source.study, scales))


def _place_marks(
    source: FigureData,
    kind: str,
    group: Trials,
    pairs: Mapping[int, tuple[float, float]],
    scales: Sequence[Scale],
) -> Trace:
    x, y = (
        [scale.place(pairs[trial.number][i]) for trial in group] for i, scale in enumerate(scales)
    )
    return drawing.make_marks(source, kind, x, y, group)


def _pairs(source: FigureData) -> dict[int, tuple[float, float]]:
    """Return the first two objectives of each trial that has both; nothing for a single
    objective."""
    pairs = {}
    for trial in source.trials if len(source.study.objective) > 1 else ():
        x = value_of(trial, source.study)
        y = value_of(trial, source.study, 1)
        if x is not None and y is not None:
            pairs[trial.number] = x, y
    return pairs


def _objective_axes(study: StudySnapshot, scales: Sequence[Scale]) -> Layout:
    """Return the layout of the axes of the first two objectives."""
    layout = {}
    for i, axis in enumerate(("xaxis", "yaxis")):
        title = f"{short(study.objective[i])} ({study.directions[i]}d)"
        layout[axis] = {"title": {"text": title}, **scales[i].ticks}
    return layout


def _dominated(kind: str, trace: Trace) -> Trace:
    """Return the marks of trials off the front, where completed ones are dominated."""
    if kind != "completed":
        return trace
    marker = {"symbol": "circle-open", "size": trace["marker"]["size"], "color": "--muted"}
    return trace | {"name": "dominated", "marker": marker}


def _front_style() -> Layout:
    edge = {"width": 1, "color": "--card"}
    return {
        "name": "Pareto front",
        "mode": "lines+markers",
        "marker": {"symbol": "diamond", "size": 11, "color": "--done", "line": edge},
        "line": {"color": "--done", "width": 1, "dash": "dot"},
    }


def hypervolume(source: FigureData) -> Figure | None:
    """Return the volume that the trials dominate, after each trial; None for a single objective."""
    findings = source.findings
    if not findings.front:
        return None
    numbers, volumes = zip(*findings.hypervolumes, strict=True)
    line = {"color": "--done", "width": 2, "shape": "hv"}
    hover = "after trial %{x}: %{y:.5g}<extra></extra>"
    steps = drawing.scatter(
        "lines+markers", numbers, volumes, line=line, marker={"size": 5}, hovertemplate=hover
    )
    worst = zip(source.study.objective, reference(source.study, findings.top), strict=True)
    point = ", ".join(f"{name} {value:.6g}" for name, value in worst)
    layout = {"xaxis": {"title": {"text": "trial"}}, "yaxis": {"title": {"text": "hypervolume"}}}
    return drawing.make_figure(
        [steps], 380, f"Reference point: {point} (the worst value of each).", **layout
    )
