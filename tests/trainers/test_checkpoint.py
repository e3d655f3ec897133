import logging
from pathlib import Path

import keras
import numpy as np
import pytest

from trainers import checkpoint
from trainers.checkpoint import Progress


def make_model(units: int = 3) -> keras.Model:
    layers = [keras.Input((2,)), keras.layers.Dense(units), keras.layers.Dropout(0.5)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def save_two(folder: Path) -> keras.Model:
    model = make_model()
    checkpoint.save(folder, Progress(1, 1, {"val_loss": 0.5}), model)
    checkpoint.save(folder, Progress(2, 1, {"val_loss": 0.5}), model)
    return model


def restore(folder: Path, model: keras.Model) -> Progress:
    saved = checkpoint.newest(folder)
    assert saved is not None
    saved.assign_to(model)
    return saved.progress


def test_everything_comes_back(tmp_path: Path) -> None:
    saved = make_model()
    saved(np.ones((1, 2)), training=True)  # moves dropout's seed
    progress = Progress(7, 5, {"val_loss": float("inf"), "loss": 0.1})
    checkpoint.save(tmp_path / "new" / "checkpoint", progress, saved)
    loaded = make_model()
    assert restore(tmp_path / "new" / "checkpoint", loaded) == progress
    ours, theirs = ([*model.variables, *model.optimizer.variables] for model in (loaded, saved))
    assert len(ours) == 2 + 1 + 2 + 4  # weights; dropout's seed; step and rate; two moments a weight
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_checkpoint_is_the_beginning(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "missing") is None


@pytest.mark.parametrize("size", [0, 1, 100, 0.5, -1, -30])
def test_a_cut_off_file_falls_back_to_the_one_before(
    size: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_two(tmp_path)
    newest = tmp_path / "newest.npz"
    content = newest.read_bytes()
    newest.write_bytes(content[: int(size * len(content)) if isinstance(size, float) else size])
    with caplog.at_level(logging.WARNING):
        assert restore(tmp_path, make_model()).epoch == 1
    assert "newest.npz cannot be read" in caplog.text


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    save_two(tmp_path)
    newest = tmp_path / "newest.npz"
    content = bytearray(newest.read_bytes())
    content[content.index(b"variable_0.npy") + 170] ^= 1
    newest.write_bytes(content)
    assert restore(tmp_path, make_model()).epoch == 1


def test_a_kill_between_the_renames_loses_one_checkpoint_at_most(tmp_path: Path) -> None:
    save_two(tmp_path)
    (tmp_path / "newest.npz").rename(tmp_path / "writing.npz")
    assert restore(tmp_path, make_model()).epoch == 1


def test_dataset_without_readable_files_names_the_remedy(tmp_path: Path) -> None:
    save_two(tmp_path)
    for name in ("newest.npz", "previous.npz"):
        (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"(?s)newest.npz cannot be read.*previous.npz.*delete " + str(tmp_path)):
        restore(tmp_path, make_model())


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "newest.npz", progress=np.array([{"epoch": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        restore(tmp_path, make_model())


def test_another_model_is_refused(tmp_path: Path) -> None:
    save_two(tmp_path)
    with pytest.raises(ValueError, match="belongs to another model or optimizer"):
        restore(tmp_path, make_model(units=4))
