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
    condition by themselves. It does not take what runs for bad (the constant liar, Ginsbourger et al., 2010): as slow
    trials run longest, it then shuns what is slow, and no point is tried twice anyway (`benchmarks/search_learns.py`).
    """
    defaults: dict[str, Any] = {}
    if learns and (settings.sampler or {}).get("_target_") == "optuna.samplers.TPESampler":
        defaults["constant_liar"] = False
        if len(settings.directions) == 1 and any(parameter.condition for parameter in space.parameters):
            defaults["group"] = True
    return build("sampler", settings.sampler, **defaults)
