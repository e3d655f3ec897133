"""What Optuna's samplers are built from, choose from, and are told of trials that failed."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import optuna
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIIISampler, NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweeps.errors import UserError
from sweeps.settings import SweeperConf
from sweeps.study.search_space import Choice, Interval, Parameter, SearchSpace

_RUNS = "runs"  # the constraint: above 0 where it is violated
_ASKED_FOR_ALL = (GPSampler, NSGAIISampler, NSGAIIISampler)
"""They have the constraint of each trial, and trials that completed alone."""


def distribution(parameter: Parameter, grid: bool, learns: bool) -> BaseDistribution:
    """What a parameter is recorded with, and chosen from by a sampler.

    Of a list Optuna compares all choices, for every trial it reads: the numbers of a grid are recorded as a range.
    In a search that `learns`, numbers are an axis; whatever the sampler chooses there, the nearest of them is meant.
    """
    if isinstance(parameter, Interval):
        if parameter.whole:
            return IntDistribution(parameter.low, parameter.high, log=parameter.log)
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    values: Sequence[Any] = parameter.values
    step = abs(values[1] - values[0]) if parameter.numbers and len(values) > 1 else None
    kinds = {type(value) for value in values}
    if kinds == {int} and (grid or step):
        return IntDistribution(min(values), max(values), step=1 if grid or not step else step)
    if kinds == {float} and (grid or step):
        return FloatDistribution(min(values), max(values), step=None if grid else step)
    if learns and parameter.ordered:
        low, high = parameter.ordered[0], parameter.ordered[-1]
        kind = IntDistribution if kinds == {int} else FloatDistribution
        return kind(low, high, log=parameter.log)  # type: ignore[arg-type]
    return CategoricalDistribution(parameter.distinct if learns else values)


def build(kind: str, conf: Any, **defaults: Any) -> Any:
    """The sampler or the pruner that `conf` names; `defaults` are for what it does not say."""
    if not conf:
        return None
    if conf["_target_"] == "optuna.samplers.GPSampler" and find_spec("torch") is None:
        raise UserError("hydra/sweeper/sampler=gp needs PyTorch; install it with: pip install -c constraints.txt torch")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return instantiate({**defaults, **conf})
    except InstantiationException as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(f"hydra/sweeper/{kind} cannot be built from {dict(conf)}: {last}") from error


def sampler_of(settings: SweeperConf, space: SearchSpace, learns: bool) -> Any:
    """The sampler. TPE models the parameters that exist together jointly (Falkner et al., BOHB, ICML 2018), under each
    condition by themselves, and takes what runs for bad (Ginsbourger et al., the constant liar, 2010): of these Optuna
    leaves the conditions to us.
    """
    name = (settings.sampler or {}).get("_target_")
    conditions = any(parameter.condition for parameter in space.parameters)
    grouped = learns and conditions and name == "optuna.samplers.TPESampler" and len(settings.directions) == 1
    return build("sampler", settings.sampler, **({"group": True} if grouped else {}))


class Told:
    """Tells a study how trials ended, and its sampler, as far as that can learn it, where trials fail.

    TPE counts such a trial among the bad ones however few there are (c-TPE, Watanabe and Hutter, IJCAI 2023); the
    Gaussian process learns the probability that a point runs (Gardner et al., ICML 2014), NSGA-II prefers parents that
    do (Deb et al., 2002). CMA-ES, which knows no constraints, is told the worst value so far: it goes by ranks alone.
    Random and quasi-random points learn nothing.
    """

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self._worst: list[float] = []
        if isinstance(study.sampler, (*_ASKED_FOR_ALL, CmaEsSampler)):
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
                self._hear(trial.values)

    def completed(self, trial: optuna.Trial, values: Sequence[float]) -> None:
        if isinstance(self._study.sampler, _ASKED_FOR_ALL):
            trial.set_constraint(_RUNS, -1.0)
        self._study.tell(trial, values)
        self._hear(values)

    def infeasible(self, trial: optuna.Trial, otherwise: TrialState) -> None:
        sampler = self._study.sampler
        if isinstance(sampler, TPESampler):
            trial.set_constraint(_RUNS, 1.0)
            self._study.tell(trial, state=TrialState.PRUNED)
        elif isinstance(sampler, (*_ASKED_FOR_ALL, CmaEsSampler)) and self._worst:
            if not isinstance(sampler, CmaEsSampler):
                trial.set_constraint(_RUNS, 1.0)
            self._study.tell(trial, self._worst)
        else:
            self._study.tell(trial, state=otherwise)

    def _hear(self, values: Sequence[float]) -> None:
        worst = self._worst or values
        pairs = zip(worst, values, self._study.directions, strict=True)
        self._worst = [max(a, b) if way is StudyDirection.MINIMIZE else min(a, b) for a, b, way in pairs]
