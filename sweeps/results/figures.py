"""The figures of a study's report: what each parameter did to the objective, drawn with plotly."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from plotly import graph_objects as go
from plotly.colors import sample_colorscale

from sweeps.results.front import hypervolumes, reference
from sweeps.results.summary import Row, Summary, parameters, text
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Value

_MOST_CURVES = 50
_MOST_TICKS = 12
_MOST_LEVEL_NAMES = 6


def as_html(summary: Summary) -> str:
    """All figures that this study gives rise to, with the script that draws them, which needs no network."""
    parts: list[str] = []
    for title, figure in drawn(summary).items():
        parts.append(f"<h2>{title}</h2>\n{drawing(figure, script=not parts)}")
    return "\n".join(parts)


def drawn(summary: Summary) -> dict[str, go.Figure]:
    """The figures that this study gives rise to, by their titles."""
    figures = {title: draw(summary) for title, draw in _FIGURES.items()}
    return {title: figure for title, figure in figures.items() if figure is not None}


def drawing(figure: go.Figure, script: bool) -> str:
    """A figure as a part of an HTML page, with plotly's script or for a page that has it."""
    figure.update_layout(template="plotly_white", margin={"t": figure.layout.margin.t or 50, "b": 50})
    return str(figure.to_html(full_html=False, include_plotlyjs=script, config={"displaylogo": False}))


def curves(summary: Summary) -> go.Figure | None:
    """The first objective by step, a line a trial, of the best trials; None if none reported it by step."""
    metric = summary.objective[0]
    best = summary.top(_MOST_CURVES) or summary.rows[:_MOST_CURVES]
    colors = sample_colorscale("Viridis", [0.95 * i / max(1, len(best) - 1) for i in range(len(best))])
    figure = go.Figure()
    for row, color in zip(best, colors, strict=True):
        if points := _points(row, metric):
            steps, values = zip(*points, strict=True)
            figure.add_scatter(x=steps, y=values, name=f"{row.number}: {row.name}", line_color=color)
    if not figure.data:
        return None
    shown = f"the best {len(best)} of {len(summary.rows)} trials" if len(best) < len(summary.rows) else "all trials"
    figure.update_layout(title=f"{metric} of {shown}; darker is better", xaxis_title="step", yaxis_title=metric)
    return figure.update_traces(mode="lines+markers", marker_size=5)


def parallel_coordinates(summary: Summary) -> go.Figure | None:
    """A line a trial through its parameters to its objectives. Drag along an axis to select."""
    rows = summary.top()
    names = _varied(rows)
    if not names:
        return None
    axes = [_axis(name, [row.params.get(name) for row in rows]) for name in names]
    axes += [{"label": name, "values": [row.objective[i] for row in rows]} for i, name in enumerate(summary.objective)]
    line = {"color": [row.objective[0] for row in rows], "showscale": True, **_scale(summary)}
    many = len(axes) > _MOST_LEVEL_NAMES
    drawn = go.Parcoords(dimensions=axes, line=line, labelangle=-20 if many else 0)
    return go.Figure(drawn, {"margin": {"l": 120, "r": 60, "t": 120 if many else 50}})


def heat_map(summary: Summary) -> go.Figure | None:
    """The first objective over two numbers, if exactly two were swept; over what else was, its best."""
    rows = summary.top()[::-1]  # the best last: of trials at one place, it is the one to be seen
    varied = [name for name in _varied(rows) if name.lstrip("+") != summary.seed_key]
    swept = {name: _as_numbers([row.params.get(name) for row in rows]) for name in varied}
    numbers = [(name, values) for name, values in swept.items() if values]
    if len(numbers) != 2:
        return None
    (x_name, x), (y_name, y) = numbers
    draw = _cells if len(set(x)) * len(set(y)) <= 2 * len(rows) else _places
    return draw(x, y, rows, _scale(summary)).update_layout(xaxis_title=x_name, yaxis_title=y_name)


def _cells(x: list[float], y: list[float], rows: Sequence[Row], scale: dict[str, Any]) -> go.Figure:
    columns, lines = sorted(set(x)), sorted(set(y))
    known = {(a, b): row.objective[0] for a, b, row in zip(x, y, rows, strict=True)}
    table = [[known.get((a, b)) for a in columns] for b in lines]
    names = {"x": [text(value, digits=4) for value in columns], "y": [text(value, digits=4) for value in lines]}
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
    shares = dict(sorted(summary.importance.items(), key=lambda item: item[1]))
    if not shares:
        return None
    bars = go.Bar(x=[*shares.values()], y=[*shares], orientation="h", texttemplate="%{x:.0%}")
    title = f"Share in the variance of {summary.objective[0]}"
    return go.Figure(bars).update_layout(title=title, height=160 + 30 * len(shares), xaxis_tickformat=".0%")


