"""Shape and number of a dataset's examples, from headers, before the dataset is loaded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainers.config import augment
from trainers.config.ranges import CACHE_GB, COUNT, Number, reserved
from trainers.data import channels as image_channels
from trainers.data import listing, npz

DEFAULT_SIZE = 128
GB = 10**9
SOURCES = "trainers.data.sources."
IMAGE_FOLDER = "trainers.data.images.folder"
POINTS = SOURCES + "points"
KERAS_SHAPES = {
    "mnist": (28, 28),
    "fashion_mnist": (28, 28),
    "cifar10": (32, 32, 3),
    "cifar100": (32, 32, 3),
}
KERAS_TEST_ROWS = 10_000  # of each dataset in KERAS_SHAPES


@dataclass(frozen=True)
class Examples:
    """Shape and number of a dataset's examples. None = unknown before the dataset is loaded."""

    rows: int | None = None  # training examples before the validation split
    shape: tuple[int, ...] | None = None  # of one example
    validation_rows: int = 0  # of the dataset's own validation set
    test_rows: int | None = None
    value_bytes: int = 4  # bytes of a loaded pixel: 1 or 4
    name: str = ""  # name of the source, for messages


def check(dataset: Mapping[str, Any], task: str) -> Examples:
    """Return the examples of a dataset's config section.

    Raises ValueError, for the user, with the file's name, if it is missing, contradicts its
    settings, or does not suit the task.
    """
    ranges = augment.parse(dataset.get("augment"))
    examples = _resize(_examine(dataset, task), dataset)
    if ranges is not None and examples.shape is not None:
        _check_images(examples, "dataset.augment")
    if dataset.get("validation") == "test" and examples.test_rows == 0:
        raise ValueError(
            f"dataset.validation=test, but {examples.name} has no test set; try"
            " dataset.validation=split"
        )
    if dataset.get("labels") == "one_hot" and task != "classification":
        raise ValueError(f"dataset.labels=one_hot needs classes, but this is a {task}. Remove it")
    return replace(examples, rows=_count_subset(examples, dataset))


def _resize(examples: Examples, dataset: Mapping[str, Any]) -> Examples:
    """Return the examples at `dataset.size`. Raises ValueError if they are no images, or too large
    for the cache."""
    size = dataset.get("size")
    if size is None and dataset.get("_target_") != IMAGE_FOLDER:
        return examples
    height, width = image_size(size)
    if examples.shape is None:
        return examples

    _check_images(examples, f"dataset.size={size}")
    channels = examples.shape[2:] or (1,)
    resized = replace(examples, shape=(height, width, *channels))
    _check_room(resized, float(dataset.get("cache_gb") or CACHE_GB))
    return resized


def image_size(size: Any) -> tuple[int, int]:
    """Return (height, width) of `dataset.size`, one number or two; None = 128. Raises ValueError
    for other values."""
    if size is None:
        return DEFAULT_SIZE, DEFAULT_SIZE
    sides = size if isinstance(size, Sequence) else [size, size]
    if len(sides) != 2 or not all(map(COUNT.allows, sides)):
        raise ValueError(f"dataset.size={size}: must be pixels, such as 128, or [height,width]")
    return sides[0], sides[1]


def count_training_rows(examples: Examples, dataset: Mapping[str, Any]) -> int | None:
    """Return the number of training examples (None: unknown). Raises ValueError if validation
    leaves none."""
    is_split = dataset.get("validation", "split") == "split"
    if examples.rows is None or examples.validation_rows or not is_split:
        return examples.rows
    default = reserved("dataset")["validation_split"].default
    fraction = float(dataset.get("validation_split", default))
    rows = training_size(examples.rows, fraction)
    if rows < 1:
        raise ValueError(
            f"dataset.validation_split={fraction} leaves no training example of {examples.rows}"
        )
    return rows


def training_size(rows: int, validation_split: float) -> int:
    """Return the number of `rows` that remain for training after the validation split of at least
    one."""
    return rows - max(1, round(rows * validation_split))


def subset_size(rows: int, subset: float | None) -> int:
    """Return the number of `rows` in `dataset.subset`: a fraction below 1, or a number of
    examples."""
    if subset is None:
        return rows
    return max(1, round(rows * subset)) if subset < 1 else min(rows, int(subset))


def check_values(dataset: Mapping[str, Any]) -> None:
    """Raise ValueError, with the array and the position, if a file of arrays contains NaN or
    infinity."""
    if _is_npz(dataset):
        npz.check_values(str(dataset["path"]))


def _is_npz(dataset: Mapping[str, Any]) -> bool:
    target = dataset.get("_target_")
    return target == SOURCES + "npz" or (
        target == SOURCES + "keras_dataset" and dataset.get("path") is not None
    )


