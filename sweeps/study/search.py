"""A study's search: which trials there are, which comes next, and what became of each."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice, repeat
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
from sweeps.study import start, storage
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
        """Raises UserError: the sampler or the pruner cannot be built, the search space in code not imported, or the
        search not started as it was told to.
        """
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
        self.start = start.points(settings, space)
        self.earlier = start.earlier(settings, space, config, folder)
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
        self.earlier.keep()
        self._begin()
        if self._settings.storage is None:
            if self._settings.extend and self.is_grid:
                storage.rewrite(self._study.study_name, self._folder, known=self._distributions)
                self._study, _ = self._open()
            self._add_missing()
        earlier = self._study.get_trials(deepcopy=False)
        self._take_up(earlier)
        self.total = total(self._settings, self.space) if self._learner or self.is_grid else self._settings.n_trials
        seen = {trial.user_attrs.get("point") for trial in earlier}
        known = self.space.points() if self.is_grid else self.start
        untried = (point for point in known if canonical(point) not in seen and not self._has_tried(point))
        new = untried if self.is_grid else chain(untried, repeat(Point()))
        asked = len(seen - {None}) if self.is_grid else len(earlier)
        most = None if self._settings.n_trials is None else max(0, self._settings.n_trials - asked)
        self._new: Iterator[Point] = islice(new, most)
        """The points that are left of a grid; for each trial that is left of a search one to start at, or none."""

    def ask(self) -> Row | None:
        """A trial that was never asked for, or None when the study has all it should have."""
        if self._learner and not self._custom and self._learner.tried() >= (self.total or 0):
            return None
        point = next(self._new, None)
        if point is None:
            return None
        if point or self.is_grid:
            named = placed(self.space.named(point), self._axes or {})
            self._study.enqueue_trial(named, user_attrs={"point": canonical(point)})
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
        if self._learner:
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

    def _has_tried(self, point: Point) -> bool:
        return self._learner is not None and self._learner.has_tried(point)

    def _take_up(self, trials: Sequence[optuna.trial.FrozenTrial]) -> None:
        """Learn from what ended under an earlier driver."""
        for trial in trials:
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
            named = placed(self.space.named(point or {}), self._axes or {})
            unknown = End(State.FAILED, "which trial it was is not known: its trial.json cannot be read")
            trial = optuna.trial.create_trial(
                state=TrialState.RUNNING if point else TrialState.FAIL,  # its number is taken all the same
                params=named,
                distributions={name: self._distributions[name] for name in named},
                user_attrs={"point": canonical(point)} if point else {"end": {"attempts": [unknown.as_json()]}},
            )
            self._study.add_trial(trial)

    def _propose(self, trial: optuna.Trial) -> Row:
        """What was suggested before is suggested again: Optuna keeps the values of a trial that runs."""
        self._trials[trial.number] = trial
        row = self._row_of(trial)
        if self._learner:
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
        known = self.earlier.trials
        self._learner = Learner(self._study, self.space, self._memory, open_ended, known) if learns else None
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
