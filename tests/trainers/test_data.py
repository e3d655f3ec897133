from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from tests.trainers.recorder import Recorder, compose
from trainers.data import dataset as data
from trainers.data import npz, sources
from trainers.data.arrays import epoch_order
from trainers.trainer import train


def section(**values: object) -> DictConfig:
    return OmegaConf.create(values)


def write_npz(path: Path, y: np.ndarray, rows: int = 12) -> None:
    x = np.arange(rows * 16, dtype=np.uint8).reshape(rows, 4, 4)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_training_and_validation_rows_are_all_rows_once() -> None:
    digits = compose().dataset
    loaded = data.load(digits, "classification", seed=5)
    assert (len(loaded.training_rows), len(loaded.validation_rows)) == (1250, 250)
    assert sorted([*loaded.training_rows, *loaded.validation_rows]) == list(range(1500))
    other = data.load(digits, "classification", seed=6)
    assert list(other.validation_rows) != list(loaded.validation_rows)
    assert loaded.x.shape == (1500, 8, 8)
    assert (loaded.x.min(), loaded.x.max(), loaded.outputs) == (0, 1, 10)
    assert len(loaded.x_test) == 297


def test_an_epochs_order_depends_on_seed_and_epoch_alone() -> None:
    rows = np.arange(100, dtype=np.int32)
    orders = {(s, e): tuple(epoch_order(rows, s, e)) for s in (0, 1) for e in (1, 2)}
    assert len(set(orders.values())) == 4
    assert all(sorted(order) == list(rows) for order in orders.values())
    assert tuple(epoch_order(rows, 1, 2)) == orders[1, 2]


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_labels_of_a_local_file(shape: tuple[int, ...], dtype: type, tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz", np.arange(12).reshape(shape).astype(dtype))
    cfg = compose("dataset=mnist", f"dataset.path={tmp_path}/mine.npz", "batch_size=4")
    loaded = data.load(cfg.dataset, "classification", seed=0)
    assert (loaded.y.shape, loaded.y.dtype, loaded.outputs) == ((12,), np.int32, 12)
    assert loaded.x.dtype == np.uint8  # scaled a batch at a time


CLASSES = np.arange(12) % 3


@pytest.mark.parametrize(
    "labels, kind",
    [
        (np.eye(3, dtype=np.int32)[CLASSES], "as one-hot, by argmax"),
        (np.eye(3)[CLASSES], "as one-hot, by argmax"),
        (np.eye(3, dtype=bool)[CLASSES], "as one-hot, by argmax"),
        (CLASSES == 1, "as 0 and 1"),
        ((CLASSES == 1)[:, None], "as 0 and 1"),
        (CLASSES.astype(np.float64), "as whole numbers"),
        (CLASSES.astype(np.float32)[:, None], "as whole numbers"),
    ],
)
def test_labels_of_other_kinds_are_taken(
    labels: np.ndarray, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_npz(tmp_path / "mine.npz", labels)
    cfg = compose("dataset=npz", f"dataset.path={tmp_path}/mine.npz", "batch_size=4")
    loaded = data.load(cfg.dataset, "classification", seed=0)
    expected = CLASSES == 1 if kind == "as 0 and 1" else CLASSES
    assert loaded.y.tolist() == expected.astype(int).tolist()
    assert loaded.y_test.tolist() == loaded.y.tolist()
    log = capsys.readouterr().out
    assert log.count("y_train is ") == 1
    assert kind in log


@pytest.mark.parametrize(
    "labels, message",
    [
        (np.linspace(0, 1, 12), r"(?s)y_train\[1\] is 0.09.*10 of 12.*dataset.task=regression loss=mse"),
        (np.where(CLASSES == 1, np.nan, CLASSES), r"(?s)y_train\[1\] is nan.*4 of 12.*\n(Correct|Remove)"),
        (np.eye(3)[CLASSES] * 0.9, r"(?s)not one-hot.*\n.*argmax"),
        (np.ones((12, 3), int), r"(?s)not one-hot: row 0 has 3 ones.*\n.*argmax"),
        (np.array(["cat", "dog"] * 6), r"(?s)y_train\[0\] is the text 'cat'.*numpy.unique"),
        (CLASSES - 1.0, r"y_train\[0\] is -1"),
        (CLASSES * 2.0, r"no example of class 1"),
    ],
)
def test_labels_that_are_no_classes(labels: np.ndarray, message: str, tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz", labels)
    with pytest.raises(ValueError, match=message):
        compose("dataset=npz", f"dataset.path={tmp_path}/mine.npz", "batch_size=4")
    if labels.dtype.kind == "f" and np.isfinite(labels).all():
        mine = section(_target_="trainers.data.sources.npz", path=str(tmp_path / "mine.npz"))
        assert data.load(mine, "regression", seed=0).y.shape == labels.reshape(12, -1).shape


@pytest.mark.parametrize("array", ["x_train", "y_train", "x_test", "y_test"])
@pytest.mark.parametrize("value, reason", [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (1e39, "too large")])
def test_values_that_cannot_be_trained_are_named(array: str, value: float, reason: str, tmp_path: Path) -> None:
    arrays = {
        name: np.ones((12, 5) if name[0] == "x" else (12,)) for name in ("x_train", "y_train", "x_test", "y_test")
    }
    arrays[array][3:5] = value
    wrong = arrays[array][3:5].size
    position = "3, 0" if array[0] == "x" else "3"
    path = str(tmp_path / "mine.npz")
    for order in ("C", "F"):
        np.savez(path, **{name: np.asarray(values, order=order) for name, values in arrays.items()})  # type: ignore[call-overload]
        for check in (
            lambda: npz.check_values(path),
            lambda: data.load(section(_target_="trainers.data.sources.npz", path=path), "regression", seed=0),
        ):
            with pytest.raises(ValueError) as refusal:
                check()
            problem, remedy = str(refusal.value).splitlines()
            assert f"{array}[{position}] is " in problem
            assert reason in problem
            assert f"{wrong} of its {arrays[array].size} values" in problem
            assert ("Scale" if value == 1e39 else "nan_to_num") in remedy


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz", np.array([{}] * 12, dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        sources.npz(str(tmp_path / "mine.npz"))


def test_the_line_is_the_same_at_every_call() -> None:
    (x, y), (x_test, y_test) = sources.line(points=50, test_points=10, inputs=2, noise=0.0)
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == ((50, 2), (50, 1), (10, 2), (10, 1))
    with_ones = np.column_stack([x, np.ones(50)])
    solution, *_ = np.linalg.lstsq(with_ones, y, rcond=None)
    np.testing.assert_allclose(np.column_stack([x_test, np.ones(10)]) @ solution, y_test, atol=1e-12)
    np.testing.assert_array_equal(y, sources.line(points=50, test_points=10, inputs=2, noise=0.0)[0][1])


def test_a_users_dataset_is_a_target_alone(tmp_path: Path) -> None:
    cfg = compose()
    cfg.dataset = {"_target_": "tests.trainers.test_data.stripes"}
    OmegaConf.to_object(cfg)
    cfg.epochs = 15
    assert train(cfg, Recorder(tmp_path))["test_accuracy"] > 0.9


def stripes() -> data.Split:
    y = np.random.default_rng(0).integers(0, 2, 400)
    x = np.where(y[:, None, None] == 1, np.eye(6), 0.0)
    return (x[:300], y[:300]), (x[300:], y[300:])


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 3), (5, 7)])
def test_the_cnn_takes_images_with_and_without_channels(shape: tuple[int, ...]) -> None:
    from trainers.networks import cnn

    model = cnn(shape, 10, filters=[2, 3], kernel_size=3, hidden=[4], activation="relu", dropout=0.1)
    assert model.output_shape == (None, 10)


