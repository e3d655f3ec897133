"""A study as it is known: its trials, frozen, and what they say together. Readers never write to it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State
from sweeps.wording import LONGEST, short, text

UNKNOWN = "which trial it was is not known: its trial.json cannot be read"
"""The error of a trial whose number alone is known."""


class By(StrEnum):
    """Who chose a trial."""

    GRID = "grid"
    SAMPLER = "sampler"
    PERSON = "person"
    REPEAT = "repeat"  # another seed of a configuration
    RACE = "race"  # a fresh seed of one of the best configurations


@dataclass(frozen=True)
class TrialRecord:
    """One trial."""

    number: int
    params: Point
    state: State
    folder: Path
    attempts: tuple[Outcome, ...] = ()  # the attempts that are over
    metrics: Mapping[str, float] = field(default_factory=dict)  # the newest that the trial reported, or returned
    tracking_s: float = 0.0  # seconds that the driver spent on showing the trial in MLflow
    by: By = By.GRID
    of: int | None = None  # the trial whose configuration this one runs under another seed
    seed: Mapping[str, int] = field(default_factory=dict)  # the seed that a repeat or the race gave it, by its key
    outside: bool = False  # whether the params lie outside of the search space
    added: str = ""  # the name under which a person added the trial
    forgiven: int = 0  # attempts that no longer count, because a person had the trial retried after them
    memory: Mapping[str, Any] = field(default_factory=dict)  # what the sampler keeps with the trial, opaque

    def with_end(self, end: Outcome) -> "TrialRecord":
        """Return the trial with the newest attempt's outcome, which then is the trial's."""
        attempts = self.attempts if end in self.attempts else (*self.attempts, end)
        return replace(self, state=end.state, metrics=end.metrics or self.metrics, attempts=attempts)

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
        """The objectives of a completed trial: a trial that was cut short has no result."""
        return self.objective if self.state is State.COMPLETED else []

    @property
    def race(self) -> bool:
        """Whether the trial is one of the final race."""
        return self.by is By.RACE

    @property
    def by_hand(self) -> bool:
        """Whether a person added the trial."""
        return self.by is By.PERSON

    @property
    def searched(self) -> bool:
        """Whether the study chose the trial to search on: not for its final race, and no person added it."""
        return self.by not in (By.RACE, By.PERSON)

    @property
    def infeasible(self) -> bool:
        return self.state is State.INFEASIBLE

    @property
    def unknown(self) -> bool:
        """Whether nothing tells any more which trial it was."""
        return not self.params and self.error == UNKNOWN

    @property
    def configuration(self) -> Point:
        """The params without the seed that a repeat or the race gave."""
        return {key: value for key, value in self.params.items() if key not in self.seed}

    @property
    def failure_signature(self) -> tuple[str, str]:
        """How the trial went wrong, numbers aside: trials that went wrong in the same way are shown together."""
        return self.state.replace("_", " "), re.sub(r"\d+", "", self.error)

    @property
    def name(self) -> str:
        """The swept values alone, which tell one trial from another: `optimizer=adam lr=0.001`."""
        shown = (f"{key.lstrip('+')}={short(text(value, digits=4), LONGEST)}" for key, value in self.params.items())
        return " ".join(shown) or f"trial {self.number}"


def within(trial: TrialRecord, holds: Callable[[Point], bool]) -> TrialRecord:
    """Return the trial as it lies in the space of now: one that was added outside of it may lie inside by now."""
    return replace(trial, outside=False) if trial.outside and holds(trial.configuration) else trial


@dataclass(frozen=True)
class Added:
    """A trial that a person wants, begun or not."""

    name: str
    params: Point
    outside: bool  # of the search space


ENOUGH = 10
"""Completed trials from which on the importance of a parameter is told."""


@dataclass(frozen=True)
class StudySnapshot:
    """A study and all its trials. While a driver runs, `rows` shows its trials as they stand at each look."""

    name: str
    folder: Path
    objective: tuple[str, ...]  # the name of each, such as val_accuracy
    directions: tuple[str, ...]  # minimize or maximize, for each objective
    rows: Sequence[TrialRecord]
    planned: int | None = None
    """How many points the study tries by itself, without repeats, race and what a person adds; None if unknown."""
    importance: Mapping[str, float] = field(default_factory=dict)
    """The share of each parameter in the variance of the first objective, where there was a search."""
    fixed: Mapping[str, str] = field(default_factory=dict)  # the values that all trials share, as text
    space: Mapping[str, str] = field(default_factory=dict)  # what is swept, and over which values, as one types them
    searched: bool = False  # whether a sampler chose its trials
    done: str = ""  # why it is, though not all of its trials were tried: it reached its target, for one
    again: str = ""  # what to type for the command line of its best trial
    seed_key: str = "seed"  # trials that differ in this alone are one configuration
    repeats: int = 1  # seeds that each configuration of a search runs under
    size: int | None = None  # how many points the search space has; None if nobody knows, or endless
    added: Sequence[Added] = ()
    shared: Mapping[str, Any] = field(default_factory=dict)  # what the sampler keeps with the study, opaque
    changes: Sequence[int] = ()
    """The number of a trial for each time that it was asked for, ended or reopened, in this order."""
    under_way: Set[int] = frozenset()
    """The trials that this driver has started, or made ready to start."""
    open_numbers: Set[int] = frozenset()
    """The trials that have not ended for good."""
    enough: bool = False  # whether the search reached its target or lost its patience: only race and person go on

    @property
    def open(self) -> list[TrialRecord]:
        """The trials that have not ended for good, by number."""
        return [self.rows[number] for number in sorted(self.open_numbers)]

    @property
    def total(self) -> int | None:
        """How many trials there will be: with the repeats, the trials of the final race that have begun, and those that
        a person added. None if nobody knows.
        """
        if self.planned is None:
            return None
        added = [row for row in self.rows if row.by_hand]
        begun = {row.added for row in added}
        waiting = [wanted for wanted in self.added if wanted.name not in begun]
        outside = sum(row.outside for row in added) + sum(wanted.outside for wanted in waiting)
        lone = sum(not row.seed and self.repeats > 1 for row in added)  # of the version before
        points = self.planned + len(added) + len(waiting) - outside
        points = points if self.size is None else min(points, max(self.size, self.planned))
        whole = (points + outside - lone) * self.repeats + lone
        beside = sum(row.race or row.unknown for row in self.rows)
        return whole - self._left_out() + beside

    def _left_out(self) -> int:
        """How many repeats are not begun, because their configuration was given up."""
        from sweeps.record.replicates import by_first

        if self.repeats == 1:
            return 0
        given_up = (one for one in by_first(self.rows).values() if any(row.state.decides for row in one))
        return sum(max(0, self.repeats - len(one)) for one in given_up)

    def with_tracking(self, seconds: Mapping[int, float]) -> "StudySnapshot":
        """Return the study with what showing each trial in MLflow took, in seconds, by the trials' numbers."""
        return replace(self, rows=[replace(row, tracking_s=seconds.get(row.number, 0.0)) for row in self.rows])

    def top(self, count: int | None = None) -> list[TrialRecord]:
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

    def pareto_front(self) -> list[TrialRecord]:
        """The trials on that front, best first by the first objective."""
        return self.top(len(self.front()))

    def best(self) -> TrialRecord | None:
        return next(iter(self.top(1)), None)

    def count(self, *states: State) -> int:
        return sum(row.state in states for row in self.rows)

    def bad(self) -> list[TrialRecord]:
        """The trials that ended without a result that counts."""
        return [row for row in self.rows if row.state.is_bad]

    @property
    def all_failed(self) -> bool:
        """Whether there is nothing to see but why its trials failed."""
        alive = self.count(State.COMPLETED, State.PRUNED, State.INFEASIBLE, State.RUNNING)
        return bool(self.bad()) and not alive

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


