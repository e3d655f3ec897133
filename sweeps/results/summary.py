"""A study as a table: what reports, the terminal and the dashboard are made from."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.secrets import without_password
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import End, Point, State

_STEERS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass
class Row:
    """One trial."""

    number: int
    params: Point
    state: State
    folder: Path
    attempts: list[End] = field(default_factory=list)  # those that are over
    metrics: dict[str, float] = field(default_factory=dict)  # what it reported last, or returned
    tracking_s: float = 0.0  # what the driver spent on showing the trial in MLflow, in seconds
    by_hand: bool = False  # whether a person added it, beside what the study tries by itself
    forgiven: int = 0  # the attempts that no longer count: a person had the trial retried after them
    repeat: Mapping[str, Any] = field(default_factory=dict)
    """Of a trial that has a seed of its own: `seed`, by its key; `of`, the trial that it repeats, if another one; and
    `race`, whether it is one of the final race."""

    def take(self, end: End) -> None:
        """Hold how the newest attempt ended, and the trial with it."""
        self.state = end.state
        self.metrics = end.metrics or self.metrics
        if end not in self.attempts:
            self.attempts.append(end)

    @property
    def error(self) -> str:
        """Why the trial ended so; empty while it goes on."""
        going_on = not self.attempts or self.state in (State.QUEUED, State.RUNNING)
        return "" if going_on else self.attempts[-1].error

    @property
    def objective(self) -> list[float]:
        """One value for each objective of the study; empty unless the trial returned them."""
        return self.attempts[-1].objective if self.attempts and self.state.is_over else []

    @property
    def result(self) -> list[float]:
        """The objectives of a trial that completed: those of one that was cut short are no result."""
        return self.objective if self.state is State.COMPLETED else []

    @property
    def of(self) -> int | None:
        """The trial whose configuration it repeats under another seed."""
        return self.repeat.get("of")

    @property
    def race(self) -> bool:
        return bool(self.repeat.get("race"))

    @property
    def infeasible(self) -> bool:
        """Whether it ended because it cannot run here: what a pruner ends had begun."""
        return self.state is State.PRUNED and not any(end.began for end in self.attempts)

    @property
    def way(self) -> tuple[str, str]:
        """How it went wrong, numbers aside: trials that went wrong in the same way are told of together."""
        return "infeasible" if self.infeasible else self.state.replace("_", " "), re.sub(r"\d+", "", self.error)

    @property
    def name(self) -> str:
        """The swept values alone, which is what tells one trial from another: `optimizer=adam lr=0.001`."""
        shown = (f"{key.lstrip('+')}={short(text(value, digits=4), LONGEST)}" for key, value in self.params.items())
        return " ".join(shown) or f"trial {self.number}"


LONGEST = 100
"""Characters of a value where many stand side by side."""
ENOUGH = 10
"""Completed trials from which on the importance of a parameter is told."""


@dataclass
class Summary:
    """A study and all its trials."""

    name: str
    folder: Path
    objective: tuple[str, ...]  # the name of each, such as val_accuracy
    directions: tuple[str, ...]  # minimize or maximize, for each objective
    rows: list[Row]
    total: int | None = None  # how many trials the study will have; None if nobody knows
    importance: dict[str, float] = field(default_factory=dict)
    """The share of each parameter in the variance of the first objective, where there was a search."""
    fixed: Mapping[str, str] = field(default_factory=dict)  # the values that all trials share, as text
    note: str = ""  # the study in short, once its report was written
    space: Mapping[str, str] = field(default_factory=dict)  # what is swept, and over which values, as one types them
    searched: bool = False  # whether a sampler chose its trials
    done: str = ""  # why it is, though not all of its trials were tried: it reached its target, for one
    again: str = ""  # what to type for the command line of its best trial
    seed_key: str = "seed"  # trials that differ in this alone are one configuration

    def top(self, count: int | None = None) -> list[Row]:
        """The completed trials, best first by the first objective, of several objectives the front before all others;
        of these the first `count`.
        """
        sign, front = -1 if self.directions[0] == "maximize" else 1, self.front()
        done = [row for row in self.rows if row.result]
        return sorted(done, key=lambda row: (row.number not in front, sign * row.objective[0], row.number))[:count]

    def front(self) -> set[int]:
        """Of several objectives, the numbers of the completed trials that no other dominates: is as good in all of
        them, and better in one. They are the study's answer. Empty where there is one objective.
        """
        if len(self.directions) < 2:
            return set()
        signs = [-1 if direction == "maximize" else 1 for direction in self.directions]
        done = [row for row in self.rows if row.result]
        found: list[tuple[list[float], int]] = []
        for values, number in sorted(
            ([s * v for s, v in zip(signs, r.objective, strict=True)], r.number) for r in done
        ):
            # None that comes later in this order dominates an earlier one.
            if not any(all(a <= b for a, b in zip(one, values, strict=True)) and one != values for one, _ in found):
                found.append((values, number))
        return {number for _, number in found}

    def undominated(self) -> list[Row]:
        """The trials on that front, best first by the first objective."""
        return self.top(len(self.front()))

    def best(self) -> Row | None:
        return next(iter(self.top(1)), None)

    def count(self, *states: State) -> int:
        return sum(row.state in states for row in self.rows)

    def bad(self) -> list[Row]:
        """The trials that ended without a result that counts."""
        return [row for row in self.rows if row.state.is_bad]

    @property
    def all_failed(self) -> bool:
        """Whether there is nothing to see but why its trials failed."""
        return bool(self.bad()) and not self.count(State.COMPLETED, State.PRUNED, State.RUNNING)

    def over(self) -> int:
        """How many trials have ended for good."""
        return sum(row.state.is_over for row in self.rows)

    def numbers(self) -> list[str]:
        """The parameters whose values are all numbers, the most important first."""
        found = {name: [row.params[name] for row in self.rows if name in row.params] for name in parameters(self.rows)}
        numeric = [
            name
            for name, values in found.items()
            if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        ]
        return sorted(numeric, key=lambda name: -self.importance.get(name, 0.0))

    def table(self, rows: Sequence[Row]) -> list[list[str]]:
        """Some of its trials as rows of cells: number, parameters and objectives, of one that runs those that it
        reported last; with several objectives whether it is on the front, unless all are. The first row is the header.
        """
        params, front = parameters(rows), self.front()
        told = 0 < len(front) < len(self.top())
        cells = [["trial", *params, *self.objective, *["on the front"] * told]]
        for row in rows:
            values = [row.params.get(name, "") for name in params]
            last = row.metrics if row.state is State.RUNNING else {}
            results: Sequence[object] = row.objective or [last.get(name, "") for name in self.objective]
            mark = ["yes" if row.number in front else ""] * told
            cells.append([short(text(value), LONGEST) for value in (row.number, *values, *results, *mark)])
        return cells


def look(row: Row) -> Row:
    """The trial as its folder shows it, where no driver has recorded its end."""
    folder = TrialFolder(row.folder)
    row.attempts = folder.ends()
    newest = folder.newest()
    if newest is None:
        return row
    row.state = State.QUEUED if newest.began() is None else State.RUNNING
    if newest.is_over and row.attempts:
        row.take(row.attempts[-1])
        if row.state in (State.LOST, State.TIMED_OUT) or len(row.attempts) <= row.forgiven:
            row.state = State.QUEUED  # it goes on, or is retried
    return row


def result_of(row: Row, summary: Summary) -> str:
    """A trial's objectives with their names."""
    return " ".join(f"{name}={value:.6g}" for name, value in zip(summary.objective, row.objective, strict=False))


def parameters(rows: Iterable[Row]) -> list[str]:
    """Every parameter that was swept in some of these trials."""
    return list(dict.fromkeys(name for row in rows for name in row.params))


def by_way(rows: Iterable[Row]) -> list[list[Row]]:
    """Trials that went wrong, those that did so in the same way together."""
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault(row.way, []).append(row)
    return [*alike.values()]


def printable(words: str) -> str:
    """As a person may see it: without passwords, and without what would steer a terminal."""
    return without_password(_STEERS.sub("", words))


def text(value: object, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def counted(count: int, what: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{count} {what}{'s' * (count != 1)}"


def short(words: str, most: int = 24) -> str:
    return words if len(words) <= most else f"{words[: most // 2]}…{words[-most // 2 + 1 :]}"
