"""The figures of a study: the effect of each parameter on the objective, and every trial."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sweeps.analysis import costs
from sweeps.base.wording import short
from sweeps.record.study import StudySnapshot
from sweeps.show.figures import drawing
from sweeps.show.figures.classes import CLASSES, confusion_matrix
from sweeps.show.figures.curves import CURVES, EVERY_TRIAL, Choice, learning_curves
from sweeps.show.figures.drawing import Figure, Figures, Trace
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.figures.maps import front, heat_map, hypervolume
from sweeps.show.figures.parallel import parallel_coordinates
from sweeps.show.figures.resources import resources
from sweeps.show.figures.rungs import rungs
from sweeps.show.figures.timeline import timeline
from sweeps.show.findings import Findings
from sweeps.show.page import scaling_page
from sweeps.show.scales import scale_of
from sweeps.show.trials import TrialFiles

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

COST = "Cost"
SCALING = "Scaling"
_MOST_SLICES = 12


def build_plotly_figures(study: StudySnapshot) -> "dict[str, PlotlyFigure]":
    """Return the study's figures by title, in light colours, for notebooks."""
    from plotly import graph_objects as go

    findings = Findings(study)
    files = TrialFiles(study.objective)
    files.look(findings)
    hovers = {trial.number: files.hover(trial) for trial in study.rows}
    source = FigureData(findings, files.curves(), files.usage())
    plots = {}
    for section, figures in build_figures(source).items():
        for name, figure in figures.items():
            plot = go.Figure(drawing.colored(figure))
            for trace in plot.data:
                _add_texts(trace, hovers)
            plot.update_layout(template="plotly_white")
            plots[f"{section}: {name}" if name else section] = plot
    return plots


def _add_texts(trace: Any, hovers: Mapping[int, str]) -> None:
    """Add the hover texts of trials, as page.js does."""
    if "%{text}" not in (trace.hovertemplate or "") or trace.text is not None:
        return
    if trace.customdata is None:
        trace.text = hovers.get(trace.meta, "")
    else:
        trace.text = [hovers.get(number, "") for number in trace.customdata]


def build_figures(source: FigureData, choice: Choice = EVERY_TRIAL) -> dict[str, Figures]:
    """Return the figures for which the study has data, by section title and figure title.

    `choice` is that of the learning curves.
    """
    sections: dict[str, Figures] = {}
    drawers: dict[str, _Drawer] = {**_FIGURES, CURVES: partial(learning_curves, choice=choice)}
    for title, draw in drawers.items():
        try:
            figure = draw(source)
        except Exception as error:
            # because trials may have any numbers, and the other figures must be drawn
            figure = drawing.make_figure(
                [], 80, f"This figure cannot be drawn: {type(error).__name__}: {error}"
            )
        if figure:
            sections[title] = {"": figure} if "layout" in figure else figure
    return sections


def history(source: FigureData) -> Figure | None:
    """Return the first objective by trial, with the best so far; a strip below has the trials
    without a value."""
    trials, note = source.select(drawing.MOST_POINTS)
    if len(trials) < 2 or not source.has_values(trials):
        return None
    data: list[Trace] = []
    if source.completed and not source.findings.ranking.configurations:
        note = f"Line: best so far. {note}".strip()
        data.append(_best_so_far(source, trials[-1].number))
    data += drawing.mark_all(source, trials, {trial.number: trial.number for trial in trials})
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


def cost(source: FigureData) -> Figure | None:
    """Return the first objective by the seconds of training of all attempts of a trial."""
    selected, note = source.select(drawing.MOST_POINTS)
    training_s = {
        trial.number: costs.of_trial(trial).get("seconds/training", 0.0) for trial in selected
    }
    trials = [trial for trial in selected if training_s[trial.number] > 0]
    if len(trials) < 2 or not source.has_values(trials):
        return None
    xaxis = {"title": {"text": "training (s)"}}
    xaxis |= scale_of(training_s[trial.number] for trial in trials).ticks
    data = drawing.mark_all(source, trials, training_s)
    axes = {"xaxis": xaxis, **drawing.value_axes(source, trials)}
    return drawing.make_figure(data, 320, source.add_edge_note(note), **axes)


def importance(source: FigureData) -> Figure | None:
    """Return the share of each parameter in the variance of the first objective; None for too few
    trials."""
    shares = dict(sorted(source.study.importance.items(), key=lambda item: item[1]))
    if not shares or not source.has_enough:
        return None
    labels = [drawing.escape(short(name.lstrip("+"), 24)) for name in shares]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [*shares.values()],
        "y": labels,
        "marker": {"color": "--done"},
        "texttemplate": "%{x:.0%}",
        "textposition": "auto",
        "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
    }
    objective = short(source.study.objective[0], 40)
    title = f"share of the variance of {objective} over {len(source.completed)} trials"
    xaxis = {"tickformat": ".0%", "title": {"text": title}, "rangemode": "tozero"}
    yaxis = {"showgrid": False, "type": "category"}
    return drawing.make_figure([bars], 110 + 34 * len(shares), xaxis=xaxis, yaxis=yaxis)


def slices(source: FigureData) -> Figures:
    """Return the first objective by each parameter, the most important parameter first."""
    shares = source.study.importance
    ordered = sorted(source.axes, key=lambda axis: -shares.get(axis.name, 0.0))[:_MOST_SLICES]
    selected, note = source.select(drawing.MOST_LINES)
    note = source.add_edge_note(note)
    figures: Figures = {}
    for axis in ordered if source.has_values(selected) else ():
        values = {trial.number: trial.params.get(axis.name) for trial in selected}
        trials = [t for t in selected if axis.categories or values[t.number] is not None]
        if trials:
            x = {number: drawing.axis_value(axis, value) for number, value in values.items()}
            figures[axis.name] = drawing.make_figure(
                drawing.mark_all(source, trials, x, size=7),
                280,
                note,
                xaxis=drawing.parameter_axis(axis),
                margin={"l": 48, "r": 10, "t": 30, "b": 40},
                **drawing.value_axes(source, trials),
            )
    return figures


def scaling(source: FigureData) -> Figures:
    """Return the speed-up and the measured quantities by number of GPUs, nodes or ranks, if the
    study compares some."""
    measured = source.findings.scaling
    return scaling_page.build_figures(measured) if measured else {}


_Drawer = Callable[[FigureData], Figure | Figures | None]
_FIGURES: dict[str, _Drawer] = {
    "Pareto front": front,
    "Hypervolume": hypervolume,
    "Parameters and objective": parallel_coordinates,
    "History": history,
    "Rungs": rungs,
    CURVES: learning_curves,
    "Two parameters": heat_map,
    "Importance": importance,
    CLASSES: confusion_matrix,
    "Timeline": timeline,
    COST: cost,
    "Resources": resources,
    "Slices": slices,
    SCALING: scaling,
}
