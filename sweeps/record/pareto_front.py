"""Several objectives: the volume that the trials dominate."""

from collections.abc import Sequence

from sweeps.record.study import StudySnapshot, TrialRecord

Values = Sequence[float]


def reference(summary: StudySnapshot, top: Sequence[TrialRecord]) -> list[float]:
    """The worst value of each objective that a completed trial has: from there the hypervolume is measured."""
    columns = zip(*(row.objective for row in top), strict=True)
    worst = {"maximize": min, "minimize": max}
    return [worst[direction](values) for values, direction in zip(columns, summary.directions, strict=True)]


def hypervolumes(summary: StudySnapshot, top: Sequence[TrialRecord]) -> list[tuple[int, float]]:
    """After each of these trials, by its number, the volume that those so far dominate, from the reference."""
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in summary.directions]
    worst = [sign * value for sign, value in zip(signs, reference(summary, top), strict=True)]
    front: list[Values] = []
    volumes, volume = [], 0.0
    for row in sorted(top, key=lambda row: row.number):
        point = [sign * value for sign, value in zip(signs, row.objective, strict=True)]
        if not any(_covers(other, point) for other in front):
            front = [other for other in front if not _covers(point, other)] + [point]
            volume = hypervolume(front, worst)
        volumes.append((row.number, volume))
    return volumes


def hypervolume(points: Sequence[Values], worst: Values) -> float:
    """The volume that the points dominate, up to `worst`; smaller values are better. By slices along the last
    objective (While et al., IEEE Transactions on Evolutionary Computation 2006).
    """
    inside = sorted((point for point in points if point[-1] < worst[-1]), key=lambda point: point[-1])
    if len(worst) == 1 or not inside:
        return worst[0] - inside[0][0] if inside else 0.0
    ends = [*(point[-1] for point in inside[1:]), worst[-1]]
    volume = 0.0
    for count, (point, end) in enumerate(zip(inside, ends, strict=True), 1):
        if end > point[-1]:
            volume += (end - point[-1]) * hypervolume([one[:-1] for one in inside[:count]], worst[:-1])
    return volume


def _covers(one: Values, other: Values) -> bool:
    """Whether it is as good in every objective."""
    return all(a <= b for a, b in zip(one, other, strict=True))
