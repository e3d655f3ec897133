"""A study's search: which trials there are, which comes next, and what became of each."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import optuna
from hydra._internal.utils import _locate
from omegaconf import DictConfig
from optuna.distributions import FloatDistribution
from optuna.pruners import NopPruner
from optuna.trial import TrialState

from sweeps.errors import UserError
from sweeps.results.summary import Row
from sweeps.settings import SweeperConf
from sweeps.study import storage
from sweeps.study.learner import Learner, axes, placed
from sweeps.study.memory import Memory
from sweeps.study.sampling import build, distribution, sampler_of
from sweeps.study.search_space import Choice, Parameter, SearchSpace, canonical, is_grid, total
from sweeps.trial.job import End, Objective, Point, State, Value


class Search:
    """An Optuna study, asked one trial at a time.

    A search learns, unless it was begun by a version that did not. A grid is enumerated here and only recorded
    in Optuna: asked from outside of `optimize`, its GridSampler repeats cells and raises on the last tell.
    """

    def __init__(self, name: str, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig) -> None:
        """Raises UserError: the sampler or the pruner cannot be built, or the search space in code not imported."""
        self._folder, self._settings, self._config = folder, settings, config
        try:
            self._custom = settings.custom_search_space and _locate(settings.custom_search_space)
        except ImportError as error:
            why = f"{settings.custom_search_space} cannot be imported: {str(error).splitlines()[-1]}"
            raise UserError(f"hydra.sweeper.custom_search_space={why}") from error
        self.space = space
        self.is_grid = is_grid(settings)
        named = settings.objective is not None
        self.objective = Objective(settings.objectives, named, needed=named or not self.is_grid)
        self._named = [(parameter, space.name(parameter)) for parameter in space.parameters]
        self._trials: dict[int, optuna.Trial] = {}
        self._reported: dict[int, int] = {}
        self._memory = Memory(settings.memory_axes, config)
        self._pruner = build("pruner", settings.pruner) or NopPruner()
        self._open = partial(
            storage.open_study,
            name,
            folder,
            settings.storage,
            sampler=None if self.is_grid else sampler_of(settings, space, learns=True),
            pruner=self._pruner,
            directions=settings.directions,
        )

    def open(self) -> None:
        """Take up the study, or make it. `mended` says what had to be mended in its journal; empty if nothing had."""
        self._study, self.mended = self._open()
        self._begin()
        if self._settings.storage is None:
            if self._settings.extend and self.is_grid:
                storage.rewrite(self._study.study_name, self._folder, known=self._distributions)
                self._study, _ = self._open()
            self._add_missing()
        earlier = self._study.get_trials(deepcopy=False)
        self._take_up(earlier)
        by_hand = [trial.user_attrs for trial in earlier if storage.BY_HAND in trial.user_attrs]
        self._outside = sum(storage.OUTSIDE in attrs for attrs in by_hand)
        self._inside = len(by_hand) - self._outside
        self._count()
        seen = self._seen = {trial.user_attrs.get("point") for trial in earlier}
        new = (point for point in self.space.points() if canonical(point) not in seen) if self.is_grid else repeat({})
        asked = (len(seen - {None}) if self.is_grid else len(earlier)) - len(by_hand)
        most = None if self._settings.n_trials is None else max(0, self._settings.n_trials - asked)
        self._new: Iterator[Point] = islice(new, most)
        """The points that are left of a grid; an empty one for each trial that is left of a search."""

    @property
    def total(self) -> int | None:
        """How many trials the study will have, those that were added by hand included; None if nobody knows."""
        return None if self._points is None else self._points + self._outside

    def _count(self) -> None:
        """How many of them are points of the space."""
        asked = self._settings.n_trials
        wanted = None if asked is None else asked + self._inside
        known = self.is_grid or self._learner
        self._points = total(replace(self._settings, n_trials=wanted), self.space) if known else wanted

    def add(self, point: Point, name: str) -> Row:
        """A trial that a person wants, added under this name. Its point may lie outside of the space."""
        attrs: dict[str, Any] = {storage.BY_HAND: point, storage.ADDED: name}
        attrs |= {} if self.space.holds(point) else {storage.OUTSIDE: True}
        self._outside += storage.OUTSIDE in attrs
        self._inside += storage.OUTSIDE not in attrs
        self._count()
        if self.is_grid:
            attrs["point"] = canonical(point)
            self._seen.add(attrs["point"])
        self._study.enqueue_trial({}, user_attrs=attrs)
        return self._propose(self._study.ask())

    def was_added(self, name: str) -> bool:
        """Whether a trial was added under this name."""
        return any(one.user_attrs.get(storage.ADDED) == name for one in self._study.get_trials(deepcopy=False))

    def ask(self) -> Row | None:
        """A trial that was never asked for, or None when the study has all it should have."""
        if self._learner and not self._custom and self._learner.tried() >= (self._points or 0):
            return None
        point = next(self._new, None)
        if point is None:
            return None
        if self.is_grid:
            self._study.enqueue_trial(self.space.named(point), user_attrs={"point": canonical(point)})
        return self._propose(self._study.ask())

    def unfinished(self) -> list[Row]:
        """The trials that an earlier driver asked for, or enqueued and was killed, and did not see end."""
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
        self._reported = {one.number: max(one.intermediate_values, default=-1) for one in trials}
        begun = [optuna.Trial(self._study, one._trial_id) for one in trials if one.state is TrialState.RUNNING]
        enqueued = [self._study.ask() for _ in range(len(trials) - len(begun))]
        return [self._propose(trial) for trial in begun + enqueued]

    def finished(self) -> list[Row]:
        """The trials that ended under an earlier driver."""
        trials = self._study.get_trials(deepcopy=False)
        return [self._row_of(trial) for trial in trials if trial.state.is_finished()]

    def infeasible(self, row: Row) -> str:
        """Why a point cannot run here, in words, as far as earlier trials tell; else empty."""
        return self._memory.lacking(row.params)

    def reopen(self, numbers: Sequence[int]) -> None:
        """Let these trials, which have ended, run again."""
        storage.rewrite(self._study.study_name, self._folder, reopened=numbers)
        self._study, _ = self._open()
        self._begin()
        self._take_up(self._study.get_trials(deepcopy=False))

    def report(self, number: int, value: float, step: int) -> bool:
        """Record an intermediate value of the objective. True if the pruner wants this trial to end."""
        prunes = len(self._settings.directions) == 1 and not isinstance(self._pruner, NopPruner)
        if not prunes or not math.isfinite(value) or step <= self._reported.get(number, -1):
            return False
        trial = self._trials[number]
        trial.report(value, step)
        self._reported[number] = step
        return trial.should_prune()

    def place(self, row: Row) -> None:
        """Note where a trial is, if not where everybody looks first."""
        where = str(row.folder).removeprefix(f"{self._folder}/")
        if where != str(row.number):
            self._trials[row.number].set_user_attr("folder", where)

    def tell(self, row: Row) -> None:
        """Record how a trial ended."""
        trial = self._trials.pop(row.number)
        trial.set_user_attr("end", {"attempts": [end.as_json() for end in row.attempts]})
        if row.state is State.OUT_OF_MEMORY:
            self._memory.add(row.number, row.params)
        if storage.OUTSIDE in trial.user_attrs:
            self._study.tell(trial, state=TrialState.FAIL)
        elif self._learner:
            self._learner.tell(trial, row)
        elif row.state is State.COMPLETED and row.objective:
            self._study.tell(trial, row.objective)
        else:
            self._study.tell(trial, state=TrialState.PRUNED if row.state is State.PRUNED else TrialState.FAIL)

    def importance(self) -> dict[str, float]:
        """The share of each parameter in the first objective's variance (fANOVA, Hutter et al., ICML 2014)."""
        if self.is_grid or len(self._distributions) < 2:
            return {}
        try:
            fanova = optuna.importance.FanovaImportanceEvaluator(seed=0)
            find = optuna.importance.get_param_importances
            return find(self._study, evaluator=fanova, target=_result)
        except (ValueError, RuntimeError):  # too few trials, or all of them equal: nothing to tell apart
            return {}

    def _take_up(self, trials: Sequence[optuna.trial.FrozenTrial]) -> None:
        """Learn from what ended under an earlier driver."""
        for trial in trials:
            if storage.OUTSIDE in trial.user_attrs:
                continue
            params = storage.params_of(trial, self._axes)
            point = {parameter.key: params[name] for parameter, name in self._named if name in params}
            if self._learner:
                self._learner.take_up(trial, point)
            end = storage.ended(trial)
            if end and end.state is State.OUT_OF_MEMORY:
                self._memory.add(trial.number, point)

    def _add_missing(self) -> None:
        """After damage to the journal: the trials that it lacks, which their folders still tell of."""
        missing = storage.missing_trials(self._study, self._folder)
        if missing and not self.mended:
            self.mended = f"{self._folder}/study.journal lacks {len(missing)} trials, which their folders tell of"
        for point in missing:
            if point and self._is_outside(point):
                attrs = {storage.BY_HAND: point, storage.OUTSIDE: True, "point": canonical(point)}
                self._study.add_trial(optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs=attrs))
                continue
            named = placed(self.space.named(point or {}), self._axes or {})
            unknown = End(State.FAILED, "which trial it was is not known: its trial.json cannot be read")
            trial = optuna.trial.create_trial(
                state=TrialState.RUNNING if point else TrialState.FAIL,  # its number is taken all the same
                params=named,
                distributions={name: self._distributions[name] for name in named},
                user_attrs={"point": canonical(point)} if point else {"end": {"attempts": [unknown.as_json()]}},
            )
            self._study.add_trial(trial)

    def _is_outside(self, point: Point) -> bool:
        """Whether it has all the values that it should, and one of them is none of the space."""
        there = [one for one in self.space.parameters if self.space.exists(one, point)]
        return all(one.key in point for one in there) and not self.space.holds(point)

    def _propose(self, trial: optuna.Trial) -> Row:
        """What was suggested before is suggested again: Optuna keeps the values of a trial that runs."""
        self._trials[trial.number] = trial
        row = self._row_of(trial)
        if storage.OUTSIDE in trial.user_attrs:
            return row
        if row.by_hand:
            trial._fixed_params = placed(self.space.named(row.params), self._axes or {})
        if row.by_hand and self._learner:
            self._learner.take(trial, row.params)
        elif self._learner:
            self._learner.choose(trial)
        row.params = {}
        for parameter in self.space.parameters:
            if self.space.exists(parameter, row.params):
                row.params[parameter.key] = self._suggest(trial, parameter)
        if self._custom:
            self._custom(self._config, trial)
            row.params |= {name: value for name, value in trial.params.items() if name not in self._distributions}
        return row

    def _row_of(self, trial: optuna.trial.BaseTrial) -> Row:
        return storage.row_of(trial, self._folder, self._axes)

    def _begin(self) -> None:
        """Find out how this search goes on: one that was begun without a learner does without."""
        self._axes = storage.axes_of(self._study)
        if self._axes is None and not self.is_grid:
            if not self._study.get_trials(deepcopy=False):
                self._axes = axes(self.space)
                self._study.set_user_attr(storage.AXES, self._axes)
            else:
                self._study.sampler = sampler_of(self._settings, self.space, learns=False)
        learns, open_ended = self._axes is not None, bool(self._custom)
        self._learner = Learner(self._study, self.space, self._memory, open_ended) if learns else None
        self._distributions = {name: distribution(p, self.is_grid, learns) for p, name in self._named}

    def _suggest(self, trial: optuna.Trial, parameter: Parameter) -> Value:
        """What the sampler chooses, or, for a trial that was enqueued, what it was enqueued with."""
        name = self.space.name(parameter)
        found: Any = trial._suggest(name, self._distributions[name])
        if self._axes and name in self._axes:
            found = self._axes[name][found]
        if isinstance(parameter, Choice) and isinstance(self._distributions[name], FloatDistribution):
            values: Sequence[Any] = parameter.values
            found = min(values, key=lambda value: abs(value - found))
        return found  # type: ignore[no-any-return]


def _result(trial: optuna.trial.FrozenTrial) -> float:
    """Its first objective; nan if it has none, whatever its sampler was told."""
    end = storage.ended(trial)
    return float(trial.values[0]) if end and end.state is State.COMPLETED else math.nan
