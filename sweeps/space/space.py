"""The search space: parameters with their values, and the points that they make."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, count, islice, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SweeperConf
from sweeps.hydra.sweeper_settings import advise_search, is_grid_sampler
from sweeps.space.exclusion import Exclusion
from sweeps.space.listed import Listed
from sweeps.space.parameters import (
    Choice,
    Condition,
    Interval,
    Parameter,
    canonical,
    quoted,
    text_of,
    without_plus,
)
from sweeps.trial.job import Point, Value

__all__ = [
    "Choice",
    "Condition",
    "Interval",
    "Parameter",
    "SearchSpace",
    "canonical",
    "is_grid",
    "quoted",
    "text_of",
    "unused_exclusions",
    "without_plus",
]

T = TypeVar("T")
Values = Callable[[Parameter], Iterable[Value]]
"""A function that returns the values to try of a parameter."""
# points in a row that conditions exclude, before a space with fractions counts as empty
_MOST_EMPTY = 2000
_FEW = 10
COLLECTIONS = ("[", "{")
"""The first signs of a list and of a dict of the user's own function, which a record has as
text."""
MOST_CORNERS = 500
_MOST_COMPARED = 10_000  # points with which each condition is compared
# values that are checked of a parameter with more values than MOST_CORNERS, which takes a second
SAMPLED = 100


@dataclass(frozen=True)
class SearchSpace:
    """The swept `parameters`, and the overrides that all trials share (`fixed`)."""

    parameters: tuple[Parameter, ...]
    fixed: tuple[str, ...]
    constants: Mapping[str, str]  # values of keys that are not swept, as text, for conditions
    # each of these points is combined with all values of the other parameters
    listed: tuple[Point, ...] = ()
    excluded: tuple[Exclusion, ...] = ()  # conditions under which a point is not in the space
    # keys as they were typed, because a later override changes what an earlier one set
    order: tuple[str, ...] = ()

    def with_listed(
        self, listed: Iterable[Point], texts: Mapping[str, str] = MappingProxyType({})
    ) -> "SearchSpace":
        """Return the space with listed points, whose keys become parameters before the others.

        `texts` are the values as typed, by their canonical text.
        """
        values: dict[str, dict[str, Value]] = {}
        for point in listed:
            for key, value in point.items():
                values.setdefault(key, {})[canonical({key: value})] = value
        choices = []
        # of a record, all are parameters
        keys = {parameter.key for parameter in self.parameters if parameter.condition is None}
        for key in (key for key in values if key not in keys):
            words = [texts.get(name, text_of(value)) for name, value in values[key].items()]
            choices.append(Choice(key, tuple(values[key].values()), tuple(words)))
        rows = [{**point, **other} for point in listed for other in self.listed or ({},)]
        # one may be empty: a grid that adds no key of its own
        unique = {canonical(row): row for row in rows} if values else {}
        return replace(self, parameters=(*choices, *self.parameters), listed=tuple(unique.values()))

    def with_excluded(self, conditions: Sequence[str]) -> "SearchSpace":
        """Return the space without the points for which a condition holds. Raises UserError if it
        is none."""
        keys = {parameter.key.lstrip("+") for parameter in self.parameters}
        return replace(self, excluded=tuple(Exclusion(text, keys) for text in conditions))

    def excludes(self, point: Point) -> bool:
        """Return whether a condition excludes the point, or all points that continue a part of
        one."""
        values = without_plus(point) if self.excluded else {}
        return any(exclusion.holds(values) for exclusion in self.excluded)

    def fit(self, parameter: Parameter, value: Value, point: Point) -> Point:
        """Return the parameter with the nearest value that listed points have beside the values of
        `point`.

        The answer is empty if these listed points lack the parameter.
        """
        values = self._listed.beside(parameter.key, point)
        if values is None or not isinstance(parameter, Choice):
            return {parameter.key: value}
        if not values:
            return {}
        return {parameter.key: min(values, key=partial(parameter.distance, value))}

    def beside(self, point: Point, draws: Iterator[float]) -> list[Point]:
        """Return the point with random listed points, by `draws` from 0 to 1; none if a parameter
        depends on them."""
        keys = self._listed.keys
        conditions = filter(None, (parameter.condition for parameter in self.parameters))
        if not self.listed or any(condition.key in keys for condition in conditions):
            return []
        rest = {key: value for key, value in point.items() if key not in keys}
        return [{**self.listed[int(next(draws) * len(self.listed))], **rest} for _ in range(_FEW)]

    @property
    def is_restricted(self) -> bool:
        """Return whether some combinations of the parameters' values are not in the space."""
        return bool(self.listed or self.excluded)

    @cached_property
    def _listed(self) -> Listed:
        return Listed(self.listed)

    @cached_property
    def _free(self) -> Sequence[Parameter]:
        """Return the parameters that no listed point has."""
        return [
            parameter for parameter in self.parameters if parameter.key not in self._listed.keys
        ]

    def exists(self, parameter: Parameter, point: Point) -> bool:
        if parameter.condition is None:
            return True
        key = parameter.condition.key
        text = text_of(point[key]) if key in point else self.constants.get(key)
        return text in parameter.condition.values

    def overrides(self, point: Point) -> list[str]:
        """Return the overrides that compose a point, in the order in which they were typed, as
        Hydra does.

        With `custom_search_space` a point has further params, which come last.
        """
        words = {word.partition("=")[0]: word for word in self.fixed}
        for key, value in point.items():
            words[key] = f"{key}={self._text(key, value)}"

        position = {key: number for number, key in enumerate(self.order)}
        ordered = sorted(words, key=lambda key: position.get(key, len(position)))
        return [words[key] for key in ordered]

    def _text(self, key: str, value: Value) -> str:
        """Return a value as it was typed; of the user's own function, a list or a dict as its
        record has it."""
        typed = self._texts.get((key, type(value), value))
        if typed is not None:
            return typed
        is_own = all(parameter.key != key for parameter in self.parameters)
        if is_own and isinstance(value, str) and value.startswith(COLLECTIONS):
            return value
        return text_of(value)

    @cached_property
    # True == 1 in Python, but not in a configuration
    def _texts(self) -> dict[tuple[str, type, Value], str]:
        texts: dict[tuple[str, type, Value], str] = {}
        for choice in self.parameters:
            if isinstance(choice, Choice):
                for value, text in zip(choice.values, choice.texts, strict=True):
                    texts.setdefault((choice.key, type(value), value), text)
        return texts

    def named(self, point: Point) -> dict[str, Value]:
        """Return the values of a point by the names of their parameters."""
        return {
            self.name(p): point[p.key]
            for p in self.parameters
            if p.key in point and self.exists(p, point)
        }

    def name(self, parameter: Parameter) -> str:
        """Return the parameter's key, with its condition if the key has several parameters."""
        alone = sum(other.key == parameter.key for other in self.parameters) == 1
        return parameter.key if alone else f"{parameter.key} under {parameter.condition}"

    def contains(self, point: Point) -> bool:
        """Return whether the space contains the point: a listed point, with a valid value for each
        other parameter."""
        needed = [parameter for parameter in self._free if self.exists(parameter, point)]
        if (self.listed and point not in self._listed) or self.excludes(point):
            return False
        return all(
            parameter.key in point and parameter.find(point[parameter.key]) for parameter in needed
        )

    def allows(self, part: Point) -> bool:
        """Return whether the space may contain a point with the values of a part of one."""
        return not self.excludes(part) and (not self.listed or bool(self._listed.matching(part)))

    def points(self) -> Iterator[Point]:
        """Yield every point of the grid once, the last parameter changing fastest. Raises UserError
        at an interval."""
        earlier = set()
        grid = replace(self, excluded=()) if self._intervals else self
        for point in grid._expand_all():
            for parameter in self._intervals:
                if parameter.key in point and self.exists(parameter, point):
                    raise UserError(
                        f"{parameter.key}={parameter.typed}: a grid needs a finite list of"
                        f" values.\nTo search, {advise_search(sys.argv)}, or list values:"
                        f" {parameter.key}={parameter.low},{parameter.high}"
                    )
            if (key := canonical(point)) not in earlier and not self.excludes(point):
                earlier.add(key)
                yield point

    @property
    def has_fractions(self) -> bool:
        """Return whether an interval has endlessly many values."""
        return not all(interval.whole for interval in self._intervals)

    @cached_property
    def _intervals(self) -> Sequence[Interval]:
        return [parameter for parameter in self.parameters if isinstance(parameter, Interval)]

    def all_points(self) -> Iterator[Point]:
        """Yield every point of a search; a point twice if conditions overlap. With fractions, the
        sequence is endless.

        The sequence ends if conditions exclude many points in a row.
        """
        if not self.has_fractions:
            yield from self._expand_all(attrgetter("distinct"))
            return
        earlier = set[str]()
        empty = 0
        for fractions in _spread(len(self._intervals)):
            chosen = {
                p: [p.at(fraction)] for p, fraction in zip(self._intervals, fractions, strict=True)
            }
            empty += 1
            for point in self._expand_all(partial(_distinct, chosen)):
                if (key := canonical(point)) not in earlier:
                    earlier.add(key)
                    empty = 0
                    yield point
            if empty > _MOST_EMPTY:
                return

    def _expand_all(self, values: Values = attrgetter("values")) -> Iterator[Point]:
        listed = (point for point in self.listed or ({},) if not self.excludes(point))
        return chain.from_iterable(self._expand(point, self._free, values) for point in listed)

    def _expand(
        self, point: Point, parameters: Sequence[Parameter], values: Values
    ) -> Iterator[Point]:
        if not parameters:
            yield point
            return
        first, *rest = parameters
        if not self.exists(first, point):
            yield from self._expand(point, rest, values)
            return
        for value in values(first):
            longer = {**point, first.key: value}
            if not self.excludes(longer):
                yield from self._expand(longer, rest, values)

    def corners(self, limit: int = MOST_CORNERS) -> list[Point]:
        """Return points to check before a search: choices and interval ends, in all combinations up
        to `limit`.

        If there are more combinations, return a point for each value. If a parameter has more than
        500 values, only 100 of them are among the points: the first, the last, and others evenly
        between.
        """
        grid = list(islice(self._expand_all(), limit + 1))
        if len(grid) <= limit:
            # because conditions may exclude all corners
            return grid or list(islice(self.all_points(), _FEW))
        most = max([len(self.listed), *(len(parameter.values) for parameter in self._free)])
        size = most if most <= MOST_CORNERS else SAMPLED
        diagonal = []
        for i in range(size):
            point: Point = {**_pick(self.listed, i, size)} if self.listed else {}
            for parameter in self._free:
                if self.exists(parameter, point):
                    point[parameter.key] = _pick(parameter.values, i, size)
            diagonal.append(point)
        return [point for point in diagonal if not self.excludes(point)] or grid[:_FEW]


