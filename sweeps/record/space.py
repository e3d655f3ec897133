"""What is swept: parameters with their values, and the points that they make."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import Any

from hydra.core.override_parser.types import Transformer

from sweeps.errors import UserError
from sweeps.settings import SweeperConf
from sweeps.trial.job import Point, Value


@dataclass(frozen=True)
class Condition:
    """Under which choice a parameter exists: `key` has one of `values`, compared as text."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}={','.join(self.values)}"


@dataclass(frozen=True)
class Choice:
    """A parameter with finitely many values. `texts` has each value as it stands in an override."""

    key: str
    values: tuple[Value, ...]
    texts: tuple[str, ...]
    condition: Condition | None = None
    numbers: bool = False  # whether it came from range(), so that a sampler may use the order of its values

    @property
    def typed(self) -> str:
        """As it stands in an override."""
        return ",".join(self.texts)

    @cached_property
    def distinct(self) -> tuple[Value, ...]:
        """Its values, each once: 1 and 1.0 are one value, 1 and True are not."""
        if self.numbers:
            return self.values
        first: dict[str, Value] = {}
        for value in self.values:
            first.setdefault(canonical({self.key: value}), value)
        return tuple(first.values())

    def find(self, value: Any) -> list[Value]:
        """The value of its own that equals this one, in a list; empty if it has none."""
        plain = value if value is None or isinstance(value, bool | int | float | str) else text_of(value)
        return [one for one in self.distinct if one == plain and isinstance(one, bool) == isinstance(plain, bool)][:1]

    @cached_property
    def ordered(self) -> tuple[float, ...]:
        """Its values from the smallest to the largest, if they are two numbers or more; else empty: categories."""
        numbers = [value for value in self.distinct if isinstance(value, int | float) and not isinstance(value, bool)]
        return tuple(sorted(numbers)) if len(numbers) == len(self.distinct) > 1 else ()

    def fraction(self, value: Any) -> float:
        """Where on its axis a number lies, from 0 to 1."""
        return self.ordered.index(value) / (len(self.ordered) - 1)


