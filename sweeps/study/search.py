"""A study's search: which trials there are, which comes next, and what became of each."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import optuna
from hydra._internal.utils import _locate
from hydra.errors import InstantiationException
from hydra.utils import get_method, instantiate
from omegaconf import DictConfig
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweeps.errors import UserError
from sweeps.results.summary import Row
from sweeps.settings import SweeperConf
from sweeps.study import storage
from sweeps.study.search_space import Choice, Interval, Parameter, SearchSpace, canonical, text_of
from sweeps.trial.job import End, Objective, Point, State, Value

_GRID = "optuna.samplers.GridSampler"


def check_search(settings: SweeperConf) -> None:
    """Raises UserError if the sampler or the pruner cannot be built, or the search space in code cannot be imported."""
    if not is_grid(settings):
        _build("sampler", settings.sampler)
    _build("pruner", settings.pruner)
    if custom := settings.custom_search_space:
        try:
            _locate(custom)
        except ImportError as error:
            why = f"custom_search_space={custom} cannot be imported: {str(error).splitlines()[-1]}"
            raise UserError(f"hydra.sweeper.{why}") from error


@dataclass(frozen=True)
class Proposal:
    """A trial that should run."""

    number: int
    point: Point
    overrides: list[str]
    forgiven: int = 0
    """See `Row.forgiven`."""


def is_grid(settings: SweeperConf) -> bool:
    return settings.sampler is None or settings.sampler.get("_target_") == _GRID


class Search:
    """An Optuna study, asked one trial at a time.

    A grid is enumerated here and only recorded in Optuna: asked from outside of `optimize`, its GridSampler repeats
    cells and raises on the last tell.
    """

    def __init__(self, name: str, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig) -> None:
        self._folder = folder
        self._config = config  # what custom_search_space is called with
        self.space = space
        self.directions = settings.directions
        self.is_grid = is_grid(settings)
        named = settings.objective is not None
        self.objective = Objective(settings.objectives, named, needed=named or not self.is_grid)
        self._custom = settings.custom_search_space and get_method(settings.custom_search_space)
        self._n_trials = settings.n_trials
        self._in_folder = settings.storage is None
        self._open = partial(
            storage.open_study,
            name,
            folder,
            settings.storage,
            sampler=None if self.is_grid else _build("sampler", settings.sampler),
            pruner=_build("pruner", settings.pruner) or optuna.pruners.NopPruner(),
            directions=[StudyDirection[direction.upper()] for direction in self.directions],
        )
        self._study, self.mended = self._open()
        """`mended` says what had to be mended in the journal; empty if nothing had to be."""
        if settings.extend and self.is_grid and self._in_folder:
            storage.widen(name, folder, {space.name(p): _distribution(p, grid=True) for p in space.parameters})
            self._study, _ = self._open()
        if self._in_folder:
            self._add_missing()
        self._prunes = len(self.directions) == 1 and not isinstance(self._study.pruner, optuna.pruners.NopPruner)
        self._trials: dict[int, optuna.Trial] = {}
        self._reported: dict[int, int] = {}
        earlier = self._study.get_trials(deepcopy=False)
        self._asked = len(earlier)
        self._points = self._new_points({trial.user_attrs.get("point") for trial in earlier})

    @cached_property
    def total(self) -> int:
        """How many trials the study has when it is finished."""
        if not self.is_grid:
            assert self._n_trials is not None  # checked by the driver
            return self._n_trials
        points = sum(1 for _ in self.space.points())
        return points if self._n_trials is None else min(points, self._n_trials)

    def ask(self) -> Proposal | None:
        """A trial that was never asked for, or None when the study has all it should have."""
        if self.is_grid:
            point = next(self._points, None)
            if point is None:
                return None
            named = {
                self.space.name(p): point[p.key]
                for p in self.space.parameters
                if p.key in point and self.space.exists(p, point)
            }
            self._study.enqueue_trial(named, user_attrs={"point": canonical(point)})
        elif self._asked >= self.total:
            return None
        self._asked += 1
        return self._propose(self._study.ask())

    def unfinished(self) -> list[Proposal]:
        """The trials that an earlier driver asked for, or enqueued and was killed, and did not see end."""
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        self._reported = {one.number: max(one.intermediate_values, default=-1) for one in running}
        begun = [
            self._propose(optuna.Trial(self._study, trial._trial_id), trial.user_attrs.get("forgiven", 0))
            for trial in running
        ]
        return begun + [self._propose(self._study.ask()) for _ in waiting]

    def finished(self) -> list[Row]:
        """The trials that ended under an earlier driver."""
        over = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        return [storage.row_of(trial, self._folder) for trial in self._study.get_trials(deepcopy=False, states=over)]

    def reopen(self, numbers: Sequence[int]) -> bool:
        """Let these trials, which have ended, run again. False in a storage of the user's, where they cannot."""
        if self._in_folder:
            storage.reopen(self._study.study_name, self._folder, numbers)
            self._study, _ = self._open()
        return self._in_folder

    def report(self, number: int, value: float, step: int) -> bool:
        """Record an intermediate value of the objective. True if the pruner wants this trial to end."""
        if not self._prunes or not math.isfinite(value) or step <= self._reported.get(number, -1):
            return False
        trial = self._trials[number]
        trial.report(value, step)
        self._reported[number] = step
        return trial.should_prune()

    def place(self, row: Row) -> None:
        """Note where a trial is, if not where everybody looks first."""
        if (where := storage.folder_attr(row.folder, self._folder)) != str(row.number):
            self._trials[row.number].set_user_attr("folder", where)

    def tell(self, row: Row) -> None:
        """Record how a trial ended."""
        trial = self._trials.pop(row.number)
        end = {
            "state": str(row.state),
            "attempts": [attempt.as_json() for attempt in row.attempts],
            "folder": storage.folder_attr(row.folder, self._folder),
        }
        trial.set_user_attr("end", end)
        if row.state is State.COMPLETED and row.objective:
            self._study.tell(trial, row.objective)
        else:
            self._study.tell(trial, state=TrialState.PRUNED if row.state is State.PRUNED else TrialState.FAIL)

    def importance(self) -> dict[str, float]:
        """The share of each parameter in the first objective's variance (fANOVA, Hutter et al., ICML 2014)."""
        if self.is_grid or len(self.space.parameters) < 2:
            return {}
        try:
            found = optuna.importance.get_param_importances(
                self._study,
                target=lambda trial: float(trial.values[0]),
                evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0),
            )
        except (ValueError, RuntimeError):  # too few trials, or all of them equal: nothing to tell apart
            return {}
        return dict(found)

    def _new_points(self, seen: set[Any]) -> Iterator[Point]:
        new = (point for point in self.space.points() if canonical(point) not in seen)
        return islice(new, None if self._n_trials is None else max(0, self._n_trials - len(seen)))

    def _add_missing(self) -> None:
        """After damage to the journal: the trials that it lacks, which their folders still tell of."""
        known = {self.space.name(p): _distribution(p, self.is_grid) for p in self.space.parameters}
        missing = storage.missing_trials(self._study, self._folder)
        if missing and not self.mended:
            self.mended = f"{self._folder}/study.journal lacks {len(missing)} trials, which their folders tell of"
        for number, point in missing:
            named = {
                self.space.name(p): point[p.key]
                for p in self.space.parameters
                if point and p.key in point and self.space.exists(p, point)
            }
            attrs: dict[str, Any] = {"point": canonical(point)} if point else {}
            if not point:  # its number is taken all the same
                end = End(State.FAILED, "which trial it was is not known: its trial.json cannot be read")
                attrs["end"] = {"state": end.state, "attempts": [end.as_json()], "folder": str(number)}
            trial = optuna.trial.create_trial(
                state=TrialState.RUNNING if point else TrialState.FAIL,
                params=named,
                distributions={name: known[name] for name in named},
                user_attrs=attrs,
            )
            self._study.add_trial(trial)

    def _propose(self, trial: optuna.Trial, forgiven: int = 0) -> Proposal:
        """What was suggested before is suggested again: Optuna keeps the values of a trial that runs."""
        point = self._suggest(trial)
        known = {parameter.key for parameter in self.space.parameters}
        custom = [f"{key}={text_of(value)}" for key, value in point.items() if key not in known]
        self._trials[trial.number] = trial
        return Proposal(trial.number, point, self.space.overrides(point) + custom, forgiven)

    def _suggest(self, trial: optuna.Trial) -> Point:
        point: Point = {}
        names = set()
        for parameter in self.space.parameters:
            if self.space.exists(parameter, point):
                name = self.space.name(parameter)
                names.add(name)
                point[parameter.key] = _suggest(trial, name, parameter, self.is_grid)
        if self._custom:
            self._custom(self._config, trial)
            point |= {name: value for name, value in trial.params.items() if name not in names}
        return point