def _spread(dimensions: int) -> Iterator[list[float]]:
    """Yield points of a cube without end, with coordinates from 0 to 1; in one dimension by the
    golden ratio.

    The R-sequence of Roberts, Quasirandom sequences, 2018.
    """
    ratio = 1.0
    for _ in range(50):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    for i in count(1):
        yield [(i * ratio**-axis) % 1 for axis in range(1, dimensions + 1)]


def _pick(values: Sequence[T], i: int, count: int) -> T:
    """Return the value of the `i`-th of `count` points: each value at least once or, of more
    values, spread evenly."""
    if len(values) <= count:
        return values[i % len(values)]
    return values[round(i * (len(values) - 1) / (count - 1))]


def _distinct(chosen: Mapping[Interval, Sequence[Value]], parameter: Parameter) -> Iterable[Value]:
    return chosen[parameter] if isinstance(parameter, Interval) else parameter.distinct


def unused_exclusions(space: SearchSpace) -> Iterator[str]:
    """Yield the conditions that exclude no point, or of intervals only single values. A condition
    is left out if there are too many points to compare, or if the condition relates two keys."""
    has_intervals = any(isinstance(parameter, Interval) for parameter in space.parameters)
    for exclusion in space.excluded:
        if exclusion.relates_keys and has_intervals:
            continue
        probed = [_probed(parameter, exclusion.numbers) for parameter in space.parameters]
        finite = replace(space, parameters=tuple(probed), excluded=())
        alone = replace(finite, excluded=(exclusion,))
        points = list(islice(finite.all_points(), _MOST_COMPARED))
        if len(points) < _MOST_COMPARED and not any(map(alone.excludes, points)):
            yield exclusion.text


def _probed(parameter: Parameter, numbers: Sequence[float]) -> Parameter:
    """Return an interval as a choice of values between and beside the numbers of a condition."""
    if not isinstance(parameter, Interval):
        return parameter
    low = parameter.low
    high = parameter.high
    cuts = sorted({low, high, *(number for number in numbers if low < number < high)})
    values = [(left + right) / 2 for left, right in pairwise(cuts)]
    if parameter.whole:
        near = [math.floor(cut) + step for cut in cuts for step in (-1, 0, 1)]
        values = sorted({value for value in near if low <= value <= high})
    return Choice(
        parameter.key, tuple(values), tuple(map(text_of, values)), parameter.condition, numbers=True
    )


def is_grid(settings: SweeperConf) -> bool:
    """Return whether every point of the space is a trial, so that no sampler chooses."""
    return is_grid_sampler(settings.sampler)
