"""The figure of rungs: at which steps trials paused, with which objective, and who was promoted."""

from collections.abc import Iterable, Mapping, Sequence

from sweeps.record.study import TrialRecord
from sweeps.show.figures import drawing
from sweeps.show.figures.axes import is_number
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.scales import Layout
from sweeps.trial.job import State

_Point = tuple[int, float, TrialRecord]
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
    ticks = _ticks({step for path in paths.values() for step, _, _ in path})
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
        (end.step, end.objective[0], trial)
        for end in ends
        if end.step > 0 and end.objective and is_number(end.objective[0])
    ]


def _by_mark(paths: Mapping[int, Sequence[_Point]]) -> dict[str, list[_Point]]:
    """Return the points by their mark: a trial was promoted from each pause that it does not end
    at."""
    points: dict[str, list[_Point]] = {mark: [] for mark in _MARKS}
    for path in paths.values():
        for i, point in enumerate(path):
            state = point[2].state
            is_last = i == len(path) - 1 and state in (State.PAUSED, State.COMPLETED)
            points[str(state) if is_last else "promoted"].append(point)
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
            x += [*(step for step, _, _ in path), None]
            y += [*(source.clip(value) for _, value, _ in path), None]
    line = {"color": "--pruned", "width": 1}
    return drawing.scatter("lines", x, y, line=line, hoverinfo="skip", showlegend=False)


def _marks(source: FigureData, mark: str, points: Sequence[_Point]) -> Trace:
    return drawing.scatter(
        "markers",
        [step for step, _, _ in points],
        [source.clip(value) for _, value, _ in points],
        name=f"{mark} ({len(points)})",
        marker=dict(_MARKS[mark]),
        customdata=[trial.number for _, _, trial in points],
        hovertemplate="%{text}<extra></extra>",
    )
