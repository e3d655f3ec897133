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
        """The point with the values that it lacks, from the middle of their axes, and without those that don't exist."""
        whole: Point = {}
        for one in self._space.parameters:
            if self._space.exists(one, whole):
                whole[one.key] = point[one.key] if one.key in point and _has(one, point[one.key]) else _middle(one)
        return whole


def _has(parameter: Parameter, value: Value) -> bool:
    if isinstance(parameter, Choice):
        return canonical({"": value}) in parameter.keys
    return isinstance(value, int | float) and parameter.low <= value <= parameter.high


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
        at, step = axis.index(value), 1 / (len(axis) - 1)  # type: ignore[arg-type]
        yield from ((axis[near], step) for near in (at - 1, at + 1) if 0 <= near < len(axis))
    else:
        yield from ((other, 1.0) for other in parameter.distinct if canonical({"": other}) != canonical({"": value}))
