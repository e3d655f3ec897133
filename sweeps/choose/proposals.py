"""The points that a search has tried, and those that it proposes in place of a point that was tried already."""

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from sweeps.record.space import Choice, Interval, Parameter, SearchSpace, canonical
from sweeps.trial.job import Point, Value

_MOST = 10_000  # points that are compared
_RANDOM, _BEST, _VALUES = 400, 5, 12  # candidates anywhere; the best points, and values of each of their parameters
_NEAR = 0.3  # of an interval, at most; most candidates are far nearer


class Proposals:
    """The points of a search space that were tried, and those of them that have run or failed."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._tried: set[str] = set()
        self._ran: list[list[float]] = []
        self.failed: list[list[float]] = []

    def __len__(self) -> int:
        return len(self._tried)

    def __contains__(self, point: Point) -> bool:
        return canonical(point) in self._tried

    def add(self, point: Point) -> None:
        """What lies outside of the space, or is half a point, is not counted."""
        if self._is_whole(point):
            self._tried.add(canonical(point))

    def _is_whole(self, point: Point) -> bool:
        there = [one for one in self._space.parameters if self._space.exists(one, point)]
        return all(one.key in point and one.find(point[one.key]) for one in there)

    def observe(self, point: Point, ran: bool) -> None:
        """Whether this point has run."""
        (self._ran if ran else self.failed).append(self.encode(point))

    def seems_to_fail(self, point: Point) -> bool:
        """Whether the nearest point that anything is known of has failed (Cover and Hart, 1967)."""
        here = self.encode(point)
        nearest = min((math.dist(here, there) for there in self.failed), default=math.inf)
        return bool(self.failed) and all(math.dist(here, there) > nearest for there in self._ran)

    def nearest(self, point: Point, held: Collection[str] = ()) -> Point:
        """The untried point next to this one, which is returned if all were tried. The values of `held` stay."""
        here = self.encode(point)
        some = islice(self._space.all_points(), len(self) + _MOST)
        left = (one for one in some if one not in self and all(one.get(key) == point[key] for key in held))
        return min(left, key=lambda one: math.dist(here, self.encode(one)), default=point)

    def candidates(self, best: Sequence[Point], draws: Iterator[float]) -> list[Point]:
        """Points to choose one from, by `draws` from 0 to 1: some from anywhere, and the neighbours of the best points,
        which differ from these in one parameter that decides of no other one.
        """
        found = [self._random(draws) for _ in range(_RANDOM)]
        deciding = {one.condition.key for one in self._space.parameters if one.condition}
        for point in islice(filter(self._is_whole, best), _BEST):
            for one in self._space.parameters:
                if one.key not in deciding and self._space.exists(one, point):
                    found += [{**point, one.key: value} for value in self._others(one, point[one.key], draws)]
        return found

    def _random(self, draws: Iterator[float]) -> Point:
        point: Point = {}
        for one in self._space.parameters:
            if self._space.exists(one, point):
                point[one.key] = _drawn(one, next(draws))
        return point

    def _others(self, one: Parameter, value: Value, draws: Iterator[float]) -> list[Value]:
        """Other values of a parameter: of an interval most of them nearby."""
        values = [*islice(one.distinct, _VALUES + 1)]
        if len(values) <= _VALUES:
            return values
        if isinstance(one, Interval):
            return [one.at(one.fraction(value) + _NEAR * (2 * next(draws) - 1) ** 3) for _ in range(_VALUES)]
        return [_drawn(one, next(draws)) for _ in range(_VALUES)]

    def parameter_indices(self) -> list[int]:
        """Which parameter, from 0 on, each coordinate of a place belongs to."""
        categories = [isinstance(one, Choice) and not one.ordered and one.distinct for one in self._space.parameters]
        return [i for i, found in enumerate(categories) for _ in found or [0]]

    def encode(self, point: Point) -> list[float]:
        """A point as coordinates: of an axis from 0 to 1, two choices of one parameter 1 apart."""
        encoded: list[float] = []
        for one in self._space.parameters:
            exists = bool(one.key in point and self._space.exists(one, point) and one.find(point[one.key]))
            if isinstance(one, Choice) and not one.ordered:
                encoded += [math.sqrt(0.5) * (exists and _same(value, point[one.key])) for value in one.distinct]
            else:
                encoded.append(one.fraction(point[one.key]) if exists else 0.5)
        return encoded


def _drawn(one: Parameter, draw: float) -> Value:
    return one.at(draw) if isinstance(one, Interval) else one.distinct[int(draw * len(one.distinct))]


def _same(value: Value, other: Value) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)
