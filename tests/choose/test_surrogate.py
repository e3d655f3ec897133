"""What the surrogate expects, against scikit-learn's and against functions that are known."""

import math
from itertools import pairwise

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from sweeps.choose.surrogate import Surrogate, _best_and_newest, _Kernel, _Likelihood, _Posterior

AXIS = [[i / 20] for i in range(21)]
Points = list[list[float]]


def learned(
    places: Points, losses: list[float], failed: Points | None = None, running: Points | None = None
) -> Surrogate:
    surrogate = Surrogate([*range(len(places[0]))])
    surrogate.fit(places, losses, failed or [], running or [])
    return surrogate


def test_result_equals_scikit_learn() -> None:
    rng = np.random.RandomState(0)
    x, y, places, lengths = rng.rand(30, 3), rng.randn(30), rng.rand(7, 3), np.array([0.2, 0.5, 3.0])
    posterior = _Posterior(_Kernel(lengths, np.arange(3), 0.0), 0.1, x, y)
    theirs = GaussianProcessRegressor(Matern(lengths, nu=2.5), alpha=0.1 + 1e-6, optimizer=None).fit(x, y)
    mean, deviation = theirs.predict(places, return_std=True)
    scale = y @ np.linalg.solve(theirs.kernel_(x) + (0.1 + 1e-6) * np.eye(30), y) / 30
    for ours, expected in zip(posterior.predict(places), (mean, deviation * math.sqrt(scale)), strict=True):
        assert ours == pytest.approx(expected)


def test_gain_is_highest_between_good_points() -> None:
    tried = [[0.0], [0.2], [0.45], [0.7], [1.0]]
    surrogate = learned(tried, [(x - 0.33) ** 2 for [x] in tried])
    assert AXIS[surrogate.gain(AXIS).argmax()][0] == pytest.approx(0.33, abs=0.1)


def test_gain_is_lower_beside_a_running_point_and_equal_elsewhere() -> None:
    tried, losses = [[0.0], [0.05], [0.1], [0.9], [1.0]], [1.0, 0.8, 0.6, 0.1, 0.3]
    alone, beside = (
        learned(tried, losses, running=running).gain([[0.0], [0.5], [0.9]]) for running in ([[0.1]], [[0.5]])
    )
    assert beside[1] < alone[1] - 0.1
    assert beside[2] == pytest.approx(alone[2], abs=0.1)


def test_the_estimate_of_a_running_point_moves_its_mean_the_more_the_less_its_noise() -> None:
    tried, losses = [[0.0], [0.2], [0.4], [0.6]], [4.0, 3.0, 2.0, 1.0]
    surrogate, means = Surrogate([0]), []
    for noise in (math.inf, 9.0, 0.01):
        surrogate.fit(tried, losses, [], [[0.5], [1.0]], (), [(1.0, math.inf), (4.0, noise)])
        means.append(float(surrogate.mean([[1.0]])[0]))
    assert means[0] == pytest.approx(float(learned(tried, losses, running=[[0.5], [1.0]]).mean([[1.0]])[0]))
    assert means[0] < means[1] < means[0] + 0.5 < 0.8 < means[2] < 1.15  # the quantile of the worst of four results


def test_running_points_change_no_mean_and_reduce_deviations() -> None:
    rng = np.random.RandomState(0)
    kernel = _Kernel(np.array([0.2, 0.5]), np.arange(2), 0.3)
    posterior, places = _Posterior(kernel, 0.1, rng.rand(20, 2), rng.randn(20)), rng.rand(5, 2)
    (mean, deviation), (new_mean, new_deviation) = (
        each.predict(places) for each in (posterior, posterior.after(places[:2]))
    )
    assert new_mean == pytest.approx(mean, abs=1e-6)
    assert (new_deviation[:2] < 0.6 * deviation[:2]).all() and (new_deviation <= deviation + 1e-9).all()
    assert posterior.after(places[:0]).predict(places)[1] == pytest.approx(deviation)


def test_newest_of_many_running_points_are_used() -> None:
    tried, running = np.random.RandomState(0).rand(10, 1), np.random.RandomState(1).rand(250, 1).tolist()
    losses = [float(x) for [x] in tried]
    assert learned(tried.tolist(), losses, running=running).gain(AXIS) == pytest.approx(
        learned(tried.tolist(), losses, running=running[50:]).gain(AXIS)
    )


def test_gain_is_lower_near_failures() -> None:
    tried, losses = [[0.1], [0.3], [0.5]], [3.0, 2.0, 1.0]
    ahead = [[x] for x in (0.55, 0.6, 0.7, 0.8)]
    before, after = (learned(tried, losses, failed).gain(ahead) for failed in ([], [[0.75], [0.9]]))
    shares = after / before
    assert shares[0] > 0.6 and shares[3] < 0.2
    assert all(a > b for a, b in pairwise(shares))


def test_a_bad_outlier_has_no_effect() -> None:
    tried = [[0.0], [0.2], [0.45], [0.7], [1.0]]
    gain = learned(tried, [0.5, 0.1, 0.2, 3.0, 4.0]).gain(AXIS)
    assert learned(tried, [0.5, 0.1, 0.2, 1e300, math.inf]).gain(AXIS) == pytest.approx(gain)


def test_few_results_show_the_effect_of_each_parameter_while_trials_run() -> None:
    tried = [[x, y] for x in (0.0, 0.5, 1.0) for y in (0.0, 0.5, 1.0) if x + y < 1.5]
    means = [
        learned(tried, [x + y for x, y in tried], running=running).mean([[1.0, 0.0], [1.0, 1.0]])
        for running in ([], [[0.2, 0.2]])
    ]
    alone, concurrent = (float(corner - tried_corner) for tried_corner, corner in means)
    assert 0 < alone < concurrent - 0.1


def test_many_results_are_learned_alike_whether_or_not_trials_run() -> None:
    tried = np.random.RandomState(0).rand(100, 2)
    alone, concurrent = (learned(tried.tolist(), [*tried[:, 0]], running=running) for running in ([], [[0.5, 0.5]]))
    assert concurrent.scales == alone.scales


@pytest.mark.parametrize("additive", [0.0, 0.4])
def test_gradient_of_the_likelihood_equals_finite_differences(additive: float) -> None:
    rng = np.random.RandomState(0)
    prior = np.array([-0.4, -0.4, -3.0])
    likelihood = _Likelihood(rng.rand(20, 3), rng.randn(20), np.array([0, 1, 1]), prior, additive)
    scales = np.array([-1.0, 0.3, -2.0])
    _, gradient = likelihood.neg_log_posterior(scales)
    steps = 1e-5 * np.eye(3)
    losses = [[likelihood.neg_log_posterior(scales + sign * step)[0] for sign in (1, -1)] for step in steps]
    assert gradient == pytest.approx([(above - below) / 2e-5 for above, below in losses], rel=1e-4)


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


def test_best_and_newest_have_the_worst_if_they_are_equal() -> None:
    losses = [1.0] * 120 + [2.0] + [1.0] * 120
    assert 120 in _best_and_newest(losses) and len(_best_and_newest(losses)) == 200
    places = [[i / len(losses)] for i in range(len(losses))]
    assert np.isfinite(learned(places, losses).gain(AXIS)).all()