def _distribution(parameter: Parameter, grid: bool) -> BaseDistribution:
    """What a parameter is recorded with, and chosen from by a sampler.

    Of a list Optuna compares all choices, for every trial it reads: the numbers of a grid are recorded as a range.
    """
    if isinstance(parameter, Interval):
        if parameter.whole:
            return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    values: Sequence[Any] = parameter.values
    step = abs(values[1] - values[0]) if parameter.numbers and len(values) > 1 else None
    kinds = {type(value) for value in values}
    if kinds == {int} and (grid or step):
        return IntDistribution(min(values), max(values), step=1 if grid or not step else step)
    if kinds == {float} and (grid or step):
        return FloatDistribution(min(values), max(values), step=None if grid else step)
    return CategoricalDistribution(values)


def _suggest(trial: optuna.Trial, name: str, parameter: Parameter, grid: bool) -> Value:
    """What the sampler chooses, or, for a trial that was enqueued, what it was enqueued with."""
    of = _distribution(parameter, grid)
    if isinstance(of, IntDistribution):
        return trial.suggest_int(name, of.low, of.high, step=of.step, log=of.log)
    if isinstance(of, FloatDistribution):
        found = trial.suggest_float(name, of.low, of.high, step=of.step, log=of.log)
        values: Sequence[Any] = parameter.values if isinstance(parameter, Choice) else [found]
        return min(values, key=lambda value: abs(value - found))  # type: ignore[no-any-return]
    assert isinstance(of, CategoricalDistribution)
    chosen: Value = trial.suggest_categorical(name, of.choices)
    return chosen


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
