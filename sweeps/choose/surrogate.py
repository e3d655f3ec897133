"""A Gaussian process over the results of a search: what it expects of points that were not tried.

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5. In numpy, as scikit-learn takes
a second to import, and Optuna's own needs PyTorch.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Encoded = Sequence[Sequence[float]]

_MOST = 200  # results; of more the best and the newest: each guess at the scales takes their number to the third
_GUESSES = 20  # at the scales, for each time that it learns; it goes on from the last one's
_CAUTION = 4  # the power of the chance of a result: with 1 more trials fail, and the best is no better
_TINY = 1e-6  # of the variance: what rounding may take from a covariance
_LENGTH, _NOISE = math.log(0.7), math.log(0.05)  # before anything is known, as logarithms; all likely within e times


class Surrogate:
    """Learns losses at encoded from 0 to 1, with a Matérn 5/2 kernel that has a length for each parameter.

    Losses count by their ranks alone, as normal quantiles: one that is far off changes nothing, and math.inf may stand
    for whatever was no good.
    """

    def __init__(self, owners: Sequence[int], scales: Sequence[float] = ()) -> None:
        """`owners` has for each coordinate of a place the parameter, from 0 on, that it belongs to.

        `scales` are those of an earlier fit, from which this one goes on.
        """
        self._owners = np.array(owners)
        self._prior = np.append(np.full(max(owners) + 1, _LENGTH), _NOISE)
        self._scales = np.array(scales) if len(scales) == len(self._prior) else self._prior

    @property
    def scales(self) -> list[float]:
        """The logarithms of the lengths and of the noise."""
        return [float(scale) for scale in self._scales]

    def fit(self, encoded: Encoded, losses: Sequence[float], failed: Encoded, rng: Any) -> None:
        """Learn `losses`, of which two differ, at `encoded`, oldest first, and that at those of `failed` there will be
        none. `rng` is a numpy RandomState.
        """
        kept = _kept(losses)
        x, y = np.array([encoded[i] for i in kept]), _quantiles(np.array([losses[i] for i in kept]))
        least = self._neg_log_posterior(self._scales, x, y)
        for guess in range(_GUESSES):
            step = (1.0 if guess % 3 == 0 else 0.3) * rng.standard_normal(len(self._scales))
            scales = self._scales + step * (rng.random_sample(len(step)) < 0.5)
            if (found := self._neg_log_posterior(scales, x, y)) < least:
                least, self._scales = found, scales
        self._losses = self._known(x, y)
        self._best = float(self._losses.predict(x)[0].min())
        bad = np.array(failed[-_MOST:]).reshape(-1, x.shape[1])
        self._runs = self._known(np.vstack([x, bad]), np.repeat([1.0, -1.0], [len(x), len(bad)]))
        self._failed = len(bad) > 0

    def expected_improvement(self, encoded: Encoded) -> Array:
        """The expected improvement on the best at each place (Jones et al., 1998), by the chance of a result."""
        mean, deviation = self._losses.predict(np.array(encoded))
        better = (self._best - mean) / deviation
        found: Array = deviation * (better * _below(better) + np.exp(-(better**2) / 2) / math.sqrt(2 * math.pi))
        return found * self._chance(encoded)

    def thompson_sample(self, encoded: Encoded, rng: Any) -> Array:
        """How good each place is, above the worst of them, in one function out of all that may be (Thompson sampling:
        Kandasamy et al., AISTATS 2018), by the chance of a result. No two draws are alike: what several trials at a
        time are to try.
        """
        losses = self._losses.draw(np.array(encoded), rng)
        found: Array = (losses.max() - losses) * self._chance(encoded)
        return found

    def _chance(self, encoded: Encoded) -> Array | float:
        """Of a result (Gardner et al., 2014; by least squares, Rasmussen and Williams, 6.5), with caution."""
        if not self._failed:
            return 1.0
        runs, unsure = self._runs.predict(np.array(encoded))
        found: Array = _below(runs / unsure) ** _CAUTION
        return found

    def _known(self, x: Array, y: Array) -> "_Posterior":
        return _Posterior(np.exp(self._scales[:-1])[self._owners], math.exp(self._scales[-1]), x, y)

    def _neg_log_posterior(self, scales: Array, x: Array, y: Array) -> float:
        """The negative logarithm of how likely the losses are at these scales, and these scales at all."""
        prior = 0.5 * float(((scales - self._prior) ** 2).sum())
        return prior + _Posterior(np.exp(scales[:-1])[self._owners], math.exp(scales[-1]), x, y).neg_log_likelihood


class _Posterior:
    """What is known of a function that has the values `y` at `x`, with `noise` in units of its variance."""

    def __init__(self, lengths: Array, noise: float, x: Array, y: Array) -> None:
        self._lengths, self._x = lengths, x
        self._root = np.linalg.cholesky(self._covariance(x, x) + (noise + _TINY) * np.eye(len(x)))
        self._shifted = np.linalg.solve(self._root, y)
        self._variance = float(self._shifted @ self._shifted) / len(y)

    @property
    def neg_log_likelihood(self) -> float:
        """The negative logarithm of how likely the values are."""
        return len(self._x) / 2 * math.log(self._variance) + float(np.log(np.diag(self._root)).sum())

    def predict(self, encoded: Array) -> tuple[Array, Array]:
        """The mean and the standard deviation at each place."""
        near = np.linalg.solve(self._root, self._covariance(self._x, encoded))
        return near.T @ self._shifted, np.sqrt(self._variance * np.maximum(1 - (near**2).sum(0), 1e-9))

    def draw(self, encoded: Array, rng: Any) -> Array:
        """Values at the encoded, together as likely as they are."""
        near = np.linalg.solve(self._root, self._covariance(self._x, encoded))
        among = self._covariance(encoded, encoded) - near.T @ near + _TINY * np.eye(len(encoded))
        some: Array = math.sqrt(self._variance) * np.linalg.cholesky(among) @ rng.standard_normal(len(encoded))
        return near.T @ self._shifted + some

    def _covariance(self, some: Array, others: Array) -> Array:
        distance = math.sqrt(5) * np.sqrt((((some[:, None] - others) / self._lengths) ** 2).sum(-1))
        found: Array = (1 + distance + distance**2 / 3) * np.exp(-distance)
        return found


def _below(z: Array) -> Array:
    """The share of the normal distribution that lies below."""
    return np.array([NormalDist().cdf(one) for one in z])


def _kept(losses: Sequence[float]) -> list[int]:
    """Which results are learned from."""
    newest = range(max(0, len(losses) - _MOST // 2), len(losses))
    best = sorted(range(newest.start), key=losses.__getitem__)[: _MOST // 2]
    return [*best, *newest]


def _quantiles(losses: Array) -> Array:
    """Normal quantiles of the losses' ranks; of equal ones those of the middle."""
    ranks = (losses[:, None] > losses).sum(1) + (losses[:, None] == losses).sum(1) / 2
    normal = NormalDist()
    return np.array([normal.inv_cdf(rank / len(losses)) for rank in ranks])
