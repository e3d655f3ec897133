"""The search space of a study without the points that a person has excluded while the study runs,
or later."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from sweeps.record.study import StudySnapshot
from sweeps.space.exclusion import Excluded
from sweeps.space.space import SearchSpace, canonical
from sweeps.trial.job import Point

_FAR_MORE = 100  # points beyond the planned ones from which their number is not needed


def narrow(space: SearchSpace, excluded: Sequence[Excluded]) -> SearchSpace:
    """Return the space without the excluded points. Raises UserError if a condition cannot be
    read."""
    if not excluded:
        return space
    texts = [exclusion.text for exclusion in space.excluded]
    return space.with_excluded([*texts, *(condition.text for condition in excluded)])


def has_untried(space: SearchSpace, study: StudySnapshot) -> bool:
    """Return whether the space has a point that was neither tried nor added."""
    points = [trial.configuration for trial in study.rows]
    points += [added.params for added in study.added]
    tried = set(map(canonical, points))
    return any(canonical(point) not in tried for point in space.all_points())


def with_size(study: StudySnapshot, space: SearchSpace) -> list[Excluded]:
    """Return the study's exclusions; the last has the number of points of `space` that were tried
    or still may be."""
    if not study.excluded:
        return []
    points = {canonical(point) for point in _begun(study) if space.contains(point)}
    limit = (study.planned or 0) + _FAR_MORE
    # because points may repeat
    for point in islice(narrow(space, study.excluded).all_points(), 20 * limit):
        points.add(canonical(point))
        if len(points) >= limit:
            break
    size = None if len(points) >= limit else len(points)
    return [*study.excluded[:-1], replace(study.excluded[-1], size=size)]


def _begun(study: StudySnapshot) -> list[Point]:
    trials = [trial.configuration for trial in study.rows if not trial.outside]
    return trials + [added.params for added in study.added if not added.outside]
