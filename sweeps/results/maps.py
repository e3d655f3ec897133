"""Figures over two quantities: two parameters, and two objectives with their front."""

import math
from collections.abc import Sequence
from typing import Any

from sweeps.record.pareto_front import reference
from sweeps.record.study import TrialRecord
from sweeps.results import axes, drawing
from sweeps.results.axes import Axis
from sweeps.results.drawing import Figure, Trace
from sweeps.results.figure_data import FigureData, value_of
from sweeps.trial.job import Point
from sweeps.wording import short

_FEWEST = 6  # trials that contours are drawn of


def heat_map(source: FigureData) -> Figure | None:
    """The first objective over the only two parameters, or over two numbers: the only two, or the two most important
    ones. A grid shows its cells, of what else was swept the best; a search its trials, and contours of what they say.
    """
    pair = _pair(source)
    if len(pair) != 2 or not source.completed:
        return None
    across, up = pair
    some, _ = source.some(drawing.MOST_POINTS)
    placed = [row for row in some if all(row.params.get(axis.name) is not None for axis in pair)]
    numbers = {row.number for row in placed}
    done = [row for row in source.findings.top[::-1] if row.number in numbers and source.value(row) is not None]
    if not done:
        return None
    places = {(row.params[across.name], row.params[up.name]) for row in done}  # several seeds are at one
    is_grid = len(across.cells) * len(up.cells) <= 2 * len(places)
    if not is_grid and (across.words or up.words):
        return None
    data = [_cells(source, done, across, up)] if is_grid else _contours(source, done, across, up)
    for kind, alike in source.of_kind(placed).items():
        if is_grid and kind == "completed":
            continue
        x, y = ([drawing.place_on(axis, row.params.get(axis.name), is_grid) for row in alike] for axis in pair)
        mark = drawing.marks(source, kind, x, y, alike)
        if kind == "completed":
            mark["marker"] |= {"size": 10, "line": {"color": "--card", "width": 1.5}}
        data.append(mark)
    axis_of = drawing.cell_axis if is_grid else drawing.parameter_axis
    return drawing.figure_of(data, 420, xaxis=axis_of(across), yaxis=axis_of(up), **source.colors(bar=True))


def _pair(source: FigureData) -> list[Axis]:
    """The two axes, if there are two."""
    pair = [axis for axis in source.axes if axis.is_of_numbers or len(source.axes) == 2]
    if len(pair) > 2 and source.has_enough:
        shares = source.study.importance
        known = sorted((axis for axis in pair if axis.name in shares), key=lambda axis: -shares[axis.name])[:2]
        return [axis for axis in pair if axis in known]
    return pair


def _cells(source: FigureData, done: Sequence[TrialRecord], across: Axis, up: Axis) -> Trace:
    """Of trials at one place the last one counts, which is the best; of several seeds their mean."""

    def cell(params: Point) -> tuple[str, str]:
        return across.cell(params.get(across.name)), up.cell(params.get(up.name))

    known = {cell(row.params): (source.value(row), row.number) for row in done}
    for one in reversed(source.findings.ranking.configurations):
        if one.values:
            number = (one.rows or one.raced)[0].number
            known[cell(one.params)] = sum(one.values) / len(one.values), number
    grid = [[known.get((a, b), (None, None)) for a in across.cells] for b in up.cells]
    few, names = len(across.cells) <= axes.MOST_TICKS, [drawing.escaped(axis.name) for axis in (across, up)]
    return {
        "type": "heatmap",
        "x": [*map(drawing.escaped, across.cells)],
        "y": [*map(drawing.escaped, up.cells)],
        "z": [[value for value, _ in line] for line in grid],
        "customdata": [[number for _, number in line] for line in grid],
        "coloraxis": "coloraxis",
        "hovertemplate": f"{names[0]} %{{x}}, {names[1]} %{{y}}: %{{z:.5g}}<extra></extra>",
        "xgap": 2,
        "ygap": 2,
        **({"texttemplate": "%{z:.4g}"} if few else {}),
    }


