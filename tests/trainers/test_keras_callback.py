from pathlib import Path

import keras
import numpy as np
import pytest

from sweeps.integrations.keras import ReportToTrial
from tests.trainers.recorder import Recorder

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def fit(
    trial: Recorder, epochs: int = 5, interval_s: float = 10.0, *callbacks: keras.callbacks.Callback
) -> keras.Model:
    """Train a model as a user's own training function does."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    options = {"validation_split": 0.25, "shuffle": False, "verbose": 0}
    report = ReportToTrial(trial, checkpoint_interval_s=interval_s)
    model.fit(X, Y, epochs=epochs, callbacks=[*callbacks, report], **options)
    return model


def test_every_epoch_is_reported(tmp_path: Path) -> None:
    trial = Recorder(tmp_path)
    fit(trial)
    assert trial.steps == [1, 2, 3, 4, 5]
    assert set(trial.reported[0]) == {"loss", "val_loss"}
    assert all(isinstance(value, float) for metrics in trial.reported for value in metrics.values())


@pytest.mark.long
def test_a_stopped_training_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    straight = Recorder(tmp_path / "straight")
    expected = fit(straight)
    stopped = Recorder(tmp_path / "stopped", stop_after=2)
    fit(stopped)
    assert stopped.steps == [1, 2]
    resumed = Recorder(tmp_path / "stopped")
    model = fit(resumed)
    assert resumed.steps == [3, 4, 5]
    assert stopped.reported + resumed.reported == straight.reported
    for ours, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_training_that_had_ended_trains_no_further(tmp_path: Path) -> None:
    first = fit(Recorder(tmp_path, stop_after=5), interval_s=0.0).history.history
    recorder = Recorder(tmp_path)
    history = fit(recorder).history.history
    assert recorder.steps == []
    assert history == first
    assert len(history["val_loss"]) == 5


def test_history_of_a_resumed_training_is_that_of_all_epochs(tmp_path: Path) -> None:
    stopped = fit(Recorder(tmp_path, stop_after=2)).history.history
    history = fit(Recorder(tmp_path)).history.history
    assert len(stopped["val_loss"]) == 2
    assert history["val_loss"][:2] == stopped["val_loss"]
    assert len(history["val_loss"]) == len(history["loss"]) == 5


def test_training_that_had_stopped_early_trains_no_further(tmp_path: Path) -> None:
    early = keras.callbacks.EarlyStopping("val_loss", patience=1, mode="max")  # which gets lower
    first = fit(Recorder(tmp_path), 5, 10.0, early).history.history
    recorder = Recorder(tmp_path)
    assert fit(recorder).history.history == first
    assert (recorder.steps, len(first["val_loss"])) == ([], 2)


def test_a_second_fit_is_refused(tmp_path: Path) -> None:
    trial = Recorder(tmp_path)
    fit(trial, epochs=2)
    with pytest.raises(ValueError, match=r"was used in an earlier `fit` of this trial.*\nTrain in one `fit`"):
        fit(trial)
    assert trial.steps == [1, 2]


def test_a_metric_that_is_an_array_is_named_and_not_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Recorder(tmp_path)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "categorical_crossentropy", metrics=["accuracy", keras.metrics.F1Score()])
    model.fit(X, np.eye(3)[np.arange(64) % 3], epochs=2, verbose=0, callbacks=[ReportToTrial(trial)])
    assert [set(metrics) for metrics in trial.reported] == [{"loss", "accuracy"}] * 2
    assert capsys.readouterr().out.count("not reported, because a metric must be one number: {'f1_score': (3,)}") == 1
