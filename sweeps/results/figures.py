"""The figures of a study: what each parameter did to the objective, and every trial in its place."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.record import costs
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.results import drawing, theme
from sweeps.results.drawing import Figure, Figures, Trace
from sweeps.results.figure_data import FigureData
from sweeps.results.findings import Findings
from sweeps.results.maps import front, heat_map, hypervolume
from sweeps.results.parallel import parallel_coordinates
from sweeps.results.trials import Curves, Trials
from sweeps.secrets import without_password
from sweeps.wording import short, text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Plotted

COST = "Cost"
_MOST_CURVES = 60
_MOST_NAMED = 12  # of curves, in a legend
_MOST_SLICES = 12
_HOVER = "step %{x}: %{y:.5g}<br>%{text}<extra></extra>"


def build_plotly_figures(study: StudySnapshot) -> "dict[str, Plotted]":
    """The figures that this study gives rise to, by their titles, in light colours, for notebooks."""
    from plotly import graph_objects as go

    trials, names, rows = Trials(study.objective), theme.colors(dark=False), {row.number: row for row in study.rows}
    trials.look(Findings(study))
    plots = {}
    for section, figures in build_figures(Findings(study), trials.curves()).items():
        for name, figure in figures.items():
            plotted = go.Figure(theme.apply_colors({key: figure[key] for key in ("data", "layout")}, names))
            for trace in plotted.data:
                numbers = trace.customdata if trace.customdata is not None else [trace.meta]
                if trace.hovertemplate and "%{text}" in trace.hovertemplate:
                    trace.text = [trials.hover(rows[number]) if number in rows else "" for number in numbers]
                    trace.text = trace.text[0] if trace.customdata is None else trace.text
            plots[f"{section}: {name}" if name else section] = plotted.update_layout(template="plotly_white")
    return plots


def build_figures(findings: Findings, curves: Mapping[int, Curves]) -> dict[str, Figures]:
    """The figures that this study gives rise to, by their sections' titles, and there by their own."""
    source = FigureData(findings, curves)
    sections: dict[str, Figures] = {}
    for title, draw in {**_FIGURES, "Slices": slices}.items():
        try:
            figure = draw(source)
        except Exception as error:  # whatever numbers trials can have: the other figures are drawn
            figure = drawing.figure_of([], 80, f"It cannot be drawn: {type(error).__name__}: {error}")
        if figure:
            sections[title] = {"": figure} if "layout" in figure else figure
    return sections


def history(source: FigureData) -> Figure | None:
    """The first objective by trial, with the best so far. Trials without a value stand in a strip below."""
    rows, note = source.some(drawing.MOST_POINTS)
    if len(rows) < 2 or not source.has_values(rows):
        return None
    data: list[Trace] = []
    if source.completed and not source.findings.ranking.configurations:
        note = f"The line is the best so far. {note}".strip()
        data.append(_best_so_far(source, rows[-1].number))
    data += drawing.all_kinds(source, rows, lambda row: row.number)
    xaxis = drawing.counting("trial", [row.number for row in rows])
    return drawing.figure_of(data, 380, source.at_edge(note), xaxis=xaxis, **drawing.value_axes(source, rows))


def _best_so_far(source: FigureData, last: int) -> Trace:
    """A line of steps, up to the `last` trial."""
    better, best = max if source.maximize else min, source.value(source.completed[0]) or 0.0
    x, y = list[int](), list[float]()
    for row in source.completed:
        best = better(best, source.value(row) or 0.0)
        x.append(row.number)
        y.append(best)
    line = {"color": "--done", "width": 2, "shape": "hv"}
    return drawing.scatter("lines", [*x, last], [*y, best], line=line, hoverinfo="skip")


def curves(source: FigureData) -> Figure | None:
    """The first objective by step, a line a trial, with a mark for how it ended; without one, what was reported."""
    metric = curve_metric(source.study, source.curves)
    reported = {number: curves[metric] for number, curves in source.curves.items() if metric in curves}
    rows, note = source.some(_MOST_CURVES, [row for row in source.rows if row.number in reported])
    if not rows:
        return None
    few = len(rows) <= _MOST_NAMED
    data: list[Trace] = []
    ends = []
    for kind, alike in source.of_kind(rows).items():
        ordered = sorted(alike, key=lambda row: -source.level(row)) if kind == "completed" else alike
        for row in ordered:
            trace = drawing.scatter("lines", *reported[row.number], line=_line(source, kind, row), meta=row.number)
            trace |= {"opacity": 1 if kind in ("completed", "running") else 0.7, "hovertemplate": _HOVER}
            data.append(trace | ({"name": _named(row)} if few else {}))
        last_x, last_y = zip(*(_end(*reported[row.number]) for row in ordered), strict=True)
        ends.append(drawing.marks(source, kind, last_x, last_y, ordered) | {"showlegend": False})
    known = [value for trace in data for value in trace["y"] if value is not None]
    steps = [step for trace in data for step in (trace["x"][0], trace["x"][-1])]
    layout: dict[str, Any] = {"xaxis": drawing.counting("step", steps), **source.colors()}
    layout["yaxis"] = {"title": {"text": short(metric, 40)}, **drawing.value_scale(known)}
    if few:
        below = {"orientation": "v", "y": -60 / 320, "yanchor": "top", "traceorder": "reversed"}  # the best first
        layout |= {"showlegend": True, "legend": below}
    return drawing.figure_of([*data, *ends], 380 + 20 * len(rows) * few, note, **layout)


