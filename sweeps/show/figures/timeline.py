"""The figure of when each attempt ran, in slots: lines that hold one attempt at a time."""

from collections.abc import Sequence
from dataclasses import replace

from sweeps.record.study import TrialRecord
from sweeps.show.figures import drawing
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData, kind_of
from sweeps.trial.job import Outcome

_COLORS = {"completed": "--done", "pruned": "--pruned", "failed": "--failed"}
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_MOST_UNITS = 200  # of the time axis


def timeline(source: FigureData) -> Figure | None:
    """Return a bar for each attempt that has ended; None for fewer than two, or if all trials
    failed."""
    pairs = []
    for trial in source.trials:
        started = [attempt for attempt in trial.attempts if attempt.started_at]
        pairs += [(trial, attempt) for attempt in started]
    pairs = sorted(pairs, key=_start)[-drawing.MOST_POINTS :]
    if len(pairs) < 2 or source.study.all_failed:
        return None
    first = _start(pairs[0])
    last = max(attempt.ended_at for _, attempt in pairs)
    unit = next(
        (name for name, size_s in _UNITS.items() if last - first <= _MOST_UNITS * size_s), "h"
    )
    bars: dict[str, list[tuple[float, float, int, int]]] = {}
    for (trial, attempt), slot in zip(pairs, _slots(pairs), strict=True):
        start, length = (
            t / _UNITS[unit] for t in (_start((trial, attempt)) - first, _length(attempt))
        )
        kind = kind_of(replace(trial, state=attempt.state))
        bars.setdefault(kind, []).append((start, length, slot, trial.number))
    data = [_make_bars(kind, group) for kind, group in bars.items()]
    count = 1 + max(slot for group in bars.values() for _, _, slot, _ in group)
    yaxis = {**drawing.count_axis("slot", range(1, count + 1)), "showgrid": False}
    xaxis = {"title": {"text": f"since the first start ({unit})"}}
    note = f"The newest {len(pairs)} attempts." if len(pairs) == drawing.MOST_POINTS else ""
    height = min(600, 140 + 24 * count)
    return drawing.make_figure(
        data, height, note, xaxis=xaxis, yaxis=yaxis, barmode="overlay", bargap=0.15
    )


def _start(pair: tuple[TrialRecord, Outcome]) -> float:
    return pair[1].started_at or 0.0


def _length(attempt: Outcome) -> float:
    return max(0.0, attempt.ended_at - (attempt.started_at or 0.0))


def _slots(pairs: Sequence[tuple[TrialRecord, Outcome]]) -> list[int]:
    """Return the slot of each attempt, from 1: the lowest that is free at its start."""
    ends: list[float] = []
    slots = []
    for pair in pairs:
        free = next((i for i, end in enumerate(ends) if end <= _start(pair)), len(ends))
        ends[free : free + 1] = [pair[1].ended_at]
        slots.append(free + 1)
    return slots


def _make_bars(kind: str, bars: Sequence[tuple[float, float, int, int]]) -> Trace:
    starts, lengths, slots, numbers = (list(column) for column in zip(*bars, strict=True))
    style = {"color": _COLORS.get(kind, "--link"), "line": {"color": "--card", "width": 1}}
    trace = {
        "type": "bar",
        "orientation": "h",
        "base": starts,
        "x": lengths,
        "y": slots,
        "name": kind,
    }
    texts = {
        "customdata": numbers,
        "hovertemplate": "%{text}<extra></extra>",
        "textposition": "none",
    }
    return {**trace, "marker": style, **texts}