@dataclass(frozen=True)
class Interval:
    """A parameter with any value from `low` to `high`, its ends included; whole numbers only if both are."""

    key: str
    low: float
    high: float
    log: bool = False
    condition: Condition | None = None

    @property
    def values(self) -> tuple[Value, ...]:  # as a Choice has them
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
        """A value as its own, in a list; empty if it lies outside."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return []
        if self.whole:
            return [int(value)] if value == int(value) else []
        return [float(value)]

    def fraction(self, value: Any) -> float:
        """Where on the interval a value lies, from 0 to 1."""
        scale = math.log if self.log else float
        fraction: float = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return fraction

    def at(self, fraction: float) -> Value:
        """The value that lies there, from 0 to 1."""
        ends = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = ends[0] + min(max(fraction, 0.0), 1.0) * (ends[1] - ends[0])
        value = min(max(math.exp(value) if self.log else value, self.low), self.high)
        return round(value) if self.whole else value

    @property
    def distinct(self) -> Iterable[Value]:
        """All its values; of fractions ever more, spread by the golden ratio."""
        if self.whole:
            return range(int(self.low), int(self.high) + 1)
        return (self.low + (self.high - self.low) * ((i + 1) * 0.6180339887 % 1) for i in count())


Parameter = Choice | Interval


@dataclass(frozen=True)
class SearchSpace:
    """What is swept (`parameters`), and the overrides that all trials share (`fixed`)."""

    parameters: tuple[Parameter, ...]
    fixed: tuple[str, ...]
    constants: Mapping[str, str]  # the values, as text, that conditions see of what is not swept

    def exists(self, parameter: Parameter, point: Point) -> bool:
        if parameter.condition is None:
            return True
        key = parameter.condition.key
        return (text_of(point[key]) if key in point else self.constants.get(key)) in parameter.condition.values

    def overrides(self, point: Point) -> list[str]:
        """What to give Hydra to compose this point, which may hold more than our parameters: `custom_search_space`."""
        texts = {key: self._texts.get((key, type(value), value), text_of(value)) for key, value in point.items()}
        return [*self.fixed, *(f"{key}={text}" for key, text in texts.items())]

    @cached_property
    def _texts(self) -> dict[tuple[str, type, Value], str]:  # True == 1 in Python, but not in a configuration
        texts: dict[tuple[str, type, Value], str] = {}
        for one in self.parameters:
            if isinstance(one, Choice):
                for value, text in zip(one.values, one.texts, strict=True):
                    texts[one.key, type(value), value] = text
        return texts

    def named(self, point: Point) -> dict[str, Value]:
        """The values of this point by the names of their parameters."""
        return {self.name(p): point[p.key] for p in self.parameters if p.key in point and self.exists(p, point)}

    def name(self, parameter: Parameter) -> str:
        """The parameter's key, with its condition where the same key stands under several."""
        alone = sum(other.key == parameter.key for other in self.parameters) == 1
        return parameter.key if alone else f"{parameter.key} under {parameter.condition}"

    def holds(self, point: Point) -> bool:
        """Whether it is one of this space, with a value for each parameter."""
        there = [one for one in self.parameters if self.exists(one, point)]
        return all(one.key in point and one.find(point[one.key]) for one in there)

    def points(self) -> Iterator[Point]:
        """Every point of the grid once, the last parameter changing fastest. Raises UserError at an interval."""
        seen = set()
        for point in self._expand({}, self.parameters):
            for one in self.parameters:
                if isinstance(one, Interval) and one.key in point and self.exists(one, point):
                    raise UserError(
                        f"{one.key}=interval(...) has no finite list of values, so a grid cannot hold it.\n"
                        "Search instead: type hydra/sweeper=optuna without hydra/sweeper/sampler=grid, "
                        f"or list values: {one.key}={one.low},{one.high}"
                    )
            if (key := canonical(point)) not in seen:
                seen.add(key)
                yield point

    def all_points(self) -> Iterator[Point]:
        """Every point of a search, some perhaps twice, where conditions overlap. Intervals of fractions have no end."""
        return self._expand({}, self.parameters, all_values=True)

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
        """What to check before a search: all choices and interval ends, in each combination if there are few."""
        grid = list(islice(self._expand({}, self.parameters), limit + 1))
        if len(grid) <= limit:
            return grid
        diagonal = []
        for i in range(max(len(parameter.values) for parameter in self.parameters)):
            point: Point = {}
            for parameter in self.parameters:
                if self.exists(parameter, point):
                    point[parameter.key] = parameter.values[i % len(parameter.values)]
            diagonal.append(point)
        return diagonal  # each value at least once


def is_grid(settings: SweeperConf) -> bool:
    """Whether every point of the space is a trial, and none is chosen by a sampler."""
    return settings.sampler is None or settings.sampler.get("_target_") == "optuna.samplers.GridSampler"


def total(settings: SweeperConf, space: SearchSpace) -> int:
    """How many trials that makes, of a search configurations: no point is tried twice."""
    if is_grid(settings):
        return sum(1 for _ in islice(space.points(), settings.max_grid_trials))
    asked = settings.n_trials or 0
    if settings.custom_search_space:
        return asked
    found: set[str] = set()
    for point in islice(space.all_points(), 20 * asked):
        found.add(canonical(point))
        if len(found) == asked:
            break
    return len(found)


def canonical(point: Mapping[str, Value]) -> str:
    """The same text for the same point: 1 and 1.0 are one value, 1 and True are not."""
    return json.dumps({key: float(one) if type(one) is int else one for key, one in point.items()}, sort_keys=True)


def text_of(value: Any) -> str:
    """A value as Hydra's grammar writes it."""
    return str(Transformer.str(value))
