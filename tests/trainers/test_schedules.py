"""Schedules inside a training: the rate at each step, also after a stop."""

from pathlib import Path

import keras
import numpy as np
import pytest

from tests.trainers.recorder import Recorder, compose, without_times
from trainers import schedules as plan
from trainers.data import dataset as data
from trainers.model import build
from trainers.optimizers import Table
from trainers.trainer import train

SMALL = ("model.hidden=[8]", "trainer.checkpoint_interval_s=0", "batch_size=125")
SCHEDULES = (
    *(f"lr_schedule={name}" for name in ("warmup", "cosine", "step", "polynomial", "exponential", "one_cycle")),
    "batch_schedule=linear batch_schedule.increase=100",
    "batch_schedule=doubling batch_schedule.lr_follows=true lr_schedule=cosine",
    "steps=27",
    "images=3000 lr_schedule=cosine optimizer=momentum",
)


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stopped_training_resumes_to_the_same_bits(schedule: str, tmp_path: Path) -> None:
    cfg = compose(*SMALL, "epochs=3", *schedule.split())
    straight = Recorder(tmp_path / "straight")
    expected = train(cfg, straight)
    train(cfg, Recorder(tmp_path / "stopped", stop_after=1))
    resumed = Recorder(tmp_path / "stopped")
    assert without_times(train(cfg, resumed)) == without_times(expected)
    for name, array in straight.checkpoint().items():
        if name != "progress":
            np.testing.assert_array_equal(resumed.checkpoint()[name], array, strict=True)
    planned = plan.plan(cfg, 1250)
    assert straight.steps == list(range(1, planned.epochs + 1))
    # The optimizer counts its steps as a whole number.
    (steps,) = (a for a in straight.checkpoint().values() if a.dtype == np.int64 and a.shape == ())
    assert steps == sum(planned.steps)


@pytest.mark.parametrize(
    "schedule", ["", *SCHEDULES, "lr_schedule=polynomial lr_schedule.decay_epochs=2 lr_schedule.final=0.1"]
)
def test_cosine_line_and_cycle_depend_on_the_end(schedule: str) -> None:
    cfg = compose("epochs=3", *schedule.split())
    ends = [name in schedule for name in ("cosine", "one_cycle", "polynomial")]
    assert plan.depends_on_end(cfg) == (any(ends) and "decay_epochs" not in schedule)


def test_each_step_uses_its_own_rate() -> None:
    """Sum the rates by SGD on a constant gradient."""
    rates = np.array([0.5, 0.25, 0.125], np.float32)
    optimizer = keras.optimizers.SGD(Table(rates))
    w = keras.Variable(0.0)
    optimizer.build([w])
    weights = []
    for _ in range(4):
        optimizer.apply([np.float32(-1.0)], [w])
        weights.append(float(w.numpy()))
    assert weights == [0.5, 0.75, 0.875, 1.0]


def test_without_a_schedule_the_rate_is_a_plain_number() -> None:
    cfg = compose()
    model = build(cfg, data.load(cfg.dataset, "classification", 0))
    assert isinstance(model.optimizer._learning_rate, keras.Variable)


def test_rates_are_reported(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    train(compose(*SMALL, "lr_schedule=step", "lr_schedule.every_epochs=1", "epochs=3"), recorder)
    rates = [metrics["learning_rate"] for metrics in recorder.reported]
    assert rates == pytest.approx([0.001, 0.0005, 0.00025])  # as each epoch begins


def test_a_table_is_saved_with_its_rates() -> None:
    copy = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(Table([0.1, 0.2])))
    assert float(copy(5)) == pytest.approx(0.2)
