"""Which conditions exclude nothing of a search space."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from sweeps.space.space import Choice, Interval, Parameter, SearchSpace, text_of

_MOST_COMPARED = 10_000  # points with which each condition is compared


def unused_exclusions(space: SearchSpace) -> Iterator[str]:
    """Yield the conditions that exclude no point, or of intervals only single values. A condition
    is left out if there are too many points to compare, or if the condition relates two keys."""
    has_intervals = any(isinstance(parameter, Interval) for parameter in space.parameters)
    for exclusion in space.excluded:
        if exclusion.relates_keys and has_intervals:
            continue
        probed = [_probed(parameter, exclusion.numbers) for parameter in space.parameters]
        finite = replace(space, parameters=tuple(probed), excluded=())
        alone = replace(finite, excluded=(exclusion,))
        points = list(islice(finite.all_points(), _MOST_COMPARED))
        if len(points) < _MOST_COMPARED and not any(map(alone.excludes, points)):
            yield exclusion.text


def _probed(parameter: Parameter, numbers: Sequence[float]) -> Parameter:
    """Return an interval as a choice of values between and beside the numbers of a condition."""
    if not isinstance(parameter, Interval):
        return parameter
    low = parameter.low
    high = parameter.high
    cuts = sorted({low, high, *(number for number in numbers if low < number < high)})
    values = [(left + right) / 2 for left, right in pairwise(cuts)]
    if parameter.whole:
        near = [math.floor(cut) + step for cut in cuts for step in (-1, 0, 1)]
        values = sorted({value for value in near if low <= value <= high})
    return Choice(
        parameter.key, tuple(values), tuple(map(text_of, values)), parameter.condition, numbers=True
    )
