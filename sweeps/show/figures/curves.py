"""The learning curves: a line for each trial and metric, by step, by seconds or by epoch."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.secrets import without_password
from sweeps.base.wording import short, text
from sweeps.hydra.near import advise_names
from sweeps.record.study import StudySnapshot, TrialRecord, Trials, parameters
from sweeps.show.figures import drawing
from sweeps.show.figures.drawing import Figure, Figures, Trace
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.scales import Layout, Scale, scale_of
from sweeps.show.trials import Curve, Curves
from sweeps.space.space import without_plus

CURVES = "Learning curves"
STEP = "step"
SECONDS = "seconds"
EPOCH = "epoch"
_MOST_CURVES = 60
_MOST_IN_LEGEND = 10
_MOST_FACETS = 50
_DASHES = ("solid", "dot", "dashdot", "dash")  # of the metrics in one figure, as on the page
_HOVER = "step %{x}: %{y:.5g}<br>%{text}<extra></extra>"


@dataclass(frozen=True)
class Choice:
    """The learning curves to draw: by default, of the objective of all trials by step.

    Attributes:
        metrics: a metric and its `val_` twin share a figure; each other metric has its own.
        by: the quantity of the x axis.
        trials: the numbers of the trials; empty for all.
        facet: the param that has a figure for each of its values; empty for one figure.
    """

    metrics: Sequence[str] = ()
    by: str = STEP
    trials: Sequence[int] = ()
    facet: str = ""

    def check(self, source: FigureData) -> None:
        """Raise UserError if the study lacks a metric, the axis, a trial or the param."""
        names = _reported(source)
        _check("--metrics", self.metrics, "metric", names)
        epoch = [EPOCH] if EPOCH in names else []
        _check("--by", [self.by], "axis", [STEP, SECONDS, *epoch])
        reporting = [str(number) for number, curves in sorted(source.curves.items()) if curves]
        numbers = [str(number) for number in self.trials]
        _check("--trials", numbers, "trial, or it reported nothing", reporting)
        params = [param.lstrip("+") for param in parameters(source.trials)]
        if not self.facet:
            return
        _check("--facet", [self.facet.lstrip("+")], "param", params)
        count = len(_facets(source.trials, self.facet))
        if count > _MOST_FACETS:
            example = "--facet optimizer"
            raise UserError(
                f"--facet {self.facet}: it has {count} values, and each would be a figure.\n"
                f"Choose a param with at most {_MOST_FACETS} values, as in {example}"
            )


EVERY_TRIAL = Choice()


def _check(option: str, typed: Sequence[str], noun: str, names: Sequence[str]) -> None:
    """Raise UserError if an option has a value that is none of the names."""
    unknown = [value for value in typed if value not in names]
    if not unknown:
        return
    if not names:
        raise UserError(f"{option} {unknown[0]}: no trial reported a metric.\nRemove {option}")
    raise UserError(f"{option} {unknown[0]}: unknown {noun}.\n{advise_names(option, typed, names)}")


def _reported(source: FigureData) -> list[str]:
    """Return the metrics that trials reported by step."""
    names = dict[str, None]()
    for by_name in source.curves.values():
        names |= dict.fromkeys(by_name)
    return [*names]


def curve_metric(study: StudySnapshot, curves: Mapping[int, Curves]) -> str:
    """Return the metric of the learning curves: the first objective, or if unreported, the most
    common metric."""
    counts = Counter(name for by_name in curves.values() for name in by_name)
    first = study.objective[0]
    return first if first in counts or not counts else counts.most_common(1)[0][0]


def learning_curves(source: FigureData, choice: Choice = EVERY_TRIAL) -> Figures:
    """Return the chosen curves: a figure for each metric, and for each value of the param `facet`.

    Curves of one point each make no figure.
    """
    chosen = [
        trial for trial in source.trials if not choice.trials or trial.number in choice.trials
    ]
    groups = _group(choice.metrics or [curve_metric(source.study, source.curves)])
    figures: Figures = {}
    for metrics in groups:
        reporting = [trial for trial in chosen if _metrics_of(source, trial, metrics)]
        values = _values(source, reporting, metrics)
        scale = scale_of(values)
        limits = _limits(scale, values) if choice.facet else {}
        for value, trials in _facets(reporting, choice.facet).items():
            panel = _Panel(source, metrics, choice.by, scale, value, limits)
            figure = panel.draw(trials, max(_MOST_CURVES, len(choice.trials)))
            if figure:
                names = [value, ", ".join(metrics) if len(groups) > 1 else ""]
                figures[" ".join(filter(None, names))] = figure
    return figures


def _group(metrics: Sequence[str]) -> list[list[str]]:
    """Return the metrics by figure: `loss` and `val_loss` share one, because they have one unit."""
    groups: dict[str, list[str]] = {}
    for metric in dict.fromkeys(metrics):
        groups.setdefault(metric.removeprefix("val_"), []).append(metric)
    return [*groups.values()]


def _facets(trials: Iterable[TrialRecord], facet: str) -> dict[str, list[TrialRecord]]:
    """Return the trials by the value of the param, as `optimizer=adam`; all under "" without a
    param."""
    key = facet.lstrip("+")
    groups: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        params = without_plus(trial.params)
        label = f"{key}={text(params[key], digits=4)}" if key in params else f"without {key}"
        groups.setdefault(without_password(label) if key else "", []).append(trial)
    return groups


def _metrics_of(source: FigureData, trial: TrialRecord, metrics: Sequence[str]) -> list[str]:
    """Return which of the metrics the trial reported."""
    return [metric for metric in metrics if metric in source.curves.get(trial.number, {})]


def _values(source: FigureData, trials: Trials, metrics: Sequence[str]) -> list[float]:
    """Return all values of the metrics, in any order."""
    values: list[float] = []
    for trial in trials:
        for metric in _metrics_of(source, trial, metrics):
            curve = source.curves[trial.number][metric]
            values += [value for value in curve[1] if value is not None]
    return values


def _limits(scale: Scale, values: Sequence[float]) -> Layout:
    """Return the range of the y axis for all values, so that the figures of a facet can be
    compared."""
    places = [scale.place(value) for value in values]
    if scale.log:
        places = [math.log10(place) for place in places]
    low = min(places, default=0.0)
    high = max(places, default=0.0)
    margin = 0.05 * (high - low)
    return {"range": [low - margin, high + margin]} if margin else {}


@dataclass(frozen=True)
class _Panel:
    """One figure of curves.

    Each of few lines has its own colour and dash; many lines have the colour of their objective. A
    second metric is dotted. A mark is at the end of each line.
    """

    source: FigureData
    metrics: Sequence[str]
    by: str
    scale: Scale
    facet: str
    limits: Mapping[str, Any]  # range of the y axis; empty for the range of the lines

    def draw(self, among: Trials, most: int) -> Figure | None:
        """Return the figure; None if no curve has two points."""
        trials, note = self.source.select(most, among)
        own_lines: dict[int, Layout] = {}
        if len(trials) <= _MOST_IN_LEGEND:
            own_lines = {trial.number: drawing.series_line(i) for i, trial in enumerate(trials)}
        lines, ends = self._traces(trials, own_lines)
        if max((len(line["x"]) for line in lines), default=0) < 2:
            return None
        note = f"{note} {self.scale.note}".strip()
        layout = self._layout(lines, note, bool(own_lines))
        return drawing.make_figure([*lines, *ends], 380 + 20 * len(own_lines), note, **layout)

    def _traces(
        self, trials: Trials, own_lines: Mapping[int, Layout]
    ) -> tuple[list[Trace], list[Trace]]:
        """Return the line of each trial and metric, and the marks at their ends."""
        lines: list[Trace] = []
        ends: list[Trace] = []
        for i, metric in enumerate(self.metrics):
            reporting = [trial for trial in trials if _metrics_of(self.source, trial, [metric])]
            for kind, group in self._by_kind(reporting).items():
                curves = [self._curve(trial, metric) for trial in group]
                pairs = zip(group, curves, strict=True)
                lines += [self._line(trial, kind, curve, own_lines, i) for trial, curve in pairs]
                ends.append(self._ends(kind, group, curves, own_lines))
        return lines, ends

    def _by_kind(self, trials: Trials) -> dict[str, Trials]:
        """Return the trials by their kind, the best completed one last, so that it is drawn over
        the others."""
        groups: dict[str, Trials] = {**self.source.group_by_kind(trials)}
        if "completed" in groups:
            groups["completed"] = sorted(groups["completed"], key=self.source.rank, reverse=True)
        return groups

    def _curve(self, trial: TrialRecord, metric: str) -> Curve:
        """Return the places of the metric's values over the quantity of the x axis."""
        steps, values = self.source.curves[trial.number][metric]
        places = drawing.place_all(self.scale, values)
        if self.by == STEP:
            return steps, places
        of_trial = self.source.curves[trial.number]
        seconds = self.source.seconds.get(trial.number)
        axis = seconds if self.by == SECONDS else of_trial.get(self.by)
        points = []
        for step, place in zip(steps, places, strict=True):
            x = interpolate(axis, step) if axis else None
            if x is not None:
                points.append((x, place))
        return [x for x, _ in points], [place for _, place in points]

    def _line(
        self, trial: TrialRecord, kind: str, curve: Curve, own_lines: Mapping[int, Layout], i: int
    ) -> Trace:
        """Return the line of the trial's i-th metric."""
        line = own_lines.get(trial.number) or drawing.line_style(self.source, kind, trial)
        if len(self.metrics) > 1:
            line = {**line, "dash": _DASHES[i % len(_DASHES)]}
        trace = drawing.scatter("lines", *curve, line=line, meta=trial.number)
        trace["opacity"] = 1 if kind in ("completed", "running") else 0.7
        trace["hovertemplate"] = _HOVER
        if own_lines and i == 0:
            trace["name"] = drawing.escape(short(without_password(trial.short_name), 46))
        elif own_lines:
            trace["showlegend"] = False
        return trace

    def _ends(
        self, kind: str, trials: Trials, curves: Sequence[Curve], own_lines: Mapping[int, Layout]
    ) -> Trace:
        """Return a mark at the last point of each curve."""
        x, y = zip(*(_last_point(*curve) for curve in curves), strict=True)
        marks = drawing.make_marks(self.source, kind, x, y, trials) | {"showlegend": False}
        if own_lines:
            colors = [own_lines[trial.number]["color"] for trial in trials]
            marks["marker"] |= {"color": colors, "coloraxis": None}
        return marks

    def _layout(self, lines: Sequence[Trace], note: str, has_legend: bool) -> Layout:
        ends = [x for line in lines for x in line["x"][:1] + line["x"][-1:]]
        xaxis = drawing.count_axis(STEP, ends) if self.by == STEP else {"title": {"text": self.by}}
        yaxis = {"title": {"text": self._title()}, **self.scale.ticks, **self.limits}
        # because the page lets the reader choose the metric
        meta = {"curves": {"note": note, "dashed": len(self.metrics) > 1}}
        layout = {"xaxis": xaxis, **self.source.color_layout(), "yaxis": yaxis, "meta": meta}
        if self.facet:
            layout["title"] = {"text": drawing.escape(self.facet)}
        if has_legend:
            # best first
            below = {"orientation": "v", "y": -60 / 320, "yanchor": "top", "traceorder": "reversed"}
            layout |= {"showlegend": True, "legend": below}
        return layout

    def _title(self) -> str:
        """Return the first metric, and each other one with the name of its dash."""
        names = {"solid": "solid", "dot": "dotted", "dashdot": "dash-dotted", "dash": "dashed"}
        first, *others = self.metrics
        dashes = [names[_DASHES[i % len(_DASHES)]] for i in range(1, len(self.metrics))]
        pairs = zip(dashes, others, strict=True)
        return " ".join([short(first, 40), *(f"({dash}: {name})" for dash, name in pairs)])


def interpolate(curve: Curve, step: float) -> float | None:
    """Return the value of a curve at a step between its points; None beyond its last point, as
    figures.js does."""
    steps, values = curve
    after = next((i for i, at in enumerate(steps) if at >= step), None)
    if after is None:
        return None
    value = values[after]
    if steps[after] == step:
        return value
    before = values[after - 1] if after else None
    if value is None or before is None:
        return None
    share = (step - steps[after - 1]) / (steps[after] - steps[after - 1])
    return before + (value - before) * share


def _last_point(
    steps: Sequence[float], values: Sequence[float | None]
) -> tuple[float | None, float | None]:
    """Return the last point with a value, or the last step without one."""
    for step, value in zip(reversed(steps), reversed(values), strict=True):
        if value is not None:
            return step, value
    return (steps[-1] if steps else None), None
