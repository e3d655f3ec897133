"""The plan of a training: numbers computed by hand, or by Keras."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.trainers.config.composing import compose
from trainers import parallel
from trainers import schedules as plan


def planned(*overrides: str, rows: int = 100, **changes: Any) -> plan.Plan:
    cfg = compose(*overrides)
    return plan.plan(SimpleNamespace(**{str(key): cfg[key] for key in cfg if key != "hydra"} | changes), rows)


def rates(*overrides: str, rows: int = 100, first: int = 0, end: int | None = None) -> list[float]:
    cfg = compose("batch_size=10", *overrides)
    return list(plan.lr_factors(cfg, plan.plan(cfg, rows), first, end))


@pytest.mark.parametrize(
    ("overrides", "sizes", "steps", "images"),
    [
        ("batch_size=32 epochs=2", (32, 32), (4, 4), (100, 100)),
        ("batch_size=32 epochs=2 gpus=2", (32, 32), (4, 4), (100, 100)),
        ("batch_per_gpu=8 epochs=1 nodes=2 gpus=2", (32,), (4,), (100,)),
        ("batch_per_gpu=8 epochs=1 nodes=2 ranks=2", (32,), (4,), (100,)),
        ("batch_per_gpu=8 epochs=1", (8,), (13,), (100,)),
        ("batch_size=32 steps=4", (32,), (4,), (100,)),
        ("batch_size=32 steps=6", (32, 32), (4, 2), (100, 64)),
        ("batch_size=32 images=100", (32,), (4,), (100,)),
        ("batch_size=32 images=101", (32, 32), (4, 1), (100, 32)),
        ("batch_size=10 images=15", (10,), (2,), (20,)),
        ("batch_schedule=linear epochs=4", (30, 40, 50, 60), (4, 3, 2, 2), (100, 100, 100, 100)),
        ("batch_schedule=linear batch_schedule.maximum=45 epochs=4", (30, 40, 45, 45), (4, 3, 3, 3), (100,) * 4),
        ("batch_schedule=linear steps=8", (30, 40, 50), (4, 3, 1), (100, 100, 50)),
        ("batch_schedule=doubling batch_size=8 epochs=4", (8, 16, 32, 64), (13, 7, 4, 2), (100,) * 4),
        (
            "batch_schedule=doubling batch_schedule.every_epochs=2 batch_schedule.maximum=20 batch_size=16 epochs=5",
            (16, 16, 20, 20, 20),
            (7, 7, 5, 5, 5),
            (100,) * 5,
        ),
    ],
)
def test_batches_and_budget(
    overrides: str, sizes: tuple[int, ...], steps: tuple[int, ...], images: tuple[int, ...]
) -> None:
    training = planned(*overrides.split())
    assert (training.batch_sizes, training.steps, training.images) == (sizes, steps, images)


def test_plan_is_one_line() -> None:
    text = "3 epochs = 8 steps = 250 images, in batches of 30 to 50"
    assert str(planned("batch_schedule=linear", "steps=8")) == text
    assert str(planned("epochs=1")).endswith("in batches of 32")


@pytest.mark.parametrize("budget", ["epochs=3", "steps=9", "images=999"])
@pytest.mark.parametrize("gpus", ["gpus=0", "gpus=2"])
def test_a_batch_larger_than_the_training_set_is_refused(budget: str, gpus: str) -> None:
    with pytest.raises(ValueError, match=r"batch_size=128 is larger than the training set \(100 .*try batch_size=64"):
        planned("batch_size=128", gpus, budget)
    with pytest.raises(ValueError, match=r"batch_schedule=doubling reaches batch_size=128 in epoch 3, which is larger"):
        planned("batch_schedule=doubling", gpus, budget)


def test_a_batch_that_the_budget_never_reaches_is_not_refused() -> None:
    assert planned("batch_schedule=doubling", "steps=6").batch_sizes == (32, 64)


def test_a_batch_larger_than_all_points_is_all_of_them() -> None:
    assert planned("dataset=points", rows=4, epochs=2).images == (4, 4)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("epochs=2", [1.0] * 20),
        ("lr_schedule=warmup epochs=2", [*np.linspace(0.1, 0.91, 10), *[1.0] * 10]),
        ("lr_schedule=warmup lr_schedule.warmup_epochs=0 epochs=1", [1.0] * 10),
        ("lr_schedule=cosine epochs=2", [(1 + math.cos(math.pi * t / 20)) / 2 for t in range(20)]),
        (
            "lr_schedule=cosine lr_schedule.final=0.2 epochs=2",
            [0.2 + 0.8 * (1 + math.cos(math.pi * t / 20)) / 2 for t in range(20)],
        ),
        ("lr_schedule=step epochs=5", [1.0] * 20 + [0.5] * 20 + [0.25] * 10),
        ("lr_schedule=polynomial epochs=2", [1 - t / 20 for t in range(20)]),
        (
            "lr_schedule=polynomial lr_schedule.decay_epochs=1 lr_schedule.final=0.1 lr_schedule.power=2 epochs=2",
            [0.1 + 0.9 * (1 - t / 10) ** 2 for t in range(10)] + [0.1] * 10,
        ),
        ("lr_schedule=exponential epochs=2", [0.9 ** (t / 10) for t in range(20)]),
        ("lr_schedule=exponential steps=15", [0.9 ** (t / 10) for t in range(15)]),
        ("lr_schedule=polynomial steps=15", [1 - t / 15 for t in range(15)]),
        ("batch_schedule=doubling batch_schedule.lr_follows=true batch_size=25 epochs=2", [1.0] * 4 + [2.0] * 2),
        (
            "batch_schedule=doubling batch_schedule.lr_follows=true lr_schedule=step lr_schedule.every_epochs=1 "
            "batch_size=25 epochs=3",
            [1.0] * 7,
        ),
    ],
)
def test_rates(overrides: str, expected: list[float]) -> None:
    assert rates(*overrides.split()) == pytest.approx(expected)


def test_one_cycle_rises_and_falls() -> None:
    learning_rates = rates("lr_schedule=one_cycle", "epochs=10")
    assert learning_rates[0] == pytest.approx(0.04)
    assert max(learning_rates) == pytest.approx(1.0) and learning_rates.index(max(learning_rates)) == 30
    assert learning_rates[15] == pytest.approx((1 + 0.04) / 2)  # half way up
    assert 0.0001 < learning_rates[-1] < 0.001


def test_a_cosine_is_that_of_keras() -> None:
    import keras

    theirs = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=30, alpha=0.05, warmup_target=1.0, warmup_steps=10)
    ours = rates("lr_schedule=cosine", "lr_schedule.warmup_epochs=1", "lr_schedule.final=0.05", "epochs=4")
    # Keras starts at 0.1 and at the top of the cosine, as in this test.
    assert ours == pytest.approx([float(theirs(t)) for t in range(40)], abs=1e-6)


def test_a_phase_has_a_schedule_of_its_own() -> None:
    assert rates("lr_schedule=polynomial", "epochs=4", first=2, end=4) == pytest.approx([1 - t / 20 for t in range(20)])


def halving(at: np.ndarray, total: float, depth: int) -> np.ndarray:
    return 0.5 ** (depth * at)


def test_custom_schedule() -> None:
    mine = "lr_schedule._target_=tests.trainers.config.test_plan.halving", "+lr_schedule.depth=2"
    assert rates(*mine, "epochs=1")[5] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("overrides", "factor"),
    [
        ("batch_size=64", 1.0),
        ("batch_size=64 lr_scaling=linear lr_batch_size=16", 4.0),
        ("batch_size=64 lr_scaling=sqrt lr_batch_size=16", 2.0),
        ("batch_size=8 lr_scaling=linear lr_batch_size=16", 0.5),
        ("batch_per_gpu=8 nodes=2 gpus=4 lr_scaling=linear lr_batch_size=32", 2.0),
    ],
)
def test_lr_scales_with_the_batch(overrides: str, factor: float) -> None:
    assert parallel.lr_factor(compose(*overrides.split())) == factor


def test_the_scaled_rate_is_reached_in_a_straight_line() -> None:
    # 10 steps an epoch; the scaled rate is four times lr, so the first step has a quarter of the scaled rate.
    scaled = ["batch_size=40", "lr_scaling=linear", "lr_batch_size=10", "warmup_epochs=2", "epochs=3"]
    assert rates(*scaled, rows=400) == pytest.approx([0.25 + 0.75 * i / 20 for i in range(20)] + [1.0] * 10)
    cosine = rates(*scaled, "lr_schedule=cosine", rows=400)
    assert cosine[0] == pytest.approx(0.25 * rates("lr_schedule=cosine", "batch_size=40", "epochs=3", rows=400)[0])
    smaller = ["batch_size=5", "lr_scaling=linear", "lr_batch_size=10", "warmup_epochs=2", "epochs=1"]
    assert set(rates(*smaller)) == {1.0}  # nothing to rise to


@pytest.mark.parametrize(
    ("overrides", "settings"),
    [("gpus=4", "gpus=4"), ("nodes=2 gpus=4", "nodes=2 gpus=4"), ("nodes=2 gpus=1", "nodes=2"), ("ranks=2", "ranks=2")],
)
def test_device_settings_are_named_as_typed(overrides: str, settings: str) -> None:
    cfg = compose(*overrides.split())
    assert parallel.device_settings(cfg) == settings
    assert parallel.replicas(cfg) == math.prod(int(word.partition("=")[2]) for word in settings.split())
