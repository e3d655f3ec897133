"""What the surrogate expects, against scikit-learn's and against functions that are known."""

import math
from itertools import pairwise

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from sweeps.choose.surrogate import Surrogate, _best_and_newest, _Posterior, _quantiles

AXIS = [[i / 20] for i in range(21)]


def learned(places: list[list[float]], losses: list[float], failed: list[list[float]] | None = None) -> Surrogate:
    surrogate = Surrogate([*range(len(places[0]))])
    for seed in range(3):  # as a search does, it goes on from the scales that it found
        surrogate.fit(places, losses, failed or [], np.random.RandomState(seed))
    return surrogate


def test_result_equals_scikit_learn() -> None:
    rng = np.random.RandomState(0)
    x, y, places, lengths = rng.rand(30, 3), rng.randn(30), rng.rand(7, 3), np.array([0.2, 0.5, 3.0])
    posterior = _Posterior(lengths, 0.1, x, y)
    theirs = GaussianProcessRegressor(Matern(lengths, nu=2.5), alpha=0.1 + 1e-6, optimizer=None).fit(x, y)
    mean, deviation = theirs.predict(places, return_std=True)
    scale = y @ np.linalg.solve(theirs.kernel_(x) + (0.1 + 1e-6) * np.eye(30), y) / 30
    for ours, expected in zip(posterior.predict(places), (mean, deviation * math.sqrt(scale)), strict=True):
        assert ours == pytest.approx(expected)


def test_expected_improvement_is_highest_between_good_points() -> None:
    tried = [[0.0], [0.2], [0.45], [0.7], [1.0]]
    surrogate = learned(tried, [(x - 0.33) ** 2 for [x] in tried])
    assert AXIS[surrogate.expected_improvement(AXIS).argmax()][0] == pytest.approx(0.33, abs=0.1)


def test_thompson_samples_differ_and_agree_at_observations() -> None:
    tried = [[0.0], [0.2], [0.45], [0.7], [1.0]]
    surrogate = learned(tried, [(x - 0.33) ** 2 for [x] in tried])
    best = [AXIS[surrogate.thompson_sample(AXIS, np.random.RandomState(seed)).argmax()][0] for seed in range(100)]
    assert len(set(best)) > 2
    assert np.median(best) == pytest.approx(0.33, abs=0.1)


def test_draws_have_the_mean_and_deviation_that_are_expected() -> None:
    rng = np.random.RandomState(0)
    posterior, places = _Posterior(np.array([0.2, 0.5]), 0.1, rng.rand(20, 2), rng.randn(20)), rng.rand(5, 2)
    draws = np.array([posterior.sample(places, rng) for _ in range(4000)])
    mean, deviation = posterior.predict(places)
    assert draws.mean(0) == pytest.approx(mean, abs=0.1)
    assert draws.std(0) == pytest.approx(deviation, rel=0.1)


def test_expected_improvement_is_lower_near_failures() -> None:
    tried, losses = [[0.1], [0.3], [0.5]], [3.0, 2.0, 1.0]
    ahead = [[x] for x in (0.55, 0.6, 0.7, 0.8)]
    before, after = (learned(tried, losses, failed).expected_improvement(ahead) for failed in ([], [[0.75], [0.9]]))
    shares = after / before
    assert shares[0] > 0.3 and shares[3] < 0.05
    assert all(a > b for a, b in pairwise(shares))


def test_only_the_order_of_losses_counts() -> None:
    tried = [[0.0], [0.2], [0.45], [0.7], [1.0]]
    improvement = learned(tried, [0.5, 0.1, 0.2, 3.0, 4.0]).expected_improvement(AXIS)
    assert learned(tried, [0.5, 0.1, 0.2, 1e300, math.inf]).expected_improvement(AXIS) == pytest.approx(improvement)
    assert _quantiles(np.array([1.0, math.inf, math.inf])) == pytest.approx([-0.967, 0.431, 0.431], abs=0.001)


def test_importance_ranks_the_parameters() -> None:
    tried = np.random.RandomState(0).rand(40, 3).tolist()
    scales = learned(tried, [math.sin(6 * y) for _, y, _ in tried])._scales
    assert scales[1] < min(scales[0], scales[2]) - 0.7


def test_best_and_newest_of_many_results_are_used() -> None:
    losses = [float((7 * i) % 1000) for i in range(1000)]
    numbers = _best_and_newest(losses)
    assert numbers[100:] == [*range(900, 1000)]
    assert sorted(losses[i] for i in numbers[:100])[-1] < 120
    assert sorted(_best_and_newest(losses[:150])) == [*range(150)]
