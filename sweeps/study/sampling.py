"""What Optuna's samplers are built from, and choose from."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import optuna
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.errors import UserError
from sweeps.settings import SweeperConf
from sweeps.study.search_space import Interval, Parameter, SearchSpace


def distribution(parameter: Parameter, grid: bool, learns: bool) -> BaseDistribution:
    """What a parameter is recorded with, and chosen from by a sampler.

    Of a list Optuna compares all choices, for every trial it reads: the numbers of a grid are recorded as a range.
    In a search that `learns`, of numbers it is their place in the order: evenly spaced, and the ends no narrower. On
    the tables of `benchmarks/search_learns.py` that leaves less regret than their values, or their logarithms.
    """
    if isinstance(parameter, Interval):
        if parameter.whole:
            return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if learns:
        categories = CategoricalDistribution(parameter.distinct)
        return IntDistribution(0, len(parameter.ordered) - 1) if parameter.ordered else categories
    values: Sequence[Any] = parameter.values
    step = abs(values[1] - values[0]) if parameter.numbers and len(values) > 1 else None
    kinds = {type(value) for value in values}
    if kinds == {int} and (grid or step):
        return IntDistribution(min(values), max(values), step=1 if grid or not step else step)
    if kinds == {float} and (grid or step):
        return FloatDistribution(min(values), max(values), step=None if grid else step)
    return CategoricalDistribution(values)


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
