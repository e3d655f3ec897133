"""The figure of rungs: at which steps trials paused, with which objective, and who was promoted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sweeps.record.study import TrialRecord
from sweeps.show.figures import drawing
from sweeps.show.figures.axes import is_number
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.scales import Layout
from sweeps.trial.job import State


class _Point(NamedTuple):
    """The end of an attempt at a trial."""

    step: int
    value: float
    trial: TrialRecord
    state: State


_MARKS: dict[str, Layout] = {
    "paused": drawing.MARKS["paused"],
    "promoted": {"symbol": "triangle-up", "size": 9, "color": "--done"},
    "completed": {**drawing.MARKS["completed"], "color": "--ink"},
}
_NOTE = "Promoted trials (▲) went on along their lines; paused trials (◇) wait at their rungs."
_LEAST_RATIO = 1.25  # of the steps of two ticks, because labels that are closer would overlap


def rungs(source: FigureData) -> Figure | None:
    """Return the objective at each pause and at each completion, by step; None if no trial
    paused."""
    trials, note = source.select(drawing.MOST_LINES)
    paths = {trial.number: _path(trial) for trial in trials}
    points = _by_mark(paths)
    if not (points["paused"] or points["promoted"]):
        return None
    ticks = _ticks({point.step for path in paths.values() for point in path})
    labels = [*map(str, ticks)]
    xaxis = {"title": {"text": "step (log)"}, "type": "log", "tickvals": ticks, "ticktext": labels}
    axes = {"xaxis": xaxis, "yaxis": drawing.value_axes(source, trials)["yaxis"]}
    axes["yaxis"].pop("domain", None)
    marks = [_marks(source, mark, group) for mark, group in points.items() if group]
    note = source.add_edge_note(f"{_NOTE} {note}".strip())
    data = [_lines(source, paths), *marks]
    return drawing.make_figure(data, 380, note, showlegend=True, **axes)


def _path(trial: TrialRecord) -> list[_Point]:
    """Return the step and the objective at each pause of a trial, and at its completion."""
    ends = [end for end in trial.attempts if end.state in (State.PAUSED, State.COMPLETED)]
    return [
        _Point(end.step, end.objective[0], trial, end.state)
        for end in ends
        if end.step > 0 and end.objective and is_number(end.objective[0])
    ]


def _by_mark(paths: Mapping[int, Sequence[_Point]]) -> dict[str, list[_Point]]:
    """Return the points by their mark: a trial was promoted from each pause at which it does not
    wait."""
    points: dict[str, list[_Point]] = {mark: [] for mark in _MARKS}
    for path in paths.values():
        for point in path:
            waits = point is path[-1] and point.trial.state is State.PAUSED
            has_gone_on = point.state is State.PAUSED and not waits
            points["promoted" if has_gone_on else str(point.state)].append(point)
    return points


def _ticks(steps: Iterable[int]) -> list[int]:
    """Return the steps that have a label."""
    ticks: list[int] = []
    for step in sorted(steps):
        if not ticks or step >= _LEAST_RATIO * ticks[-1]:
            ticks.append(step)
    return ticks


def _lines(source: FigureData, paths: Mapping[int, Sequence[_Point]]) -> Trace:
    """Return the lines of the promoted trials, with a gap after each."""
    x: list[int | None] = []
    y: list[float | None] = []
    for path in paths.values():
        if len(path) > 1:
            x += [*(point.step for point in path), None]
            y += [*(source.clip(point.value) for point in path), None]
    line = {"color": "--pruned", "width": 1}
    return drawing.scatter("lines", x, y, line=line, hoverinfo="skip", showlegend=False)


def _marks(source: FigureData, mark: str, points: Sequence[_Point]) -> Trace:
    return drawing.scatter(
        "markers",
        [point.step for point in points],
        [source.clip(point.value) for point in points],
        name=f"{mark} ({len(points)})",
        marker=dict(_MARKS[mark]),
        customdata=[point.trial.number for point in points],
        hovertemplate="%{text}<extra></extra>",
    )
