"""A study as its figures see it: which trials, of which kind, how they are coloured, and what is far off."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from sweeps.record.study import ENOUGH, StudySnapshot, TrialRecord
from sweeps.results import axes, theme
from sweeps.results.axes import is_number
from sweeps.results.findings import Findings
from sweeps.results.trials import Curves
from sweeps.trial.job import State
from sweeps.wording import short

KINDS = ("queued", "failed", "pruned", "running", "completed")
"""In the order in which they are drawn: what completed over all others."""


class FigureData:
    """A study as its figures see it."""

    def __init__(self, findings: Findings, curves: Mapping[int, Curves]) -> None:
        """`curves` are what each trial reported by step, by its number."""
        self.findings, self.study, self.curves = findings, findings.study, curves
        self.maximize = self.study.directions[0] == "maximize"
        begun = (row for row in self.study.rows if row.state is not State.QUEUED)
        self.rows = sorted(begun, key=lambda row: row.number)
        self.axes = axes.find_axes(self.rows, self.study.space, without=self.study.seed_key)
        self.values = {row.number: value_of(row, self.study) for row in self.rows}
        self.completed = [row for row in self.rows if row.state is State.COMPLETED and self.value(row) is not None]

    @property
    def has_enough(self) -> bool:
        """Whether the importance of parameters can be told."""
        return len(self.completed) >= ENOUGH

    def value(self, row: TrialRecord) -> float | None:
        return self.values[row.number]

    def has_values(self, rows: Iterable[TrialRecord]) -> bool:
        """Whether one of these has a value of the first objective."""
        return any(self.value(row) is not None for row in rows)

    def placed(self, value: float | None) -> float | None:
        """Where a value of the first objective is drawn: at the edge if it is far off."""
        if value is None or self.edge is None:
            return value
        return max(value, self.edge) if self.maximize else min(value, self.edge)

    def at_edge(self, note: str = "") -> str:
        """Words for that, after others."""
        side = "below" if self.maximize else "above"
        words = "" if self.edge is None else f"Values {side} {self.edge:.4g} stand at the edge."
        return f"{note} {words}".strip()

    def of_kind(self, rows: Iterable[TrialRecord]) -> dict[str, list[TrialRecord]]:
        """Those of each kind."""
        by_kind: dict[str, list[TrialRecord]] = {kind: [] for kind in KINDS}
        for row in rows:
            by_kind[kind_of(row)].append(row)
        return {kind: alike for kind, alike in by_kind.items() if alike}

    def some(self, most: int, among: Sequence[TrialRecord] | None = None) -> tuple[list[TrialRecord], str]:
        """At most so many trials, and words for which, if not all: the best, and of the others the newest."""
        rows = self.rows if among is None else [*among]
        if len(rows) <= most:
            return rows, ""
        numbers = {row.number for row in rows}
        best = [row.number for row in self.findings.top if row.number in numbers and self.value(row) is not None]
        kept = {*best[: most * 2 // 3]}
        others = [row for row in reversed(rows) if row.number not in kept]
        others.sort(key=lambda row: row.state is not State.RUNNING)
        words = f"{most} of {len(rows)} trials: the best {len(kept)}, and the newest of the others"
        kept |= {row.number for row in others[: most - len(kept)]}
        return [row for row in rows if row.number in kept], words

    @cached_property
    def limits(self) -> tuple[float, float] | None:
        """The best and the worst value of completed trials that have colours of their own; None without one. A few
        values that are far off do not leave all others one colour.
        """
        values = self._best_first
        if not values:
            return None
        best, worst, ninth = values[0], values[-1], self._ninth
        return (best, ninth) if abs(worst - best) > 5 * abs(ninth - best) > 0 else (best, worst)

    @cached_property
    def edge(self) -> float | None:
        """Beyond it values are so far off that all others would look alike; None if there are none such."""
        known = [value for value in self.values.values() if value is not None]
        if len(self._best_first) < 5 or is_wide(known):
            return None
        best, worst = self._best_first[0], min(known) if self.maximize else max(known)
        spread = self._ninth - best
        return best + 2 * spread if abs(worst - best) > 4 * abs(spread) > 0 else None

    @cached_property
    def _best_first(self) -> list[float]:
        return sorted((self.value(row) or 0.0 for row in self.completed), reverse=self.maximize)

    @property
    def _ninth(self) -> float:
        """What nine in ten are as good as."""
        return self._best_first[-1 - len(self._best_first) // 10]

    def level(self, row: TrialRecord) -> int:
        """Which level of the scale its objective has; that of what is done where all are alike."""
        best, worst = self.limits or (0.0, 0.0)
        if best == worst:
            return theme.LEVELS // 2
        share = ((self.value(row) or 0.0) - best) / (worst - best)
        return round((theme.LEVELS - 1) * min(1.0, max(0.0, share)))

    def colors(self, bar: bool = False) -> dict[str, Any]:
        """For the layout of a figure whose points have the colour of their value; with a bar that tells them."""
        if self.limits is None:
            return {}
        title = {"title": {"text": f"{short(self.study.objective[0])}<br>\u00a0"}, "thickness": 12, "outlinewidth": 0}
        scale = {"colorscale": "--scale", "reversescale": self.maximize, "colorbar": title, "showscale": bar}
        low, high = sorted(self.limits)
        return {"coloraxis": scale | ({"cmin": low, "cmax": high} if low < high else {})}


def kind_of(row: TrialRecord) -> str:
    if row.state in (State.COMPLETED, State.PRUNED, State.RUNNING):
        return str(row.state)
    if row.infeasible:
        return "pruned"
    return "failed" if row.state.is_bad else "queued"


def value_of(row: TrialRecord, study: StudySnapshot, i: int = 0) -> float | None:
    """The objective that it returned or, of a trial that did not complete, reported last; None without a number."""
    returned = row.objective[i] if len(row.objective) > i else None
    value = returned if returned is not None else row.metrics.get(study.objective[i])
    return value if is_number(value) else None


def is_wide(values: Sequence[float]) -> bool:
    """Whether values are to be seen by their powers of ten."""
    return bool(values) and min(values) > 0 and max(values) >= 1000 * min(values)
