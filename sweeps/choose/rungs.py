"""Rungs: trials pause after a few steps, and the best of them go on from their checkpoints."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.wording import counted
from sweeps.choose import Next
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State

_SECTION = "hydra.sweeper.rungs"


@dataclass(frozen=True)
class Halving:
    """The steps at which trials pause: `first`, then always `factor` times as many.

    Asynchronous successive halving: of the trials that reached a rung, the best `1 / factor` are
    promoted to the next (Li et al., A System for Massively Parallel Hyperparameter Tuning, MLSys
    2020).
    """

    first: int = 1
    factor: int = 3

    def __post_init__(self) -> None:
        for name, least in (("first", 1), ("factor", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UserError(
                    f"{_SECTION}.{name}={value}: it must be a whole number of at least {least}.\n"
                    f"Type, for example: {_SECTION}.{name}={max(least, 3)}"
                )

    def pause_step(self, trial: TrialRecord) -> int | None:
        """Return the step after which the next attempt at a trial pauses; None if it trains to its
        end."""
        if not pauses(trial):
            return None
        steps: int = self.first * self.factor ** len(pause_results(trial))
        return steps

    @property
    def description(self) -> str:
        """Return in words what happens at the rungs."""
        steps = ", ".join(str(self.first * self.factor**rung) for rung in range(3))
        share = f"1 in {self.factor} is promoted, the best first"
        return f"Rungs: trials pause after step {steps}, ...; of those at a rung, {share}"

    def explain_no_use(self, trial: TrialRecord) -> str:
        """Return why rungs are of no use to a trial that has ended, and what to change; empty if
        they are."""
        folder = TrialFolder(trial.folder)
        if trial.state is State.PAUSED and not folder.checkpoints():
            return (
                f"trial {trial.number} paused without a checkpoint, so that it begins anew if it is"
                f" promoted.\nSave one in trial.checkpoint_folder, here {folder.checkpoint}"
            )
        if trial.state is not State.COMPLETED or not pauses(trial) or pause_results(trial):
            return ""
        if trial.step < self.first:
            return (
                f"{_SECTION}.first={self.first}: trial {trial.number} completed after"
                f" {counted(trial.step, 'step')}, before its first pause.\nIn another study, type"
                f" {_SECTION}.first=1"
            )
        if trial.step > self.first:
            return (
                f"trial {trial.number} completed without a pause.\nLet its training end if"
                " trial.should_stop() is true"
            )
        return ""


def pauses(trial: TrialRecord) -> bool:
    """Return whether a trial pauses at rungs: the first of each configuration that the search or
    the grid chose."""
    return trial.ends_with_search and trial.of is None


def pause_results(trial: TrialRecord) -> list[float]:
    """Return the objective at each rung at which the trial paused; NaN where it had none."""
    results = []
    for attempt in trial.attempts:
        if attempt.state is State.PAUSED:
            results.append(attempt.objective[0] if attempt.objective else math.nan)
    return results


@dataclass
class Rungs:
    """The trials that reached each rung, best first; a function of the record."""

    halving: Halving
    maximize: bool

    def of(self, study: StudySnapshot) -> list[list[TrialRecord]]:
        """Return the trials that paused at each rung, from the first rung on, best first.

        A trial that was promoted stays in the rungs below.
        """
        sign = -1 if self.maximize else 1
        rungs: dict[int, list[tuple[float, TrialRecord]]] = defaultdict(list)
        for trial in study.rows:
            for rung, result in enumerate(pause_results(trial)):
                loss = math.inf if math.isnan(result) else sign * result
                rungs[rung].append((loss, trial))
        return [_by_loss(rungs[rung]) for rung in sorted(rungs)]

    def may_be_promoted(self, study: StudySnapshot) -> set[int]:
        """Return the paused trials that may still be promoted: those of the highest rung, and those
        that stay among the best of their rungs only if worse trials follow."""
        rungs = self.of(study)
        opened = [trial for trial in study.rows if pauses(trial) and not trial.state.is_settled]
        begun = sum(map(pauses, study.rows))
        coming: float = max(0, study.planned - begun) if study.planned else math.inf
        numbers: set[int] = set()
        for rung, members in enumerate(rungs):
            coming += sum(len(pause_results(trial)) == rung for trial in opened)
            most = (len(members) + coming) / self.halving.factor
            # because the last promotion goes on until a trial of it has completed
            is_highest = rung == len(rungs) - 1
            for rank, trial in enumerate(members):
                if (is_highest or rank + 1 <= most) and _is_at(trial, rung):
                    numbers.add(trial.number)
                    coming += 1
        return numbers


def best_to_train_on(study: StudySnapshot) -> list[TrialRecord]:
    """Return the trials that can train on, best first: the completed ones, and then the paused ones
    of the highest rung."""
    sign = -1 if study.directions[0] == "maximize" else 1
    paused = [trial for trial in study.rows if trial.state is State.PAUSED and trial.objective]
    paused.sort(key=lambda trial: (-len(pause_results(trial)), sign * trial.objective[0]))
    return [*study.top(), *paused]


def _by_loss(members: Sequence[tuple[float, TrialRecord]]) -> list[TrialRecord]:
    ranked = sorted(members, key=lambda member: (member[0], member[1].number))
    return [trial for _, trial in ranked]


def _is_at(trial: TrialRecord, rung: int) -> bool:
    """Return whether a trial is paused at this rung."""
    return trial.state is State.PAUSED and len(pause_results(trial)) == rung + 1


@dataclass
class Promotion(Rungs):
    """A chooser that promotes the best of each rung, from the highest rung down, before the search
    begins a new trial."""

    def next(self, study: StudySnapshot) -> Next:
        if study.enough:
            return Next()
        rungs = self.of(study)
        for rung, members in reversed([*enumerate(rungs)]):
            best = members[: len(members) // self.halving.factor]
            for trial in best:
                if _is_at(trial, rung):
                    return Next(resume=[trial.number])
        return Next()


@dataclass
class LastPromotion(Rungs):
    """A chooser that lets the trials of the highest rung train to their ends once the search is
    over, so that the winner is a completed trial."""

    def next(self, study: StudySnapshot) -> Next:
        if study.enough and study.top(1):
            return Next()
        rungs = self.of(study)
        if not rungs:
            return Next()
        if any(not study.rows[number].to_end for number in study.under_way):
            return Next(waits=True)
        highest = [trial for trial in rungs[-1] if not trial.state.has_failed]
        if any(trial.result and not trial.to_end for trial in highest):
            return Next()
        # as many as a rung has that is too small to promote one
        last = highest[: self.halving.factor - 1]
        paused = [trial.number for trial in last if trial.state is State.PAUSED]
        return Next(resume=paused[:1], to_end=True)


def rungs_of(conf: Mapping[str, Any] | None) -> Halving | None:
    """Return the rungs of the section hydra.sweeper.rungs; None if every trial trains to its end at
    once.

    Raises UserError for a setting that is unknown or out of its range, or without the other.
    """
    typed = {name: value for name, value in (conf or {}).items() if value is not None}
    if not typed:
        return None
    for name, value in typed.items():
        if name not in ("first", "factor"):
            raise UserError(
                f"{_SECTION}.{name}={value}: there is no such setting.\n"
                f"Choose one of: {_SECTION}.first, {_SECTION}.factor"
            )
        if len(typed) < 2:
            raise UserError(
                f"{_SECTION}.{name}={value}: no rungs are chosen.\n"
                f"Remove it, or type: hydra/sweeper/rungs=halving {_SECTION}.{name}={value}"
            )
    return Halving(**typed)
