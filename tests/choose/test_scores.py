"""Scores of losses: what counts of a loss, and what does not."""

import math

import numpy as np
import pytest

from sweeps.choose.scores import quantiles, scores

INF = math.inf


def test_ties_have_the_quantile_of_their_middle_rank() -> None:
    assert quantiles(np.array([1.0, INF, INF])) == pytest.approx([-0.967, 0.431, 0.431], abs=0.001)


def test_a_best_loss_far_ahead_has_a_lower_score() -> None:
    near, far = (scores(np.array([best, 0.6, 0.7, 0.8, 0.9, 1.0])) for best in (0.59, 0.1))
    assert far[0] < near[0] - 0.3
    assert list(near[3:]) == list(far[3:]) == list(quantiles(np.arange(6.0))[3:])


def test_scores_do_not_depend_on_the_unit() -> None:
    losses = np.random.RandomState(0).rand(20)
    assert scores(1e6 * losses - 7e6) == pytest.approx(scores(losses))


FEW = [[], [1.0], [2.0, 2.0, 2.0], [1e-320, 2e-320, 1.0, 2.0], [-1e308, 0.0, 1e308], [0.0, 5e-324, 5e-324, 1e-323]]
PRUNED = [[INF], [INF, INF], [1.0, INF, INF], [1.0, 2.0, INF, INF, INF], [1.7e308, 1.75e308, INF]]
PRUNED += [[0.0, 0.999, 1.0, *[INF] * 10], [1.0, 2.0, 3.0, 3.9, 4.0, *[INF] * 7]]
BOUNDLESS = [[-INF, 1.0, 2.0], [-INF, -INF, INF]]


@pytest.mark.parametrize("losses", [*FEW, *PRUNED, *BOUNDLESS])
def test_scores_of_any_losses_are_finite_and_in_their_order(losses: list[float]) -> None:
    values = scores(np.array(losses))
    assert np.isfinite(values).all() and (np.abs(values) < 4).all()
    for loss, value in zip(losses, values, strict=True):
        assert all(value <= other for other, larger in zip(values, losses, strict=True) if loss < larger)