def test_the_cnn_refuses_what_is_no_image() -> None:
    from trainers.networks import build

    with pytest.raises(ValueError, match=r"model=cnn needs images, but an example has shape \(1,\); try model=mlp"):
        build(compose("model=cnn").model, (1,), 1)


@pytest.mark.parametrize(("subset", "expected"), [(None, 1500), (300, 300), (0.1, 150), (1500, 1500)])
def test_a_subset_is_drawn_by_seed_before_anything_is_held_out(subset: float | None, expected: int) -> None:
    cfg = compose(f"dataset.subset={'null' if subset is None else subset}")
    rows = []
    for seed in (0, 0, 1):
        loaded = data.load(cfg.dataset, "classification", seed)
        rows.append({*loaded.training_rows.tolist(), *loaded.validation_rows.tolist()})
        assert len(rows[-1]) == expected
        assert len(loaded.validation_rows) == round(expected / 6)
        assert len(loaded.test_rows) == 297
    assert rows[0] == rows[1]
    assert rows[0] != rows[2] or expected == 1500


def test_batches_with_replacement_overlap() -> None:
    loaded = data.load(compose("dataset.batches=with").dataset, "classification", 0)
    order = loaded.order(seed=0, epoch=1)
    assert (len(order), order.dtype) == (1250, np.int32)
    assert set(order) <= set(loaded.training_rows)
    assert len(set(order)) == pytest.approx((1 - np.exp(-1)) * 1250, rel=0.05)
    np.testing.assert_array_equal(order, loaded.order(seed=0, epoch=1))
    assert list(order) != list(loaded.order(seed=0, epoch=2))


