"""Two searches compared by their regrets on the same tables and seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import t

Regrets = Sequence[Sequence[float]]
"""By table, then by seed."""


class Difference(NamedTuple):
    """A mean difference of regrets, its 95% interval, and the tables on which it is above 0."""

    mean: float
    low: float
    high: float
    behind: list[int]


def difference(mine: Regrets, theirs: Regrets) -> Difference:
    """Compare the regrets on the seeds that both have. The tables are fixed: the interval is that of other seeds."""
    pairs = [[a - b for a, b in zip(ours, peers, strict=False)] for ours, peers in zip(mine, theirs, strict=True)]
    means = [statistics.fmean(row) for row in pairs]
    seeds, mean = len(pairs[0]), statistics.fmean(means)
    half = math.nan
    if seeds > 1:
        error = math.sqrt(sum(statistics.variance(row) for row in pairs) / seeds) / len(pairs)
        half = float(t.ppf(0.975, len(pairs) * (seeds - 1))) * error
    return Difference(mean, mean - half, mean + half, [i for i, value in enumerate(means) if value > 0])
