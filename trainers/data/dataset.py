"""Loading of a dataset from its source: a callable that returns a `Split`, like Keras' loaders, or
an `ImageFolder`."""

import math
from dataclasses import replace

import numpy as np
from omegaconf import DictConfig, OmegaConf

from trainers.config.augment import parse
from trainers.config.ranges import defaults
from trainers.data import finite, labels
from trainers.data.arrays import Data
from trainers.data.examples import GB, image_size, subset_size, training_size
from trainers.data.images import ImageFolder, decode, resize
from trainers.data.npz import ARRAYS
from trainers.instantiate import make

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(x_train, y_train), (x_test, y_test)"""


def load(section: DictConfig, task: str, seed: int) -> Data:
    """Load the dataset of a config section; `seed` determines its subset and the validation split.

    Raises ValueError if the labels do not suit the task.
    """
    section = OmegaConf.create(defaults("dataset") | dict(section))
    data = _load_all(section, task)
    rows = np.random.default_rng(seed).permutation(data.training_rows)
    held_out = data.validation_rows
    rows = rows[: subset_size(len(rows), section.subset)]
    if section.validation == "test":
        held_out = data.test_rows
    elif section.validation == "none":
        held_out = held_out[:0]
    elif not len(held_out):
        count = training_size(len(rows), section.validation_split)
        held_out = rows[count:]
        rows = rows[:count]
    return replace(
        data,
        training_rows=rows,
        validation_rows=held_out,
        validation=section.validation,
        with_replacement=section.batches == "with",
        one_hot=section.labels == "one_hot",
        augment=parse(section.augment),
        resident=isinstance(data.x, np.ndarray) or data.x.nbytes <= section.resident_gb * GB,
    )


def _load_all(section: DictConfig, task: str) -> Data:
    source = make("dataset", section)
    resizing = (image_size(section.size), section.cache, section.cache_gb)
    if isinstance(source, ImageFolder):
        return decode(source, *resizing)
    name = section.get("path") or section["_target_"]
    arrays = [np.asarray(array) for part in source for array in part]
    for array_name, array in zip(ARRAYS, arrays, strict=True):
        finite.check(name, array_name, array)
    x, y, x_test, y_test = arrays
    y, y_test, outputs = _targets(name, y, y_test, task)
    rows, test_rows = (np.arange(len(array), dtype=np.int32) for array in (x, x_test))
    data = Data(_inputs(x), y, rows, rows[:0], _inputs(x_test), y_test, test_rows, outputs)
    return data if section.size is None else resize(data, *resizing)


def _inputs(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def _targets(
    name: str, y: np.ndarray, y_test: np.ndarray, task: str
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return classes, or the values of a regression, and the number of classes, or of values per
    row."""
    if task == "regression":
        y = _values(y)
        return y, _values(y_test), y.shape[1]
    y, y_test, remark = labels.read(name, y, y_test)
    if remark:
        print(remark, flush=True)
    classes = y.astype(np.int32).reshape(-1)
    return classes, y_test.astype(np.int32).reshape(-1), int(classes.max()) + 1


def _values(y: np.ndarray) -> np.ndarray:
    return y.astype(np.float32).reshape(len(y), math.prod(y.shape[1:]))