def test_one_hot_labels_train_to_the_same_numbers(tmp_path: Path) -> None:
    metrics = []
    for labels in ("sparse", "one_hot"):
        recorder = Recorder(tmp_path / labels)
        train(compose("loss=softmax", f"dataset.labels={labels}", "epochs=2"), recorder)
        metrics.append([(m["loss"], m["val_loss"], m["accuracy"], m["val_accuracy"]) for m in recorder.reported])
    np.testing.assert_allclose(metrics[0], metrics[1], rtol=1e-5)


def test_without_a_validation_set_the_training_loss_judges(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    settings = ("dataset.validation=none", "loss.objective=loss", "loss.direction=minimize")
    result = train(compose(*settings, "epochs=3"), recorder)
    assert "val_loss" not in recorder.reported[0]
    assert result["loss"] == min(metrics["loss"] for metrics in recorder.reported)
    assert "test_accuracy" in result
    assert not recorder.notes


def test_validation_on_the_test_set_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path)
    result = train(compose("dataset.validation=test", "epochs=2"), recorder)
    assert "dataset.validation=test" in recorder.notes
    assert result["test_loss"] == pytest.approx(recorder.reported[-1]["val_loss"])
    assert "dataset.validation=test: the test set" in capsys.readouterr().out


def test_points_are_fitted(tmp_path: Path) -> None:
    settings = ("dataset=points", "dataset.x=[0,1,2,3]", "dataset.y=[1,3,5,7]", "optimizer=sgd", "lr=0.1")
    recorder = Recorder(tmp_path)
    result = train(compose(*settings, "epochs=200", "trainer.checkpoint_interval_s=0"), recorder)
    assert set(result) >= {"loss", "best_epoch"}
    assert not {"val_loss", "test_loss"} & set(result)
    assert result["loss"] < 1e-3
    kernel, bias = (recorder.checkpoint()[f"variable_{i}"] for i in (0, 1))
    np.testing.assert_allclose([kernel.item(), bias.item()], [2, 1], atol=0.05)


def test_points_with_several_inputs() -> None:
    (x, y), (x_test, y_test) = sources.points([[1, 2], [3, 4], [5, 6]], [1, 2, 3])
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == ((3, 2), (3, 1), (0, 2), (0, 1))


def test_remarks_on_the_data_are_noted(tmp_path: Path) -> None:
    loaded, trial = data.load(compose().dataset, "classification", 0), Recorder(tmp_path)
    loaded.announce(trial)
    assert trial.notes == {}
    replace(loaded, classes=("æpfel", "birnen"), validation="test").announce(trial)
    assert trial.notes["classes"] == ["æpfel", "birnen"]
    assert "the test set chooses the best epoch" in trial.notes["dataset.validation=test"]