def _line(source: FigureData, kind: str, row: TrialRecord) -> dict[str, Any]:
    if kind in drawing.LINES:
        return drawing.LINES[kind]
    level = theme.LEVELS // 2 if source.value(row) is None else source.level(row)
    return {"color": f"--scale-{level}", "width": 2 if level == 0 else 1.4}


def _named(row: TrialRecord) -> str:
    """For a legend: its values with the last word of their names."""
    pairs = (f"{name.rpartition('.')[2].lstrip('+')}={text(value, digits=4)}" for name, value in row.params.items())
    return drawing.escaped(short(without_password(" ".join(pairs) or row.name), 46))


def _end(steps: Sequence[int], values: Sequence[float | None]) -> tuple[int, float | None]:
    """The last point that is a number."""
    points = [point for point in zip(steps, values, strict=True) if point[1] is not None]
    return points[-1] if points else (steps[-1], None)


def curve_metric(study: StudySnapshot, curves: Mapping[int, Curves]) -> str:
    """What the learning curves show: the first objective or, if no trial reports it, what most of them do."""
    counts: dict[str, int] = {}
    for by_name in curves.values():
        for name in by_name:
            counts[name] = counts.get(name, 0) + 1
    first = study.objective[0]
    return first if first in counts or not counts else max(counts, key=lambda name: counts[name])


def cost(source: FigureData) -> Figure | None:
    """The first objective by what each trial took: the seconds in training of all its attempts."""
    some, note = source.some(drawing.MOST_POINTS)
    spent = {row.number: costs.of_trial(row).get("seconds/training", 0.0) for row in some}
    rows = [row for row in some if spent[row.number] > 0]
    if len(rows) < 2 or not source.has_values(rows):
        return None
    xaxis = {"title": {"text": "training (s)"}, **drawing.value_scale([spent[row.number] for row in rows])}
    data = drawing.all_kinds(source, rows, lambda row: spent[row.number])
    return drawing.figure_of(data, 320, source.at_edge(note), xaxis=xaxis, **drawing.value_axes(source, rows))


def importance(source: FigureData) -> Figure | None:
    """The share of each parameter in the variance of the first objective, once there are enough trials to tell."""
    shares = dict(sorted(source.study.importance.items(), key=lambda item: item[1]))
    if not shares or not source.has_enough:
        return None
    labels = [drawing.escaped(short(name.lstrip("+"), 24)) for name in shares]
    bars = {"type": "bar", "orientation": "h", "x": [*shares.values()], "y": labels, "marker": {"color": "--done"}}
    bars |= {"texttemplate": "%{x:.0%}", "textposition": "auto", "hovertemplate": "%{y}: %{x:.1%}<extra></extra>"}
    title = f"share in the variance of {short(source.study.objective[0], 40)}, over {len(source.completed)} trials"
    xaxis = {"tickformat": ".0%", "title": {"text": title}, "rangemode": "tozero"}
    return drawing.figure_of([bars], 110 + 34 * len(shares), xaxis=xaxis, yaxis={"showgrid": False, "type": "category"})


def slices(source: FigureData) -> Figures:
    """The first objective by each parameter, the most important first."""
    shares = source.study.importance
    ordered = sorted(source.axes, key=lambda axis: -shares.get(axis.name, 0.0))[:_MOST_SLICES]
    rows, note = source.some(drawing.MOST_LINES)
    figures: Figures = {}
    for axis in ordered if source.has_values(rows) else ():
        at = {row.number: drawing.place_on(axis, row.params.get(axis.name)) for row in rows}
        some = [row for row in rows if not axis.is_of_numbers or row.params.get(axis.name) is not None]
        if some:
            data = drawing.all_kinds(source, some, lambda row, at=at: at[row.number], size=7)  # type: ignore[misc]
            layout = {"xaxis": drawing.parameter_axis(axis), "margin": {"l": 48, "r": 10, "t": 8, "b": 40}}
            figures[axis.name] = drawing.figure_of(
                data, 260, source.at_edge(note), **layout, **drawing.value_axes(source, some)
            )
    return figures


_FIGURES: dict[str, Callable[[FigureData], Figure | None]] = {
    "Pareto front": front,
    "Hypervolume": hypervolume,
    "Parameters and objective": parallel_coordinates,
    "History": history,
    "Learning curves": curves,
    "Two parameters": heat_map,
    "Importance": importance,
    COST: cost,
}
