"""The search space: parameters with their values, and the points that they make."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, islice
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString, Transformer
from hydra.errors import HydraException

from sweeps.errors import UserError
from sweeps.settings import SweeperConf
from sweeps.trial.job import Point, Value


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
    numbers: bool = False  # whether the values came from range(), so that a sampler may use their order

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
        plain = value if value is None or isinstance(value, bool | int | float | str) else text_of(value)
        equal = (value for value in self.distinct if value == plain)
        return [value for value in equal if isinstance(value, bool) == isinstance(plain, bool)][:1]

    @cached_property
    def ordered(self) -> tuple[float, ...]:
        """Return the values in ascending order if they are two or more numbers; empty for categories."""
        numbers = [value for value in self.distinct if isinstance(value, int | float) and not isinstance(value, bool)]
        return tuple(sorted(numbers)) if len(numbers) == len(self.distinct) > 1 else ()

    def fraction(self, value: Any) -> float:
        """Return the position of a number among the ordered values, from 0 to 1."""
        return self.ordered.index(value) / (len(self.ordered) - 1)


@dataclass(frozen=True)
class Interval:
    """A parameter with any value from `low` to `high`, ends included; only whole numbers if both ends are whole."""

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
        """Return a list of `value` in the parameter's type; empty if `value` is outside of the interval."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return []
        if self.whole:
            return [int(value)] if value == int(value) else []
        return [float(value)]

    def fraction(self, value: Any) -> float:
        """Return the position of a value in the interval, from 0 to 1; on a log scale if the interval has one."""
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
        return (self.low + (self.high - self.low) * ((i + 1) * 0.6180339887 % 1) for i in count())


Parameter = Choice | Interval


