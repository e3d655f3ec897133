"""Datasets, each a callable that returns ((x_train, y_train), (x_test, y_test)) as Keras' own loaders do."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from conf.schema import VALIDATION_SPLIT, training_size

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

# Keys of a dataset's or loss's config section that describe it and are not passed to its `_target_`.
DESCRIPTIVE = ("task", "n_train", "validation_split", "objective", "direction")


@dataclass(frozen=True)
class Data:
    """A dataset in memory. The arrays stay whole: training and validation set are rows of the same two.

    x and x_test are uint8 (pixels of 0..255) or float32, of shape (rows, *input_shape).
    y and y_test are int32 classes of shape (rows,), or float32 values of shape (rows, outputs).
    """

    x: np.ndarray
    y: np.ndarray
    training_rows: np.ndarray
    validation_rows: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    outputs: int  # classes, or length of y


def load(section: DictConfig, task: str, seed: int) -> Data:
    """Load the dataset of a config section and hold out `validation_split` of it, chosen by `seed`.

    Raises ValueError where labels don't suit the task.
    """
    (x, y), (x_test, y_test) = instantiate(described_target(section), _convert_="all")
    y, y_test = _labels(y, task), _labels(y_test, task)
    outputs = int(max(y.max(), y_test.max())) + 1 if task == "classification" else y.shape[1]
    kept = training_size(len(x), section.get("validation_split", VALIDATION_SPLIT))
    rows = np.random.default_rng(seed).permutation(len(x)).astype(np.int32)
    return Data(_inputs(x), y, rows[:kept], rows[kept:], _inputs(x_test), y_test, outputs)


def described_target(section: DictConfig) -> DictConfig:
    """The section without its descriptive keys: what its `_target_` is called with."""
    keys = [str(key) for key in section if key not in DESCRIPTIVE]
    return OmegaConf.masked_copy(section, keys)


def epoch_order(rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """`rows` in the order of an epoch: a function of (seed, epoch) alone, so that it can be repeated."""
    return np.random.default_rng([seed, epoch]).permutation(rows)


def digits() -> Split:
    """scikit-learn's handwritten digits: 1,500 + 297 images of 8 x 8 pixels in 0..1."""
    from trainers.digits import SPLIT

    return SPLIT


def npz(path: str) -> Split:
    """The arrays x_train, y_train, x_test and y_test of a .npz file; pickled objects are never loaded."""
    with np.load(path, allow_pickle=False) as file:
        return (file["x_train"], file["y_train"]), (file["x_test"], file["y_test"])


def keras_dataset(name: str, path: str | None = None) -> Split:
    """The .npz file `path`, or else the dataset `name` of keras.datasets, which Keras downloads once."""
    if path is not None:
        return npz(path)
    import keras

    with _one_download_at_a_time():
        try:
            split: Split = getattr(keras.datasets, name).load_data()
        except Exception as error:
            error.add_note(f"Without a network, give a local file: dataset={name} dataset.path=my.npz")
            raise
    return split


def line(points: int, test_points: int, inputs: int, noise: float) -> Split:
    """Points of y = Wx + b with x in -1..1 and normal noise, the same ones at every call."""
    random = np.random.default_rng(0)
    weights, bias = random.normal(size=(inputs, 1)), random.normal()
    x = random.uniform(-1, 1, size=(points + test_points, inputs))
    y = x @ weights + bias + random.normal(scale=noise, size=(len(x), 1))
    return (x[:points], y[:points]), (x[points:], y[points:])


@contextmanager
def _one_download_at_a_time() -> Iterator[None]:
    # Keras writes a download straight to its final name: trials side by side would read half a file.
    folder = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "sweepyard.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _inputs(x: Any) -> np.ndarray:
    array = np.asarray(x)
    return array if array.dtype in (np.uint8, np.float32) else array.astype(np.float32)


def _labels(y: Any, task: str) -> np.ndarray:
    array = np.asarray(y)
    if task == "regression":
        return array.astype(np.float32).reshape(len(array), -1)
    if array.dtype.kind not in "iu" or array.size != len(array) or array.min() < 0:
        raise ValueError(
            f"A classification's labels are one whole number >= 0 an example; these are {array.dtype} of "
            f"shape {array.shape}. For a regression: dataset.task=regression"
        )
    return array.astype(np.int32).reshape(-1)
