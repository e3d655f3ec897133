"""Loading of a dataset from its source: a callable that returns a `Split`, like Keras' loaders, or
an `ImageFolder`."""

from dataclasses import replace
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from trainers.config.augment import parse
from trainers.config.ranges import defaults
from trainers.data import finite, labels
from trainers.data.arrays import Data, from_arrays
from trainers.data.examples import GB, image_size, subset_size, training_size
from trainers.data.images import ImageFolder, decode, resize
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
    size = section.size
    cache = (section.cache, section.cache_gb)
    if isinstance(source, ImageFolder):
        return decode(source, image_size(size), *cache)
    (x, y), (x_test, y_test) = source
    name = section.get("path") or section["_target_"]
    for array_name, values in (
        ("x_train", x),
        ("y_train", y),
        ("x_test", x_test),
        ("y_test", y_test),
    ):
        finite.check(name, array_name, np.asarray(values))
    x = _inputs(x)
    x_test = _inputs(x_test)
    if task == "classification":
        y, y_test, remark = labels.read(name, np.asarray(y), np.asarray(y_test))
        if remark:
            print(remark, flush=True)
    y = _labels(y, task)
    y_test = _labels(y_test, task)
    outputs = int(y.max()) + 1 if task == "classification" else int(y.shape[1])
    if size is None:
        return from_arrays(x, y, x_test, y_test, outputs)
    return resize((x, y), (x_test, y_test), image_size(size), *cache, outputs)


def _inputs(x: Any) -> np.ndarray:
    array = np.asarray(x)
    return array if array.dtype in (np.uint8, np.float32) else array.astype(np.float32)


def _labels(y: Any, task: str) -> np.ndarray:
    array = np.asarray(y)
    if task == "regression":
        return array.astype(np.float32).reshape(len(array), int(np.prod(array.shape[1:])))
    return array.astype(np.int32).reshape(-1)
