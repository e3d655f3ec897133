"""Points whose values go together: listed points, and the rows of zip(...)."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product

from sweeps.space.parameters import canonical
from sweeps.trial.job import Point, Value


@dataclass(frozen=True)
class Listed:
    """A list of points with the same or different keys; empty if no values go together."""

    points: tuple[Point, ...] = ()

    @cached_property
    def keys(self) -> Set[str]:
        return {*chain(*self.points)}

    def __contains__(self, point: Point) -> bool:
        """Return whether the part of a point that has the listed keys is a listed point."""
        part = {key: value for key, value in point.items() if key in self.keys}
        return canonical(part) in self._texts

    def beside(self, key: str, point: Point) -> Sequence[Value] | None:
        """Return the values that listed points have beside the values of `point`; None if any value
        is possible."""
        if key not in self.keys:
            return None
        indices = self.matching({other: value for other, value in point.items() if other != key})
        if not indices:
            return None
        return [self.points[i][key] for i in sorted(indices) if key in self.points[i]]

    def matching(self, point: Point) -> Set[int]:
        """Return the indices of the listed points that have the values of a point, or of a part of
        one."""
        indices: Set[int] = set(range(len(self.points)))
        for key, value in point.items():
            if key in self.keys:
                indices &= self._indices.get(canonical({key: value}), set())
        return indices

    @cached_property
    def _texts(self) -> Set[str]:
        return {*map(canonical, self.points)}

    @cached_property
    def _indices(self) -> Mapping[str, Set[int]]:
        """Return the indices of the points that have a value, by the text of its key and the
        value."""
        indices: dict[str, set[int]] = {}
        for i, point in enumerate(self.points):
            for key, value in point.items():
                indices.setdefault(canonical({key: value}), set()).add(i)
        return indices


def removed_point(
    old: Sequence[Point], new: Sequence[Point], values: Mapping[str, Sequence[Value]]
) -> Point | None:
    """Return a combination of values that the `old` listed points allow, and the `new` ones do not;
    None without one.

    Without listed points, all combinations of the parameters' old `values` are allowed.
    """
    if not new:
        return None
    allowed = {*map(canonical, new)}
    keys = [key for key in dict.fromkeys(chain(*new)) if key in values]
    combined = (
        dict(zip(keys, row, strict=True)) for row in product(*(values[key] for key in keys))
    )
    return next((point for point in old or combined if canonical(point) not in allowed), None)
