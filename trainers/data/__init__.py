"""A dataset as a training sees it. Its source is any callable that returns a `Split`, as Keras' own loaders do."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from conf.schema import VALIDATION_SPLIT, training_size

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(x_train, y_train), (x_test, y_test)"""

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
