"""The figures of a study: the effect of each parameter on the objective, and every trial."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sweeps.record import costs
from sweeps.record.study import StudySnapshot
from sweeps.results import drawing, theme
from sweeps.results.classes import CLASSES, confusion_matrix
from sweeps.results.drawing import Figure, Figures, Trace
from sweeps.results.figure_data import FigureData
from sweeps.results.findings import Findings
from sweeps.results.maps import front, heat_map, hypervolume
from sweeps.results.parallel import parallel_coordinates
from sweeps.results.resources import resources
from sweeps.results.scales import scale_of
from sweeps.results.timeline import timeline
from sweeps.results.trials import Curves, TrialFiles
from sweeps.secrets import without_password
from sweeps.wording import short

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

COST = "Cost"
_MOST_CURVES = 60
_MOST_IN_LEGEND = 10
_MOST_SLICES = 12
_HOVER = "step %{x}: %{y:.5g}<br>%{text}<extra></extra>"


def build_plotly_figures(study: StudySnapshot) -> "dict[str, PlotlyFigure]":
    """Return the study's figures by title, in light colours, for notebooks."""
    from plotly import graph_objects as go

    files, palette = TrialFiles(study.objective), theme.colors(dark=False)
    by_number = {trial.number: trial for trial in study.rows}
    files.look(Findings(study))
    plots = {}
    for section, figures in build_figures(Findings(study), files.curves(), files.usage()).items():
        for name, figure in figures.items():
            plot = go.Figure(theme.apply_colors({key: figure[key] for key in ("data", "layout")}, palette))
            for trace in plot.data:
                numbers = trace.customdata if trace.customdata is not None else [trace.meta]
                if trace.hovertemplate and "%{text}" in trace.hovertemplate and trace.text is None:
                    texts = [files.hover(by_number[number]) if number in by_number else "" for number in numbers]
                    trace.text = texts[0] if trace.customdata is None else texts
            plots[f"{section}: {name}" if name else section] = plot.update_layout(template="plotly_white")
    return plots


def build_figures(
    findings: Findings, curves: Mapping[int, Curves], usage: Mapping[int, Curves] | None = None
) -> dict[str, Figures]:
    """Return the figures for which the study has data, by section title and figure title.

    `curves` are those of the reported metrics, `usage` those of the system metrics, by the numbers of trials.
    """
    source = FigureData(findings, curves, usage)
    sections: dict[str, Figures] = {}
    for title, draw in {**_FIGURES, "Resources": resources, "Slices": slices}.items():
        try:
            figure = draw(source)
        except Exception as error:  # because trials may have any numbers, and the other figures must be drawn
            figure = drawing.make_figure([], 80, f"This figure cannot be drawn: {type(error).__name__}: {error}")
        if figure:
            sections[title] = {"": figure} if "layout" in figure else figure
    return sections


def history(source: FigureData) -> Figure | None:
    """Return the first objective by trial, with the best so far; a strip below has the trials without a value."""
    trials, note = source.select(drawing.MOST_POINTS)
    if len(trials) < 2 or not source.has_values(trials):
        return None
    data: list[Trace] = []
    if source.completed and not source.findings.ranking.configurations:
        note = f"Line: best so far. {note}".strip()
        data.append(_best_so_far(source, trials[-1].number))
    data += drawing.mark_all(source, trials, lambda trial: trial.number)
    xaxis = drawing.count_axis("trial", [trial.number for trial in trials])
    axes = {"xaxis": xaxis, **drawing.value_axes(source, trials)}
    return drawing.make_figure(data, 380, source.add_edge_note(note), **axes)


def _best_so_far(source: FigureData, last: int) -> Trace:
    """Return a line of steps up to the trial with number `last`."""
    values = (source.clip(source.value(trial)) or 0.0 for trial in source.completed)
    best = [*accumulate(values, max if source.maximize else min)]
    x = [*(trial.number for trial in source.completed), last]
    line = {"color": "--done", "width": 2, "shape": "hv"}
    return drawing.scatter("lines", x, [*best, best[-1]], line=line, hoverinfo="skip")