def front(summary: Summary) -> go.Figure | None:
    """Of several objectives the first two: the trials that no other dominates, the others dimmed."""
    best = summary.front()
    if not best:
        return None
    rows, figure = summary.top(), go.Figure()
    for on_it, name, color in ((False, "dominated", "#ccc"), (True, "on the front", "#440154")):
        some = [row for row in rows if (row.number in best) == on_it]
        x, y = [row.objective[0] for row in some], [row.objective[1] for row in some]
        hover = [f"{row.number}: {row.name}" for row in some]
        figure.add_scatter(x=x, y=y, text=hover, name=name, mode="markers", marker={"color": color, "size": 9})
    titles = [f"{n} ({d}d)" for n, d in zip(summary.objective, summary.directions, strict=True)]
    return figure.update_layout(xaxis_title=titles[0], yaxis_title=titles[1])


def hypervolume(summary: Summary) -> go.Figure | None:
    """Of several objectives, the volume that the trials dominate, as they came."""
    if not summary.front():
        return None
    numbers, volumes = zip(*hypervolumes(summary), strict=True)
    figure = go.Figure(go.Scatter(x=numbers, y=volumes, mode="lines", line_shape="hv"))
    worst = zip(summary.objective, reference(summary), strict=True)
    title = f"from {', '.join(f'{name} {value:.6g}' for name, value in worst)}, the worst of all trials"
    return figure.update_layout(title=title, xaxis_title="trial", yaxis_title="hypervolume")


_FIGURES: dict[str, Callable[[Summary], go.Figure | None]] = {
    "The front": front,
    "Hypervolume": hypervolume,
    "Learning curves": curves,
    "Parameters and objective": parallel_coordinates,
    "Two parameters": heat_map,
    "Importance": importance,
}


def _points(row: Row, metric: str) -> list[tuple[int, float]]:
    with suppress(OSError):  # of one trial alone
        lines = TrialFolder(row.folder).read_metrics().values
        return [(line.step, line.metrics[metric]) for line in lines if metric in line.metrics]
    return []


def _scale(summary: Summary) -> dict[str, Any]:
    """The colors of the first objective."""
    title = {"title": {"text": summary.objective[0]}}
    return {"colorscale": "Viridis", "reversescale": summary.directions[0] == "maximize", "colorbar": title}


def _varied(rows: Sequence[Row]) -> list[str]:
    return [name for name in parameters(rows) if len({str(row.params.get(name)) for row in rows}) > 1]


def _as_numbers(values: Sequence[Value]) -> list[float]:
    """The values if all of them are numbers, else nothing."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    return numbers if len(numbers) == len(values) else []


def _spans_decades(numbers: Sequence[float]) -> bool:
    return min(numbers) > 0 and max(numbers) / min(numbers) >= 20


def _axis(name: str, found: Sequence[Value]) -> dict[str, Any]:
    """An axis of parallel coordinates: numbers in place, "none" below them, all else in order."""
    values = ["none" if value is None else value for value in found]
    numbers = sorted(set(_as_numbers([value for value in values if value != "none"])))
    if not numbers:
        kinds = sorted({text(value, digits=4) for value in values})
        places = [kinds.index(text(value, digits=4)) for value in values]
        return {"label": name, "values": places, "tickvals": list(range(len(kinds))), "ticktext": kinds}
    log = _spans_decades(numbers)
    place: Callable[[Any], float] = math.log10 if log else float
    low, high = place(numbers[0]), place(numbers[-1])
    nowhere = low - ((high - low) or 1) / 8
    ticks = {nowhere: "none"} if "none" in values else {}
    ticks |= {place(tick): text(tick, digits=4) for tick in _ticks(numbers, log)}
    at = [nowhere if value == "none" else place(value) for value in values]
    return {"label": name, "values": at, "tickvals": [*ticks], "ticktext": [*ticks.values()]}


def _ticks(numbers: Sequence[float], log: bool) -> Sequence[float]:
    """The numbers themselves if they are few, else powers of ten, or five even steps. They are sorted."""
    low, high = numbers[0], numbers[-1]
    if len(numbers) <= _MOST_TICKS:
        return numbers
    if log:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        return sorted({low, *(10.0**power for power in powers), high})
    return [low + (high - low) * i / 4 for i in range(5)]
