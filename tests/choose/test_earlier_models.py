"""How far a search trusts the models of earlier studies, by the order of its own results."""

import numpy as np
import pytest

from sweeps.choose.surrogate import EarlierModels, Surrogate
from tests.command_lines import some

BEFORE, NOW = np.random.RandomState(0).rand(40, 2), np.random.RandomState(1).rand(8, 2)
BEST = [[0.3, 0.7]]


def bowl(points: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> list[float]:
    return [float(((point - BEST[0]) ** 2).sum()) for point in points]


RELATED = (BEFORE.tolist(), [1e6 * loss + 7 for loss in bowl(BEFORE)])
MISLEADING = (BEFORE.tolist(), [-loss for loss in bowl(BEFORE)])


def learned(count: int) -> Surrogate:
    own = Surrogate([0, 1])
    own.fit(NOW[:count].tolist(), bowl(NOW[:count]), [], [])
    return own


@some("count", [2, 3, 7, 8], 4)
def test_only_a_study_with_the_same_order_has_weight(count: int) -> None:
    models, own = EarlierModels([MISLEADING, RELATED, MISLEADING], [0, 1]), learned(count)
    assert models.teach(own, count, seed=0)
    ((weight, model),) = own.others
    assert 0.5 < weight <= 1
    assert model.mean(BEST)[0] < -1
    assert not EarlierModels([MISLEADING] * 20, [0, 1]).teach(learned(count), count, seed=0)


@pytest.mark.parametrize("results", [0, 1])
def test_unproven_models_choose_every_second_trial(results: int) -> None:
    models = EarlierModels([MISLEADING, RELATED], [0, 1])
    own = [learned(results) for _ in range(4)]
    assert [models.teach(model, count, seed=0) for count, model in enumerate(own)] == [True, False, True, False]
    assert [weight for weight, _ in own[0].others] == [0.5, 0.5]


def test_same_results_give_the_same_weights() -> None:
    first, second = learned(8), learned(8)
    for own in (first, second):
        EarlierModels([RELATED, MISLEADING, (NOW.tolist(), bowl(NOW[::-1]))], [0, 1]).teach(own, 8, seed=3)
    assert [weight for weight, _ in first.others] == [weight for weight, _ in second.others]
    assert (first.gain(BEFORE.tolist()) == second.gain(BEFORE.tolist())).all()


def test_related_study_shows_the_best_point_before_any_result() -> None:
    own, grid = learned(0), [[x / 10, y / 10] for x in range(11) for y in range(11)]
    EarlierModels([RELATED], [0, 1]).teach(own, 0, seed=0)
    assert grid[own.gain(grid).argmax()] == pytest.approx(BEST[0], abs=0.11)


def test_study_of_equal_losses_has_no_model() -> None:
    assert not EarlierModels([([[0.1, 0.2]] * 5, [1.0] * 5)], [0, 1]).teach(learned(0), 0, seed=0)
