"""Reports and validations within epochs."""

from pathlib import Path

import numpy as np
import pytest

from sweeps.trial import Diverged
from tests.trainers.recorder import Recorder, compose, without_times
from trainers.compiled import Metrics
from trainers.epoch_parts import CALL_OF_RANKS_S, mean_metrics, train_parts
from trainers.trainer import train

SMALL = (
    "model.hidden=[16]",
    "trainer.checkpoint_interval_s=0",
    "model.dropout=0.2",
    "batch_size=100",
    "lr=0.01",
    "seed=1",
)  # 13 steps an epoch
ROWS = np.arange(95, dtype=np.int32)


class Passes:
    """A training pass that records its calls; the metric of a part is the mean of its rows."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []  # first step and number of examples

    def __call__(
        self, rows: np.ndarray, batch_size: int, epoch: int = 1, first: int = 0, every: int | None = None
    ) -> list[Metrics]:
        assert rows[0] == first * batch_size
        self.calls.append((first, len(rows)))
        size = batch_size * (every or len(rows))
        return [{"row": float(rows[i : i + size].mean())} for i in range(0, len(rows), size)]


@pytest.mark.parametrize(
    ("every", "pause", "ends"),
    [(None, None, [10]), (3, None, [3, 6, 9, 10]), (2, 4, [2, 4, 6, 8, 10]), (50, None, [10]), (1, 1, [*range(1, 11)])],
)
def test_parts_cover_each_example_of_an_epoch_once(every: int | None, pause: int | None, ends: list[int]) -> None:
    passes = Passes()
    parts = []
    for part in train_parts(passes, ROWS, 10, 1, every, pause):
        parts.append(part)
        trained = passes.calls[-1][0] * 10 + passes.calls[-1][1]
        assert pause is None or part.end % pause or trained == min(part.end * 10, 95)
    assert [part.end for part in parts] == ends
    assert sum(part.examples for part in parts) == 95
    assert sum(examples for _, examples in passes.calls) == 95
    assert mean_metrics(parts)["row"] == pytest.approx(47)


def test_ranks_train_one_part_a_call() -> None:
    passes = Passes()
    list(train_parts(passes, ROWS, 10, 1, every=2, call_s=CALL_OF_RANKS_S))
    assert [first for first, _ in passes.calls] == [0, 2, 4, 6, 8]


def test_a_training_is_the_same_with_and_without_reports_within_epochs(tmp_path: Path) -> None:
    by_epoch, by_step = Recorder(tmp_path / "epochs"), Recorder(tmp_path / "steps")
    expected = train(compose(*SMALL, "epochs=2"), by_epoch)
    reports = ("trainer.report_every_steps=5", "trainer.validate_every_steps=5")
    result = train(compose(*SMALL, "epochs=2", *reports), by_step)
    assert by_step.steps == [5, 10, 13, 18, 23, 26]
    assert [metrics["epoch"] for metrics in by_step.reported] == pytest.approx([step / 13 for step in by_step.steps])
    assert all("val_accuracy" in metrics for metrics in by_step.reported)
    assert without_times(result) == pytest.approx(without_times(expected), rel=1e-6)
    for name, array in by_epoch.checkpoint().items():
        if "variable" in name:
            np.testing.assert_array_equal(array, by_step.checkpoint()[name])


def test_five_hundred_steps_of_one_epoch_show_fifty_points(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    train(compose("model.hidden=[4]", "batch_size=2", "steps=500", "trainer.report_every_steps=10"), recorder)
    assert recorder.steps == [*range(10, 501, 10)]
    assert ["val_loss" in metrics for metrics in recorder.reported] == [False] * 49 + [True]


def test_a_trial_stops_after_a_validation_within_an_epoch(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, stop_after=4)
    reports = ("trainer.report_every_steps=2", "trainer.validate_every_steps=4")
    result = train(compose(*SMALL, "epochs=1", *reports), recorder)
    assert recorder.steps == [2, 4]
    assert result == {"best_epoch": 0}


def test_divergence_within_an_epoch_ends_the_training(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with pytest.raises(Diverged, match="in epoch 1"):
        train(compose(*SMALL, "optimizer=sgd", "lr=1e30", "trainer.report_every_steps=2"), recorder)
    assert recorder.steps[-1] < 13
