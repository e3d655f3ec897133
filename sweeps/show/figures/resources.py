"""The use of resources over the time of each trial: of its GPUs, or without GPUs of the CPU and
memory."""

from collections.abc import Mapping, Sequence

from sweeps.record.study import TrialRecord
from sweeps.show.figures import drawing
from sweeps.show.figures.drawing import Figure, Figures, Trace
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.trials import Curve, Curves
from sweeps.trial.metrics import CPU, GPU, POWER, USE

_MOST = 60
_MEMORY = "memory_usage_megabytes"
_OF_GPUS = {
    "GPU use (%), mean of the trial's GPUs": USE,
    "GPU memory (GB)": _MEMORY,
    "GPU power (W)": POWER,
}
_HOVER = "%{x:.0f} s: %{y:.4g}<br>%{text}<extra></extra>"


def resources(source: FigureData) -> Figures:
    """Return a figure for each resource that at least one trial sampled twice."""
    panels: dict[str, dict[int, Curve]] = {}
    for number, usage in source.usage.items():
        for title, curve in _combine(usage).items():
            if len(curve[0]) > 1:
                panels.setdefault(title, {})[number] = curve
    of_gpus = {title: panels[title] for title in _OF_GPUS if title in panels}
    return {
        title: figure
        for title, curves in (of_gpus or panels).items()
        if (figure := _draw(source, title, curves))
    }


def _combine(usage: Curves) -> dict[str, Curve]:
    """Return the curves of a trial's resources: GPUs together, and of the CPU and memory."""
    curves = {}
    for title, suffix in _OF_GPUS.items():
        if gpus := [
            curve for name, curve in usage.items() if name.startswith(GPU) and name.endswith(suffix)
        ]:
            factor = 1 / len(gpus) if suffix == USE else 1e-3 if suffix == _MEMORY else 1.0
            curves[title] = _sum(gpus, factor)
    names = {
        "CPU use (%), 100 is one core": (f"{CPU}{USE}", 1.0),
        "Memory (GB)": (f"system/{_MEMORY}", 1e-3),
    }
    return curves | {
        title: _sum([usage[name]], factor)
        for title, (name, factor) in names.items()
        if name in usage
    }


def _sum(curves: Sequence[Curve], factor: float) -> Curve:
    """Return the sum of curves with the same times, times the factor. The shortest curve ends the
    sum."""
    values = zip(*(values for _, values in curves), strict=False)
    sums = [
        None if None in each else factor * sum(value or 0.0 for value in each) for each in values
    ]
    return curves[0][0][: len(sums)], sums


def _draw(source: FigureData, title: str, curves: Mapping[int, Curve]) -> Figure | None:
    trials, note = source.select(
        _MOST, [trial for trial in source.trials if trial.number in curves]
    )
    data = [
        _line(source, kind, trial, curves[trial.number])
        for kind, group in source.group_by_kind(trials).items()
        for trial in group
    ]
    if not data:
        return None
    xaxis = {"title": {"text": "seconds of the trial"}}
    yaxis = {"title": {"text": title.partition(",")[0]}, "rangemode": "tozero"}
    return drawing.make_figure(data, 280, note, xaxis=xaxis, yaxis=yaxis, **source.color_layout())


def _line(source: FigureData, kind: str, trial: TrialRecord, curve: Curve) -> Trace:
    line = drawing.line_style(source, kind, trial)
    return drawing.scatter("lines", *curve, line=line, meta=trial.number, hovertemplate=_HOVER)
