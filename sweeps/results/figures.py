"""The figures of a study's report: what each parameter did to the objective, drawn with plotly."""

import math
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from typing import Any

from plotly import graph_objects as go
from plotly.colors import sample_colorscale

from sweeps.results.summary import Row, Summary
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Value

_MOST_CURVES = 50
_MOST_TICKS = 12


def as_html(summary: Summary) -> str:
    """All figures that this study gives rise to, with the script that draws them, which needs no network."""
    made = [
        ("Learning curves", curves(summary)),
        ("Parameters and objective", parallel_coordinates(summary)),
        ("Two parameters", heat_map(summary)),
        ("Importance", importance(summary)),
    ]
    drawn = [(title, figure) for title, figure in made if figure is not None]
    parts = []
    for i, (title, figure) in enumerate(drawn):
        figure.update_layout(template="plotly_white", margin={"t": 50, "b": 50})
        drawing = figure.to_html(full_html=False, include_plotlyjs=i == 0, config={"displaylogo": False})
        parts.append(f"<h2>{escape(title)}</h2>\n{drawing}")
    return "\n".join(parts)


def curves(summary: Summary) -> go.Figure | None:
    """The first objective by step, a line a trial, of the best trials; None if none reported it by step."""
    metric = summary.objective[0]
    best = summary.top(_MOST_CURVES) or summary.rows[:_MOST_CURVES]
    figure = go.Figure()
    for row, color in zip(best, _shades(len(best)), strict=True):
        points = [(line.step, line.metrics[metric]) for line in _lines(row) if metric in line.metrics]
        if points:
            steps, values = zip(*points, strict=True)
            name = f"{row.number}: {row.name}"
            figure.add_scatter(x=steps, y=values, name=name, mode="lines+markers", line_color=color)
    if not figure.data:
        return None
    shown = f"the best {len(best)} of {len(summary.rows)} trials" if len(best) < len(summary.rows) else "all trials"
    figure.update_layout(title=f"{metric} of {shown}; darker is better", xaxis_title="step", yaxis_title=metric)
    figure.update_traces(marker_size=5)
    return figure


def parallel_coordinates(summary: Summary) -> go.Figure | None:
    """A line a trial through its parameters to its objectives. Drag along an axis to select."""
    rows = summary.top(len(summary.rows))
    names = _varied(rows)
    if len(rows) < 2 or not names:
        return None
    axes = [_axis(name, [row.params.get(name) for row in rows]) for name in names]
    axes += [{"label": name, "values": [row.objective[i] for row in rows]} for i, name in enumerate(summary.objective)]
    first = [row.objective[0] for row in rows]
    line = {
        "color": first,
        "colorscale": "Viridis",
        "reversescale": summary.directions[0] == "maximize",
        "showscale": True,
    }
    return go.Figure(go.Parcoords(dimensions=axes, line=line, labelangle=0), {"margin": {"l": 90, "r": 60}})


def heat_map(summary: Summary) -> go.Figure | None:
    """The first objective over two numbers, if exactly two were swept; over what else was, its best."""
    rows = summary.top(len(summary.rows))[::-1]  # the best last: of trials at one place, it is the one to be seen
    swept = {name: _as_numbers([row.params.get(name) for row in rows]) for name in _varied(rows)}
    numbers = [(name, values) for name, values in swept.items() if values is not None]
    if len(numbers) != 2:
        return None
    (x_name, x), (y_name, y) = numbers
    scale = {
        "colorscale": "Viridis",
        "reversescale": summary.directions[0] == "maximize",
        "colorbar": {"title": {"text": summary.objective[0]}},
    }
    if len(set(x)) * len(set(y)) <= 2 * len(rows):
        figure = _cells(x, y, [row.objective[0] for row in rows], scale)
    else:
        figure = _places(x, y, rows, scale)
    return figure.update_layout(xaxis_title=x_name, yaxis_title=y_name)


