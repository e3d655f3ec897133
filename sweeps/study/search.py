"""A study's search: which trials there are, which comes next, and what became of each."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import optuna
from hydra._internal.utils import _locate
from omegaconf import DictConfig
from optuna.distributions import FloatDistribution
from optuna.pruners import NopPruner, _filter_study
from optuna.trial import TrialState

from sweeps.errors import UserError
from sweeps.results.summary import Row
from sweeps.settings import SweeperConf
from sweeps.study import storage
from sweeps.study.memory import Memory
from sweeps.study.proposals import Proposals
from sweeps.study.sampling import Told, build, distribution, sampler_of
from sweeps.study.search_space import Choice, Parameter, SearchSpace, canonical, is_grid, total
from sweeps.trial.job import End, Objective, Point, State, Value


_TIMES = 5
_LEARNS = "learns"
"""The attribute of a study whose search learns from failures, takes numbers in their order, and repeats no point."""


class Search:
    """An Optuna study, asked one trial at a time.

    A search that was begun by a version without these goes on as it began. A grid is enumerated here and only recorded in Optuna: asked from outside of `optimize`, its GridSampler repeats
    cells and raises on the last tell.
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
        self._learns = self._how()
        self._distributions = {name: distribution(p, self.is_grid, self._learns) for p, name in self._named}
        if self._settings.storage is None:
            if self._settings.extend and self.is_grid:
                storage.rewrite(self._study.study_name, self._folder, known=self._distributions)
                self._study, _ = self._open()
            self._add_missing()
        self._told = Told(self._study)
        earlier = self._study.get_trials(deepcopy=False)
        points = [{p.key: trial.params[name] for p, name in self._named if name in trial.params} for trial in earlier]
        for trial, point in zip(earlier, points, strict=True):
            if storage.ended(trial) is State.OUT_OF_MEMORY:
                self._memory.add(trial.number, point)
        self._proposals = Proposals(self.space, points if self._learns and not self._custom else ())
        self.total = total(self._settings, self.space) if self._learns or self.is_grid else self._settings.n_trials
        seen = {trial.user_attrs.get("point") for trial in earlier}
        new = (point for point in self.space.points() if canonical(point) not in seen) if self.is_grid else repeat({})
        asked = len(seen - {None}) if self.is_grid else len(earlier)
        most = None if self._settings.n_trials is None else max(0, self._settings.n_trials - asked)
        self._new: Iterator[Point] = islice(new, most)
        """The points that are left of a grid; an empty one for each trial that is left of a search."""

    def ask(self) -> Row | None:
        """A trial that was never asked for, or None when the study has all it should have."""
        if self._learns and not self._custom and len(self._proposals) >= (self.total or 0):
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
        return [storage.row_of(trial, self._folder) for trial in trials if trial.state.is_finished()]

    def infeasible(self, row: Row) -> str:
        """Why a point cannot run here, in words, as far as earlier trials tell; else empty."""
        return self._memory.lacking(row.params)

    def reopen(self, numbers: Sequence[int]) -> None:
        """Let these trials, which have ended, run again."""
        storage.rewrite(self._study.study_name, self._folder, reopened=numbers)
        self._study, _ = self._open()
        self._how()
        self._told = Told(self._study)

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
        otherwise = TrialState.PRUNED if row.state is State.PRUNED else TrialState.FAIL
        if row.state is State.COMPLETED and row.objective:
            self._told.completed(trial, row.objective)
        elif self._learns and _blames_its_point(row):
            self._told.infeasible(trial, otherwise)
        else:
            self._study.tell(trial, state=otherwise)

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

    def _add_missing(self) -> None:
        """After damage to the journal: the trials that it lacks, which their folders still tell of."""
        missing = storage.missing_trials(self._study, self._folder)
        if missing and not self.mended:
            self.mended = f"{self._folder}/study.journal lacks {len(missing)} trials, which their folders tell of"
        for point in missing:
            named = self.space.named(point or {})
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
        row = storage.row_of(trial, self._folder)
        if self._learns:
            self._choose(trial)
        row.params = {}
        for parameter in self.space.parameters:
            if self.space.exists(parameter, row.params):
                row.params[parameter.key] = self._suggest(trial, parameter)
        if self._custom:
            self._custom(self._config, trial)
            row.params |= {name: value for name, value in trial.params.items() if name not in self._distributions}
        return row

    def _choose(self, trial: optuna.Trial) -> None:
        """Settle the values of a trial: a point that was not tried, and no more than is known to fit in the memory."""
        settled = trial.params  # of one whose driver was killed
        held = [parameter.key for parameter, name in self._named if name in settled]
        for _ in range(_TIMES):
            point = self._draw(trial)
            if self._custom or len(held) == len(point):
                break
            if point not in self._proposals and not self._memory.lacking(point):
                break
            trial._relative_params = None  # asks the sampler anew
        else:
            point = self._proposals.nearest(point, held)
        self._proposals.add(point)
        trial._fixed_params = {name: point[p.key] for p, name in self._named if p.key in point}

    def _draw(self, trial: optuna.Trial) -> Point:
        """What the sampler proposes, recorded nowhere yet."""
        frozen = trial._get_latest_trial()
        frozen.params = dict(frozen.params)
        study = _filter_study(self._study, frozen)  # of Hyperband's, a bracket
        point: Point = {}
        for parameter, name in self._named:
            if self.space.exists(parameter, point):
                one = self._distributions[name]
                if name in frozen.params:
                    value = frozen.params[name]
                elif one.single():
                    value = parameter.values[0]
                elif trial._is_relative_param(name, one):
                    value = trial.relative_params[name]
                else:
                    value = self._study.sampler.sample_independent(study, frozen, name, one)
                frozen.params[name] = value
                if isinstance(parameter, Choice) and parameter.ordered:
                    value = parameter.nearest(value)
                point[parameter.key] = value
        return point

    def _how(self) -> bool:
        """Whether the study learns: a new search does."""
        if self.is_grid:
            return False
        if _LEARNS not in self._study.user_attrs:
            if self._study.get_trials(deepcopy=False):
                self._study.sampler = sampler_of(self._settings, self.space, learns=False)
                return False
            self._study.set_user_attr(_LEARNS, 1)
        return True

    def _suggest(self, trial: optuna.Trial, parameter: Parameter) -> Value:
        """What the sampler chooses, or, for a trial that was enqueued, what it was enqueued with."""
        name = self.space.name(parameter)
        found: Any = trial._suggest(name, self._distributions[name])
        if isinstance(parameter, Choice) and isinstance(self._distributions[name], FloatDistribution):
            values: Sequence[Any] = parameter.values
            found = min(values, key=lambda value: abs(value - found))
        return found  # type: ignore[no-any-return]


def _blames_its_point(row: Row) -> bool:
    """Whether it was the trial's own values that kept it from a result, so that others like it had better not be tried.

    One that was refused before it began, as infeasible, counts as pruned.
    """
    last = row.attempts[-1]
    if row.state is State.PRUNED:
        return last.began is None
    return row.state in {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY} and not last.misfit


def _result(trial: optuna.trial.FrozenTrial) -> float:
    """Its first objective; nan if it has none, whatever its sampler was told."""
    return float(trial.values[0]) if storage.ended(trial) is State.COMPLETED else math.nan
