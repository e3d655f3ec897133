"""A Gaussian process over the results of a search, which predicts the losses of untried points.

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5. In numpy,
because importing scikit-learn takes a second and Optuna's process needs PyTorch.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from sweeps.choose.scores import Array, scores

Encoded = Sequence[Sequence[float]]

MIN_RESULTS = 3  # that a fit of the scales needs
# results, and running points, because the cost grows with the cube of their number
_MAX_RESULTS = 200
_MAX_STEPS = 10  # of each fit, which starts from the scales of the fit before
# deviation of the labels 1 and -1 of runs and failures; with 0, twice as many trials fail
_SOFTNESS = 0.5
_ALONE = 2.0  # deviations of the bound, where trials run one at a time
# the same for several at a time; with 2, eight trials at a time explore too little
_CONCURRENT = 3.0
_ADDITIVE = 0.5  # share of the covariance that adds up over the parameters, before the first result
# results from which on that share is 0, because they show how parameters act together
_MAX_ADDITIVE = 100
_PRECISION = 0.001  # of the scales' logarithms, and of their log posterior
_JITTER = 1e-6  # added variance, because rounding can make a covariance singular
_LENGTH = math.log(0.7)  # prior means of the scales' logarithms; their deviation is 1
_NOISE = math.log(0.05)


class Surrogate:
    """A model of the losses at encoded points, with a Matérn 5/2 kernel that has a length for each
    parameter.

    While trials run, a share of the kernel is additive (Duvenaud et al., Additive Gaussian
    Processes, NeurIPS 2011): the effects of single parameters need fewer results.

    The model uses scores of the losses: a bad outlier has no effect, and a bad point may have the
    loss math.inf.
    """

    def __init__(self, parameter_indices: Sequence[int], scales: Sequence[float] = ()) -> None:
        """Start from the `scales` of an earlier fit. Coordinate i belongs to the parameter
        `parameter_indices[i]`."""
        self._indices = np.array(parameter_indices)
        self._prior = np.append(np.full(max(parameter_indices) + 1, _LENGTH), _NOISE)
        self._scales = np.array(scales) if len(scales) == len(self._prior) else self._prior
        self.others: Sequence[tuple[float, Surrogate]] = ()  # weights and models of other studies

    @property
    def scales(self) -> list[float]:
        """Return the logarithms of the lengths and of the noise."""
        return [float(scale) for scale in self._scales]

    def fit(
        self,
        encoded: Encoded,
        losses: Sequence[float],
        failed: Encoded,
        running: Encoded,
        ran: Encoded = (),
        estimates: Sequence[tuple[float, float]] = (),
    ) -> None:
        """Fit the model to the `losses` at the points `encoded`, oldest first, and to the points
        that `failed`.

        The points that `ran` in other studies only show where no trial fails.

        The points that are `running`, oldest first, count as if they had their predicted means, so
        that concurrent trials differ (Ginsbourger et al., 2010, the kriging believer). `estimates`
        has the estimated loss of each running point, and its noise: the variance of its score,
        infinite if nothing is estimated.

        With few or equal losses, the scales are the prior's.
        """
        running = running[-_MAX_RESULTS:]
        estimates = estimates[-_MAX_RESULTS:]
        chosen = _best_and_newest(losses)
        self.points = x = np.array([encoded[i] for i in chosen]).reshape(-1, len(self._indices))
        self.scores = y = scores(np.array([losses[i] for i in chosen]))
        additive = _ADDITIVE * max(0.0, 1 - len(y) / _MAX_ADDITIVE) if running else 0.0
        if len(y) >= MIN_RESULTS and len(set(y)) > 1:
            self._scales = _minimized(
                _Likelihood(x, y, self._indices, self._prior, additive), self._scales
            )
        self._kernel = _Kernel(np.exp(self._scales[:-1]), self._indices, additive)
        self._worst = float(y.max(initial=0))
        self._deviations = _CONCURRENT if running else _ALONE
        self._results = self._posterior(x, y)
        unended = np.array(running).reshape(-1, x.shape[1])
        self._losses = self._with_estimates(
            unended, estimates, sorted(losses[i] for i in chosen)
        ).given(unended)
        good, bad = (
            np.array(points[-_MAX_RESULTS:]).reshape(-1, x.shape[1]) for points in (ran, failed)
        )
        labels = np.repeat([1.0, -1.0], [len(x) + len(good), len(bad)])
        self._runs = self._posterior(np.vstack([x, good, bad]), labels)
        self._has_failed = len(bad) > 0

    def mean(self, encoded: Encoded | Array) -> Array:
        """Return the expected score of the loss at each point."""
        return self._losses.predict(np.array(encoded))[0]

    def left_out_means(self) -> Array:
        """Return the expected score of each result, given the other results."""
        return self._results.left_out_means()

    def gain(self, encoded: Encoded) -> Array:
        """Return how far the lower confidence bound of each point is below the worst result, times
        the probability of a result (Srinivas et al., ICML 2010).
        """
        mean, deviation = self._losses.predict(np.array(encoded))
        others = sum(weight for weight, _ in self.others)
        mean = sum(
            (weight * model.mean(encoded) for weight, model in self.others), (1 - others) * mean
        )
        # because other studies show where the bad points are
        deviation = (1 - others / 2) * deviation
        gain: Array = np.maximum(self._worst - mean + self._deviations * deviation, 0)
        return gain * self._result_probability(encoded)

    def _result_probability(self, encoded: Encoded) -> Array | float:
        """Return the probability of a result (Gardner et al., 2014; Rasmussen and Williams, 3.9 and
        6.5)."""
        if not self._has_failed:
            return 1.0
        mean, deviation = self._runs.predict(np.array(encoded))
        probability: Array = _normal_cdf(mean / np.sqrt(_SOFTNESS**2 + deviation**2))
        return probability

    def _with_estimates(
        self, points: Array, estimates: Sequence[tuple[float, float]], losses: list[float]
    ) -> "_Posterior":
        """Return the posterior of the results, given also the estimates at `points`; `losses` are
        sorted results."""
        finite = [i for i, (_, noise) in enumerate(estimates) if noise < math.inf]
        if not finite:
            return self._results
        ends, noise = np.array(estimates)[finite].T
        return self._results.given(
            points[finite], np.interp(ends, losses, np.sort(self.scores)), noise
        )

    def _posterior(self, x: Array, y: Array) -> "_Posterior":
        return _Posterior(self._kernel, math.exp(self._scales[-1]), x, y)


class _Kernel:
    """A Matérn 5/2 covariance, 1 at distance 0, of which the share `additive` is the mean over the
    parameters."""

    def __init__(self, lengths: Array, indices: Array, additive: float) -> None:
        self._lengths = lengths[indices]
        self._additive = additive
        parameters = [indices == index for index in range(len(lengths))]
        # because one matrix product is faster
        self._parts = parameters if additive else [slice(None)]

    def covariance(self, a: Array, b: Array) -> Array:
        """Return the covariance of each point of `a` with each point of `b`, of shape (len(a),
        len(b))."""
        a = a / self._lengths
        b = b / self._lengths
        return _covariance(
            np.array([_squares(a[:, part], b[:, part]) for part in self._parts]), self._additive
        )[0]


def _covariance(squares: Array, additive: float) -> tuple[Array, Array]:
    """Return the covariance, and -2 times its slope by the squared distance in each parameter.

    `squares` has a row for each parameter: squared distances, in units of the squared length.
    """
    joint, slope = _matern(squares.sum(0))
    share = additive / len(squares)
    if not share:
        return joint, slope
    each, slopes = _matern(squares)
    return (1 - additive) * joint + share * each.sum(0), (1 - additive) * slope + share * slopes


def _squares(a: Array, b: Array) -> Array:
    """Return the squared distances, by a matrix product, which is faster than differences."""
    squares: Array = np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T, 0)
    return squares


def _matern(squares: Array) -> tuple[Array, Array]:
    """Return the Matérn 5/2 covariance at squared distances, and -2 times its slope (Rasmussen and
    Williams, 4.17)."""
    distance = np.sqrt(5 * squares)
    decay = np.exp(-distance)
    slope = (1 + distance) * decay
    return slope + 5 / 3 * squares * decay, 5 / 3 * slope


class _Posterior:
    """A Gaussian process given the values `y` at `x`, each with `noise` and `more` noise, in units
    of its variance."""

    def __init__(
        self, kernel: _Kernel, noise: float, x: Array, y: Array, more: Array | float = 0.0
    ) -> None:
        self._kernel = kernel
        self._noise = noise
        self._x = x
        self._y = y
        self._more = np.broadcast_to(more, len(x))
        root = np.linalg.cholesky(kernel.covariance(x, x) + np.diag(noise + _JITTER + self._more))
        self._whitening = np.linalg.inv(root)
        self._whitened = self._whitening @ y
        square = float(self._whitened @ self._whitened)
        # because scores have a variance of about 1
        self._variance = square / len(y) if len(y) >= MIN_RESULTS else 1.0

    def predict(self, encoded: Array) -> tuple[Array, Array]:
        """Return the mean and the standard deviation at each point."""
        cross = self._whitening @ self._kernel.covariance(self._x, encoded)
        return cross.T @ self._whitened, np.sqrt(
            self._variance * np.maximum(1 - (cross**2).sum(0), 1e-9)
        )

    def left_out_means(self) -> Array:
        """Return the mean at each point, given all other points (Rasmussen and Williams, equation
        5.12)."""
        means: Array = self._y - self._whitening.T @ self._whitened / (self._whitening**2).sum(0)
        return means

    def given(
        self, points: Array, values: Array | None = None, more: Array | float = 0.0
    ) -> "_Posterior":
        """Return the posterior after each point had its value, with `more` noise.

        Without `values`, each point had its mean: the means are the same, and the deviations nearby
        are smaller.
        """
        y = np.append(self._y, self.predict(points)[0] if values is None else values)
        more = np.append(self._more, np.broadcast_to(more, len(points)))
        posterior = _Posterior(self._kernel, self._noise, np.vstack([self._x, points]), y, more)
        # because expected values are no evidence about the variance
        posterior._variance = self._variance
        return posterior


class _Likelihood:
    """The likelihood of the scales given the values `y` at `x`, and their prior."""

    def __init__(self, x: Array, y: Array, indices: Array, prior: Array, additive: float) -> None:
        # each pair of points once, because the covariance is symmetric
        self._pairs = np.triu_indices(len(y), 1)
        parameters = [x[:, indices == index] for index in range(len(prior) - 1)]
        self._squares = np.array([_squares(part, part)[self._pairs] for part in parameters])
        self._y = y
        self._prior = prior
        self.count = len(y)
        self._additive = additive

    def neg_log_posterior(self, scales: Array) -> tuple[float, Array]:
        """Return the negative log posterior of the scales, up to a constant, and its gradient.

        Rasmussen and Williams, equation 5.9, with the variance of the process at its most likely
        value.
        """
        noise = math.exp(scales[-1])
        n = self.count
        squares = np.exp(-2 * scales[:-1])[:, None] * self._squares
        covariance, slope = _covariance(squares, self._additive)
        whole = (1 + noise + _JITTER) * np.eye(n)
        whole.T[self._pairs] = covariance
        root = np.linalg.cholesky(whole)  # which reads the lower triangle
        whitening = np.linalg.inv(root)
        whitened = whitening @ self._y
        square = float(whitened @ whitened)
        solved = whitening.T @ whitened
        loss = n / 2 * math.log(square / n) + float(np.log(np.diag(root)).sum())
        by_covariance = 0.5 * whitening.T @ whitening - n / (2 * square) * np.outer(solved, solved)
        by_length = 2 * (squares * slope) @ by_covariance[self._pairs]
        gradient = np.append(by_length, noise * np.trace(by_covariance))
        prior = scales - self._prior
        return loss + 0.5 * float(prior @ prior), gradient + prior


def _minimized(likelihood: _Likelihood, scales: Array) -> Array:
    """Return scales of lower loss, by BFGS with a line search that halves (Nocedal and Wright,
    2006, chapter 6)."""
    loss, gradient = likelihood.neg_log_posterior(scales)
    identity = np.eye(len(scales))
    # because the curvature grows with the number of results
    inverse = 5 / likelihood.count * identity
    for _ in range(_MAX_STEPS):
        step = -inverse @ gradient
        # because farther away the loss has another shape
        step /= max(1.0, float(np.abs(step).max()))
        while True:
            new_loss, new_gradient = likelihood.neg_log_posterior(scales + step)
            if new_loss <= loss:
                break
            step = step / 2
            if np.abs(step).max() < _PRECISION:
                return scales
        change = new_gradient - gradient
        scales = scales + step
        if loss - new_loss < _PRECISION:
            return scales
        loss = new_loss
        gradient = new_gradient
        if (curvature := float(step @ change)) > 0:
            shear = identity - np.outer(step, change) / curvature
            inverse = shear @ inverse @ shear.T + np.outer(step, step) / curvature
    return scales


def _normal_cdf(z: Array) -> Array:
    return np.array([NormalDist().cdf(number) for number in z])


def _best_and_newest(losses: Sequence[float]) -> list[int]:
    """Return the indices of the results to fit: the best, then the newest; with the worst if these
    are all equal."""
    newest = range(max(0, len(losses) - _MAX_RESULTS // 2), len(losses))
    ranked = sorted(range(newest.start), key=losses.__getitem__)
    best = ranked[: _MAX_RESULTS // 2]
    if len({losses[i] for i in (*best, *newest)}) < 2:
        best[-1:] = ranked[-1:]
    return [*best, *newest]
