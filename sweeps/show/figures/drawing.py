"""Marks, axes and layout of a study's figures.

A figure is plotly's `data` and `layout` as plain lists and dicts. Nothing here imports plotly,
because a driver writes its page while trials run. Colours are names of `theme`. A point's
`customdata`, or a trace's `meta`, is the number of its trial, which hover texts and clicks use.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from sweeps.base.wording import short
from sweeps.record.study import TrialRecord, Trials
from sweeps.show.figures import axes
from sweeps.show.figures.axes import Axis
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.page import theme
from sweeps.show.scales import Layout, Scale
from sweeps.trial.job import Value

Figure = Layout
Trace = Layout
Figures = dict[str, Figure]

MOST_LINES = 300
MOST_POINTS = 1500
_HOVER = "%{text}<extra></extra>"  # page.js fills in the text
_STRIP = 0.1  # height of the strip of trials without a value, as a fraction of the figure
MARKS: dict[str, Layout] = {
    "completed": {"symbol": "circle", "size": 8},
    "pruned": {"symbol": "triangle-down", "size": 8, "color": "--pruned", "opacity": 0.75},
    "paused": {"symbol": "diamond-open", "size": 8, "color": "--pruned"},
    "failed": {"symbol": "x", "size": 8, "color": "--failed"},
    "running": {"symbol": "circle-open", "size": 9, "color": "--link", "line": {"width": 2}},
    "queued": {"symbol": "square-open", "size": 8, "color": "--pruned"},
}
LINES = {
    "pruned": {"color": "--pruned", "width": 1},
    "paused": {"color": "--pruned", "width": 1},
    "failed": {"color": "--failed", "width": 1, "dash": "dot"},
    "running": {"color": "--link", "width": 1.5, "dash": "dash"},
    "queued": {"color": "--pruned", "width": 1, "dash": "dot"},
}
_LOG: Layout = {"type": "log", "exponentformat": "power"}

_DASHES = ("solid", "dash", "dot", "dashdot")

escape = partial(html.escape, quote=False)  # because plotly renders some tags in labels


def make_figure(
    data: Sequence[Mapping[str, Any]], height: int = 380, note: str = "", **layout: Any
) -> Figure:
    """Return a figure in the common style; the page shows `note` below the figure."""
    axis = {"gridcolor": "--line", "zeroline": False, "linecolor": "--line", "automargin": True}
    base: Layout = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 32, "b": 44},  # the top has room for plotly's buttons
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "--muted", "activecolor": "--ink"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "--ink", "size": 12, "family": "system-ui, sans-serif"},
        "hoverlabel": {
            "align": "left",
            "bgcolor": "--card",
            "bordercolor": "--line",
            "font": {"color": "--ink"},
        },
        "hovermode": "closest",
        "showlegend": False,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "xaxis": axis,
        "yaxis": axis,
    }
    if "yaxis2" in layout:
        base |= {"xaxis": {**axis, "anchor": "y2"}, "yaxis2": axis}
    for name, value in layout.items():
        base[name] = {**base[name], **value} if isinstance(base.get(name), dict) else value
    return {"data": [*data], "layout": base, "note": note}


def colored(figure: Figure) -> Figure:
    """Return the figure in light colours, in place of their names."""
    content = {key: figure[key] for key in ("data", "layout")}
    drawn: Figure = theme.apply_colors(content, theme.colors(dark=False))
    return drawn


def scatter(mode: str, x: Iterable[Any], y: Iterable[Any], **more: Any) -> Trace:
    """Return a trace of points, lines or both."""
    return {"type": "scatter", "mode": mode, "x": [*x], "y": [*y], **more}


def heat_map(x: Sequence[str], y: Sequence[str], **more: Any) -> Trace:
    """Return the cells of a grid, with their texts if there are few."""
    cells = {"type": "heatmap", "x": x, "y": y, "coloraxis": "coloraxis", **more}
    if max(len(x), len(y)) <= axes.MOST_TICKS:
        cells["texttemplate"] = "%{text}"
    return cells


def series_line(number: int) -> Layout:
    """Return the line of a series by its number: colours first, then dashes."""
    dash = _DASHES[number // theme.SERIES % len(_DASHES)]
    return {"color": f"--series-{number % theme.SERIES}", "width": 2, "dash": dash}


def line_style(source: FigureData, kind: str, trial: TrialRecord) -> Layout:
    """Return the line of a trial: by its kind, or for a completed or running trial by its value."""
    if kind in LINES:
        return LINES[kind]
    level = theme.LEVELS // 2 if source.value(trial) is None else source.level(trial)
    return {"color": f"--scale-{level}", "width": 2 if level == 0 else 1.4}


def mark_all(
    source: FigureData, trials: Trials, x: Mapping[int, Any], **marker: Any
) -> list[Trace]:
    """Return the marks of trials at their first objective, over `x` by number; trials without a
    value are in the strip below."""
    data = []
    for kind, group in source.group_by_kind(trials).items():
        for has_value in (True, False):
            subset = [trial for trial in group if (source.value(trial) is not None) == has_value]
            if subset:
                y = [source.clip(source.value(trial)) if has_value else 0 for trial in subset]
                trace = make_marks(source, kind, [x[trial.number] for trial in subset], y, subset)
                trace["marker"] |= marker
                data.append(trace | {"yaxis": "y" if has_value else "y2"})
    return data


def make_marks(
    source: FigureData, kind: str, x: Sequence[Any], y: Sequence[Any], trials: Trials
) -> Trace:
    """Return points of trials of one kind; completed trials have the colour of their objective."""
    marker = dict(MARKS[kind])
    if len(source.trials) > MOST_LINES:
        marker["size"] -= 3
    if kind == "completed":
        colors = [source.color(trial) for trial in trials]
        best, worst = source.color_range or (0.0, 0.0)
        has_colors = best != worst and None not in colors
        marker |= {"color": colors, "coloraxis": "coloraxis"} if has_colors else {"color": "--done"}
    numbers = [trial.number for trial in trials]
    return scatter(
        "markers", x, y, name=kind, marker=marker, customdata=numbers, hovertemplate=_HOVER
    )


def value_axes(source: FigureData, trials: Trials) -> Layout:
    """Return the axis of the first objective, its colours, and the strip below if a trial has no
    value."""
    yaxis = {"title": {"text": short(source.study.objective[0], 40)}, **source.scale.ticks}
    if all(source.value(trial) is not None for trial in trials):
        return {"yaxis": yaxis, **source.color_layout()}
    strip = {
        "domain": [0, _STRIP],
        "range": [-1, 1],
        "fixedrange": True,
        "showgrid": False,
        "anchor": "x",
        "tickvals": [0],
        "ticktext": ["no value"],
        "tickfont": {"size": 10, "color": "--muted"},
    }
    yaxis["domain"] = [_STRIP + 0.05, 1]
    return {"yaxis": yaxis, "yaxis2": strip, **source.color_layout()}


def count_axis(title: str, numbers: Sequence[float]) -> Layout:
    """Return an axis without fractions."""
    return {"title": {"text": title}, **({"dtick": 1} if max(numbers) - min(numbers) <= 8 else {})}


def axis_value(axis: Axis, value: Value, has_cells: bool = False) -> Any:
    """Return the coordinate that plotly needs for a value of the parameter."""
    return escape(axis.label(value)) if has_cells or value is None or axis.categories else value


def parameter_axis(axis: Axis) -> Layout:
    """Return the axis of a parameter's values."""
    title = {"title": {"text": axis_title(axis)}}
    if axis.categories:
        labels = [*map(escape, axis.categories), *([escape(axes.NONE)] if axis.has_none else [])]
        order = {"categoryorder": "array", "categoryarray": labels}
        return {**title, "type": "category", **order, **_shorten(labels)}
    numbers = axis.round_numbers()
    settings = {**title, "tickvals": numbers, "ticktext": [*map(axis.number_label, numbers)]}
    ends = [axis.number_at(position) for position in (-0.04, 1.04)]
    if ends[0] == ends[1]:
        return settings
    if axis.log:
        return {**settings, **_LOG, "range": [math.log10(end) for end in ends]}
    return {**settings, "range": ends}


def axis_title(axis: Axis, most: int = 40) -> str:
    return escape(short(axis.name.lstrip("+"), most)) + (" (log)" if axis.log else "")


def cell_axis(axis: Axis) -> Layout:
    """Return the axis of a grid, with a cell for each of a parameter's values."""
    title = {"title": {"text": escape(short(axis.name.lstrip("+"), 40))}}
    return {**title, "type": "category", "showgrid": False, **_shorten([*map(escape, axis.labels)])}


def _shorten(labels: Sequence[str]) -> Layout:
    """Return short tick labels if the labels would leave no room for the figure."""
    if max(map(len, labels), default=0) <= 40:
        return {}
    return {"tickvals": labels, "ticktext": [short(label, 40) for label in labels]}


def place_all(scale: Scale, values: Iterable[float | None]) -> list[float | None]:
    """Return where values are drawn."""
    return [None if value is None else scale.place(value) for value in values]
