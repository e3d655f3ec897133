"""When a study has enough: it reached its target, stopped improving, spent its budget, or too many
trials failed."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean

from sweeps.analysis.configurations import LOST, by_configuration
from sweeps.base.wording import counted
from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.space.exclusion import is_number, is_same
from sweeps.space.space import canonical
from sweeps.study.run.attempt import Attempt
from sweeps.trial.job import Point, State, Value

_RIDGE = 0.1


@dataclass(frozen=True)
class Enough:
    """Why no further trial starts, in words."""

    reason: str
    # the setting to change for further trials; empty if that alone would not help
    setting: str = ""
    reached_goal: bool = False  # whether the study reached its goal


@dataclass(frozen=True)
class Budget:
    """The limits of one study, compared with what its trials returned and used."""

    settings: SweeperConf
    study: StudySnapshot
    clock: Callable[[], float]

    def judge_results(self) -> Enough | None:
        """Return why the search ends: the target is reached, too many trials brought no
        improvement, or the epochs are spent.

        Results are what trials returned; with `repeats`, the mean of each configuration. The final
        race does not count.
        """
        if spent := self._judge_epochs():
            return spent
        target = self.settings.target
        patience = self.settings.patience
        if target is None and patience is None:
            return None

        sign = -1 if self.settings.directions[0] == "maximize" else 1
        best_value, best_trial, count = self._best_result(sign, patience)
        if not best_trial:
            return None
        if target is not None and best_value <= sign * target:
            result = f"{self.study.objective[0]}={sign * best_value:.6g}"
            reason = f"{best_trial} reached target={target:g} with {result}"
            return Enough(reason, "target", reached_goal=True)
        if count == patience:
            kind = "trial" if self.settings.repeats == 1 else "configuration"
            ended = f"{counted(count, kind)} ended without an improvement on {best_trial}"
            return Enough(f"{ended} (patience={patience})", "patience", reached_goal=True)
        return None

    def _judge_epochs(self) -> Enough | None:
        limit = self.settings.max_epochs
        if limit is None:
            return None
        epochs = sum(trial.step for trial in self.study.rows)
        if epochs < limit:
            return None
        reason = f"{counted(epochs, 'epoch')} are spent (max_epochs={limit})"
        return Enough(reason, "max_epochs", reached_goal=True)

    def _best_result(self, sign: int, patience: int | None) -> tuple[float, str, int]:
        """Return the least value, its trial, and how many results came after it; up to the result
        with which the patience is spent."""
        best_value = math.inf
        best_trial = ""
        count = 0
        for _, value, trial in sorted(self._results(sign)):
            count += 1
            if value < best_value:
                best_value = value
                best_trial = trial
                count = 0
            if best_trial and count == patience:
                break  # because patience is not renewed by trials that were still running
        return best_value, best_trial, count

    def judge_spending(self, running: Collection[Attempt]) -> Enough | None:
        """Return why nothing further may start: too many trials failed, or a budget is spent; else
        None."""
        rate = self.settings.max_failure_rate
        if rate is not None:
            count = len(self.study.bad())
            # `planned` comes first because `total`, which is never less, looks at every trial.
            if count > rate * (self.study.planned or 0) and count > rate * (self.study.total or 0):
                failed = f"{counted(count, 'trial')} failed"
                return Enough(f"{failed}, more than max_failure_rate={rate} allows")
        for name, hours_used in (("max_gpu_hours", self._gpu_hours), ("max_hours", self._hours)):
            limit = getattr(self.settings, name)
            if limit is not None and hours_used(running) >= limit:
                return Enough(f"the budget of {name}={limit} is spent", name)
        return None

    def predict_overrun(self, attempt: Attempt, running: Collection[Attempt]) -> Enough | None:
        """Return which budget would be exceeded if this attempt started now; None if none, or if no
        duration is known.

        Running attempts count with their predicted ends; queued attempts do not count.
        """
        limit = self.settings.max_hours
        gpu_limit = self.settings.max_gpu_hours
        if self.settings.budget_overrun or (limit is None and gpu_limit is None):
            return None
        hours = self._left_hours(attempt)
        if hours is None:
            return None
        prediction = f"trial {attempt.trial.number} is predicted to take {hours:.3g} hours"
        if limit is not None:
            used = self._hours(running)
            if used + hours > limit:
                return _overrun(prediction, "max_hours", limit, used)

        gpus = attempt.job.request.gpus
        if gpu_limit is not None and gpus:
            used = self._gpu_hours(running)
            used += sum(other.job.request.gpus * self._rest_hours(other) for other in running)
            if used + gpus * hours > gpu_limit:
                prediction = f"{prediction} on {gpus:.3g} GPUs"
                return _overrun(prediction, "max_gpu_hours", gpu_limit, used)
        return None

    def _results(self, sign: int) -> Iterator[tuple[float, float, str]]:
        """Yield when each result was complete (s), its value, and its trial. Less is better; a
        failure is inf."""
        trials = [trial for trial in self.study.rows if not trial.infeasible and not trial.race]
        groups = [[trial] for trial in trials]
        if self.settings.repeats > 1:
            configurations = by_configuration(trials, self.settings.seed_key)
            groups = [configuration.rows for configuration in configurations]
        for group in groups:
            ended = [trial for trial in group if trial.state.is_over and trial.attempts]
            value = self._value_of(group[0], ended, sign)
            if value is not None:
                completed_at = max(trial.attempts[-1].ended_at for trial in ended)
                yield completed_at, value, f"trial {group[0].number}"

    def _value_of(
        self, first: TrialRecord, ended: Sequence[TrialRecord], sign: int
    ) -> float | None:
        """Return the mean result of a configuration, of which these trials have ended; None while
        it is incomplete."""
        if any(trial.state not in (State.COMPLETED, *LOST) for trial in ended):
            return math.inf
        needed = self.settings.repeats if self.settings.seed_key in first.params else 1
        if len(ended) < needed:
            return None
        values = [sign * trial.result[0] for trial in ended if trial.result]
        return fmean(values) if values else math.inf

    def _gpu_hours(self, running: Collection[Attempt]) -> float:
        hours = sum(outcome.gpu_hours for trial in self.study.rows for outcome in trial.attempts)
        for attempt in running:
            hours += attempt.job.request.gpus * self._passed_hours(attempt)
        return hours

    def _passed_hours(self, attempt: Attempt) -> float:
        return (self.clock() - attempt.started_at) / 3600 if attempt.started_at else 0.0

    def _hours(self, running: Collection[Attempt]) -> float:
        """Return the hours in which a trial was queued or running, under this driver and all
        earlier drivers."""
        outcomes = chain.from_iterable(trial.attempts for trial in self.study.rows)
        spans = [(outcome.queued_at, outcome.ended_at) for outcome in outcomes]
        for attempt in running:
            begin = min(attempt.queued_at, attempt.started_at or attempt.queued_at)
            spans.append((begin, self.clock()))
        total_s = 0.0
        until = 0.0
        for begin, end in sorted(spans):
            total_s += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total_s / 3600

    def _rest_hours(self, attempt: Attempt) -> float:
        """Return how long an attempt still runs, in hours; 0 if it has not started, or its duration
        is unknown."""
        if not attempt.started_at:
            return 0.0
        return max(0.0, (self._left_hours(attempt) or 0.0) - self._passed_hours(attempt))

    def _left_hours(self, attempt: Attempt) -> float | None:
        """Return how long an attempt will take in hours, less the time of its trial's earlier
        attempts."""
        gpus = attempt.job.request.gpus
        durations = []
        for trial in self.study.rows:
            if trial.state is State.COMPLETED and trial.attempts[-1].gpus == gpus:
                durations.append((trial.params, _seconds(trial)))
        durations = [(params, seconds) for params, seconds in durations if seconds > 0]
        predicted = predict_seconds(attempt.trial.params, durations)
        if predicted is None:
            return None
        return max(0.0, predicted - _seconds(attempt.trial)) / 3600


def _overrun(prediction: str, name: str, limit: float, used: float) -> Enough:
    """Return that a trial would exceed the limit of this name, of which so much is used."""
    left = max(0, limit - used)
    override = "(hydra.sweeper.budget_overrun=true starts it anyway)"
    return Enough(f"{prediction}, but {left:.3g} of {name}={limit} are left {override}", name)


def predict_seconds(point: Point, durations: Sequence[tuple[Point, float]]) -> float | None:
    """Return how long a trial takes (s), predicted from the durations (s) of others; None if there
    are no others.

    Ridge regression of the logarithm of the duration on the params (Hoerl and Kennard, 1970).
    """
    if not durations:
        return None
    import numpy as np

    points = [params for params, _ in durations]
    logs = np.log([seconds for _, seconds in durations])
    keys = dict.fromkeys(key for params in points for key in params)
    columns = [column for key in keys for column in _columns(key, points)]
    if not columns:
        return float(np.exp(logs.mean()))

    *x, new = np.array([[measure(params) for measure in columns] for params in [*points, point]])
    mean = np.mean(x, axis=0)
    spread = np.std(x, axis=0)
    spread[~(spread > 0)] = np.inf  # because a constant column predicts nothing
    x = (x - mean) / spread
    ridge = x.T @ x + _RIDGE * np.eye(len(columns))
    weights = np.linalg.solve(ridge, x.T @ (logs - logs.mean()))
    return float(np.exp(logs.mean() + (new - mean) / spread @ weights))


def _columns(key: str, points: Sequence[Point]) -> list[Callable[[Point], float]]:
    """Return the measures of a param: the logarithm of its number, or for each of its values
    whether it is equal."""
    values = [point.get(key) for point in points]
    numbers = [value for value in values if is_number(value) and math.isfinite(value)]
    if len(numbers) < len(values):
        different = {canonical({key: value}): value for value in values}
        return [partial(_has, key, value) for value in different.values()]
    median = sorted(numbers)[len(numbers) // 2]

    def measure(point: Point) -> float:
        value = point.get(key)
        number = float(value) if isinstance(value, int | float) and math.isfinite(value) else median
        return math.log(number) if min(numbers) > 0 and number > 0 else number

    return [measure]


def _has(key: str, value: Value, point: Point) -> float:
    return float(key in point and is_same(point[key], value))


def _seconds(trial: TrialRecord) -> float:
    return sum(outcome.duration_s for outcome in trial.attempts)
