"""The search space of a study without the points that a person has excluded while the study runs,
or later."""

from collections.abc import Iterable, Sequence
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
    limit = (study.planned or 0) + _FAR_MORE
    begun = filter(space.contains, _begun(study))
    count = count_distinct(narrow(space, study.excluded), limit, begun)
    size = None if count == limit else count
    return [*study.excluded[:-1], replace(study.excluded[-1], size=size)]


def count_distinct(space: SearchSpace, limit: int, begun: Iterable[Point] = ()) -> int:
    """Return the number of different points of a space and of those that have begun, at most
    `limit`."""
    points = set(map(canonical, begun))
    # because points repeat if conditions overlap
    for point in islice(space.all_points(), 20 * limit):
        points.add(canonical(point))
        # after each, because the next one may be far
        if len(points) >= limit:
            break
    return min(limit, len(points))


def _begun(study: StudySnapshot) -> list[Point]:
    trials = [trial.configuration for trial in study.rows if not trial.outside]
    return trials + [added.params for added in study.added if not added.outside]
