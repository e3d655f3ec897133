"""What a search has tried, and what it proposes in place of a point that it tried already. Knows no Optuna."""

import math
from collections.abc import Collection, Iterable, Iterator
from heapq import heappop, heappush

from sweeps.study.search_space import Choice, Parameter, SearchSpace, canonical
from sweeps.trial.job import Point, Value

_GOLDEN = (math.sqrt(5) - 1) / 2


class Proposals:
    """The points of a search space that were tried."""

    def __init__(self, space: SearchSpace, tried: Iterable[Point] = ()) -> None:
        self._space = space
        self._tried: set[str] = set()
        self._ran: list[list[float]] = []
        self._failed: list[list[float]] = []
        for point in tried:
            self.add(point)

    def __len__(self) -> int:
        return len(self._tried)

    def __contains__(self, point: Point) -> bool:
        return canonical(point) in self._tried

    def add(self, point: Point) -> None:
        """What lies outside of the space, or is half a point, is not counted."""
        if self._completed(point) == point:
            self._tried.add(canonical(point))

    def hear(self, point: Point, ran: bool) -> None:
        """Whether this point has run."""
        (self._ran if ran else self._failed).append(self._place(point))

    def seems_to_fail(self, point: Point) -> bool:
        """Whether the nearest point that anything is known of has failed (Cover and Hart, 1967)."""
        here = self._place(point)
        nearest = min((math.dist(here, there) for there in self._failed), default=math.inf)
        return bool(self._failed) and all(math.dist(here, there) > nearest for there in self._ran)

    def _place(self, point: Point) -> list[float]:
        """A point as coordinates: of an axis from 0 to 1, two choices of one parameter 1 apart."""
        place: list[float] = []
        for one in self._space.parameters:
            exists = one.key in point and self._space.exists(one, point)
            if isinstance(one, Choice) and not one.ordered:
                place += [math.sqrt(0.5) * (exists and _same(value, point[one.key])) for value in one.distinct]
            else:
                place.append(_share(one, point[one.key]) if exists and _has(one, point[one.key]) else 0.5)
        return place

    def nearest(self, point: Point, held: Collection[str] = ()) -> Point:
        """An untried point few steps from this one (Dijkstra, 1959), which is returned if all were tried.

        A step goes to the next value of an axis, and counts as its share of it, or to another choice and counts as 1.
        The values of `held` stay.
        """
        queue, met = [(0.0, 0, point)], {canonical(point)}
        while queue:
            way, _, here = heappop(queue)
            if here not in self:
                return here
            for there, step in self._steps(here, held):
                if (key := canonical(there)) not in met:
                    met.add(key)
                    heappush(queue, (way + step, len(met), there))  # numbered: points have no order
        return point

    def _steps(self, point: Point, held: Collection[str]) -> Iterator[tuple[Point, float]]:
        for one in self._space.parameters:
            if one.key in point and one.key not in held and self._space.exists(one, point):
                for value, step in _around(one, point[one.key]):
                    yield self._completed({**point, one.key: value}), step

    def _completed(self, point: Point) -> Point:
        """The point with the values that it lacks, from the middle of their axes, and without those it has too many."""
        whole: Point = {}
        for one in self._space.parameters:
            if self._space.exists(one, whole):
                whole[one.key] = point[one.key] if one.key in point and _has(one, point[one.key]) else _middle(one)
        return whole


def _has(parameter: Parameter, value: Value) -> bool:
    if isinstance(parameter, Choice):
        return any(_same(value, one) for one in parameter.distinct)
    return isinstance(value, int | float) and parameter.low <= value <= parameter.high


def _same(value: Value, other: Value) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _share(parameter: Parameter, value: Value) -> float:
    """Where on its axis a number lies, from 0 to 1."""
    assert isinstance(value, int | float)
    if isinstance(parameter, Choice):
        return parameter.ordered.index(value) / (len(parameter.ordered) - 1)
    return parameter.share(value)


def _middle(parameter: Parameter) -> Value:
    if isinstance(parameter, Choice):
        values = parameter.ordered or parameter.distinct
        return values[len(values) // 2]
    return parameter.at(0.5)


def _around(parameter: Parameter, value: Value) -> Iterator[tuple[Value, float]]:
    """The neighbours of a value on its axis, and how far they are, the whole axis being 1."""
    if not isinstance(parameter, Choice):
        if parameter.whole:
            assert isinstance(value, int)
            step = 1 / (parameter.high - parameter.low)
            yield from ((near, step) for near in (value - 1, value + 1) if _has(parameter, near))
        else:
            assert isinstance(value, int | float)
            yield parameter.at((parameter.share(value) + _GOLDEN) % 1), _GOLDEN  # never twice the same
    elif axis := parameter.ordered:
        at, step = axis.index(value), 1 / (len(axis) - 1)
        yield from ((axis[near], step) for near in (at - 1, at + 1) if 0 <= near < len(axis))
    else:
        yield from ((other, 1.0) for other in parameter.distinct if not _same(other, value))
