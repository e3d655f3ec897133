"""Figures over two quantities: the heat map of two parameters, the Pareto front and its
hypervolume."""

import math
from collections.abc import Sequence
from typing import Any

from sweeps.analysis.pareto_front import reference
from sweeps.base.wording import short
from sweeps.record.study import TrialRecord
from sweeps.show.figures import axes, drawing
from sweeps.show.figures.axes import Axis
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData, value_of
from sweeps.show.scales import scale_of
from sweeps.trial.job import Point

_FEWEST = 6  # trials needed for contours


def heat_map(source: FigureData) -> Figure | None:
    """Return the first objective over the only two parameters, or the two most important numbers.

    A grid has a cell per combination, with the best value. A search has its trials and contours.
    """
    pair = _pair(source)
    if len(pair) != 2 or not source.completed:
        return None
    across, up = pair
    selected, _ = source.select(drawing.MOST_POINTS)
    trials = [
        trial for trial in selected if all(trial.params.get(axis.name) is not None for axis in pair)
    ]
    numbers = {trial.number for trial in trials}
    done = [
        t for t in source.findings.top[::-1] if t.number in numbers and source.value(t) is not None
    ]
    if not done:
        return None
    # seeds share a point
    points = {(trial.params[across.name], trial.params[up.name]) for trial in done}
    is_grid = len(across.labels) * len(up.labels) <= 2 * len(points)
    if not is_grid and (across.categories or up.categories):
        return None
    data = [_cells(source, done, across, up)] if is_grid else _contours(source, done, across, up)
    for kind, group in source.group_by_kind(trials).items():
        if is_grid and kind == "completed":
            continue
        x, y = (
            [drawing.axis_value(axis, trial.params.get(axis.name), is_grid) for trial in group]
            for axis in pair
        )
        trace = drawing.make_marks(source, kind, x, y, group)
        if kind == "completed":
            trace["marker"] |= {"size": 10, "line": {"color": "--card", "width": 1.5}}
        data.append(trace)
    make_axis = drawing.cell_axis if is_grid else drawing.parameter_axis
    return drawing.make_figure(
        data, 420, xaxis=make_axis(across), yaxis=make_axis(up), **source.color_layout(bar=True)
    )


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


def _cells(source: FigureData, done: Sequence[TrialRecord], across: Axis, up: Axis) -> Trace:
    """Return a cell per combination: the value of its last (best) trial, or the mean over seeds."""

    def cell(params: Point) -> tuple[str, str]:
        return across.label(params.get(across.name)), up.label(params.get(up.name))

    values = {cell(trial.params): (source.value(trial), trial.number) for trial in done}
    for configuration in reversed(source.findings.ranking.configurations):
        if configuration.values:
            mean = sum(configuration.values) / len(configuration.values)
            values[cell(configuration.params)] = (
                mean,
                (configuration.rows or configuration.raced)[0].number,
            )
    grid = [[values.get((a, b), (None, None)) for a in across.labels] for b in up.labels]
    has_room = max(len(across.labels), len(up.labels)) <= axes.MOST_TICKS
    names = [drawing.escape(axis.name) for axis in (across, up)]
    return {
        "type": "heatmap",
        "x": [*map(drawing.escape, across.labels)],
        "y": [*map(drawing.escape, up.labels)],
        "z": [
            [None if value is None else source.scale.color(value) for value, _ in line]
            for line in grid
        ],
        "text": [["" if value is None else f"{value:.4g}" for value, _ in line] for line in grid],
        "customdata": [[number for _, number in line] for line in grid],
        "coloraxis": "coloraxis",
        "hovertemplate": f"{names[0]} %{{x}}, {names[1]} %{{y}}: %{{text}}<extra></extra>",
        "xgap": 2,
        "ygap": 2,
        **({"texttemplate": "%{text}"} if has_room else {}),
    }


