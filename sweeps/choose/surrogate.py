"""A Gaussian process over the results of a search, which predicts the losses of untried points.

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5. In SciPy,
because importing scikit-learn takes a second and Optuna's process needs PyTorch.

Models of earlier studies help, each weighted by how well it ranks this study's results (Feurer et
al., Practical Transfer Learning for Bayesian Optimization, 2018, arXiv 1802.02219, RGPE).
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.special import ndtr

from sweeps.choose.scores import Array, scores

Encoded = Sequence[Sequence[float]]

_MIN_RESULTS = 3  # that a fit of the scales needs
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
_PRECISION = 0.004  # of the log posterior, whose size grows with the number of results
_JITTER = 1e-6  # added variance, because rounding can make a covariance singular
_LENGTH = math.log(0.7)  # prior means of the scales' logarithms; their deviation is 1
_NOISE = math.log(0.05)
_FARTHEST = 5.0  # deviations from the prior, because farther scales are no better in floats
_SAMPLES = 50  # bootstrap samples of this study's results, which weigh the earlier studies


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
        return [*self._scales.tolist()]

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
        chosen = _best_and_newest(losses)
        chosen_losses = np.array([losses[i] for i in chosen])
        self.points = self._newest([encoded[i] for i in chosen])
        self.scores = scores(chosen_losses)
        self._worst = float(self.scores.max(initial=0))

        few_results = max(0.0, 1 - len(chosen) / _MAX_ADDITIVE)
        additive = _ADDITIVE * few_results if running else 0.0
        self._deviations = _CONCURRENT if running else _ALONE
        if len(chosen) >= _MIN_RESULTS and len(set(self.scores)) > 1:
            self._scales = self._likely_scales(additive)
        self._kernel = _Kernel(np.exp(self._scales[:-1]), self._indices, additive)

        self._results = self._posterior(self.points, self.scores)
        unended = self._newest(running)
        self._losses = self._with_estimates(unended, estimates, chosen_losses).after(unended)
        self._runs = self._posterior_of_runs(ran, failed) if failed else None

    def _newest(self, encoded: Encoded) -> Array:
        return np.array(encoded[-_MAX_RESULTS:]).reshape(-1, len(self._indices))

    def _likely_scales(self, additive: float) -> Array:
        """Return scales that are more likely, by a few steps of L-BFGS-B (Byrd et al., SIAM Journal
        on Scientific Computing 1995)."""
        likelihood = _Likelihood(self.points, self.scores, self._indices, self._prior, additive)
        fit = minimize(
            likelihood.neg_log_posterior,
            self._scales,
            method="L-BFGS-B",
            jac=True,
            bounds=Bounds(self._prior - _FARTHEST, self._prior + _FARTHEST),
            options={"maxiter": _MAX_STEPS, "ftol": _PRECISION / len(self.scores)},
        )
        return np.array(fit.x)

    def mean(self, encoded: Encoded | Array) -> Array:
        """Return the expected score of the loss at each point."""
        return self._losses.predict(np.array(encoded))[0]

    def left_out_means(self) -> Array:
        """Return the expected score of each result, given the other results."""
        return self._results.left_out_means()

    def gain(self, encoded: Encoded) -> Array:
        """Return how far the lower confidence bound of each point is below the worst result, times
        the probability of a result (Srinivas et al., ICML 2010; Gardner et al., 2014; Rasmussen and
        Williams, 3.9 and 6.5).
        """
        points = np.array(encoded)
        mean, deviation = self._losses.predict(points)
        others = sum(weight for weight, _ in self.others)
        mean = (1 - others) * mean
        for weight, model in self.others:
            mean = mean + weight * model.mean(points)

        # because other studies show where the bad points are
        deviation = (1 - others / 2) * deviation
        gain: Array = np.maximum(self._worst - mean + self._deviations * deviation, 0)
        if self._runs is None:
            return gain
        label, spread = self._runs.predict(points)
        return np.array(gain * ndtr(label / np.sqrt(_SOFTNESS**2 + spread**2)))

    def _with_estimates(
        self, points: Array, estimates: Sequence[tuple[float, float]], losses: Array
    ) -> "_Posterior":
        """Return the posterior of the results, given also the newest estimates, at `points`;
        `losses` are the results."""
        ends, noise = np.array(estimates[-_MAX_RESULTS:]).reshape(-1, 2).T
        finite = noise < math.inf
        if not finite.any():
            return self._results
        estimated_scores = np.interp(ends[finite], np.sort(losses), np.sort(self.scores))
        return self._results.after(points[finite], estimated_scores, noise[finite])

    def _posterior_of_runs(self, ran: Encoded, failed: Encoded) -> "_Posterior":
        """Return the posterior of a label: 1 where a trial runs, -1 where it fails."""
        good = np.vstack([self.points, self._newest(ran)])
        bad = self._newest(failed)
        labels = np.repeat([1.0, -1.0], [len(good), len(bad)])
        return self._posterior(np.vstack([good, bad]), labels)

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
        parts = [cdist(a[:, part], b[:, part], "sqeuclidean") for part in self._parts]
        covariance, _ = _covariance(np.array(parts), self._additive)
        return covariance


def _covariance(squares: Array, additive: float) -> tuple[Array, Array]:
    """Return the covariance, and -2 times its slope by the squared distance in each parameter.

    `squares` has a row for each parameter: squared distances, in units of the squared length.
    """
    joint, slope = _matern(squares.sum(0))
    share = additive / len(squares)
    if not share:
        return joint, slope
    each, slopes = _matern(squares)
    covariance = (1 - additive) * joint + share * each.sum(0)
    return covariance, (1 - additive) * slope + share * slopes


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
        covariance = kernel.covariance(x, x) + np.diag(noise + _JITTER + self._more)
        root = np.linalg.cholesky(covariance)
        self._whitening = np.linalg.inv(root)
        self._whitened = self._whitening @ y
        square = float(self._whitened @ self._whitened)
        # because scores have a variance of about 1
        self._variance = square / len(y) if len(y) >= _MIN_RESULTS else 1.0

    def predict(self, encoded: Array) -> tuple[Array, Array]:
        """Return the mean and the standard deviation at each point."""
        cross = self._whitening @ self._kernel.covariance(self._x, encoded)
        mean = cross.T @ self._whitened
        shares = np.maximum(1 - (cross**2).sum(0), 1e-9)
        return mean, np.sqrt(self._variance * shares)

    def left_out_means(self) -> Array:
        """Return the mean at each point, given all other points (Rasmussen and Williams, equation
        5.12)."""
        solved = self._whitening.T @ self._whitened
        precisions = (self._whitening**2).sum(0)
        means: Array = self._y - solved / precisions
        return means

    def after(
        self, points: Array, values: Array | None = None, more: Array | float = 0.0
    ) -> "_Posterior":
        """Return the posterior after each point had its value, with `more` noise.

        Without `values`, each point had its mean: the means are the same, and the deviations nearby
        are smaller.
        """
        if values is None:
            values, _ = self.predict(points)
        x = np.vstack([self._x, points])
        y = np.append(self._y, values)
        more = np.append(self._more, np.broadcast_to(more, len(points)))
        posterior = _Posterior(self._kernel, self._noise, x, y, more)
        # because expected values are no evidence about the variance
        posterior._variance = self._variance
        return posterior


class _Likelihood:
    """The likelihood of the scales given the values `y` at `x`, and their prior."""

    def __init__(self, x: Array, y: Array, indices: Array, prior: Array, additive: float) -> None:
        parameters = [x[:, indices == index] for index in range(len(prior) - 1)]
        # each pair of points once, because the covariance is symmetric
        self._squares = np.array([pdist(part, "sqeuclidean") for part in parameters])
        self._y = y
        self._prior = prior
        self._additive = additive

    def neg_log_posterior(self, scales: Array) -> tuple[float, Array]:
        """Return the negative log posterior of the scales, up to a constant, and its gradient.

        Rasmussen and Williams, equation 5.9, with the variance of the process at its most likely
        value.
        """
        n = len(self._y)
        noise = math.exp(scales[-1])
        squares = np.exp(-2 * scales[:-1])[:, None] * self._squares
        pairs_covariance, slope = _covariance(squares, self._additive)
        covariance = squareform(pairs_covariance) + (1 + noise + _JITTER) * np.eye(n)

        root = np.linalg.cholesky(covariance)
        whitening = np.linalg.inv(root)
        inverse = whitening.T @ whitening
        solved = inverse @ self._y
        square = float(self._y @ solved)
        distance = scales - self._prior
        loss = n / 2 * math.log(square / n) + np.log(np.diag(root)).sum() + distance @ distance / 2

        by_covariance = inverse / 2 - n / (2 * square) * np.outer(solved, solved)
        by_lengths = 2 * (squares * slope) @ squareform(by_covariance, checks=False)
        by_noise = noise * np.trace(by_covariance)
        return float(loss), np.append(by_lengths, by_noise) + distance


def _best_and_newest(losses: Sequence[float]) -> list[int]:
    """Return the indices of the results to fit: the best, then the newest; with the worst if these
    are all equal."""
    half = _MAX_RESULTS // 2
    oldest = max(0, len(losses) - half)
    newest = range(oldest, len(losses))
    ranked = sorted(range(oldest), key=losses.__getitem__)
    best = ranked[:half]
    different = {losses[i] for i in (*best, *newest)}
    if len(different) < 2:
        best[-1:] = ranked[-1:]
    return [*best, *newest]


class EarlierModels:
    """A model of each earlier study. Each study's losses have their own scores, so that studies may
    differ in scale."""

    def __init__(
        self, studies: Iterable[tuple[Encoded, Sequence[float]]], parameter_indices: Sequence[int]
    ) -> None:
        """Fit a model to the points and the losses of each study in which two losses differ."""
        self._models: list[Surrogate] = []
        for encoded, losses in studies:
            if len(set(losses)) > 1:
                model = Surrogate(parameter_indices)
                model.fit(encoded, losses, [], [])
                self._models.append(model)

    def teach(self, own: Surrogate, count: int, seed: int) -> bool:
        """Add the models to this study's `own` model, which was fitted. Return whether any has a
        weight.

        Until two results differ, the models have all the weight after an even `count` of
        configurations, and none after an odd `count`, because they may mislead.
        """
        if not self._models:
            return False
        if len(set(own.scores)) > 1:
            weights = self._weigh(own, seed)
        else:
            is_even = count % 2 == 0
            weights = np.full(len(self._models), is_even / len(self._models))
        weighted = zip(weights, self._models, strict=True)
        own.others = [(weight, model) for weight, model in weighted if weight > 0]
        return len(own.others) > 0

    def _weigh(self, own: Surrogate, seed: int) -> Array:
        """Return the weights of the models; this study's own model has the rest of 1.

        A weight is the share of bootstrap samples in which the model misorders the fewest pairs of
        results. The own model predicts each result from the others, and counts as no worse than
        chance. A model that is clearly worse than the own model has no weight, because many bad
        models would add up.
        """
        before = own.scores[:, None] < own.scores
        count = len(own.scores)
        random = np.random.RandomState(seed)
        # how often each result is in each sample
        samples = random.multinomial(count, np.full(count, 1 / count), _SAMPLES).astype(float)
        pairs = _pair_counts(samples, before)
        samples = samples[pairs > 0]
        pairs = pairs[pairs > 0]

        means = [own.left_out_means(), *(model.mean(own.points) for model in self._models)]
        misordered = [before & (mean[:, None] >= mean) for mean in means]
        counts = np.array([_pair_counts(samples, wrong) for wrong in misordered])
        own_errors = np.minimum(counts[0], pairs / 2)
        errors = counts[1:]
        is_worse = np.median(errors, axis=1) > np.percentile(own_errors, 95)
        errors[is_worse] = np.inf

        is_better = errors.min(0) < own_errors
        wins = np.bincount(errors.argmin(0)[is_better], minlength=len(self._models))
        return wins / len(pairs)


def _pair_counts(samples: Array, pairs: NDArray[np.bool_]) -> Array:
    """Return how many of the pairs of results each sample has; `pairs[i, j]` is whether i and j
    are one."""
    return np.array(np.einsum("si,ij,sj->s", samples, pairs, samples))
