from pathlib import Path

import pytest

from tests.trainers.recorder import Recorder, compose
from trainers.stability import convergence_metrics, epochs_to_stable
from trainers.trainer import train


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([0.9, 0.9], None),
        ([0.9, 0.9, 0.9], 3),
        # Means of three: .3, .6, .9, .9, .9: within 1% of .9 from the third mean on, which ends in epoch 5.
        ([0.0, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9], 5),
        # The value becomes stable twice: the second time counts.
        ([0.9, 0.9, 0.9, 0.5, 0.9, 0.9, 0.9], 7),
        ([0.5, 0.6, 0.7, 0.8, 0.9], 5),  # still rising: stable only at the last epoch
        # A change of just under and of over 1%.
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.029], 3),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.04], 6),
        ([-1.0, -1.0, -1.0, -1.0], 3),
    ],
)
def test_the_first_stable_epoch(values: list[float], expected: int | None) -> None:
    assert epochs_to_stable(values) == expected


def test_times_cover_the_training_until_then() -> None:
    values, seconds = [0.5, 0.97, 0.9, 0.9, 0.9], [10.0, 1.0, 1.0, 1.0, 1.0]
    assert convergence_metrics(values, seconds, 2, 0.97, higher_is_better=True) == {
        "time_to_best": 11.0,
        "epochs_to_stable": 5,
        "time_to_stable": 14.0,
        "epochs_to_target": 2,
        "time_to_target": 11.0,
    }
    assert "time_to_target" not in convergence_metrics(values, seconds, 2, 0.98, higher_is_better=True)
    assert convergence_metrics(values, seconds, 1, 0.5, higher_is_better=False)["epochs_to_target"] == 1


@pytest.mark.long
def test_a_resumed_training_returns_its_convergence_metrics(tmp_path: Path) -> None:
    cfg = compose("epochs=4", "target=0.8", "trainer.checkpoint_interval_s=0", "lr=0.01")
    train(cfg, Recorder(tmp_path, stop_after=2))
    result = train(cfg, Recorder(tmp_path))
    assert result["epochs_to_target"] <= 2  # before the stop, and not forgotten
    assert 0 < result["time_to_target"] < result["time_to_best"]
    assert result["epochs_to_stable"] in (3, 4)
