"""What the figures of a study are drawn with: marks, axes and layout.

A figure is what plotly draws, as plain lists and dicts: `data` and `layout`. Nothing here imports plotly, so that a
driver can write its page while it runs. Colours stand by the names of `theme`. A point's `customdata`, or a whole
trace's `meta`, is the number of its trial, which hover and clicks go by.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sweeps.record.study import TrialRecord
from sweeps.results import axes
from sweeps.results.axes import Axis
from sweeps.results.figure_data import FigureData, is_wide
from sweeps.trial.job import Value
from sweeps.wording import short, text

Figure = dict[str, Any]
Trace = dict[str, Any]
Figures = dict[str, Figure]

MOST_LINES, MOST_POINTS = 300, 1500
_HOVER = "%{text}<extra></extra>"  # what page.js tells of a trial
_STRIP = 0.1  # of a figure's height: where trials stand that have no value
MARKS: dict[str, dict[str, Any]] = {
    "completed": {"symbol": "circle", "size": 8},
    "pruned": {"symbol": "triangle-down", "size": 8, "color": "--pruned", "opacity": 0.75},
    "failed": {"symbol": "x", "size": 8, "color": "--failed"},
    "running": {"symbol": "circle-open", "size": 9, "color": "--link", "line": {"width": 2}},
    "queued": {"symbol": "square-open", "size": 8, "color": "--pruned"},
}
LINES = {
    "pruned": {"color": "--pruned", "width": 1},
    "failed": {"color": "--failed", "width": 1, "dash": "dot"},
    "running": {"color": "--link", "width": 1.5, "dash": "dash"},
    "queued": {"color": "--pruned", "width": 1, "dash": "dot"},
}


def figure_of(data: Sequence[Mapping[str, Any]], height: int = 380, note: str = "", **layout: Any) -> Figure:
    """A figure in the manner of all others; `note` is said below it."""
    axis = {"gridcolor": "--line", "zeroline": False, "linecolor": "--line", "automargin": True}
    base: dict[str, Any] = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "--ink", "size": 12, "family": "system-ui, sans-serif"},
        "hoverlabel": {"align": "left", "bgcolor": "--card", "bordercolor": "--line", "font": {"color": "--ink"}},
        "hovermode": "closest",
        "showlegend": False,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    }
    own = {name for name in layout if name.startswith(("xaxis", "yaxis"))}
    if "yaxis2" in own:
        layout["xaxis"] = {"anchor": "y2", **layout["xaxis"]}
    base |= {name: {**axis, **layout.pop(name, {})} for name in ("xaxis", "yaxis", *sorted(own - {"xaxis", "yaxis"}))}
    for name, value in layout.items():
        base[name] = {**base[name], **value} if isinstance(base.get(name), dict) else value
    return {"data": [*data], "layout": base, "note": note}


def scatter(mode: str, x: Iterable[Any], y: Iterable[Any], **more: Any) -> Trace:
    """Points, lines or both."""
    return {"type": "scatter", "mode": mode, "x": [*x], "y": [*y], **more}


def all_kinds(
    source: FigureData, rows: Sequence[TrialRecord], x_of: Callable[[TrialRecord], Any], **marker: Any
) -> list[Trace]:
    """The marks of trials by their first objective; of those without one in the strip below."""
    data = []
    for kind, alike in source.of_kind(rows).items():
        valued = [row for row in alike if source.value(row) is not None]
        others = [row for row in alike if source.value(row) is None]
        for some, axis in ((valued, "y"), (others, "y2")):
            if some:
                y = [0 if axis == "y2" else source.placed(source.value(row)) for row in some]
                trace = marks(source, kind, [x_of(row) for row in some], y, some)
                trace["marker"] |= marker
                data.append(trace | {"yaxis": axis})
    return data


def marks(
    source: FigureData, kind: str, x: Sequence[Any], y: Sequence[Any], of: Sequence[TrialRecord], colored: bool = True
) -> Trace:
    """Points of trials of one kind; completed ones in the colour of their objective's value, if `colored`."""
    marker = dict(MARKS[kind])
    if len(source.rows) > MOST_LINES:
        marker["size"] -= 3
    if kind == "completed":
        values = [source.value(row) for row in of]
        best, worst = source.limits or (0.0, 0.0)
        colored = colored and best != worst and None not in values
        marker |= {"color": values, "coloraxis": "coloraxis"} if colored else {"color": "--done"}
    numbers = [row.number for row in of]
    return scatter("markers", x, y, name=kind, marker=marker, customdata=numbers, hovertemplate=_HOVER)


