"""A snapshot of a study: its frozen trials, their counts and their best. Readers never write to
it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import le, mul
from pathlib import Path
from statistics import fmean
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.wording import LONGEST, short, text
from sweeps.space.exclusion import Excluded, Restored, is_number
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State

UNKNOWN = "which trial it was is not known: its trial.json cannot be read"
"""The error of a trial of which only the number is known. It is in journals, and so must not
change."""


class By(StrEnum):
    """The origin of a trial."""

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
    attempts: tuple[Outcome, ...] = ()  # outcomes of the attempts that are over
    # newest metrics that the trial reported or returned
    metrics: Mapping[str, float] = field(default_factory=dict)
    step: int = 0  # newest step that the trial reported
    tracking_s: float = 0.0  # seconds that the driver spent on showing the trial in MLflow
    by: By = By.GRID
    of: int | None = None  # number of the first trial of the same configuration
    # seed of a replicate or of the race, by its key
    seed: Mapping[str, int] = field(default_factory=dict)
    outside: bool = False  # whether the params are outside of the search space
    added: str = ""  # name of a person's request for the trial
    to_end: bool = False  # whether the trial pauses at no further rung
    # overrides with which a person let the trial train longer
    longer: tuple[str, ...] = ()
    forgiven: int = 0  # number of attempts that do not count, because a person retried the trial
    memory: Mapping[str, Any] = field(default_factory=dict)  # opaque state of the sampler

    def with_end(self, end: Outcome) -> "TrialRecord":
        """Return the trial with the outcome of its newest attempt."""
        attempts = self.attempts if end in self.attempts else (*self.attempts, end)
        step = max(self.step, end.step)
        metrics = end.metrics or self.metrics
        return replace(self, state=end.state, metrics=metrics, step=step, attempts=attempts)

    @property
    def error(self) -> str:
        """Return the error of the last attempt; empty while the trial is queued or running."""
        is_open = not self.attempts or self.state in (State.QUEUED, State.RUNNING)
        return "" if is_open else self.attempts[-1].error

    @property
    def gpu_use(self) -> float | None:
        """Return the mean utilization of the GPUs in the last attempt (%); None without GPUs."""
        return self.attempts[-1].gpu_use if self.attempts else None

    @property
    def objective(self) -> list[float]:
        """Return one value for each objective of the study; empty unless the trial returned
        them."""
        return self.attempts[-1].objective if self.attempts and self.state.is_settled else []

    @property
    def result(self) -> list[float]:
        """Return the objectives of a completed trial; empty for any other trial."""
        return self.objective if self.state is State.COMPLETED else []

    @property
    def first(self) -> int:
        """Return the number of the first trial of the same configuration."""
        return self.number if self.of is None else self.of

    @property
    def race(self) -> bool:
        """Return whether the trial belongs to the final race."""
        return self.by is By.RACE

    @property
    def by_hand(self) -> bool:
        """Return whether a person added the trial."""
        return self.by is By.PERSON

    @property
    def searched(self) -> bool:
        """Return whether the search or the grid chose the trial, not the final race or a person."""
        return self.by not in (By.RACE, By.PERSON)

    @property
    def ends_with_search(self) -> bool:
        """Return whether the trial no longer starts once the search has enough."""
        return self.searched and not self.to_end

    @property
    def infeasible(self) -> bool:
        return self.state is State.INFEASIBLE

    @property
    def unknown(self) -> bool:
        """Return whether the params are lost, so that only the number is known."""
        return not self.params and self.error == UNKNOWN

    @property
    def configuration(self) -> Point:
        """Return the params without the seed of a replicate or of the race."""
        return {key: value for key, value in self.params.items() if key not in self.seed}

    @property
    def failure_signature(self) -> tuple[str, str]:
        """Return the state and the error without digits, which similar failures share."""
        return self.state.replace("_", " "), re.sub(r"\d+", "", self.error)

    @property
    def name(self) -> str:
        """Return the swept values, such as `optimizer=adam lr=0.001`."""
        shown = (
            f"{key.lstrip('+')}={short(text(value, digits=4), LONGEST)}"
            for key, value in self.params.items()
        )
        return " ".join(shown) or f"trial {self.number}"

    @property
    def short_name(self) -> str:
        """Return the name with the last parts of the keys, if these differ: `momentum=0.9` of
        `optimizer.momentum`."""
        last = {key: key.rpartition(".")[2].lstrip("+") for key in self.params}
        if len(set(last.values())) < len(last):
            return self.name
        return replace(self, params={last[key]: value for key, value in self.params.items()}).name


Trials = Sequence[TrialRecord]


def update_outside(trial: TrialRecord, contains: Callable[[Point], bool]) -> TrialRecord:
    """Return the trial, no longer marked as outside if the search space has grown around it."""
    is_inside = trial.outside and contains(trial.configuration)
    return replace(trial, outside=False) if is_inside else trial


@dataclass(frozen=True)
class Added:
    """A trial that a person requested, begun or not."""

    name: str
    params: Point
    outside: bool  # whether the params are outside of the search space
    by: str = ""  # name of the user
    at: float = 0.0  # s since 1970


MIN_FOR_IMPORTANCE = 10
"""Number of completed trials from which the importance of parameters is shown."""


@dataclass(frozen=True)
class StudySnapshot:
    """A study and all its trials. While a driver runs, `rows` shows the current state of each
    trial."""

    name: str
    folder: Path
    objective: tuple[str, ...]  # names of the objectives, such as val_accuracy
    directions: tuple[str, ...]  # minimize or maximize for each objective
    rows: Sequence[TrialRecord]
    # number of points without replicates, race and added trials; None if unknown
    planned: int | None = None
    # parameters' fractions of the objective's variance
    importance: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)  # values that all trials share, as text
    # values of each swept parameter, as one types them
    space: Mapping[str, str] = field(default_factory=dict)
    searched: bool = False  # whether a sampler chose the trials
    done: str = ""  # why the study is done early, such as a target that was reached
    command: str = ""  # command line that started the study
    best_command: str = ""  # command that prints the command line of the best trial
    # key of the seed; trials that differ in the seed alone are one configuration
    seed_key: str = "seed"
    repeats: int = 1  # number of seeds that each configuration of a search runs under
    size: int | None = None  # number of points of the search space; None if unknown or endless
    added: Sequence[Added] = ()
    excluded: Sequence[Excluded] = ()  # conditions that a person added, oldest first
    restored: Sequence[Restored] = ()  # exclusions that a person removed again, oldest first
    shared: Mapping[str, Any] = field(default_factory=dict)  # opaque state of the sampler
    # number of the trial for each event (queued, ended, reopened), in order
    changes: Sequence[int] = ()
    # numbers of the trials that this driver has started, or made ready to start
    under_way: Set[int] = frozenset()
    open_numbers: Set[int] = frozenset()  # numbers of the trials that are not over
    # whether target or patience stopped the search: only the race and added trials still start
    enough: bool = False

    @property
    def open(self) -> list[TrialRecord]:
        """Return the trials that are not over, by number."""
        return [self.rows[number] for number in sorted(self.open_numbers)]

    @property
    def total(self) -> int | None:
        """Return the final number of trials; None if unknown.

        The number includes replicates, added trials, and the trials of the final race that have
        begun.
        """
        if self.planned is None:
            return None
        begun = [trial for trial in self.rows if trial.by_hand]
        names = {trial.added for trial in begun}
        waiting = [addition for addition in self.added if addition.name not in names]
        outside = sum(trial.outside for trial in begun)
        outside += sum(addition.outside for addition in waiting)
        inside = self.planned + len(begun) + len(waiting) - outside
        if (size := self._final_size()) is not None:
            inside = min(inside, size)

        replicates = (inside + outside) * self.repeats
        further = sum(trial.race or trial.unknown for trial in self.rows)
        return replicates - self._left_out() + further

    def _final_size(self) -> int | None:
        """Return the number of points that the search may still have; None if it is endless."""
        if self.excluded:
            return self.excluded[-1].size
        if self.size and self.planned:
            return max(self.size, self.planned)
        return self.size

    def _left_out(self) -> int:
        """Return the number of replicates that never begin, because the configuration failed or was
        pruned."""
        if self.repeats == 1:
            return 0
        count = 0
        for trials in by_first(self.rows).values():
            if any(trial.state.decides for trial in trials):
                count += max(0, self.repeats - len(trials))
        return count

    def trial(self, number: int) -> TrialRecord:
        """Return the trial of this number. Raises UserError if there is none."""
        if not 0 <= number < len(self.rows):
            numbers = f"It has 0 to {len(self.rows) - 1}" if self.rows else "It has no trial yet"
            raise UserError(
                f"--trial {number}: study {self.name} has no trial {number}.\n{numbers}"
            )
        return self.rows[number]

    def with_tracking(self, seconds: Mapping[int, float]) -> "StudySnapshot":
        """Return the study with the seconds that each trial took to show in MLflow, by the trials'
        numbers."""
        rows = [replace(row, tracking_s=seconds.get(row.number, 0.0)) for row in self.rows]
        return replace(self, rows=rows)

    def top(self, count: int | None = None) -> list[TrialRecord]:
        """Return the `count` best completed trials, or all, sorted by the first objective.

        With several objectives the Pareto front comes before all other trials.
        """
        sign = -1 if self.directions[0] == "maximize" else 1
        front = self.front()
        completed = [trial for trial in self.rows if trial.result]
        completed.sort(
            key=lambda trial: (trial.number not in front, sign * trial.objective[0], trial.number)
        )
        return completed[:count]

    def front(self) -> set[int]:
        """Return the numbers of the trials on the Pareto front: the trials that no other trial
        dominates.

        A trial dominates another if it is as good in all objectives and better in one. Empty for a
        single objective.
        """
        if len(self.directions) < 2:
            return set()
        signs = [-1 if direction == "maximize" else 1 for direction in self.directions]
        points = []
        for trial in self.rows:
            if trial.result:
                values = [*map(mul, signs, trial.objective)]
                points.append((values, trial.number))

        front: list[tuple[list[float], int]] = []
        # sorted, because then no later point dominates an earlier point
        for values, number in sorted(points):
            if not any(all(map(le, best, values)) and best != values for best, _ in front):
                front.append((values, number))
        return {number for _, number in front}

    def pareto_front(self) -> list[TrialRecord]:
        """Return the trials on the Pareto front, best first by the first objective."""
        return self.top(len(self.front()))

    @property
    def has_objective(self) -> bool:
        """Return whether a trial has returned the objective."""
        return any(trial.objective for trial in self.rows)

    def best(self) -> TrialRecord | None:
        return next(iter(self.top(1)), None)

    def in_state(self, *states: State) -> list[TrialRecord]:
        return [row for row in self.rows if row.state in states]

    def count(self, *states: State) -> int:
        return len(self.in_state(*states))

    def bad(self) -> list[TrialRecord]:
        """Return the trials that ended without a result that counts."""
        return [row for row in self.rows if row.state.is_bad]

    @property
    def all_failed(self) -> bool:
        """Return whether trials failed, and none completed, was pruned or paused, was infeasible
        or is running."""
        well = (State.COMPLETED, State.PRUNED, State.PAUSED, State.INFEASIBLE, State.RUNNING)
        alive = self.count(*well)
        return bool(self.bad()) and not alive

    def over(self) -> int:
        """Return the number of trials that are over, or paused."""
        return sum(row.state.is_settled for row in self.rows)

    def numbers(self) -> list[str]:
        """Return the parameters whose values are all numbers, the most important first."""
        numeric = dict.fromkeys(parameters(self.rows), True)
        for trial in self.rows:
            for name, value in trial.params.items():
                numeric[name] &= is_number(value)
        names = [name for name, is_numeric in numeric.items() if is_numeric]
        return sorted(names, key=lambda name: -self.importance.get(name, 0.0))


def read_state(trial: TrialRecord) -> TrialRecord:
    """Return the trial, whose end no driver has recorded, with the state that its folder shows."""
    folder = TrialFolder(trial.folder)
    trial = replace(trial, attempts=tuple(folder.ends()))
    newest = folder.newest()
    if newest is None:
        return trial
    if not (newest.is_over and trial.attempts):
        return replace(trial, state=State.QUEUED if newest.began() is None else State.RUNNING)
    trial = trial.with_end(trial.attempts[-1])
    resumes = trial.state in (State.LOST, State.TIMED_OUT) or len(trial.attempts) <= trial.forgiven
    return replace(trial, state=State.QUEUED) if resumes else trial


def result_of(trial: TrialRecord, study: StudySnapshot) -> str:
    """Return a trial's objectives with their names, as text."""
    return " ".join(
        f"{name}={value:.6g}" for name, value in zip(study.objective, trial.objective, strict=False)
    )