def _contours(
    source: FigureData, done: Sequence[TrialRecord], across: Axis, up: Axis
) -> list[Trace]:
    """Return contours of a Gaussian kernel regression (Nadaraya 1964, Watson 1964), empty far from
    all trials."""
    if len(done) < _FEWEST:
        return []
    import numpy as np

    trials = done[-200:]
    side = np.linspace(0, 1, 30)
    x, y = (
        np.array([axis.position(trial.params[axis.name]) for trial in trials])
        for axis in (across, up)
    )
    width = max(0.07, 0.35 * len(trials) ** -0.5)
    gaps = (side[None, :, None] - x) ** 2 + (side[:, None, None] - y) ** 2  # up, across, trial
    weights = np.exp((gaps.min(axis=-1, keepdims=True) - gaps) / (2 * width**2))
    smooth = (weights @ [source.color(trial) for trial in trials]) / weights.sum(axis=-1)
    smooth[gaps.min(axis=-1) >= (2.5 * width) ** 2] = math.nan
    numbers: Any = ([axis.number_at(float(position)) for position in side] for axis in (across, up))
    contour = dict(zip("xyz", [*numbers, smooth.tolist()], strict=True)) | {
        "type": "contour",
        "ncontours": 12,
    }
    contour["contours"] = {"coloring": "heatmap", "labelfont": {"size": 10, "color": "--ink"}}
    # because a label would be the logarithm
    contour["contours"] |= {"showlabels": not source.scale.log}
    contour["line"] = {"width": 0.6, "color": "--muted"}
    return [contour | {"coloraxis": "coloraxis", "opacity": 0.4, "hoverinfo": "skip"}]


def front(source: FigureData) -> Figure | None:
    """Return the first two objectives of all trials with the Pareto front; None for a single
    objective."""
    study = source.study
    front_numbers = source.findings.front
    if len(study.objective) < 2:
        return None
    raw = {trial.number: [value_of(trial, study, i) for i in (0, 1)] for trial in source.trials}
    trials = [trial for trial in source.trials if None not in raw[trial.number]]
    if not trials:
        return None
    scales = [
        scale_of((raw[trial.number][i] or 0.0 for trial in trials), clips=False) for i in (0, 1)
    ]
    values = {
        number: [drawing.place_all(scales[i], [pair[i]])[0] for i in (0, 1)]
        for number, pair in raw.items()
    }

    def make_marks(kind: str, group: Sequence[TrialRecord]) -> Trace:
        x, y = ([values[trial.number][i] for trial in group] for i in (0, 1))
        return drawing.make_marks(source, kind, x, y, group)

    data: list[Trace] = []
    for kind, group in source.group_by_kind(
        trial for trial in trials if trial.number not in front_numbers
    ).items():
        trace = make_marks(kind, group)
        if kind == "completed":
            size = trace["marker"]["size"]
            trace |= {
                "name": "dominated",
                "marker": {"symbol": "circle-open", "size": size, "color": "--muted"},
            }
        data.append(trace)
    on_front = [trial for trial in trials if trial.number in front_numbers]
    on_front.sort(key=lambda trial: values[trial.number])
    marker = {
        "symbol": "diamond",
        "size": 11,
        "color": "--done",
        "line": {"width": 1, "color": "--card"},
    }
    line = {"color": "--done", "width": 1, "dash": "dot"}
    style = {"name": "Pareto front", "mode": "lines+markers", "marker": marker, "line": line}
    data.append(make_marks("completed", on_front) | style)
    titles = [f"{short(study.objective[i])} ({study.directions[i]}d)" for i in (0, 1)]
    x, y = (
        {"title": {"text": title}, **scale.ticks}
        for title, scale in zip(titles, scales, strict=True)
    )
    notes = dict.fromkeys(scale.note for scale in scales)
    return drawing.make_figure(data, note=" ".join(filter(None, notes)), xaxis=x, yaxis=y)


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
