"""The figure of when each attempt ran, in slots: lines that hold one attempt at a time."""

from collections.abc import Sequence
from dataclasses import replace

from sweeps.record.study import TrialRecord
from sweeps.show.figures import drawing
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData, kind_of
from sweeps.trial.job import Outcome

_Pair = tuple[TrialRecord, Outcome]
_COLORS = {"completed": "--done", "pruned": "--pruned", "paused": "--link", "failed": "--failed"}
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_MOST_UNITS = 200  # of the time axis


def timeline(source: FigureData) -> Figure | None:
    """Return a bar for each attempt that has ended; None for fewer than two, or if all trials
    failed."""
    pairs = []
    for trial in source.trials:
        pairs += [(trial, attempt) for attempt in trial.attempts if attempt.started_at]
    pairs = sorted(pairs, key=_start)[-drawing.MOST_POINTS :]
    if len(pairs) < 2 or source.study.all_failed:
        return None
    unit = _unit(max(attempt.ended_at for _, attempt in pairs) - _start(pairs[0]))
    slots = _slots(pairs)
    count = 1 + max(slots)
    return drawing.make_figure(
        _bars(pairs, slots, _UNITS[unit]),
        height=min(600, 140 + 24 * count),
        note=f"The newest {len(pairs)} attempts." if len(pairs) == drawing.MOST_POINTS else "",
        xaxis={"title": {"text": f"since the first start ({unit})"}},
        yaxis={**drawing.count_axis("slot", range(1, count + 1)), "showgrid": False},
        barmode="overlay",
        bargap=0.15,
    )


def _bars(pairs: Sequence[_Pair], slots: Sequence[int], unit_s: float) -> list[Trace]:
    """Return the bars of attempts of each kind."""
    first = _start(pairs[0])
    bars: dict[str, list[tuple[float, float, int, int]]] = {}
    for pair, slot in zip(pairs, slots, strict=True):
        trial, attempt = pair
        start = (_start(pair) - first) / unit_s
        length = max(0.0, attempt.ended_at - _start(pair)) / unit_s
        kind = kind_of(replace(trial, state=attempt.state))
        bars.setdefault(kind, []).append((start, length, slot, trial.number))
    return [_make_bars(kind, group) for kind, group in bars.items()]


def _unit(length_s: float) -> str:
    """Return the smallest unit of which the time axis has few."""
    units = (name for name, size_s in _UNITS.items() if length_s <= _MOST_UNITS * size_s)
    return next(units, "h")


def _start(pair: _Pair) -> float:
    return pair[1].started_at or 0.0


def _slots(pairs: Sequence[_Pair]) -> list[int]:
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
    return {
        "type": "bar",
        "orientation": "h",
        "base": starts,
        "x": lengths,
        "y": slots,
        "name": kind,
        "marker": {"color": _COLORS.get(kind, "--link"), "line": {"color": "--card", "width": 1}},
        "customdata": numbers,
        "hovertemplate": "%{text}<extra></extra>",
        "textposition": "none",
    }
