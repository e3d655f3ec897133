"""A line a trial through its parameters to its objectives: a figure of parallel coordinates."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.record.study import TrialRecord
from sweeps.results import theme
from sweeps.results.axes import Axis
from sweeps.results.drawing import LINES, MOST_LINES, Figure, Trace, escaped, figure_of, label_of, marks, scatter
from sweeps.results.figure_data import FigureData, is_wide, value_of
from sweeps.wording import short

Places = Mapping[int, Sequence[float]]
"""Where each trial stands on each axis, by its number."""


def parallel_coordinates(source: FigureData) -> Figure | None:
    """Those without a value of an objective end below."""
    rows, note = source.some(MOST_LINES)
    count = len(source.study.objective)
    objectives = {i: axis for i in range(count) if (axis := _objective_axis(source, rows, i))}
    columns = [*source.axes, *objectives.values()]
    if not source.axes or len(columns) < 2:
        return None
    places = {}
    for row in rows:
        values = [axis.place(row.params.get(axis.name)) for axis in source.axes]
        places[row.number] = values + [axis.place(_placed(source, row, i)) for i, axis in objectives.items()]
    data = [*_lines(source, rows, places), *_points(source, rows, places)]
    return figure_of(
        data,
        420,
        source.at_edge(note),
        annotations=_ticks(columns),
        shapes=[_rail(i, axis) for i, axis in enumerate(columns)],
        margin={"l": 20, "r": 16, "t": 40, "b": 8},
        **_frame(columns),
        **source.colors(),
        meta={"least_width": 92 * len(columns) + 60},
    )


def _placed(source: FigureData, row: TrialRecord, i: int) -> float | None:
    value = value_of(row, source.study, i)
    return value if i else source.placed(value)


def _objective_axis(source: FigureData, rows: Sequence[TrialRecord], i: int) -> Axis | None:
    """None if no trial has a value of this objective."""
    values = [_placed(source, row, i) for row in rows]
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    lacks = len(known) < len(values)
    return Axis(source.study.objective[i], [], known[0], known[-1], is_wide(known), lacks, none="no value")


def _lines(source: FigureData, rows: Sequence[TrialRecord], places: Places) -> list[Trace]:
    data = []
    for kind, alike in source.of_kind(rows).items():
        if kind != "completed":
            faint = max(0.25, min(0.7, 12 / len(alike)))
            data.append(_threads(alike, places, LINES[kind] | {"shape": "linear"}, faint))
            continue
        by_level: dict[int, list[TrialRecord]] = {}
        for row in alike:
            level = theme.LEVELS - 1 if source.value(row) is None else source.level(row)
            by_level.setdefault(level, []).append(row)
        for level, some in sorted(by_level.items(), reverse=True):  # the best over all others
            line = {"color": f"--scale-{level}", "width": 2 if level == 0 else 1.3}
            data.append(_threads(some, places, line, 0.85))
    return data


def _threads(rows: Sequence[TrialRecord], places: Places, line: Any, opacity: float) -> Trace:
    """Lines of several trials in one trace."""
    x: list[int | None] = []
    y: list[float | None] = []
    for row in rows:
        x += [*range(len(places[row.number])), None]
        y += [*places[row.number], None]
    return scatter("lines", x, y, line=line, opacity=opacity, hoverinfo="skip")


def _points(source: FigureData, rows: Sequence[TrialRecord], places: Places) -> list[Trace]:
    """A mark for each trial on each axis."""
    data = []
    for kind, alike in source.of_kind(rows).items():
        each = [(i, place, row) for row in alike for i, place in enumerate(places[row.number])]
        x, y, of = zip(*each, strict=True)
        data.append(marks(source, kind, x, y, of))
    return data


def _ticks(columns: Sequence[Axis]) -> list[dict[str, Any]]:
    shared = {"showarrow": False, "xshift": 9, "xanchor": "left", "bgcolor": "--card"}
    shared |= {"font": {"size": 10.5, "color": "--muted"}}
    labels = []
    for i, axis in enumerate(columns):
        for place, word in axis.ticks().items():
            labels.append({"x": i, "y": place, "text": escaped(short(word, 14)), **shared})
    return labels


def _rail(i: int, axis: Axis) -> dict[str, Any]:
    ends = {"x0": i, "x1": i, "y0": -0.125 if axis.has_none else 0, "y1": 1}
    return {"type": "line", **ends, "layer": "below", "line": {"color": "--waits", "width": 1}}


def _frame(columns: Sequence[Axis]) -> dict[str, Any]:
    """The names of the axes on top, and room below for what is none."""
    names, count = [label_of(axis, 18) for axis in columns], len(columns)
    turned = count > 7 or max(map(len, names)) * count > 110
    top: dict[str, Any] = {
        "side": "top",
        "tickvals": [*range(count)],
        "ticktext": names,
        "range": [-0.15, count - 0.45],
    }
    top |= {"tickangle": -20 if turned else 0, "showgrid": False, "fixedrange": True}
    lowest = -0.2 if any(axis.has_none for axis in columns) else -0.06
    return {"xaxis": top, "yaxis": {"range": [lowest, 1.06], "visible": False, "fixedrange": True}}