def value_axes(source: FigureData, rows: Sequence[TrialRecord]) -> dict[str, Any]:
    """The axis of the first objective and, if some of these have no value, the strip below it."""
    known = [value for row in rows if (value := source.value(row)) is not None]
    yaxis = {"title": {"text": short(source.study.objective[0], 40)}, **value_scale(known)}
    if len(known) == len(rows):
        return {"yaxis": yaxis, **source.colors()}
    return {"yaxis": {**yaxis, "domain": [_STRIP + 0.05, 1]}, "yaxis2": _strip([0, _STRIP]), **source.colors()}


def counting(title: str, numbers: Sequence[int]) -> dict[str, Any]:
    """An axis without fractions."""
    return {"title": {"text": title}, **({"dtick": 1} if max(numbers) - min(numbers) <= 8 else {})}


def _strip(domain: list[float]) -> dict[str, Any]:
    labels = {"tickvals": [0], "ticktext": ["no value"], "tickfont": {"size": 10, "color": "--muted"}}
    return {"domain": domain, "range": [-1, 1], "fixedrange": True, "showgrid": False, "anchor": "x", **labels}


def place_on(axis: Axis, value: Value, as_cell: bool = False) -> Any:
    """Where plotly places a value of this parameter."""
    return escaped(axis.cell(value)) if as_cell or value is None or not axis.is_of_numbers else value


def parameter_axis(axis: Axis) -> dict[str, Any]:
    title = {"title": {"text": label_of(axis)}}
    if not axis.is_of_numbers:
        words = [escaped(word) for word in [*axis.words, *[axes.NONE] * axis.has_none]]
        return {**title, "type": "category", "categoryorder": "array", "categoryarray": words, **_long(words)}
    shown = axis.round_numbers()
    few = {"tickvals": shown, "ticktext": [text(float(f"{number:.4g}")) for number in shown]}
    ends = [axis.number_at(place) for place in (-0.04, 1.04)]
    reach = {"range": [math.log10(end) for end in ends] if axis.log else ends}
    return {**title, **_log_if(axis.log), **reach, **few}


def label_of(axis: Axis, most: int = 40) -> str:
    return escaped(short(axis.name.lstrip("+"), most)) + (" (log)" if axis.log else "")


def cell_axis(axis: Axis) -> dict[str, Any]:
    title = {"title": {"text": escaped(short(axis.name.lstrip("+"), 40))}}
    return {**title, "type": "category", "showgrid": False, **_long([*map(escaped, axis.cells)])}


def _long(words: Sequence[str]) -> dict[str, Any]:
    """Labels of categories whose names would leave no room for the figure."""
    if max(map(len, words), default=0) <= 40:
        return {}
    return {"tickvals": words, "ticktext": [short(word, 40) for word in words]}


def _log_if(log: bool) -> dict[str, Any]:
    return {"type": "log", "exponentformat": "power"} if log else {}


def value_scale(values: Sequence[float]) -> dict[str, Any]:
    """Of an axis of values: logarithmic if they are wide, with as many powers of ten as can be read."""
    if not is_wide(values):
        return {}
    decades = math.log10(max(values)) - math.log10(min(values))
    return {**_log_if(True), "dtick": max(1, math.ceil(decades / 8))}


def escaped(words: str) -> str:
    """For plotly, which takes some tags in text for its own."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
