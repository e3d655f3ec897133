"""Losses on one scale, for models that expect values of about normal distribution."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# score of a distance alone, so that one result far ahead leaves room for a better one
_LOWEST = -4.0
_LARGEST = 1e300  # because sums of larger numbers overflow


def quantiles(losses: Array) -> Array:
    """Return the normal quantiles of the losses' ranks; ties have their middle rank."""
    from scipy.special import ndtri

    ranks = (losses[:, None] > losses).sum(1) + (losses[:, None] == losses).sum(1) / 2
    return np.array(ndtri(ranks / len(losses)))


def scores(losses: Array) -> Array:
    """Return the normal quantiles of the losses, of which the better half also shows how far the
    losses are apart.

    There a score is the mean of the quantile and of the distance to the median, in units that give
    both the same mean: ranks alone do not tell whether the best is far ahead. In the worse half an
    outlier has no effect, and a loss may be math.inf.
    """
    ranks = quantiles(losses)
    finite = np.isfinite(losses)
    if not finite.any():
        return ranks
    values = np.clip(losses, -_LARGEST, _LARGEST)
    distances = values - min(np.median(values), values[finite].max())
    if (better := distances <= 0).any() and (total := distances[better].sum()) < 0:
        scaled = np.maximum(distances[better] / total * ranks[better].sum(), _LOWEST)
        ranks[better] = (ranks[better] + scaled) / 2
    return ranks
