"""Several objectives: the trials that no other dominates, and the volume that they dominate."""

from collections.abc import Sequence

from sweeps.results.summary import Summary

Values = Sequence[float]


def reference(summary: Summary) -> list[float]:
    """The worst value of each objective that a completed trial has: from there the hypervolume is measured."""
    columns = zip(*(row.objective for row in summary.top()), strict=True)
    pairs = zip(columns, summary.directions, strict=True)
    return [min(found) if direction == "maximize" else max(found) for found, direction in pairs]


def hypervolumes(summary: Summary) -> list[tuple[int, float]]:
    """After each trial that completed, by its number, the volume between the reference and all that the trials so
    far dominate.
    """
    rows = sorted(summary.top(), key=lambda row: row.number)
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in summary.directions]
    worst = [sign * value for sign, value in zip(signs, reference(summary), strict=True)]
    front: list[Values] = []
    found, volume = [], 0.0
    for row in rows:
        point = [sign * value for sign, value in zip(signs, row.objective, strict=True)]
        if not any(_covers(other, point) for other in front):
            front = [other for other in front if not _covers(point, other)] + [point]
            volume = hypervolume(front, worst)
        found.append((row.number, volume))
    return found


def hypervolume(points: Sequence[Values], worst: Values) -> float:
    """The volume that the points dominate, up to `worst`; smaller values are better. By slices along the last
    objective (While et al., IEEE Transactions on Evolutionary Computation 2006).
    """
    inside = [point for point in points if all(a < b for a, b in zip(point, worst, strict=True))]
    if not inside:
        return 0.0
    if len(worst) == 1:
        return worst[0] - min(point[0] for point in inside)
    ordered = sorted(inside, key=lambda point: point[-1])
    ends = [*(point[-1] for point in ordered[1:]), worst[-1]]
    volume = 0.0
    for count, (point, end) in enumerate(zip(ordered, ends, strict=True), 1):
        if end > point[-1]:
            volume += (end - point[-1]) * hypervolume([one[:-1] for one in ordered[:count]], worst[:-1])
    return volume


def _covers(one: Values, other: Values) -> bool:
    """Whether it is as good in every objective."""
    return all(a <= b for a, b in zip(one, other, strict=True))
