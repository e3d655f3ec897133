"""A Gaussian process over the results of a search, which predicts the losses of untried points.

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5. In numpy, because importing
scikit-learn takes a second and Optuna's process needs PyTorch.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Encoded = Sequence[Sequence[float]]

_MAX_RESULTS = 200  # the best and the newest results, because the cost grows with the cube of their number
_GUESSES = 20  # random steps of the scales in each fit, which starts from the scales of the fit before
_CAUTION = 4  # power of the probability of a result; with 1 more trials fail, and the best is no better
_JITTER = 1e-6  # added variance, because rounding can make a covariance singular
_LENGTH, _NOISE = math.log(0.7), math.log(0.05)  # prior means of the scales' logarithms; their deviation is 1


class Surrogate:
    """A model of the losses at encoded points, with a Matérn 5/2 kernel that has a length for each parameter.

    The model uses only the ranks of the losses, as normal quantiles. An outlier therefore has no effect, and a bad
    point may have the loss math.inf.
    """

    def __init__(self, parameter_indices: Sequence[int], scales: Sequence[float] = ()) -> None:
        """Start from the `scales` of an earlier fit. Coordinate i belongs to the parameter `parameter_indices[i]`."""
        self._indices = np.array(parameter_indices)
        self._prior = np.append(np.full(max(parameter_indices) + 1, _LENGTH), _NOISE)
        self._scales = np.array(scales) if len(scales) == len(self._prior) else self._prior

    @property
    def scales(self) -> list[float]:
        """Return the logarithms of the lengths and of the noise."""
        return [float(scale) for scale in self._scales]

    def fit(self, encoded: Encoded, losses: Sequence[float], failed: Encoded, rng: Any) -> None:
        """Fit the model to the `losses` at the points `encoded`, oldest first, and to the points that `failed`.

        At least two losses must differ. `rng` is a RandomState.
        """
        chosen = _best_and_newest(losses)
        x, y = np.array([encoded[i] for i in chosen]), _quantiles(np.array([losses[i] for i in chosen]))
        least = self._neg_log_posterior(self._scales, x, y)
        for guess in range(_GUESSES):
            step = (1.0 if guess % 3 == 0 else 0.3) * rng.standard_normal(len(self._scales))
            scales = self._scales + step * (rng.random_sample(len(step)) < 0.5)
            if (loss := self._neg_log_posterior(scales, x, y)) < least:
                least, self._scales = loss, scales
        self._losses = self._posterior(self._scales, x, y)
        self._best = float(self._losses.predict(x)[0].min())
        bad = np.array(failed[-_MAX_RESULTS:]).reshape(-1, x.shape[1])
        self._runs = self._posterior(self._scales, np.vstack([x, bad]), np.repeat([1.0, -1.0], [len(x), len(bad)]))
        self._has_failed = len(bad) > 0

    def expected_improvement(self, encoded: Encoded) -> Array:
        """Return the expected improvement at each point (Jones et al., 1998), times the probability of a result."""
        mean, deviation = self._losses.predict(np.array(encoded))
        z = (self._best - mean) / deviation
        improvement: Array = deviation * (z * _normal_cdf(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))
        return improvement * self._result_probability(encoded)

    def thompson_sample(self, encoded: Encoded, rng: Any) -> Array:
        """Return a random improvement on the worst point, times the probability of a result.

        Samples differ, so concurrent trials try different points (Kandasamy et al., AISTATS 2018).
        """
        losses = self._losses.sample(np.array(encoded), rng)
        improvement: Array = losses.max() - losses
        return improvement * self._result_probability(encoded)

    def _result_probability(self, encoded: Encoded) -> Array | float:
        """Return the cautious probability of a result (Gardner et al., 2014; Rasmussen and Williams, 6.5)."""
        if not self._has_failed:
            return 1.0
        mean, deviation = self._runs.predict(np.array(encoded))
        probability: Array = _normal_cdf(mean / deviation) ** _CAUTION
        return probability

    def _posterior(self, scales: Array, x: Array, y: Array) -> "_Posterior":
        return _Posterior(np.exp(scales[:-1])[self._indices], math.exp(scales[-1]), x, y)

    def _neg_log_posterior(self, scales: Array, x: Array, y: Array) -> float:
        """Return the negative log posterior of the scales, up to a constant."""
        return 0.5 * float(((scales - self._prior) ** 2).sum()) + self._posterior(scales, x, y).neg_log_likelihood


class _Posterior:
    """A Gaussian process given the values `y` at `x`; `noise` is in units of the process's variance."""

    def __init__(self, lengths: Array, noise: float, x: Array, y: Array) -> None:
        self._lengths, self._x = lengths, x
        self._root = np.linalg.cholesky(self._covariance(x, x) + (noise + _JITTER) * np.eye(len(x)))
        self._whitened = np.linalg.solve(self._root, y)
        self._variance = float(self._whitened @ self._whitened) / len(y)

    @property
    def neg_log_likelihood(self) -> float:
        """Return the negative log likelihood of the values, up to a constant."""
        return len(self._x) / 2 * math.log(self._variance) + float(np.log(np.diag(self._root)).sum())

    def predict(self, encoded: Array) -> tuple[Array, Array]:
        """Return the mean and the standard deviation at each point."""
        cross = np.linalg.solve(self._root, self._covariance(self._x, encoded))
        return cross.T @ self._whitened, np.sqrt(self._variance * np.maximum(1 - (cross**2).sum(0), 1e-9))

    def sample(self, encoded: Array, rng: Any) -> Array:
        """Return a joint sample of the points' values."""
        cross = np.linalg.solve(self._root, self._covariance(self._x, encoded))
        covariance = self._covariance(encoded, encoded) - cross.T @ cross + _JITTER * np.eye(len(encoded))
        noise: Array = math.sqrt(self._variance) * np.linalg.cholesky(covariance) @ rng.standard_normal(len(encoded))
        return cross.T @ self._whitened + noise

    def _covariance(self, a: Array, b: Array) -> Array:
        distance = math.sqrt(5) * np.sqrt((((a[:, None] - b) / self._lengths) ** 2).sum(-1))
        covariance: Array = (1 + distance + distance**2 / 3) * np.exp(-distance)
        return covariance


def _normal_cdf(z: Array) -> Array:
    return np.array([NormalDist().cdf(number) for number in z])


def _best_and_newest(losses: Sequence[float]) -> list[int]:
    """Return the indices of the results to fit: the best, then the newest."""
    newest = range(max(0, len(losses) - _MAX_RESULTS // 2), len(losses))
    best = sorted(range(newest.start), key=losses.__getitem__)[: _MAX_RESULTS // 2]
    return [*best, *newest]


def _quantiles(losses: Array) -> Array:
    """Return the normal quantiles of the losses' ranks; ties have their middle rank."""
    ranks = (losses[:, None] > losses).sum(1) + (losses[:, None] == losses).sum(1) / 2
    normal = NormalDist()
    return np.array([normal.inv_cdf(rank / len(losses)) for rank in ranks])