def parameters(trials: Iterable[TrialRecord]) -> list[str]:
    """Return the name of each parameter that some of these trials sweep."""
    return list(dict.fromkeys(name for trial in trials for name in trial.params))


def by_failure_signature(trials: Iterable[TrialRecord]) -> list[list[TrialRecord]]:
    """Group failed trials by their failure signature."""
    groups: dict[tuple[str, str], list[TrialRecord]] = {}
    for trial in trials:
        groups.setdefault(trial.failure_signature, []).append(trial)
    return [*groups.values()]


def by_first(trials: Iterable[TrialRecord]) -> dict[int, list[TrialRecord]]:
    """Return the trials of each configuration, without the final race's, by the number of its first
    trial."""
    configurations: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        if not trial.race:
            configurations.setdefault(trial.first, []).append(trial)
    return configurations


def verdict(trials: Sequence[TrialRecord], repeats: int) -> Outcome | None:
    """Return the outcome of a configuration that runs under `repeats` seeds; None as long as it is
    open.

    The objective is the mean over the trials. A trial that is pruned or fails decides the outcome
    at once. Trials that were lost or timed out are left out of the mean.
    """
    ended = [trial for trial in trials if trial.state.is_over]
    decisive = [trial.attempts[-1] for trial in ended if trial.state.decides]
    if decisive:
        # first by time, because numbers start in any order
        return min(decisive, key=lambda outcome: outcome.ended_at)
    if len(ended) < repeats:
        return None
    completed = [trial.attempts[-1] for trial in ended if trial.result]
    if not completed:
        return ended[-1].attempts[-1]
    columns = zip(*(outcome.objective for outcome in completed), strict=True)
    means = [*map(fmean, columns)]
    return replace(completed[0], state=State.COMPLETED, objective=means)