def curves(source: FigureData) -> Figure | None:
    """Return the learning curves: a line per trial, with a mark at its end.

    Each of few lines has its own colour and dash; many lines have the colour of their objective. Curves of one point
    each make no figure.
    """
    metric = curve_metric(source.study, source.curves)
    whole = {number: curves[metric] for number, curves in source.curves.items() if metric in curves}
    trials, note = source.select(_MOST_CURVES, [trial for trial in source.trials if trial.number in whole])
    if max((len(whole[trial.number][0]) for trial in trials), default=0) < 2:
        return None
    has_legend = len(trials) <= _MOST_IN_LEGEND
    scale = scale_of(value for trial in trials for value in whole[trial.number][1] if value is not None)
    reported = {number: (steps, drawing.place_all(scale, values)) for number, (steps, values) in whole.items()}
    own_lines = {trial.number: drawing.series_line(i) for i, trial in enumerate(trials)} if has_legend else {}
    data: list[Trace] = []
    ends = []
    for kind, group in source.group_by_kind(trials).items():
        ordered = sorted(group, key=source.rank, reverse=True) if kind == "completed" else group
        for trial in ordered:
            line = own_lines.get(trial.number) or drawing.line_style(source, kind, trial)
            trace = drawing.scatter("lines", *reported[trial.number], line=line, meta=trial.number)
            trace |= {"opacity": 1 if kind in ("completed", "running") else 0.7, "hovertemplate": _HOVER}
            name = drawing.escape(short(without_password(trial.short_name), 46))
            data.append(trace | ({"name": name} if has_legend else {}))
        x, y = zip(*(_last_point(*reported[trial.number]) for trial in ordered), strict=True)
        marks = drawing.make_marks(source, kind, x, y, ordered) | {"showlegend": False}
        if own_lines:
            marks["marker"] |= {"color": [own_lines[trial.number]["color"] for trial in ordered], "coloraxis": None}
        ends.append(marks)
    steps = [step for trace in data for step in (trace["x"][0], trace["x"][-1])]
    layout: dict[str, Any] = {"xaxis": drawing.count_axis("step", steps), **source.color_layout()}
    layout["yaxis"] = {"title": {"text": short(metric, 40)}, **scale.ticks}
    layout["meta"] = {"curves": {"note": note}}  # because the page lets the reader choose the metric
    if has_legend:
        below = {"orientation": "v", "y": -60 / 320, "yanchor": "top", "traceorder": "reversed"}  # best first
        layout |= {"showlegend": True, "legend": below}
    note = f"{note} {scale.note}".strip()
    return drawing.make_figure([*data, *ends], 380 + 20 * len(trials) * has_legend, note, **layout)


def _last_point(steps: Sequence[float], values: Sequence[float | None]) -> tuple[float, float | None]:
    """Return the last point with a value, or the last step without one."""
    points = [point for point in zip(steps, values, strict=True) if point[1] is not None]
    return points[-1] if points else (steps[-1], None)


def curve_metric(study: StudySnapshot, curves: Mapping[int, Curves]) -> str:
    """Return the metric of the learning curves: the first objective, or if unreported, the most common metric."""
    counts = Counter(name for by_name in curves.values() for name in by_name)
    first = study.objective[0]
    return first if first in counts or not counts else counts.most_common(1)[0][0]


def cost(source: FigureData) -> Figure | None:
    """Return the first objective by the seconds of training of all attempts of a trial."""
    selected, note = source.select(drawing.MOST_POINTS)
    training_s = {trial.number: costs.of_trial(trial).get("seconds/training", 0.0) for trial in selected}
    trials = [trial for trial in selected if training_s[trial.number] > 0]
    if len(trials) < 2 or not source.has_values(trials):
        return None
    xaxis = {"title": {"text": "training (s)"}}
    xaxis |= scale_of(training_s[trial.number] for trial in trials).ticks
    data = drawing.mark_all(source, trials, lambda trial: training_s[trial.number])
    axes = {"xaxis": xaxis, **drawing.value_axes(source, trials)}
    return drawing.make_figure(data, 320, source.add_edge_note(note), **axes)


def importance(source: FigureData) -> Figure | None:
    """Return the share of each parameter in the variance of the first objective; None for too few trials."""
    shares = dict(sorted(source.study.importance.items(), key=lambda item: item[1]))
    if not shares or not source.has_enough:
        return None
    labels = [drawing.escape(short(name.lstrip("+"), 24)) for name in shares]
    bars = {"type": "bar", "orientation": "h", "x": [*shares.values()], "y": labels, "marker": {"color": "--done"}}
    bars |= {"texttemplate": "%{x:.0%}", "textposition": "auto", "hovertemplate": "%{y}: %{x:.1%}<extra></extra>"}
    title = f"share of the variance of {short(source.study.objective[0], 40)} over {len(source.completed)} trials"
    xaxis = {"tickformat": ".0%", "title": {"text": title}, "rangemode": "tozero"}
    yaxis = {"showgrid": False, "type": "category"}
    return drawing.make_figure([bars], 110 + 34 * len(shares), xaxis=xaxis, yaxis=yaxis)


def slices(source: FigureData) -> Figures:
    """Return the first objective by each parameter, the most important parameter first."""
    shares = source.study.importance
    ordered = sorted(source.axes, key=lambda axis: -shares.get(axis.name, 0.0))[:_MOST_SLICES]
    selected, note = source.select(drawing.MOST_LINES)
    figures: Figures = {}
    for axis in ordered if source.has_values(selected) else ():
        x = {trial.number: drawing.axis_value(axis, trial.params.get(axis.name)) for trial in selected}
        trials = [trial for trial in selected if axis.categories or trial.params.get(axis.name) is not None]
        if trials:
            data = drawing.mark_all(source, trials, lambda trial, x=x: x[trial.number], size=7)  # type: ignore[misc]
            layout = {"xaxis": drawing.parameter_axis(axis), "margin": {"l": 48, "r": 10, "t": 30, "b": 40}}
            layout |= drawing.value_axes(source, trials)
            figures[axis.name] = drawing.make_figure(data, 280, source.add_edge_note(note), **layout)
    return figures


_FIGURES: dict[str, Callable[[FigureData], Figure | None]] = {
    "Pareto front": front,
    "Hypervolume": hypervolume,
    "Parameters and objective": parallel_coordinates,
    "History": history,
    "Learning curves": curves,
    "Two parameters": heat_map,
    "Importance": importance,
    CLASSES: confusion_matrix,
    "Timeline": timeline,
    COST: cost,
}