def look(trial: TrialRecord) -> TrialRecord:
    """Return the trial as its folder shows it, where no driver has recorded its end."""
    folder = TrialFolder(trial.folder)
    trial = replace(trial, attempts=tuple(folder.ends()))
    newest = folder.newest()
    if newest is None:
        return trial
    if not (newest.is_over and trial.attempts):
        return replace(trial, state=State.QUEUED if newest.began() is None else State.RUNNING)
    trial = trial.with_end(trial.attempts[-1])
    goes_on = trial.state in (State.LOST, State.TIMED_OUT) or len(trial.attempts) <= trial.forgiven
    return replace(trial, state=State.QUEUED) if goes_on else trial


def result_of(row: TrialRecord, summary: StudySnapshot) -> str:
    """A trial's objectives with their names."""
    return " ".join(f"{name}={value:.6g}" for name, value in zip(summary.objective, row.objective, strict=False))


def parameters(rows: Iterable[TrialRecord]) -> list[str]:
    """Every parameter that was swept in some of these trials."""
    return list(dict.fromkeys(name for row in rows for name in row.params))


def by_way(rows: Iterable[TrialRecord]) -> list[list[TrialRecord]]:
    """Trials that went wrong, those that did so in the same way together."""
    alike: dict[tuple[str, str], list[TrialRecord]] = {}
    for row in rows:
        alike.setdefault(row.failure_signature, []).append(row)
    return [*alike.values()]
