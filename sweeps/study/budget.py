"""When a study has enough: it reached its target, stopped improving, spent its budget, or too much of it failed."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from sweeps.record.configurations import LOST, by_configuration
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.settings import SweeperConf
from sweeps.study.attempt import Attempt
from sweeps.trial.job import Point, State, Value
from sweeps.wording import counted

_RIDGE = 0.1


@dataclass(frozen=True)
class Enough:
    """Why no further trial starts, in words."""

    why: str
    setting: str = ""  # what to change for further ones; empty if that alone would not help
    done: bool = False  # whether the study has what was asked of it


@dataclass(frozen=True)
class Budget:
    """What one study may still start."""

    settings: SweeperConf
    summary: StudySnapshot
    clock: Callable[[], float]

    def reached(self) -> Enough | None:
        """Whether its results are good enough, or do not get better. Judged by what trials returned, where each
        configuration has several by their means; those of the final race, which is not for improving, say nothing.
        """
        target, patience = self.settings.target, self.settings.patience
        if target is None and patience is None:
            return None
        sign = -1 if self.settings.directions[0] == "maximize" else 1
        best, said, count = math.inf, "", 0
        for _, value, name in sorted(self._results(sign)):
            count = 0 if value < best else count + 1
            best, said = min((best, said), (value, name), key=lambda one: one[0])
            if said and count == patience:
                break  # for good: what still ran then may have been better
        if not said:
            return None
        if target is not None and best <= sign * target:
            found = f"{self.summary.objective[0]}={sign * best:.6g}"
            return Enough(f"{said} reached target={target:g} with {found}", "target", done=True)
        if count == patience:
            what = "trials" if self.settings.repeats == 1 else "configurations"
            why = f"{count} {what} ended without an improvement on {said} (patience={patience})"
            return Enough(why, "patience", done=True)
        return None

    def spent(self, running: Iterable[Attempt]) -> Enough | None:
        """Whether too many trials failed, or a budget is used up."""
        rate, running = self.settings.max_failure_rate, list(running)
        if rate is not None and (bad := len(self.summary.bad())) > rate * (self.summary.total or 0):
            return Enough(f"{counted(bad, 'trial')} failed, more than max_failure_rate={rate} allows")
        for name, used in (("max_gpu_hours", self._gpu_hours), ("max_hours", self._hours)):
            most = getattr(self.settings, name)
            if most is not None and used(running) >= most:
                return Enough(f"the budget of {name}={most} is spent", name)
        return None

    def exceeded_by(self, attempt: Attempt, running: Iterable[Attempt]) -> Enough | None:
        """Whether this trial's predicted end, if it started now beside those that run, lies beyond a budget. None where
        nothing is known; what only waits for its turn is not counted.
        """
        most, most_gpu = self.settings.max_hours, self.settings.max_gpu_hours
        if self.settings.budget_overrun or (most is None and most_gpu is None):
            return None
        hours = self._left_hours(attempt)
        if hours is None:
            return None
        running = list(running)
        told = f"trial {attempt.trial.number} is predicted to take {hours:.3g} hours"
        overrun = "hydra.sweeper.budget_overrun=true starts it all the same"
        if most is not None and (used := self._hours(running)) + hours > most:
            said = f"{told}, and {max(0, most - used):.3g} of max_hours={most} are left ({overrun})"
            return Enough(said, "max_hours")
        if most_gpu is not None and attempt.job.request.gpus:
            rest = sum(one.job.request.gpus * self._rest_hours(one, one.began) for one in running if one.began)
            used = self._gpu_hours(running) + rest
            if used + attempt.job.request.gpus * hours > most_gpu:
                left = max(0.0, most_gpu - used)
                said = f"{told} on {attempt.job.request.gpus} GPUs, and {left:.3g} of max_gpu_hours={most_gpu} are left"
                return Enough(f"{said} ({overrun})", "max_gpu_hours")
        return None

    def _results(self, sign: int) -> Iterator[tuple[float, float, str]]:
        """When each ended (s), its value, the less the better and inf if it has none, and its name."""
        key, repeats = self.settings.seed_key, self.settings.repeats
        rows = [row for row in self.summary.rows if not row.infeasible and not row.race]
        together = [one.rows for one in by_configuration(rows, key)] if repeats > 1 else [[row] for row in rows]
        for rows in together:
            ended = [row for row in rows if row.state.is_over and row.attempts]
            values = [sign * row.result[0] for row in ended if row.result]
            bad = any(row.state not in (State.COMPLETED, *LOST) for row in ended)
            if bad or (ended and len(ended) >= (repeats if key in rows[0].params else 1)):
                value = math.inf if bad or not values else fmean(values)
                yield max(row.attempts[-1].ended for row in ended), value, f"trial {rows[0].number}"

    def _gpu_hours(self, running: Sequence[Attempt]) -> float:
        ended = sum(end.gpu_hours for row in self.summary.rows for end in row.attempts)
        return ended + sum(one.job.request.gpus * (self.clock() - one.began) for one in running if one.began) / 3600

    def _hours(self, running: Sequence[Attempt]) -> float:
        """The hours in which some trial waited for room or ran, under this driver and all earlier ones."""
        spans = [(end.asked, end.ended) for row in self.summary.rows for end in row.attempts]
        spans += [(min(one.asked, one.began or one.asked), self.clock()) for one in running]
        total, until = 0.0, 0.0
        for begin, end in sorted(spans):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total / 3600

    def _rest_hours(self, attempt: Attempt, began: float) -> float:
        return max(0.0, (self._left_hours(attempt) or 0.0) - (self.clock() - began) / 3600)

    def _left_hours(self, attempt: Attempt) -> float | None:
        """How long an attempt will take, less what earlier ones of its trial got done."""
        alike = [
            row
            for row in self.summary.rows
            if row.state is State.COMPLETED and row.attempts[-1].gpus == attempt.job.request.gpus
        ]
        seconds = predicted_s(attempt.trial.params, [(row.params, _seconds(row)) for row in alike if _seconds(row) > 0])
        return None if seconds is None else max(0.0, seconds - _seconds(attempt.trial)) / 3600


def predicted_s(point: Point, known: Sequence[tuple[Point, float]]) -> float | None:
    """How long a trial takes (s), from what others took: ridge regression of the logarithm of their duration on their
    values (Hoerl and Kennard, 1970), numbers by their logarithms. None if there are no others.
    """
    if not known:
        return None
    import numpy as np

    points, logs = [one for one, _ in known], np.log([seconds for _, seconds in known])
    columns = [
        column for key in dict.fromkeys(key for one in points for key in one) for column in _columns(key, points)
    ]
    if not columns:
        return float(np.exp(logs.mean()))
    table = np.array([[measure(one) for measure in columns] for one in [*points, point]])
    mean, spread = table[:-1].mean(axis=0), table[:-1].std(axis=0)
    table = (table - mean) / np.where(spread > 0, spread, np.inf)  # what never varied says nothing
    x, here = table[:-1], table[-1]
    weights = np.linalg.solve(x.T @ x + _RIDGE * np.eye(len(columns)), x.T @ (logs - logs.mean()))
    return float(np.exp(logs.mean() + here @ weights))


def _columns(key: str, points: Sequence[Point]) -> list[Callable[[Point], float]]:
    """What a parameter is measured by: its number, or for each of its values whether it has it."""
    values = [one.get(key) for one in points]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return [partial(_has, key, value) for value in dict.fromkeys(values)]
    middle = sorted(numbers)[len(numbers) // 2]

    def measure(one: Point) -> float:
        value = one.get(key)
        number = float(value) if isinstance(value, int | float) else middle
        return math.log(number) if min(numbers) > 0 and number > 0 else number

    return [measure]


def _has(key: str, value: Value, point: Point) -> float:
    return float(key in point and point[key] == value)


def _seconds(row: TrialRecord) -> float:
    return sum(end.ended - end.began for end in row.attempts if end.began and end.ended > end.began)
