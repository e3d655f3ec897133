"""A study as its figures see it: which trials, of which kind, how they are coloured, and what is far off."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweeps.results import axes, theme
from sweeps.results.axes import Axis, is_number
from sweeps.results.summary import Row, Summary, short
from sweeps.results.trials import Curves
from sweeps.trial.job import State


@dataclass
class Seen:
    """A study as its figures see it."""

    summary: Summary
    curves: Mapping[int, Curves]
    """What each trial reported by step."""
    rows: list[Row] = field(init=False)
    axes: list[Axis] = field(init=False)

    def __post_init__(self) -> None:
        summary = self.summary
        self.rows = sorted((row for row in summary.rows if row.state is not State.QUEUED), key=lambda row: row.number)
        self.axes = axes.of_study(self.rows, summary.space, without=summary.seed_key)
        self.values = {row.number: value_of(row, summary) for row in self.rows}
        self.completed = [row for row in self.rows if row.state is State.COMPLETED and self.value(row) is not None]
        self.shades = self._shades()
        self.edge = self._edge()

    def value(self, row: Row) -> float | None:
        return self.values[row.number]

    def shown(self, value: float | None) -> float | None:
        """Where a value of the first objective is drawn: at the edge if it is far off."""
        if value is None or self.edge is None:
            return value
        return max(value, self.edge) if self.summary.directions[0] == "maximize" else min(value, self.edge)

    def at_edge(self, note: str = "") -> str:
        """Words for that, after others."""
        side = "below" if self.summary.directions[0] == "maximize" else "above"
        words = [] if self.edge is None else [f"Values {side} {self.edge:.4g} stand at the edge."]
        return " ".join([note, *words]).strip()

    def of_kind(self, rows: Iterable[Row]) -> dict[str, list[Row]]:
        """Those of each kind, in the order in which they are drawn: what completed over all others."""
        found: dict[str, list[Row]] = {kind: [] for kind in ("waiting", "failed", "pruned", "running", "completed")}
        for row in rows:
            found[kind_of(row)].append(row)
        return {kind: some for kind, some in found.items() if some}

    def some(self, most: int) -> tuple[list[Row], str]:
        """At most so many trials, and words for which, if not all: the best, and of the others the newest."""
        if len(self.rows) <= most:
            return self.rows, ""
        best = [row for row in self.summary.top() if self.value(row) is not None][: most * 2 // 3]
        kept = {row.number for row in best}
        others = [row for row in reversed(self.rows) if row.number not in kept]
        others.sort(key=lambda row: row.state is not State.RUNNING)
        kept |= {row.number for row in others[: most - len(best)]}
        words = f"{len(kept)} of {len(self.rows)} trials: the best {len(best)}, and the newest of the others"
        return [row for row in self.rows if row.number in kept], words

    def _shades(self) -> dict[str, Any]:
        """Plotly's colour axis of the first objective; empty where no trial completed with one. A few values that are
        far off do not leave all others one colour.
        """
        values = sorted(self.value(row) or 0.0 for row in self.completed)
        if not values:
            return {}
        maximize = self.summary.directions[0] == "maximize"
        best, worst = (values[-1], values[0]) if maximize else (values[0], values[-1])
        ninth = values[len(values) // 10] if maximize else values[-1 - len(values) // 10]
        if abs(worst - best) > 5 * abs(ninth - best) > 0:
            worst = ninth
        bar = {"title": {"text": f"{short(self.summary.objective[0])}<br>\u00a0"}, "thickness": 12, "outlinewidth": 0}
        limits = {"cmin": min(best, worst), "cmax": max(best, worst)} if best != worst else {}
        return {"colorscale": "--scale", "reversescale": maximize, "colorbar": bar, **limits}

    def _edge(self) -> float | None:
        """Beyond it values are so far off that all others would look alike; None if there are none such."""
        values = sorted(self.value(row) or 0.0 for row in self.completed)
        known = [value for value in self.values.values() if value is not None]
        if len(values) < 5 or is_wide(known):
            return None
        maximize = self.summary.directions[0] == "maximize"
        best, worst = (values[-1], min(known)) if maximize else (values[0], max(known))
        spread = (values[len(values) // 10] if maximize else values[-1 - len(values) // 10]) - best
        return best + 2 * spread if abs(worst - best) > 4 * abs(spread) > 0 else None

    def level(self, row: Row) -> int:
        """Which level of the scale its objective has."""
        if "cmin" not in self.shades:
            return theme.LEVELS // 2  # the colour of what is done
        low, high = self.shades["cmin"], self.shades["cmax"]
        share = min(1.0, max(0.0, ((self.value(row) or 0.0) - low) / (high - low)))
        return round((theme.LEVELS - 1) * float(1 - share if self.shades["reversescale"] else share))

    def colors(self, bar: bool = False) -> dict[str, Any]:
        """For the layout of a figure whose points have the colour of their value; with a bar that tells them."""
        return {"coloraxis": {**self.shades, "showscale": bar}} if self.shades else {}


def kind_of(row: Row) -> str:
    if row.state in (State.COMPLETED, State.PRUNED, State.RUNNING):
        return str(row.state)
    return "failed" if row.state.is_bad else "waiting"


def value_of(row: Row, summary: Summary, i: int = 0) -> float | None:
    """The objective that it returned or, of a trial that did not complete, reported last; None without a number."""
    returned = row.objective[i] if len(row.objective) > i else None
    found = returned if returned is not None else row.metrics.get(summary.objective[i])
    return found if is_number(found) else None


def is_wide(values: Sequence[float]) -> bool:
    """Whether values are to be seen by their powers of ten."""
    return bool(values) and min(values) > 0 and max(values) >= 1000 * min(values)