def _contours(source: FigureData, done: Sequence[TrialRecord], across: Axis, up: Axis) -> list[Trace]:
    """What trials nearby have, on average, by a Gaussian kernel (Nadaraya 1964, Watson 1964); nothing far from all."""
    if len(done) < _FEWEST:
        return []
    import numpy as np

    trials, side = done[-200:], np.linspace(0, 1, 30)
    x, y = (np.array([axis.place(row.params[axis.name]) for row in trials]) for axis in (across, up))
    width = max(0.07, 0.35 * len(trials) ** -0.5)
    gaps = (side[None, :, None] - x) ** 2 + (side[:, None, None] - y) ** 2  # up, across, trial
    weights = np.exp((gaps.min(axis=-1, keepdims=True) - gaps) / (2 * width**2))
    smooth = (weights @ [source.value(row) for row in trials]) / weights.sum(axis=-1)
    smooth[gaps.min(axis=-1) >= (2.5 * width) ** 2] = math.nan
    ends: Any = ([axis.number_at(float(place)) for place in side] for axis in (across, up))
    contour = dict(zip("xyz", [*ends, smooth.tolist()], strict=True)) | {"type": "contour", "ncontours": 12}
    contour["contours"] = {"coloring": "heatmap", "showlabels": True, "labelfont": {"size": 10, "color": "--ink"}}
    contour["line"] = {"width": 0.6, "color": "--muted"}
    return [contour | {"coloraxis": "coloraxis", "opacity": 0.4, "hoverinfo": "skip"}]


def front(source: FigureData) -> Figure | None:
    """Of several objectives the first two: the trials that no other dominates, and all others that have both."""
    study, best = source.study, source.findings.front
    if len(study.objective) < 2:
        return None
    both = {row.number: [value_of(row, study, i) for i in (0, 1)] for row in source.rows}
    placed = [row for row in source.rows if None not in both[row.number]]
    if not placed:
        return None

    def drawn(kind: str, rows: Sequence[TrialRecord]) -> Trace:
        x, y = ([both[row.number][i] for row in rows] for i in (0, 1))
        return drawing.marks(source, kind, x, y, rows, colored=False)

    data: list[Trace] = []
    for kind, alike in source.of_kind(row for row in placed if row.number not in best).items():
        trace = drawn(kind, alike)
        if kind == "completed":
            trace["marker"] |= {"symbol": "circle-open", "color": "--muted"}
            trace["name"] = "dominated"
        data.append(trace)
    on_it = sorted((row for row in placed if row.number in best), key=lambda row: both[row.number])
    marker = {"symbol": "diamond", "size": 11, "color": "--done", "line": {"width": 1, "color": "--card"}}
    line = {"color": "--done", "width": 1, "dash": "dot"}
    named = {"name": "on the front", "mode": "lines+markers", "marker": marker, "line": line}
    data.append(drawn("completed", on_it) | named)
    scales = []
    for i in (0, 1):
        values = [value for row in placed if (value := both[row.number][i]) is not None]
        title = f"{short(study.objective[i])} ({study.directions[i]}d)"
        scales.append({"title": {"text": title}, **drawing.value_scale(values)})
    return drawing.figure_of(data, xaxis=scales[0], yaxis=scales[1])


def hypervolume(source: FigureData) -> Figure | None:
    """Of several objectives, the volume that the trials dominate, as they came."""
    findings = source.findings
    if not findings.front:
        return None
    numbers, volumes = zip(*findings.hypervolumes, strict=True)
    line = {"color": "--done", "width": 2, "shape": "hv"}
    hover = "after trial %{x}: %{y:.5g}<extra></extra>"
    steps = drawing.scatter("lines+markers", numbers, volumes, line=line, marker={"size": 5}, hovertemplate=hover)
    worst = zip(source.study.objective, reference(source.study, findings.top), strict=True)
    note = f"from {', '.join(f'{name} {value:.6g}' for name, value in worst)}, the worst of all trials"
    return drawing.figure_of(
        [steps], 380, note, xaxis={"title": {"text": "trial"}}, yaxis={"title": {"text": "hypervolume"}}
    )