def _examine(dataset: Mapping[str, Any], task: str) -> Examples:
    target = str(dataset.get("_target_"))
    if _is_npz(dataset):
        return _examine_npz(dataset, task)
    if target == IMAGE_FOLDER:
        return _examine_folder(dataset)
    if target == POINTS:
        return _examine_points(dataset)
    return _built_in(target, dataset)


def _built_in(target: str, dataset: Mapping[str, Any]) -> Examples:
    """Return the examples of a source without a file; of a user's own only `n_train` is known."""
    rows = dataset.get("n_train")
    if target == SOURCES + "keras_dataset":
        name = str(dataset.get("name"))
        return Examples(rows, KERAS_SHAPES.get(name), 0, KERAS_TEST_ROWS, 1, name)
    if target == SOURCES + "digits":
        return Examples(rows, (8, 8), test_rows=297, name="digits")
    if target == SOURCES + "line":
        inputs = int(dataset.get("inputs") or 1)
        return Examples(rows, (inputs,), name="line")
    return Examples(rows, name=target)


def _examine_npz(dataset: Mapping[str, Any], task: str) -> Examples:
    path = dataset.get("path")
    headers = npz.describe(path, classes=task == "classification")
    (rows, *shape), dtype = headers["x_train"]
    test_rows = headers["x_test"][0][0]
    value_bytes = 1 if dtype == "uint8" else 4
    return Examples(rows, tuple(shape), 0, test_rows, value_bytes, str(path))


def _examine_folder(dataset: Mapping[str, Any]) -> Examples:
    images = listing.list_images_once(dataset.get("path"))
    size = image_size(dataset.get("size"))
    channels = listing.cached_channels(images, size, dataset)
    if channels is None:
        channels = image_channels.count_channels(
            images, dataset.get("channels"), bool(dataset.get("skip_broken"))
        )
    train, validation, test = images.splits.values()
    return Examples(train, (*size, channels), validation, test, 1, images.path)


def _examine_points(dataset: Mapping[str, Any]) -> Examples:
    x = _check_values_of_points("x", dataset.get("x"))
    y = _check_values_of_points("y", dataset.get("y"))
    if len(x) != len(y):
        raise ValueError(
            f"dataset.x has {len(x)} values, but dataset.y has {len(y)}; each x needs its y"
        )
    return Examples(len(x), np.shape(x[0]) or (1,), test_rows=0, name="points")


def _check_values_of_points(name: str, values: object) -> list[Any]:
    """Return the values. Raises ValueError unless they are numbers, or lists of numbers of the same
    length."""
    if not isinstance(values, list) or not values:
        raise ValueError(
            f"dataset.{name}={values}: must be a list of numbers, as in 'dataset.{name}=[1,2,5]'"
        )
    number = Number()
    for row, value in enumerate(values):
        numbers = value if isinstance(value, list) else [value]
        if not all(map(number.allows, numbers)):
            raise ValueError(f"dataset.{name}[{row}] is {value!r}; must be a finite number")
        if np.shape(value) != np.shape(values[0]):
            raise ValueError(
                f"dataset.{name}[{row}] is {value}; its length differs from dataset.{name}[0]"
            )
    return values


def _check_images(examples: Examples, setting: str) -> None:
    shape = examples.shape
    if shape is None or len(shape) not in (2, 3):
        raise ValueError(
            f"{setting} needs images, but an example of {examples.name} has shape {shape}."
            " Remove it"
        )


def _check_room(examples: Examples, limit_gb: float) -> None:
    """Raise ValueError if all images together exceed the limit of the cache."""
    if examples.rows is None or examples.shape is None or examples.test_rows is None:
        return
    rows = examples.rows + examples.validation_rows + examples.test_rows
    height, width, *_ = examples.shape
    needed_gb = rows * math.prod(examples.shape) * examples.value_bytes / GB
    if needed_gb > limit_gb:
        raise ValueError(
            f"{rows} images of {examples.name} at {height} x {width} take {needed_gb:.1f} GB in the"
            f" cache, more than dataset.cache_gb={limit_gb:g}\nUse"
            f" dataset.cache_gb={needed_gb * 1.05 + 0.1:.1f}, or a smaller dataset.size"
        )


def _count_subset(examples: Examples, dataset: Mapping[str, Any]) -> int | None:
    """Return the number of training examples in `dataset.subset`; None if it is unknown."""
    subset = dataset.get("subset")
    rows = examples.rows
    if subset is not None:
        is_fraction = 0 < subset < 1
        is_count = isinstance(subset, int) and subset >= 2
        if not is_fraction and not is_count:
            raise ValueError(
                f"dataset.subset={subset}: must be a fraction, > 0 and < 1, or a whole number of"
                " examples >= 2"
            )
    if rows is None:
        return None
    if subset is not None and subset > rows:
        raise ValueError(
            f"dataset.subset={subset} is more than the {rows} training examples of {examples.name}"
        )
    return subset_size(int(rows), subset)
