import math
from pathlib import Path

import numpy as np
import pytest

from sweeps.trial import Diverged
from tests.command_lines import some
from tests.trainers.recorder import Recorder, compose, without_times
from trainers.trainer import train

DROPOUT_MLP = ("model.hidden=[32]", "model.dropout=0.3", "trainer.checkpoint_interval_s=0")
ADAM = (*DROPOUT_MLP, "optimizer=adam")
MOMENTUM = (*DROPOUT_MLP, "optimizer=momentum")
CNN = ("model=cnn", "model.filters=[4]", "model.hidden=[8]", "trainer.checkpoint_interval_s=0")


def test_a_classification_reports_every_epoch_and_returns_its_best(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    result = train(compose("epochs=3", "seed=1"), recorder)
    assert recorder.steps == [1, 2, 3]
    names = {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert set(recorder.reported[0]) == names | {"learning_rate", "epoch_time", "images_per_second"}
    best = max(recorder.reported, key=lambda metrics: metrics["val_accuracy"])
    durations = [metrics["epoch_time"] for metrics in recorder.reported]
    assert result.items() >= {**best, "epoch_time": sum(durations[1:]) / 2}.items()  # the first epoch includes tracing
    assert result["best_epoch"] == recorder.reported.index(best) + 1
    assert result["test_accuracy"] > 0.8
    assert recorder.reported[0]["learning_rate"] == pytest.approx(0.001)
    sums = {"epochs": 3, "steps": 120, "images": 3750}
    assert recorder.settings == {"batch_size": 32, **sums, "effective_learning_rate": 0.001}


def test_a_regression_finds_the_line(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    result = train(compose("dataset=line", "lr=0.1", "optimizer=sgd", "epochs=10"), recorder)
    assert "accuracy" not in recorder.reported[0]
    assert result["val_loss"] == min(metrics["val_loss"] for metrics in recorder.reported)
    # The rest is noise of standard deviation 0.1.
    assert result["test_loss"] == pytest.approx(0.01, rel=0.3)


OPTIMIZERS = [path.stem for path in sorted((Path(__file__).parents[2] / "conf" / "optimizer").glob("*.yaml"))]


@some("optimizer", OPTIMIZERS, 7)
def test_every_optimizer_learns_at_its_default_rate(optimizer: str, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    train(compose(f"optimizer={optimizer}", "epochs=3", "batch_size=16"), recorder)
    assert recorder.reported[-1]["loss"] < 0.9 * recorder.reported[0]["loss"]


@pytest.mark.long
@pytest.mark.parametrize("settings", [ADAM, CNN])
def test_the_seed_decides_every_bit(settings: tuple[str, ...], tmp_path: Path) -> None:
    ends = []
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        recorder = Recorder(tmp_path / folder)
        train(compose(*settings, "epochs=2", f"seed={seed}"), recorder)
        ends.append({name: array.tobytes() for name, array in recorder.checkpoint().items() if "variable" in name})
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


@some("stop_after", [3, 1], 2)
@some("settings", [ADAM, MOMENTUM], 2)
def test_stopped_training_resumes_to_the_same_bits(settings: tuple[str, ...], stop_after: int, tmp_path: Path) -> None:
    cfg = compose(*settings, "epochs=4")
    straight = Recorder(tmp_path / "straight")
    expected = train(cfg, straight)

    stopped = Recorder(tmp_path / "stopped", stop_after)
    assert "test_loss" not in train(cfg, stopped)
    resumed = Recorder(tmp_path / "stopped")
    result = train(cfg, resumed)

    assert stopped.steps + resumed.steps == [1, 2, 3, 4]
    parts = [*stopped.reported, *resumed.reported]
    assert [without_times(m) for m in parts] == [without_times(m) for m in straight.reported]
    assert without_times(result) == without_times(expected)
    for name, array in straight.checkpoint().items():
        if name != "progress":
            np.testing.assert_array_equal(resumed.checkpoint()[name], array, strict=True)


def test_a_stop_is_always_saved(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, stop_after=2)
    train(compose("epochs=5", "trainer.checkpoint_interval_s=3600"), recorder)
    assert recorder.steps == [1, 2]
    assert '"epoch": 2' in str(recorder.checkpoint()["progress"])


def test_a_training_without_improvement_stops_early_and_stays_stopped(tmp_path: Path) -> None:
    settings = ("epochs=9", "trainer.early_stopping_patience=2", "trainer.checkpoint_interval_s=0")
    recorder = Recorder(tmp_path)
    result = train(compose("lr=1e-12", *settings), recorder)
    assert recorder.steps == [1, 2, 3]
    assert result["best_epoch"] == 1
    assert "test_loss" in result
    recorder = Recorder(tmp_path)
    assert train(compose("lr=1e-12", *settings), recorder) == result
    assert recorder.steps == []


def test_a_loss_that_is_not_finite_ends_the_training(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with pytest.raises(Diverged, match=r"loss is (nan|inf).* in epoch \d"):
        train(compose("dataset=line", "optimizer=sgd", "lr=1e6", "epochs=9"), recorder)
    assert len(recorder.reported) < 9
    assert not math.isfinite(recorder.reported[-1]["loss"])


def test_a_schedule_moves_the_learning_rate(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    schedule = (
        "optimizer.learning_rate={_target_:keras.optimizers.schedules.ExponentialDecay,"
        "initial_learning_rate:${lr},decay_steps:40,decay_rate:0.5}"
    )
    train(compose(schedule, "epochs=2"), recorder)
    rates = [metrics["learning_rate"] for metrics in recorder.reported]
    assert rates == pytest.approx([0.001, 0.0005])  # 1,250 examples are 40 steps
