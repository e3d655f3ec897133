"""The hypervolume of several objectives: the volume that the trials dominate."""

from collections.abc import Sequence

from sweeps.record.study import StudySnapshot, Trials

Values = Sequence[float]


def reference(study: StudySnapshot, top: Trials) -> list[float]:
    """Return the reference point of the hypervolume: the worst value of each objective of the
    completed trials."""
    columns = zip(*(trial.objective for trial in top), strict=True)
    worst = []
    for values, direction in zip(columns, study.directions, strict=True):
        worst.append(min(values) if direction == "maximize" else max(values))
    return worst


def hypervolumes(study: StudySnapshot, top: Trials) -> list[tuple[int, float]]:
    """Return each trial's number, and the hypervolume of all trials up to this number."""
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in study.directions]
    worst = [sign * value for sign, value in zip(signs, reference(study, top), strict=True)]
    front: list[Values] = []
    volumes = []
    volume = 0.0
    for trial in sorted(top, key=lambda trial: trial.number):
        point = [sign * value for sign, value in zip(signs, trial.objective, strict=True)]
        if not any(_covers(other, point) for other in front):
            front = [other for other in front if not _covers(point, other)]
            front.append(point)
            volume = hypervolume(front, worst)
        volumes.append((trial.number, volume))
    return volumes


def hypervolume(points: Sequence[Values], worst: Values) -> float:
    """Return the volume that the points dominate, up to `worst`; smaller values are better.

    The volume is the sum of slices along the last objective (While et al., IEEE Trans. Evolutionary
    Computation 2006).
    """
    inside = [point for point in points if point[-1] < worst[-1]]
    inside.sort(key=lambda point: point[-1])
    if not inside:
        return 0.0
    if len(worst) == 1:
        return worst[0] - inside[0][0]

    starts = [point[-1] for point in inside]
    ends = [*starts[1:], worst[-1]]
    volume = 0.0
    for count, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if end > start:
            slice_points = [point[:-1] for point in inside[:count]]
            volume += (end - start) * hypervolume(slice_points, worst[:-1])
    return volume


def _covers(point: Values, other: Values) -> bool:
    """Return whether `point` is as good as `other` in every objective, or better."""
    return all(a <= b for a, b in zip(point, other, strict=True))
