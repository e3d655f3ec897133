"""The points that a search has tried, and candidates for the next point."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from operator import itemgetter

from sweeps.record.narrowed import narrow
from sweeps.space.exclusion import Excluded, is_same
from sweeps.space.space import Choice, Interval, Parameter, SearchSpace, canonical
from sweeps.trial.job import Point, Value

_MOST_COMPARED = 10_000  # points to compare with
_MOST_FRACTIONS = 300  # points to compare with, of a space with fractions
_RANDOM = 400  # random candidates
_MAX_CLIMBS = 6  # times that the neighbours of the most promising candidates become candidates
_BEST = 5  # best points with neighbours
_VALUES = 12  # values to try of each parameter of the best points
# largest step to a neighbour, as a fraction of the interval; most steps are far smaller
_NEAR = 0.3
_CATEGORY = math.sqrt(0.5)  # coordinate of a category, so that two of them have distance 1

Gain = Callable[[Sequence[Sequence[float]]], Iterable[float]]  # the promise of each encoded point


class Proposals:
    """The tried points of a search space, and the coordinates of the points that ran or failed.

    A point that a person has excluded since the study began is not proposed; if it was tried, its
    result counts.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = self._allowed = space
        # points that may be tried, without those before the first open one
        self._points: Iterator[Point] = iter(())
        self._open: Point | None = None  # first point that may be tried
        self._tried: set[str] = set()
        self.ran: list[list[float]] = []
        self.failed: list[list[float]] = []

    def __len__(self) -> int:
        return len(self._tried)

    def narrow(self, excluded: Sequence[Excluded]) -> None:
        """Leave out further points of the space, which a person has excluded."""
        allowed = narrow(self._space, excluded)
        texts = [exclusion.text for exclusion in allowed.excluded]
        if texts != [exclusion.text for exclusion in self._allowed.excluded]:
            self._allowed = allowed
            self._points = allowed.all_points()
            self._open = None

    def is_open(self, point: Point) -> bool:
        """Return whether the point is neither tried nor excluded."""
        return canonical(point) not in self._tried and not self._allowed.excludes(point)

    def is_exhausted(self, size: int | None) -> bool:
        """Return whether no point is left of a space with `size` points; None if there are far more
        than trials."""
        if self._allowed is self._space:
            return size is not None and len(self) >= size
        while self._open is None or not self.is_open(self._open):
            self._open = next(self._points, None)
            if self._open is None:
                return True
        return False

    def add(self, point: Point) -> None:
        """Add a tried point. A point outside of the space, or without all of its parameters, does
        not count."""
        if self._space.contains(point):
            self._tried.add(canonical(point))

    def observe(self, point: Point, ran: bool) -> None:
        """Add a point to the points that ran, or to the points that failed."""
        (self.ran if ran else self.failed).append(self.encode(point))

    def seems_to_fail(self, point: Point) -> bool:
        """Return whether the nearest observed point failed (Cover and Hart, 1967)."""
        if not self.failed:
            return False
        encoded = self.encode(point)
        nearest = min(math.dist(encoded, failed) for failed in self.failed)
        return all(math.dist(encoded, ran) > nearest for ran in self.ran)

    def nearest(self, point: Point, fixed: Collection[str] = ()) -> Point:
        """Return the nearest untried point with the same values for `fixed` keys; the point itself
        if there is none."""
        encoded = self.encode(point)
        most = _MOST_FRACTIONS if self._space.has_fractions else _MOST_COMPARED
        nearest = point
        least = math.inf
        for other in islice(self._allowed.all_points(), len(self) + most):
            has_fixed = all(is_same(other.get(key), point[key]) for key in fixed)
            if has_fixed and self.is_open(other):
                distance = math.dist(encoded, self.encode(other))
                if distance < least:
                    nearest = other
                    least = distance
        return nearest

    def most_promising(self, best: Sequence[Point], gain: Gain, draws: Iterator[float]) -> Point:
        """Return the untried point of highest gain that does not seem to fail; an empty point if
        there is none.

        The search climbs from the most promising candidates to their neighbours.
        """
        gains = dict[str, tuple[float, Point]]()
        points: Iterable[Point] = self.candidates(best, draws)
        for _ in range(1 + _MAX_CLIMBS):
            new = self._new_candidates(points, gains)
            if not new:
                break
            promises = gain([self.encode(point) for point in new.values()])
            for (identity, point), promise in zip(new.items(), promises, strict=True):
                gains[identity] = (promise, point)
            most = nlargest(_BEST, gains.values(), itemgetter(0))
            points = self._neighbours([point for _, point in most], draws)

        for _, point in sorted(gains.values(), key=itemgetter(0), reverse=True):
            if not self.seems_to_fail(point):
                return point
        return {}

    def _new_candidates(
        self, points: Iterable[Point], gains: Mapping[str, object]
    ) -> dict[str, Point]:
        """Return the points that may be tried and have no gain yet, by their identity."""
        allowed = self._allowed
        new: dict[str, Point] = {}
        for point in points:
            if allowed.is_restricted and not allowed.contains(point):
                continue
            identity = canonical(point)
            if identity not in gains and identity not in self._tried:
                new[identity] = point
        return new

    def candidates(self, best: Sequence[Point], draws: Iterator[float]) -> list[Point]:
        """Return random points and neighbours of the `best` points, by `draws` from 0 to 1.

        A neighbour differs in one parameter, on which no other parameter depends.
        """
        return [*(self._random(draws) for _ in range(_RANDOM)), *self._neighbours(best, draws)]

    def _neighbours(self, best: Sequence[Point], draws: Iterator[float]) -> Iterator[Point]:
        conditions = {
            parameter.condition.key for parameter in self._space.parameters if parameter.condition
        }
        inside = filter(self._space.contains, best)
        for point in islice(inside, _BEST):
            for parameter in self._space.parameters:
                key = parameter.key
                if key in conditions or key not in point:
                    continue
                for value in _neighbours(parameter, point[key], draws):
                    yield {**point, key: value}
            yield from self._space.beside(point, draws)

    def _random(self, draws: Iterator[float]) -> Point:
        point: Point = {}
        for parameter in self._space.parameters:
            if self._space.exists(parameter, point):
                point |= self._space.fit(parameter, _value_at(parameter, next(draws)), point)
        return point

    def parameter_indices(self) -> list[int]:
        """Return the index of the parameter that each coordinate of an encoded point belongs to."""
        indices: list[int] = []
        for index, parameter in enumerate(self._space.parameters):
            has_axes = isinstance(parameter, Choice) and not parameter.ordered
            indices += [index] * (len([*parameter.distinct]) if has_axes else 1)
        return indices

    def encode(self, point: Point) -> list[float]:
        """Return a point's coordinates: 0 to 1 on each axis; two categories of a parameter have
        distance 1."""
        encoded: list[float] = []
        for parameter in self._space.parameters:
            value = point.get(parameter.key)
            exists = (
                parameter.key in point
                and self._space.exists(parameter, point)
                and len(parameter.find(value)) > 0
            )
            if isinstance(parameter, Interval) or parameter.ordered:
                encoded.append(parameter.fraction(point[parameter.key]) if exists else 0.5)
            else:
                matches = [exists and is_same(category, value) for category in parameter.distinct]
                encoded += [_CATEGORY * is_chosen for is_chosen in matches]
        return encoded


def _neighbours(parameter: Parameter, value: Value, draws: Iterator[float]) -> list[Value]:
    """Return values to try beside this value; values of an interval are mostly close to it."""
    values = [*islice(parameter.distinct, _VALUES + 1)]
    if len(values) <= _VALUES:
        return values
    if isinstance(parameter, Interval):
        start = parameter.fraction(value)
        steps = [_NEAR * (2 * next(draws) - 1) ** 3 for _ in range(_VALUES)]
        return [parameter.at(start + step) for step in steps]
    return [_value_at(parameter, next(draws)) for _ in range(_VALUES)]


def _value_at(parameter: Parameter, draw: float) -> Value:
    if isinstance(parameter, Interval):
        return parameter.at(draw)
    return parameter.distinct[int(draw * len(parameter.distinct))]
