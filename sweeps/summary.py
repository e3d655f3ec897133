"""A study as a table: what reports, the terminal and the dashboard are made from."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.search_space import Point
from sweeps.trial_folder import AttemptEnd, Result, State, TrialFolder


@dataclass
class Row:
    """One trial. `objective` has one value for each objective of the study, or is empty."""

    number: int
    params: Point
    state: State
    folder: Path
    objective: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""
    attempts: list[AttemptEnd] = field(default_factory=list)
    """Those that are over."""
    tracking_s: float = 0.0
    """What the driver spent on showing the trial in MLflow, in seconds."""

    def take(self, result: Result) -> None:
        """Hold how the trial ended."""
        self.state, self.objective, self.error = result.state, result.objective, result.error
        self.metrics = result.metrics or self.metrics

    @property
    def name(self) -> str:
        """The swept values alone, which is what tells one trial from another: `optimizer=adam lr=0.001`."""
        shown = (f"{key.lstrip('+')}={_short(value)}" for key, value in self.params.items())
        return " ".join(shown) or f"trial {self.number}"


@dataclass
class Summary:
    """A study and all its trials."""

    name: str
    folder: Path
    objective: tuple[str, ...]
    """The name of each objective, such as val_accuracy."""
    directions: tuple[str, ...]
    """minimize or maximize, for each objective."""
    rows: list[Row]
    total: int | None = None
    """How many trials the study will have; None if nobody knows."""
    importance: dict[str, float] = field(default_factory=dict)
    """The share of each parameter in the variance of the first objective, where there was a search."""

    def top(self, count: int = 10) -> list[Row]:
        """The best completed trials by the first objective, best first."""
        sign = -1 if self.directions[0] == "maximize" else 1
        done = [row for row in self.rows if row.state is State.COMPLETED and row.objective]
        return sorted(done, key=lambda row: (sign * row.objective[0], row.number))[:count]

    def best(self) -> Row | None:
        return next(iter(self.top(1)), None)

    def count(self, *states: State) -> int:
        return sum(row.state in states for row in self.rows)

    def bad(self) -> list[Row]:
        """The trials that ended without a result that counts."""
        return [row for row in self.rows if row.state.is_bad]

    def over(self) -> int:
        """How many trials have ended for good."""
        return sum(row.state.is_over for row in self.rows)


def with_results(summary: Summary) -> Summary:
    """The summary with what only the folders hold of trials that ended under an earlier driver."""
    for row in summary.rows:
        folder = TrialFolder(row.folder)
        result = folder.read_result() if row.state.is_over and not row.metrics else None
        if result is not None:
            row.metrics = result.metrics
        row.tracking_s = row.tracking_s or folder.read_tracking().get("seconds", 0.0)
    return summary


def _short(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return str(value)
