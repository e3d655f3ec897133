"""The search space in Optuna's terms: distributions, and values between ours and Optuna's."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.record.space import Choice, Interval, Parameter, SearchSpace
from sweeps.trial.job import Point, Value


class Encoding:
    """Of ordered numbers Optuna has the place among all values: evenly spaced, and the ends no narrower.

    On the tables of `benchmarks/search_learns.py` places leave less regret than values, or their logarithms. With
    `true_values`, where the user's own code sees Optuna's trial, nothing is encoded.
    """

    def __init__(self, space: SearchSpace, true_values: bool = False) -> None:
        self.named = [(parameter, space.name(parameter)) for parameter in space.parameters]
        self._space = space
        ordered = {name: one.ordered for one, name in self.named if isinstance(one, Choice) and one.ordered}
        self._axes: Mapping[str, Sequence[float]] = {} if true_values else ordered
        of = true_distribution if true_values else encoded_distribution
        self.distributions: dict[str, BaseDistribution] = {name: of(parameter) for parameter, name in self.named}

    def holds(self, point: Point) -> bool:
        """Whether a point has a value of the space for each of its parameters."""
        return self._space.contains(point)

    def encode(self, point: Point) -> dict[str, Any]:
        """Return a point's values as Optuna has them, by the names of their parameters."""
        values = self._space.named(point)
        return {name: self._axes[name].index(one) if name in self._axes else one for name, one in values.items()}

    def decode(self, name: str, value: Any) -> Value:
        """Return one of Optuna's values as ours."""
        decoded: Value = self._axes[name][value] if name in self._axes else value
        return decoded


def encoded_distribution(parameter: Parameter) -> BaseDistribution:
    """Return the distribution that a sampler chooses from: numbers are places in their order, words categories."""
    if isinstance(parameter, Interval):
        return _interval(parameter)
    if parameter.ordered:
        return IntDistribution(0, len(parameter.ordered) - 1)
    return CategoricalDistribution(tuple(parameter.distinct))


def true_distribution(parameter: Parameter) -> BaseDistribution:
    """Return a distribution of the values as they were typed: a range has its step, a list of choices has them all."""
    if isinstance(parameter, Interval):
        return _interval(parameter)
    values: Sequence[Any] = parameter.values
    if parameter.numbers and len(values) > 1:
        kind = IntDistribution if all(isinstance(value, int) for value in values) else FloatDistribution
        low, high = min(values), max(values)
        step = type(low)((high - low) / (len(values) - 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spaced = kind(low, high, step=step)
        if spaced.high == high:  # else Optuna rounds the last value away
            return spaced
    return CategoricalDistribution(tuple(parameter.distinct))


def _interval(parameter: Interval) -> BaseDistribution:
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
