"""The search space in Optuna's terms: distributions, and the conversion of values to and from
Optuna's."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    json_to_distribution,
)

from sweeps.record.study import TrialRecord
from sweeps.space.parameters import literal
from sweeps.space.space import Choice, Interval, Parameter, SearchSpace
from sweeps.trial.job import Point, Value


class Encoding:
    """An encoding of ordered numbers by their index, so that they are evenly spaced.

    On the tables of `benchmarks/search_learns.py` indices leave less regret than values or their
    logarithms. With `true_values` nothing is encoded, because the user's own code reads Optuna's
    trial.
    """

    def __init__(self, space: SearchSpace, true_values: bool = False) -> None:
        self.space = space
        self.named = [(parameter, space.name(parameter)) for parameter in space.parameters]
        self._axes = {
            name: parameter.ordered
            for parameter, name in self.named
            if isinstance(parameter, Choice) and parameter.ordered and not true_values
        }
        distribution = true_distribution if true_values else encoded_distribution
        self.distributions = {name: distribution(parameter) for parameter, name in self.named}

    def encode(self, point: Point) -> dict[str, Any]:
        """Return a point's values as Optuna has them, by the names of their parameters."""
        values = self.space.named(point)
        return {
            name: self._axes[name].index(v) if name in self._axes else v
            for name, v in values.items()
        }

    def decode(self, name: str, value: Any) -> Any:
        """Return the parameter's value for one of Optuna's values."""
        return self._axes[name][value] if name in self._axes else value


@contextmanager
def quiet_about_lists() -> Iterator[None]:
    """Show none of the warnings that Optuna gives for each trial: its databases hold lists in spite
    of them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Choices for a categorical distribution")
        yield


def own_distributions(trial: TrialRecord) -> dict[str, BaseDistribution]:
    """Return the distributions of the parameters that the user's own function suggested."""
    texts: Mapping[str, str] = trial.memory.get("distributions", {})
    with quiet_about_lists():
        return {name: json_to_distribution(text) for name, text in texts.items()}


def choice_of(value: Value, distribution: BaseDistribution) -> Any:
    """Return the list or the dict of a distribution that a record has as text; any other value as
    it is."""
    for choice in getattr(distribution, "choices", ()):
        if isinstance(choice, list | dict) and literal(choice) == value:
            return choice
    return value


def in_distribution(name: str, value: Any, distribution: BaseDistribution) -> Any:
    """Return the value as the distribution's type. Raises ValueError if it is outside of the
    distribution."""
    internal = distribution.to_internal_repr(value)
    if not distribution._contains(internal):
        raise ValueError(f"its value {name}={value} is outside of {distribution}")
    return distribution.to_external_repr(internal)


def encoded_distribution(parameter: Parameter) -> BaseDistribution:
    """Return the distribution that a sampler chooses from: an interval, indices of ordered numbers,
    or categories."""
    if isinstance(parameter, Interval):
        return _interval(parameter)
    if parameter.ordered:
        return IntDistribution(0, len(parameter.ordered) - 1)
    return CategoricalDistribution(tuple(parameter.distinct))


def true_distribution(parameter: Parameter) -> BaseDistribution:
    """Return a distribution of the typed values: a range with its step, or all choices as
    categories."""
    if isinstance(parameter, Interval):
        return _interval(parameter)
    values: Sequence[Any] = parameter.values
    if parameter.numbers and len(values) > 1:
        is_whole = all(isinstance(value, int) for value in values)
        kind = IntDistribution if is_whole else FloatDistribution
        low = min(values)
        high = max(values)
        step = type(low)((high - low) / (len(values) - 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spaced = kind(low, high, step=step)
        if spaced.high == high:  # because Optuna may round the last value away
            return spaced
    return CategoricalDistribution(tuple(parameter.distinct))


def _interval(parameter: Interval) -> BaseDistribution:
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
