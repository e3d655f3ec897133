"""A study: which trials there are, which comes next, and what became of each. The only module that imports Optuna."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from hydra.utils import get_method, instantiate
from omegaconf import DictConfig
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from sweeps.search_space import Choice, Parameter, Point, SearchSpace, Value, canonical
from sweeps.settings import SweeperConf
from sweeps.trial_folder import Result, State

optuna.logging.set_verbosity(optuna.logging.WARNING)

_GRID = "optuna.samplers.GridSampler"


@dataclass(frozen=True)
class Proposal:
    """A trial that should run."""

    number: int
    point: Point
    overrides: list[str]


def is_grid(settings: SweeperConf) -> bool:
    return settings.sampler is None or settings.sampler.get("_target_") == _GRID


def objective_names(settings: SweeperConf) -> tuple[str, ...]:
    """The names of the objectives, one for each direction."""
    count = len(_as_list(settings.direction))
    if settings.objective is None:
        return ("objective",) if count == 1 else tuple(f"objective_{i}" for i in range(count))
    return tuple(_as_list(settings.objective))


class _OneWriter:
    """No lock: the driver is the only writer of its study, and a lock file would outlive a killed driver."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


class Study:
    """An Optuna study, asked one trial at a time.

    A grid is enumerated here and only recorded in Optuna: asked from outside of `optimize`, its GridSampler repeats
    cells and raises on the last tell.
    """

    def __init__(
        self, name: str, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig
    ) -> None:
        self._config = config  # what custom_search_space is called with
        self.space = space
        self.directions = tuple(_as_list(settings.direction))
        self.objective = objective_names(settings)
        self.is_grid = is_grid(settings)
        self._custom = settings.custom_search_space and get_method(settings.custom_search_space)
        self._n_trials = settings.n_trials
        self._study = optuna.create_study(
            study_name=name,
            storage=_storage(settings.storage, folder),
            sampler=None if self.is_grid else _build(settings.sampler),
            pruner=_build(settings.pruner) or optuna.pruners.NopPruner(),
            directions=list(self.directions),
            load_if_exists=True,
        )
        self._trials: dict[int, optuna.Trial] = {}
        self._points = self._new_points()

    @property
    def total(self) -> int:
        """How many trials the study has when it is finished."""
        if not self.is_grid:
            assert self._n_trials is not None  # checked by the sweeper
            return self._n_trials
        points = sum(1 for _ in self.space.points())
        return points if self._n_trials is None else min(points, self._n_trials)

    def ask(self) -> Proposal | None:
        """The next trial, or None when the study has all it should have."""
        if self.is_grid:
            point = next(self._points, None)
            if point is None:
                return None
            self._study.enqueue_trial(point, user_attrs={"point": canonical(point)})
        elif len(self._study.get_trials(deepcopy=False)) >= self.total:
            return None
        trial = self._study.ask()
        point = self._suggest(trial)
        overrides = self.space.overrides(point)
        known = {parameter.key for parameter in self.space.parameters}
        overrides += [f"{key}={value}" for key, value in point.items() if key not in known]
        self._trials[trial.number] = trial
        return Proposal(trial.number, point, overrides)

    def report(self, number: int, value: float, step: int) -> bool:
        """Record an intermediate value of the objective. True if the pruner wants this trial to end."""
        trial = self._trials[number]
        if len(self.directions) > 1:
            return False  # Optuna prunes on one objective alone
        trial.report(value, step)
        return trial.should_prune()

    def tell(self, number: int, result: Result) -> None:
        trial = self._trials.pop(number)
        trial.set_user_attr("state", str(result.state))
        if result.error:
            trial.set_user_attr("error", result.error)
        if result.state is State.COMPLETED:
            self._study.tell(trial, result.objective)
        elif result.state is State.PRUNED:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def importance(self) -> dict[str, float]:
        """The share of each parameter in the first objective's variance (fANOVA, Hutter et al., ICML 2014)."""
        if self.is_grid or len(self.space.parameters) < 2:
            return {}
        try:
            found = optuna.importance.get_param_importances(
                self._study, target=lambda trial: float(trial.values[0]), evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
            )
        except (ValueError, RuntimeError):  # too few trials, or all of them equal: nothing to tell apart
            return {}
        return dict(found)

    def _new_points(self) -> Iterator[Point]:
        seen = {trial.user_attrs.get("point") for trial in self._study.get_trials(deepcopy=False)}
        room = None if self._n_trials is None else self._n_trials - len(seen)
        for point in self.space.points():
            if canonical(point) not in seen and (room is None or room > 0):
                room = None if room is None else room - 1
                yield point

    def _suggest(self, trial: optuna.Trial) -> Point:
        point: Point = {}
        for parameter in self.space.parameters:
            if self.space.exists(parameter, point):
                point[parameter.key] = _suggest(trial, parameter, ordered=not self.is_grid)
        if self._custom:
            self._custom(self._config, trial)
            point |= {key: value for key, value in trial.params.items() if key not in point}
        return point


def _suggest(trial: optuna.Trial, parameter: Parameter, ordered: bool) -> Value:
    key = parameter.key
    if isinstance(parameter, Choice):
        if ordered and parameter.numbers and len(parameter.values) > 1:
            return _suggest_range(trial, parameter)
        chosen: Value = trial.suggest_categorical(key, parameter.values)
        return chosen
    if parameter.whole:
        return trial.suggest_int(key, int(parameter.low), int(parameter.high), log=parameter.log)
    return trial.suggest_float(key, parameter.low, parameter.high, log=parameter.log)


def _suggest_range(trial: optuna.Trial, parameter: Choice) -> Value:
    """An ordered list of equally spaced numbers, which a sampler may interpolate."""
    first, second, last = parameter.values[0], parameter.values[1], parameter.values[-1]
    low, high = sorted((first, last))  # type: ignore[type-var]  # they come from range()
    step = abs(second - first)  # type: ignore[operator]
    if all(isinstance(value, int) for value in parameter.values):
        return trial.suggest_int(parameter.key, low, high, step=step)  # type: ignore[arg-type]
    found = trial.suggest_float(parameter.key, low, high, step=step)  # type: ignore[arg-type]
    return min(parameter.values, key=lambda value: abs(value - found))  # type: ignore[operator]


def _build(conf: Any) -> Any:
    return instantiate(conf) if conf else None


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _storage(url: str | None, folder: Path) -> Any:
    if url is not None:
        return url
    journal = folder / "study.journal"
    if journal.exists():
        _drop_cut_line(journal)
    return JournalStorage(JournalFileBackend(str(journal), lock_obj=_OneWriter()))  # type: ignore[arg-type]


def _drop_cut_line(journal: Path) -> None:
    """A driver killed while it wrote leaves half a line, onto which Optuna would append the next."""
    with journal.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)