def _cells(x: list[float], y: list[float], z: list[float], scale: dict[str, Any]) -> go.Figure:
    columns, lines = sorted(set(x)), sorted(set(y))
    known = {(a, b): value for a, b, value in zip(x, y, z, strict=True)}
    table = [[known.get((a, b)) for a in columns] for b in lines]
    names = {"x": [_short(value) for value in columns], "y": [_short(value) for value in lines]}
    figure = go.Figure(go.Heatmap(z=table, texttemplate="%{z:.4g}", **names, **scale))
    return figure.update_layout(xaxis_type="category", yaxis_type="category")


def _places(x: list[float], y: list[float], rows: Sequence[Row], scale: dict[str, Any]) -> go.Figure:
    marker = {"color": [row.objective[0] for row in rows], "size": 11, "showscale": True, **scale}
    hover = [f"{row.number}: {row.name}" for row in rows]
    figure = go.Figure(go.Scatter(x=x, y=y, mode="markers", marker=marker, text=hover))
    for axis, numbers in (("xaxis", x), ("yaxis", y)):
        few = sorted(set(numbers)) if len(set(numbers)) <= _MOST_TICKS else None
        kind = "log" if _spans_decades(numbers) else "linear"
        figure.update_layout({axis: {"type": kind, "tickvals": few, "exponentformat": "power"}})
    return figure


def importance(summary: Summary) -> go.Figure | None:
    """The share of each parameter in the variance of the first objective."""
    if not summary.importance:
        return None
    shares = sorted(summary.importance.items(), key=lambda item: item[1])
    values = [share for _, share in shares]
    text = [f"{share:.0%}" for share in values]
    figure = go.Figure(go.Bar(x=values, y=[name for name, _ in shares], orientation="h", text=text))
    title = f"Share in the variance of {summary.objective[0]}"
    figure.update_layout(title=title, height=160 + 30 * len(shares), xaxis_tickformat=".0%")
    return figure


def _lines(row: Row) -> Sequence[Any]:
    with suppress(OSError):  # of one trial alone
        return TrialFolder(row.folder).read_metrics().values
    return []


def _shades(count: int) -> list[str]:
    """From dark to light, the best first."""
    return list(sample_colorscale("Viridis", [0.95 * i / max(1, count - 1) for i in range(count)]))


def _varied(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row.params)
    return [name for name in names if len({str(row.params.get(name)) for row in rows}) > 1]


def _as_numbers(values: Sequence[Value]) -> list[float] | None:
    """The values if all of them are numbers."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    return numbers if len(numbers) == len(values) else None


def _spans_decades(numbers: Sequence[float]) -> bool:
    return min(numbers) > 0 and max(numbers) / min(numbers) >= 20


def _axis(name: str, values: Sequence[Value]) -> dict[str, Any]:
    """An axis of parallel coordinates: numbers in place, "none" below them, all else in order."""
    numbers = _as_numbers([value for value in values if value is not None])
    if not numbers:
        kinds = sorted({_short(value) for value in values})
        places = [kinds.index(_short(value)) for value in values]
        return {"label": name, "values": places, "tickvals": list(range(len(kinds))), "ticktext": kinds}
    log = _spans_decades(numbers)
    place = {number: math.log10(number) if log else number for number in numbers}
    low, high = min(place.values()), max(place.values())
    nowhere = low - ((high - low) or 1) / 8
    ticks = _ticks(sorted(place), log)
    tickvals, ticktext = ([math.log10(tick) if log else tick for tick in ticks], [_short(tick) for tick in ticks])
    if len(numbers) < len(values):
        tickvals, ticktext = [nowhere, *tickvals], ["none", *ticktext]
    where = iter(place[number] for number in numbers)
    at = [nowhere if value is None else next(where) for value in values]
    return {"label": name, "values": at, "tickvals": tickvals, "ticktext": ticktext}


def _ticks(numbers: Sequence[float], log: bool) -> list[float]:
    """The numbers themselves if they are few, else powers of ten, or five even steps."""
    if len(numbers) <= _MOST_TICKS:
        return list(numbers)
    low, high = numbers[0], numbers[-1]
    if log:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        return [low, *(10.0**power for power in powers if low < 10.0**power < high), high]
    return [low + (high - low) * i / 4 for i in range(5)]


def _short(value: Value) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
