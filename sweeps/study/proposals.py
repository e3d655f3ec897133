"""What a search has tried, and what it proposes in place of a point that it tried already. Knows no Optuna."""

import math
from collections.abc import Collection, Iterator
from itertools import islice

from sweeps.study.search_space import Choice, Interval, SearchSpace, canonical
from sweeps.trial.job import Point, Value

_MOST = 10_000  # points that are compared
_NEAR = 0.1  # of an interval


class Proposals:
    """The points of a search space that were tried, and those of them that have run or failed."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._tried: set[str] = set()
        self._ran: list[list[float]] = []
        self._failed: list[list[float]] = []

    def __len__(self) -> int:
        return len(self._tried)

    def __contains__(self, point: Point) -> bool:
        return canonical(point) in self._tried

    def add(self, point: Point) -> None:
        """What lies outside of the space, or is half a point, is not counted."""
        there = [one for one in self._space.parameters if self._space.exists(one, point)]
        if all(one.key in point and one.find(point[one.key]) for one in there):
            self._tried.add(canonical(point))

    def hear(self, point: Point, ran: bool) -> None:
        """Whether this point has run."""
        (self._ran if ran else self._failed).append(self._place(point))

    def seems_to_fail(self, point: Point) -> bool:
        """Whether the nearest point that anything is known of has failed (Cover and Hart, 1967)."""
        here = self._place(point)
        nearest = min((math.dist(here, there) for there in self._failed), default=math.inf)
        return bool(self._failed) and all(math.dist(here, there) > nearest for there in self._ran)

    def nearest(self, point: Point, held: Collection[str] = ()) -> Point:
        """The untried point next to this one, which is returned if all were tried. The values of `held` stay."""
        here = self._place(point)
        some = islice(self._space.all_points(), len(self) + _MOST)
        left = (one for one in some if one not in self and all(one.get(key) == point[key] for key in held))
        return min(left, key=lambda one: math.dist(here, self._place(one)), default=point)

    def beside(self, point: Point, draws: Iterator[float]) -> Point:
        """A neighbour of this point, by `draws` from 0 to 1: one parameter has the next value on its axis, one nearby
        on its interval, or another choice. The point itself if all its parameters decide which others exist.
        """
        parameters = self._space.parameters
        deciding = {one.condition.key for one in parameters if one.condition}
        there = [one for one in parameters if self._space.exists(one, point) and one.key not in deciding]
        if not there:
            return point
        one = there[int(next(draws) * len(there))]
        if isinstance(one, Interval):
            width = max(_NEAR, 1.0 / (one.high - one.low) if one.whole and not one.log else 0.0)
            return {**point, one.key: one.at(one.share(point[one.key]) + width * (2.0 * next(draws) - 1.0))}
        if one.ordered:
            at = one.ordered.index(point[one.key]) + (1 if next(draws) < 0.5 else -1)
            return {**point, one.key: one.ordered[min(max(at, 0), len(one.ordered) - 1)]}
        return {**point, one.key: one.distinct[int(next(draws) * len(one.distinct))]}

    def _place(self, point: Point) -> list[float]:
        """A point as coordinates: of an axis from 0 to 1, two choices of one parameter 1 apart."""
        place: list[float] = []
        for one in self._space.parameters:
            exists = bool(one.key in point and self._space.exists(one, point) and one.find(point[one.key]))
            if isinstance(one, Choice) and not one.ordered:
                place += [math.sqrt(0.5) * (exists and _same(value, point[one.key])) for value in one.distinct]
            else:
                place.append(one.share(point[one.key]) if exists else 0.5)
        return place


def _same(value: Value, other: Value) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)
