"""The parameters of a search space, and their values as text."""

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, TypeVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString, Transformer
from hydra.errors import HydraException

from sweeps.space.exclusion import is_number, is_same
from sweeps.trial.job import Value

T = TypeVar("T")


@dataclass(frozen=True)
class Condition:
    """The condition under which a parameter exists: `key` has one of `values`, compared as text."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}={','.join(self.values)}"


@dataclass(frozen=True)
class Choice:
    """A parameter with finitely many values. `texts` has the text of each value in an override."""

    key: str
    values: tuple[Value, ...]
    texts: tuple[str, ...]
    condition: Condition | None = None
    # whether the values came from range(), so that a sampler may use their order
    numbers: bool = False

    @property
    def typed(self) -> str:
        """Return the values as one types them in an override."""
        return ",".join(self.texts)

    @cached_property
    def distinct(self) -> tuple[Value, ...]:
        """Return each value once: 1 and 1.0 are one value, 1 and True are two."""
        if self.numbers:
            return self.values
        first: dict[str, Value] = {}
        for value in self.values:
            first.setdefault(canonical({self.key: value}), value)
        return tuple(first.values())

    def find(self, value: Any) -> list[Value]:
        """Return a list of the parameter's value that equals `value`; empty if there is none."""
        plain = value if isinstance(value, bool | int | float | str | None) else text_of(value)
        return [value for value in self.distinct if is_same(value, plain)][:1]

    @cached_property
    def ordered(self) -> tuple[float, ...]:
        """Return the values in ascending order if they are two or more numbers; empty for
        categories, and with nan."""
        numbers = [value for value in self.distinct if is_number(value) and not math.isnan(value)]
        return tuple(sorted(numbers)) if len(numbers) == len(self.distinct) > 1 else ()

    def fraction(self, value: Any) -> float:
        """Return the position of a number among the ordered values, from 0 to 1."""
        return self.ordered.index(value) / (len(self.ordered) - 1)

    def distance(self, value: Value, other: Value) -> float:
        """Return the distance of two values, from 0 to 1."""
        if self.ordered:
            return abs(self.fraction(value) - self.fraction(other))
        return float(not is_same(value, other))


@dataclass(frozen=True)
class Interval:
    """A parameter with any value from `low` to `high`, ends included; only whole numbers if both
    ends are whole."""

    key: str
    low: float
    high: float
    log: bool = False
    condition: Condition | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.low, self.high)

    @property
    def typed(self) -> str:
        ends = f"interval({self.low:.15g},{self.high:.15g})"
        ends = f"int({ends})" if self.whole else ends
        return f"tag(log,{ends})" if self.log else ends

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def find(self, value: Any) -> list[Value]:
        """Return a list of `value` in the parameter's type; empty if `value` is outside of the
        interval."""
        if not is_number(value) or not self.low <= value <= self.high:
            return []
        if self.whole:
            return [int(value)] if value == int(value) else []
        return [float(value)]

    def fraction(self, value: Any) -> float:
        """Return the position of a value in the interval, from 0 to 1; on a log scale if the
        interval has one."""
        scale = math.log if self.log else float
        fraction: float = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return fraction

    def at(self, fraction: float) -> Value:
        """Return the value at a position from 0 to 1: the inverse of `fraction`."""
        ends = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = ends[0] + min(max(fraction, 0.0), 1.0) * (ends[1] - ends[0])
        value = min(max(math.exp(value) if self.log else value, self.low), self.high)
        return round(value) if self.whole else value

    @property
    def distinct(self) -> Iterable[Value]:
        """Yield all values; an endless sequence for fractions, spread by the golden ratio."""
        if self.whole:
            return range(int(self.low), int(self.high) + 1)
        return (self.at((i + 1) * 0.6180339887 % 1) for i in count())


Parameter = Choice | Interval
_EXACT = 2**53  # up to this whole number a float has each one


def canonical(point: Mapping[str, Value]) -> str:
    """Return a text that equal points share: 1 and 1.0 are one value, and nan and nan, but not 1
    and True."""
    values = dict(point)
    for key, value in point.items():
        if is_number(value) and abs(value) <= _EXACT:
            values[key] = float(value) + 0.0  # which is 0.0 for -0.0
    return json.dumps(values, sort_keys=True)


def without_plus(values: Mapping[str, T]) -> dict[str, T]:
    """Return values by their keys without the plus with which Hydra adds a key."""
    return {key.lstrip("+"): value for key, value in values.items()}


def quoted(text: str) -> str:
    """Return a text in Hydra's grammar, with quotes if the grammar would refuse it or read anything
    else."""
    plain = text_of(text)
    with suppress(HydraException):
        if OverridesParser.create().parse_override(f"key={plain}").value() == text:
            return plain
    return str(QuotedString(text, Quote.single).with_quotes())


def literal(value: Any) -> str:
    """Return a value in Hydra's grammar, with quotes wherever the grammar would read a text as
    anything else."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list | tuple):
        return f"[{literals(value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{text_of(key)}:{_part(part)}' for key, part in value.items())}}}"
    return text_of(value)


def literals(values: Iterable[Any]) -> str:
    """Return several values in Hydra's grammar."""
    return ",".join(map(_part, values))


def _part(value: Any) -> str:
    """Return one of several values, or of the values of a mapping, where an empty text needs
    quotes."""
    return literal(value) or "''"


def text_of(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    return str(Transformer.str(value))
