"""What the examples of a dataset look like and how many there are, as far as headers tell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainers.config import augment
from trainers.config.ranges import CACHE_GB, Number, reserved
from trainers.data import listing, npz

DEFAULT_SIZE = 128
GB = 10**9
SOURCES = "trainers.data.sources."
IMAGE_FOLDER, POINTS = "trainers.data.images.folder", SOURCES + "points"
KERAS_SHAPES = {"mnist": (28, 28), "fashion_mnist": (28, 28), "cifar10": (32, 32, 3), "cifar100": (32, 32, 3)}
KERAS_TEST_ROWS = 10_000  # of each of them


@dataclass(frozen=True)
class Examples:
    """None = unknown before the dataset is loaded."""

    rows: int | None = None  # to train on, before anything is held out
    shape: tuple[int, ...] | None = None  # of one example
    validation_rows: int = 0  # the dataset's own
    test_rows: int | None = None
    value_bytes: int = 4  # of a pixel, once it is loaded: 1 or 4
    name: str = ""  # where they come from, for messages


def check(dataset: Mapping[str, Any], task: str) -> Examples:
    """What a dataset's config section leaves to train on.

    Raises ValueError, for the user, naming the file, if it is not there, not what its settings say, or unfit for the
    task.
    """
    changes = augment.parse(dataset.get("augment"))
    found = _found(dataset, task)
    size = dataset.get("size")
    if size is not None or (found.name and dataset["_target_"] == IMAGE_FOLDER):
        height, width = image_size(size)
        if found.shape is not None:
            _need_image(found, f"dataset.size={size}")
            found = replace(found, shape=(height, width, *(found.shape[2:] or (1,))))
            _check_room(found, float(dataset.get("cache_gb") or CACHE_GB))
    if changes is not None and found.shape is not None:
        _need_image(found, "dataset.augment")
    if dataset.get("validation") == "test" and found.test_rows == 0:
        raise ValueError(f"dataset.validation=test, but {found.name} has no test set; try dataset.validation=split")
    if dataset.get("labels") == "one_hot" and task != "classification":
        raise ValueError(f"dataset.labels=one_hot needs classes, but this is a {task}; leave it out")
    return replace(found, rows=_chosen(found, dataset))


def image_size(size: Any) -> tuple[int, int]:
    """(height, width) of `dataset.size`: one number for both, or two; None = 128. Raises ValueError for all else."""
    size = DEFAULT_SIZE if size is None else size
    both = [size, size] if isinstance(size, int) else size
    if (
        not isinstance(both, Sequence)
        or len(both) != 2
        or not all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in both)
    ):
        raise ValueError(f"dataset.size={size}: must be pixels, such as 128, or [height,width]")
    return both[0], both[1]


def left_to_train(found: Examples, dataset: Mapping[str, Any]) -> int | None:
    """How many examples are trained on (None: unknown). Raises ValueError if validation leaves none."""
    if found.rows is None or found.validation_rows or dataset.get("validation", "split") != "split":
        return found.rows
    share = float(dataset.get("validation_split", reserved("dataset")["validation_split"].default))
    rows = training_size(found.rows, share)
    if rows < 1:
        raise ValueError(f"dataset.validation_split={share} leaves no training example of {found.rows}")
    return rows


def training_size(rows: int, validation_split: float) -> int:
    """Examples left for training after the validation split of `rows`; at least one is held out."""
    return rows - max(1, round(rows * validation_split))


def subset_size(rows: int, subset: float | None) -> int:
    """Examples of `rows` that `dataset.subset` keeps: a share below 1, or a number of them."""
    if subset is None:
        return rows
    return max(1, round(rows * subset)) if subset < 1 else min(rows, int(subset))


def _found(dataset: Mapping[str, Any], task: str) -> Examples:
    target, path, name = (dataset.get(key) for key in ("_target_", "path", "name"))
    if target == SOURCES + "npz" or (target == SOURCES + "keras_dataset" and path is not None):
        held = npz.describe(path, classes=task == "classification")
        shape, dtype = held["x_train"]
        return Examples(shape[0], shape[1:], 0, held["x_test"][0][0], 1 if dtype == "uint8" else 4, str(path))
    if target == IMAGE_FOLDER:
        return _in_folder(dataset)
    if target == POINTS:
        return _typed(dataset)
    rows = dataset.get("n_train")
    known = {
        SOURCES + "keras_dataset": Examples(rows, KERAS_SHAPES.get(str(name)), 0, KERAS_TEST_ROWS, 1, str(name)),
        SOURCES + "digits": Examples(rows, (8, 8), test_rows=297, name="digits"),
        SOURCES + "line": Examples(rows, (int(dataset.get("inputs") or 1),), name="line"),
    }
    return known.get(str(target), Examples(rows, name=str(target)))


def _in_folder(dataset: Mapping[str, Any]) -> Examples:
    found = listing.remembered(dataset.get("path"))
    size = image_size(dataset.get("size"))
    depth = listing.channels_decoded(found, size, dataset)
    if depth is None:
        depth = listing.channels(found, dataset.get("channels"), bool(dataset.get("skip_broken")))
    train, validation, test = found.splits.values()
    return Examples(train, (*size, depth), validation, test, 1, found.path)


def _typed(dataset: Mapping[str, Any]) -> Examples:
    for name in ("x", "y"):
        values = dataset.get(name)
        if not isinstance(values, list) or not values:
            raise ValueError(f"dataset.{name}={values}: must be a list of numbers, as in 'dataset.{name}=[1,2,5]'")
        for row, value in enumerate(values):
            if not all(map(Number("a number").allows, value if isinstance(value, list) else [value])):
                raise ValueError(f"dataset.{name}[{row}] is {value!r}; must be a finite number")
            if np.shape(value) != np.shape(values[0]):
                raise ValueError(f"dataset.{name}[{row}] is {value}, of another length than dataset.{name}[0]")
    x, y = dataset["x"], dataset["y"]
    if len(x) != len(y):
        raise ValueError(f"dataset.x has {len(x)} values, but dataset.y has {len(y)}; each x needs its y")
    return Examples(len(x), np.shape(x[0]) or (1,), test_rows=0, name="points")


def _need_image(found: Examples, what: str) -> None:
    if found.shape is None or len(found.shape) not in (2, 3):
        raise ValueError(f"{what} needs images, but an example of {found.name} has shape {found.shape}; leave it out")


def _check_room(found: Examples, limit_gb: float) -> None:
    """Raise ValueError if all images together are more than the cache may hold."""
    if found.rows is None or found.shape is None or found.test_rows is None:
        return
    rows, (height, width, *_) = found.rows + found.validation_rows + found.test_rows, found.shape
    needed_gb = rows * math.prod(found.shape) * found.value_bytes / GB
    if needed_gb > limit_gb:
        raise ValueError(
            f"{rows} images of {found.name} at {height} x {width} take {needed_gb:.1f} GB in the cache, which holds "
            f"dataset.cache_gb={limit_gb:g}\n"
            f"Try dataset.cache_gb={needed_gb * 1.05 + 0.1:.1f}, or a smaller dataset.size"
        )


def _chosen(found: Examples, dataset: Mapping[str, Any]) -> int | None:
    subset, rows = dataset.get("subset"), found.rows
    if subset is not None and not (0 < subset < 1 or (isinstance(subset, int) and subset >= 2)):
        raise ValueError(f"dataset.subset={subset}: must be a share, > 0 and < 1, or a whole number of examples >= 2")
    if rows is None:
        return None
    if subset is not None and subset > rows:
        raise ValueError(f"dataset.subset={subset} is more than the {rows} training examples of {found.name}")
    return subset_size(int(rows), subset)