@dataclass(frozen=True)
class SearchSpace:
    """The swept `parameters`, and the overrides that all trials share (`fixed`)."""

    parameters: tuple[Parameter, ...]
    fixed: tuple[str, ...]
    constants: Mapping[str, str]  # values of keys that are not swept, as text, for conditions
    listed: tuple[Point, ...] = ()  # each of these points is combined with all values of the other parameters

    def with_listed(self, listed: Sequence[Point]) -> "SearchSpace":
        """Return the space with listed points, whose keys become parameters before the others."""
        choices, keys = [], {parameter.key for parameter in self.parameters}
        for key in (key for key in dict.fromkeys(chain(*listed)) if key not in keys):  # of a record, all are parameters
            values = {canonical({key: point[key]}): point[key] for point in listed if key in point}
            choices.append(Choice(key, tuple(values.values()), tuple(map(text_of, values.values()))))
        return replace(self, parameters=(*choices, *self.parameters), listed=tuple(listed))

    @cached_property
    def _listed_keys(self) -> Set[str]:
        return {*chain(*self.listed)}

    @cached_property
    def _free(self) -> Sequence[Parameter]:
        """Return the parameters that no listed point has."""
        return [parameter for parameter in self.parameters if parameter.key not in self._listed_keys]

    def exists(self, parameter: Parameter, point: Point) -> bool:
        if parameter.condition is None:
            return True
        key = parameter.condition.key
        return (text_of(point[key]) if key in point else self.constants.get(key)) in parameter.condition.values

    def overrides(self, point: Point) -> list[str]:
        """Return the overrides that compose a point. With `custom_search_space` a point has further params."""
        texts = {key: self._texts.get((key, type(value), value), text_of(value)) for key, value in point.items()}
        return [*self.fixed, *(f"{key}={text}" for key, text in texts.items())]

    @cached_property
    def _texts(self) -> dict[tuple[str, type, Value], str]:  # True == 1 in Python, but not in a configuration
        texts: dict[tuple[str, type, Value], str] = {}
        for choice in self.parameters:
            if isinstance(choice, Choice):
                for value, text in zip(choice.values, choice.texts, strict=True):
                    texts[choice.key, type(value), value] = text
        return texts

    def named(self, point: Point) -> dict[str, Value]:
        """Return the values of a point by the names of their parameters."""
        return {self.name(p): point[p.key] for p in self.parameters if p.key in point and self.exists(p, point)}

    def name(self, parameter: Parameter) -> str:
        """Return the parameter's key, with its condition if the key has several parameters."""
        alone = sum(other.key == parameter.key for other in self.parameters) == 1
        return parameter.key if alone else f"{parameter.key} under {parameter.condition}"

    def contains(self, point: Point) -> bool:
        """Return whether the space contains the point: a listed point, with a valid value for each other parameter."""
        needed = [parameter for parameter in self._free if self.exists(parameter, point)]
        own = canonical({key: value for key, value in point.items() if key in self._listed_keys})
        if self.listed and own not in map(canonical, self.listed):
            return False
        return all(parameter.key in point and parameter.find(point[parameter.key]) for parameter in needed)

    def points(self) -> Iterator[Point]:
        """Yield every point of the grid once, the last parameter changing fastest. Raises UserError at an interval."""
        earlier = set()
        for point in self._expand_all():
            for parameter in self.parameters:
                if isinstance(parameter, Interval) and parameter.key in point and self.exists(parameter, point):
                    raise UserError(
                        f"{parameter.key}={parameter.typed}: a grid needs a finite list of values.\n"
                        "Use a search: type hydra/sweeper=optuna without hydra/sweeper/sampler=grid, "
                        f"or list values: {parameter.key}={parameter.low},{parameter.high}"
                    )
            if (key := canonical(point)) not in earlier:
                earlier.add(key)
                yield point

    def all_points(self) -> Iterator[Point]:
        """Yield every point of a search; a point twice if conditions overlap. Intervals of fractions are endless."""
        return self._expand_all(all_values=True)

    def _expand_all(self, all_values: bool = False) -> Iterator[Point]:
        return chain.from_iterable(self._expand(point, self._free, all_values) for point in self.listed or ({},))

    def _expand(self, point: Point, parameters: Sequence[Parameter], all_values: bool = False) -> Iterator[Point]:
        if not parameters:
            yield point
            return
        first, *rest = parameters
        if not self.exists(first, point):
            yield from self._expand(point, rest, all_values)
            return
        for value in first.distinct if all_values else first.values:
            yield from self._expand({**point, first.key: value}, rest, all_values)

    def corners(self, limit: int = 500) -> list[Point]:
        """Return points to check before a search: choices and interval ends, in all combinations up to `limit`."""
        grid = list(islice(self._expand_all(), limit + 1))
        if len(grid) <= limit:
            return grid
        diagonal = []  # a point for each value, because there are too many combinations
        for i in range(max([len(self.listed), *(len(parameter.values) for parameter in self._free)])):
            point: Point = {**self.listed[i % len(self.listed)]} if self.listed else {}
            for parameter in self._free:
                if self.exists(parameter, point):
                    point[parameter.key] = parameter.values[i % len(parameter.values)]
            diagonal.append(point)
        return diagonal


def is_grid(settings: SweeperConf) -> bool:
    """Return whether every point of the space is a trial, so that no sampler chooses."""
    return settings.sampler is None or settings.sampler.get("_target_") == "optuna.samplers.GridSampler"


def total(settings: SweeperConf, space: SearchSpace) -> int:
    """Return the number of a grid's trials, or of a search's configurations; no point is tried twice."""
    if is_grid(settings):
        return sum(1 for _ in islice(space.points(), settings.max_grid_trials))
    limit = settings.n_trials or 0
    if settings.custom_search_space:
        return limit
    points: set[str] = set()
    for point in islice(space.all_points(), 20 * limit):
        points.add(canonical(point))
        if len(points) == limit:
            break
    return len(points)


def canonical(point: Mapping[str, Value]) -> str:
    """Return a text that equal points share: 1 and 1.0 are one value, 1 and True are two."""
    values = {key: float(value) if type(value) is int else value for key, value in point.items()}
    return json.dumps(values, sort_keys=True)


def quoted(text: str) -> str:
    """Return a text in Hydra's grammar, with quotes if the grammar would refuse it or read anything else."""
    plain = text_of(text)
    with suppress(HydraException):
        if OverridesParser.create().parse_override(f"key={plain}").value() == text:
            return plain
    return str(QuotedString(text, Quote.single).with_quotes())


def text_of(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    return str(Transformer.str(value))
