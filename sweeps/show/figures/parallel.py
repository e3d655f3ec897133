"""The figure of parallel coordinates: a line per trial through its parameters and objectives."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.base.wording import short
from sweeps.record.study import TrialRecord, Trials
from sweeps.show.figures.axes import Axis
from sweeps.show.figures.drawing import (
    LINES,
    MOST_LINES,
    Figure,
    Trace,
    axis_title,
    escape,
    make_figure,
    make_marks,
    scatter,
)
from sweeps.show.figures.figure_data import FigureData, value_of
from sweeps.show.page import theme
from sweeps.show.scales import Layout, scale_of

_HINT = "Drag along an axis to select trials, also along several; double-click to select all."
Positions = Mapping[int, Sequence[float]]
"""The position of each trial on each axis, by trial number."""


def parallel_coordinates(source: FigureData) -> Figure | None:
    """Return the figure; None for fewer than two axes. A missing objective is drawn below its
    axis."""
    trials, note = source.select(MOST_LINES)
    count = len(source.study.objective)
    objectives = {i: axis for i in range(count) if (axis := _objective_axis(source, trials, i))}
    columns = [*source.axes, *objectives.values()]
    if not source.axes or len(columns) < 2:
        return None
    positions = {}
    for trial in trials:
        values = [trial.params.get(axis.name) for axis in source.axes]
        values += [_value(source, trial, i) for i in objectives]
        positions[trial.number] = [
            axis.position(value) for axis, value in zip(columns, values, strict=True)
        ]
    return make_figure(
        [*_lines(source, trials, positions), *_points(source, trials, positions)],
        420,
        f"{_HINT} {source.add_edge_note(note)}".strip(),
        **_layout(columns),
        **source.color_layout(),
    )


def _value(source: FigureData, trial: TrialRecord, i: int) -> float | None:
    value = value_of(trial, source.study, i)
    return value if i else source.clip(value)


def _objective_axis(source: FigureData, trials: Trials, i: int) -> Axis | None:
    values = sorted(value for trial in trials if (value := _value(source, trial, i)) is not None)
    if not values:
        return None
    has_none = len(values) < len(trials)
    log = values[0] > 0 and scale_of(values).log
    floor = None if i else source.scale.floor
    return Axis(
        source.study.objective[i],
        [],
        values[0],
        values[-1],
        log,
        has_none,
        none="no value",
        floor=floor,
    )


def _lines(source: FigureData, trials: Trials, positions: Positions) -> list[Trace]:
    data = []
    for kind, group in source.group_by_kind(trials).items():
        if kind != "completed":
            opacity = max(0.25, min(0.7, 12 / len(group)))
            data.append(_line_trace(group, positions, LINES[kind], opacity))
            continue
        worst = theme.LEVELS - 1
        levels = {t.number: worst if source.value(t) is None else source.level(t) for t in group}
        # because the best must be drawn over all others
        for level in sorted({*levels.values()}, reverse=True):
            same_level = [trial for trial in group if levels[trial.number] == level]
            line = {"color": f"--scale-{level}", "width": 2 if level == 0 else 1.3}
            data.append(_line_trace(same_level, positions, line, 0.85))
    return data


def _line_trace(trials: Trials, positions: Positions, line: Any, opacity: float) -> Trace:
    """Return the lines of several trials as one trace, with gaps between them."""
    x: list[int | None] = []
    y: list[float | None] = []
    numbers: list[int] = []
    for trial in trials:
        x += [*range(len(positions[trial.number])), None]
        y += [*positions[trial.number], None]
        numbers += [trial.number] * (len(positions[trial.number]) + 1)
    return scatter("lines", x, y, line=line, opacity=opacity, hoverinfo="skip", customdata=numbers)


def _points(source: FigureData, trials: Trials, positions: Positions) -> list[Trace]:
    """Return a mark for each trial on each axis."""
    data = []
    for kind, group in source.group_by_kind(trials).items():
        points = [
            (i, position, trial)
            for trial in group
            for i, position in enumerate(positions[trial.number])
        ]
        x, y, marked = zip(*points, strict=True)
        data.append(make_marks(source, kind, x, y, marked))
    return data


def _tick_labels(columns: Sequence[Axis]) -> list[Layout]:
    """Return the labels beside the axes: of the first axis on its left, where no lines are."""
    style = {"showarrow": False, "bgcolor": "--card", "font": {"size": 10.5, "color": "--muted"}}
    labels = []
    for i, axis in enumerate(columns):
        side = {"xshift": 9, "xanchor": "left"} if i else {"xshift": -9, "xanchor": "right"}
        for position, label in axis.ticks().items():
            place = {"x": i, "y": position, "text": escape(short(label, 14))}
            labels.append({**place, **style, **side})
    return labels


def _axis_line(i: int, axis: Axis) -> Layout:
    ends = {"x0": i, "x1": i, "y0": -0.125 if axis.has_none else 0, "y1": 1}
    return {"type": "line", **ends, "layer": "below", "line": {"color": "--waits", "width": 1}}


def _layout(columns: Sequence[Axis]) -> Layout:
    """Return the layout: the names of the axes on top, and room below for missing values."""
    names = [axis_title(axis, 18) for axis in columns]
    count = len(columns)
    is_tilted = count > 7 or max(map(len, names)) * count > 110
    lowest = -0.2 if any(axis.has_none for axis in columns) else -0.06
    return {
        "annotations": _tick_labels(columns),
        "shapes": [_axis_line(i, axis) for i, axis in enumerate(columns)],
        # room for the names and the tick labels beside the axes
        "margin": {"l": 84, "r": 84, "t": 40, "b": 8},
        "xaxis": {
            "tickvals": [*range(count)],
            "ticktext": names,
            "range": [-0.02, count - 0.98],
            "side": "top",
            "tickangle": -20 if is_tilted else 0,
            "showgrid": False,
            "fixedrange": True,
        },
        "yaxis": {"range": [lowest, 1.06], "visible": False, "fixedrange": True},
        # page.js lets the reader select values of an axis
        "meta": {"least_width": 92 * count + 60, "brush": True},
    }
