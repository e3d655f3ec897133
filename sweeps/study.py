"""A study: which trials there are, which comes next, and what became of each. The only module that imports Optuna."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import optuna
from hydra.errors import InstantiationException
from hydra.utils import get_method, instantiate
from omegaconf import DictConfig
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweeps import study_storage
from sweeps.errors import UserError
from sweeps.search_space import Choice, Parameter, Point, SearchSpace, Value, canonical, text_of
from sweeps.settings import SweeperConf
from sweeps.summary import Row
from sweeps.trial_folder import State

optuna.logging.set_verbosity(optuna.logging.WARNING)

_GRID = "optuna.samplers.GridSampler"


def check_search(settings: SweeperConf) -> None:
    """Raises UserError if the sampler or the pruner cannot be built."""
    if not is_grid(settings):
        _build("sampler", settings.sampler)
    _build("pruner", settings.pruner)


@dataclass(frozen=True)
class Proposal:
    """A trial that should run."""

    number: int
    point: Point
    overrides: list[str]


def is_grid(settings: SweeperConf) -> bool:
    return settings.sampler is None or settings.sampler.get("_target_") == _GRID


class Study:
    """An Optuna study, asked one trial at a time.

    A grid is enumerated here and only recorded in Optuna: asked from outside of `optimize`, its GridSampler repeats
    cells and raises on the last tell.
    """

    def __init__(
        self, name: str, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig
    ) -> None:
        self._folder = folder
        self._config = config  # what custom_search_space is called with
        self.space = space
        self.directions = settings.directions
        self.objective = settings.objectives
        self.is_grid = is_grid(settings)
        self._custom = settings.custom_search_space and get_method(settings.custom_search_space)
        self._n_trials = settings.n_trials
        if settings.extend and self.is_grid and settings.storage is None:
            known = {space.name(p): _distribution(p) for p in space.parameters if isinstance(p, Choice)}
            study_storage.widen(name, folder, known)
        self._study = optuna.create_study(
            study_name=name,
            storage=study_storage.open_storage(settings.storage, folder),
            sampler=None if self.is_grid else _build("sampler", settings.sampler),
            pruner=_build("pruner", settings.pruner) or optuna.pruners.NopPruner(),
            directions=[StudyDirection[direction.upper()] for direction in self.directions],
            load_if_exists=True,
        )
        self._prunes = len(self.directions) == 1 and not isinstance(
            self._study.pruner, optuna.pruners.NopPruner
        )
        self._trials: dict[int, optuna.Trial] = {}
        self._reported: dict[int, int] = {}
        earlier = self._study.get_trials(deepcopy=False)
        # A driver that was killed may leave a point that it enqueued and never asked for.
        self._enqueued = sum(trial.state is TrialState.WAITING for trial in earlier)
        self._asked = len(earlier) - self._enqueued
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
        if self._enqueued:
            self._enqueued -= 1
        elif self.is_grid:
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
        """The trials that an earlier driver asked for and did not see end."""
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [self._propose(optuna.Trial(self._study, trial._trial_id)) for trial in running]

    def finished(self) -> list[Row]:
        """The trials that ended under an earlier driver."""
        over = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        return [
            study_storage.row_of(trial, self._folder)
            for trial in self._study.get_trials(deepcopy=False, states=over)
        ]

    def report(self, number: int, value: float, step: int) -> bool:
        """Record an intermediate value of the objective. True if the pruner wants this trial to end."""
        if not self._prunes or not math.isfinite(value) or step <= self._reported.get(number, -1):
            return False
        trial = self._trials[number]
        trial.report(value, step)
        self._reported[number] = step
        return trial.should_prune()

    def tell(self, row: Row) -> None:
        """Record how a trial ended."""
        trial = self._trials.pop(row.number)
        end = {
            "state": str(row.state),
            "error": row.error,
            "attempts": [asdict(attempt) for attempt in row.attempts],
            "folder": row.folder.name,
        }
        trial.set_user_attr("end", end)
        if row.state is State.COMPLETED:
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

    def _propose(self, trial: optuna.Trial) -> Proposal:
        """What was suggested before is suggested again: Optuna keeps the values of a trial that runs."""
        point = self._suggest(trial)
        known = {parameter.key for parameter in self.space.parameters}
        custom = [f"{key}={text_of(value)}" for key, value in point.items() if key not in known]
        self._trials[trial.number] = trial
        return Proposal(trial.number, point, self.space.overrides(point) + custom)

    def _suggest(self, trial: optuna.Trial) -> Point:
        point: Point = {}
        names = set()
        for parameter in self.space.parameters:
            if self.space.exists(parameter, point):
                name = self.space.name(parameter)
                names.add(name)
                suggest = _recall if self.is_grid else _suggest
                point[parameter.key] = suggest(trial, name, parameter)
        if self._custom:
            self._custom(self._config, trial)
            point |= {name: value for name, value in trial.params.items() if name not in names}
        return point


def _distribution(parameter: Choice) -> BaseDistribution:
    """What a grid's parameter is recorded with. Of a list Optuna compares all choices, for every trial it reads."""
    values = parameter.values
    if all(type(value) is int for value in values):
        return IntDistribution(min(values), max(values))  # type: ignore[arg-type, type-var]
    if all(type(value) is float for value in values):
        return FloatDistribution(min(values), max(values))  # type: ignore[arg-type, type-var]
    return CategoricalDistribution(values)


def _recall(trial: optuna.Trial, name: str, parameter: Parameter) -> Value:
    """The value that a grid's trial was enqueued with."""
    assert isinstance(parameter, Choice)
    recorded = _distribution(parameter)
    if isinstance(recorded, IntDistribution):
        return trial.suggest_int(name, recorded.low, recorded.high)
    if isinstance(recorded, FloatDistribution):
        return trial.suggest_float(name, recorded.low, recorded.high)
    value: Value = trial.suggest_categorical(name, parameter.values)
    return value


def _suggest(trial: optuna.Trial, name: str, parameter: Parameter) -> Value:
    if isinstance(parameter, Choice):
        if parameter.numbers and len(parameter.values) > 1:
            return _suggest_range(trial, name, parameter)
        chosen: Value = trial.suggest_categorical(name, parameter.values)
        return chosen
    if parameter.whole:
        return trial.suggest_int(name, int(parameter.low), int(parameter.high), log=parameter.log)
    return trial.suggest_float(name, parameter.low, parameter.high, log=parameter.log)


def _suggest_range(trial: optuna.Trial, name: str, parameter: Choice) -> Value:
    """An ordered list of equally spaced numbers, which a sampler may interpolate."""
    first, second, last = parameter.values[0], parameter.values[1], parameter.values[-1]
    low, high = sorted((first, last))  # type: ignore[type-var]  # they come from range()
    step = abs(second - first)  # type: ignore[operator]
    if all(isinstance(value, int) for value in parameter.values):
        return trial.suggest_int(name, low, high, step=step)  # type: ignore[arg-type]
    found = trial.suggest_float(name, low, high, step=step)  # type: ignore[arg-type]
    return min(parameter.values, key=lambda value: abs(value - found))  # type: ignore[operator]


def _build(kind: str, conf: Any) -> Any:
    if not conf:
        return None
    if conf["_target_"] == "optuna.samplers.GPSampler" and find_spec("torch") is None:
        raise UserError(
            "hydra/sweeper/sampler=gp needs PyTorch; install it with: pip install -c constraints.txt torch"
        )
    try:
        return instantiate(conf)
    except InstantiationException as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(f"hydra/sweeper/{kind} cannot be built from {dict(conf)}: {last}") from error
