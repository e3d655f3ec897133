"""A study's search: which trials there are, which comes next, and what became of each."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import optuna
from hydra._internal.utils import _locate
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import NopPruner
from optuna.trial import TrialState

from sweeps.errors import UserError
from sweeps.results.summary import Row
from sweeps.settings import SweeperConf
from sweeps.study import storage
from sweeps.study.search_space import Choice, Interval, Parameter, SearchSpace, canonical, is_grid
from sweeps.trial.job import End, Objective, Point, State, Value


class Search:
    """An Optuna study, asked one trial at a time.

    A grid is enumerated here and only recorded in Optuna: asked from outside of `optimize`, its GridSampler repeats
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
        self._distributions = {space.name(p): _distribution(p, self.is_grid) for p in space.parameters}
        self._trials: dict[int, optuna.Trial] = {}
        self._reported: dict[int, int] = {}
        self._pruner = _build("pruner", settings.pruner) or NopPruner()
        self._open = partial(
            storage.open_study,
            name,
            folder,
            settings.storage,
            sampler=None if self.is_grid else _build("sampler", settings.sampler),
            pruner=self._pruner,
            directions=settings.directions,
        )

    def open(self) -> None:
        """Take up the study, or make it. `mended` says what had to be mended in its journal; empty if nothing had."""
        self._study, self.mended = self._open()
        if self._settings.storage is None:
            if self._settings.extend and self.is_grid:
                storage.rewrite(self._study.study_name, self._folder, known=self._distributions)
                self._study, _ = self._open()
            self._add_missing()
        earlier = self._study.get_trials(deepcopy=False)
        seen = {trial.user_attrs.get("point") for trial in earlier}
        new = (point for point in self.space.points() if canonical(point) not in seen) if self.is_grid else repeat({})
        asked = len(seen - {None}) if self.is_grid else len(earlier)
        most = None if self._settings.n_trials is None else max(0, self._settings.n_trials - asked)
        self._new: Iterator[Point] = islice(new, most)
        """The points that are left of a grid; an empty one for each trial that is left of a search."""

    def ask(self) -> Row | None:
        """A trial that was never asked for, or None when the study has all it should have."""
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

    def reopen(self, numbers: Sequence[int]) -> None:
        """Let these trials, which have ended, run again."""
        storage.rewrite(self._study.study_name, self._folder, reopened=numbers)
        self._study, _ = self._open()

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
        if row.state is State.COMPLETED and row.objective:
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
            return find(self._study, evaluator=fanova, target=lambda trial: float(trial.values[0]))
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
        row.params = {}
        for parameter in self.space.parameters:
            if self.space.exists(parameter, row.params):
                row.params[parameter.key] = self._suggest(trial, parameter)
        if self._custom:
            self._custom(self._config, trial)
            row.params |= {name: value for name, value in trial.params.items() if name not in self._distributions}
        return row

    def _suggest(self, trial: optuna.Trial, parameter: Parameter) -> Value:
        """What the sampler chooses, or, for a trial that was enqueued, what it was enqueued with."""
        name = self.space.name(parameter)
        found: Any = trial._suggest(name, self._distributions[name])
        if isinstance(parameter, Choice) and isinstance(self._distributions[name], FloatDistribution):
            values: Sequence[Any] = parameter.values
            found = min(values, key=lambda value: abs(value - found))
        return found  # type: ignore[no-any-return]


def _distribution(parameter: Parameter, grid: bool) -> BaseDistribution:
    """What a parameter is recorded with, and chosen from by a sampler.

    Of a list Optuna compares all choices, for every trial it reads: the numbers of a grid are recorded as a range.
    """
    if isinstance(parameter, Interval):
        if isinstance(parameter.low, int) and isinstance(parameter.high, int):
            return IntDistribution(parameter.low, parameter.high, log=parameter.log)
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    values: Sequence[Any] = parameter.values
    step = abs(values[1] - values[0]) if parameter.numbers and len(values) > 1 else None
    kinds = {type(value) for value in values}
    if kinds == {int} and (grid or step):
        return IntDistribution(min(values), max(values), step=1 if grid or not step else step)
    if kinds == {float} and (grid or step):
        return FloatDistribution(min(values), max(values), step=None if grid else step)
    return CategoricalDistribution(values)


def _build(kind: str, conf: Any) -> Any:
    if not conf:
        return None
    if conf["_target_"] == "optuna.samplers.GPSampler" and find_spec("torch") is None:
        raise UserError("hydra/sweeper/sampler=gp needs PyTorch; install it with: pip install -c constraints.txt torch")
    try:
        return instantiate(conf)
    except InstantiationException as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(f"hydra/sweeper/{kind} cannot be built from {dict(conf)}: {last}") from error
