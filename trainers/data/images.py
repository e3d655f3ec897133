"""Images of any size as one array: decoded or resized once, then read from the cache."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sweeps.trial import staged
from trainers.data import cache
from trainers.data.arrays import Data
from trainers.data.channels import first_channels
from trainers.data.decoding import BATCH, as_type, decode_all, white
from trainers.data.listing import Listing, cache_folder, entry_name, list_images


@dataclass(frozen=True)
class ImageFolder:
    """The source of `dataset=image_folder`."""

    listing: Listing
    channels: int | None
    skip_broken: bool


def folder(path: str, channels: int | None = None, skip_broken: bool = False) -> ImageFolder:
    """Return the images in `path`, which contains a folder for each class, or train/, validation/
    and test/ of such.

    channels: number to which all images are converted, 1 or 3 (4 with transparency); None if all
    images agree. skip_broken: skip and count images that cannot be decoded.
    """
    return ImageFolder(list_images(staged(path)), channels, skip_broken)


def decode(
    source: ImageFolder, size: tuple[int, int], cache_path: str | None, limit_gb: float
) -> Data:
    """Return the images of a folder at `size` (height, width), resized by tf.image.resize
    (bilinear)."""
    listing = source.listing
    rows = len(listing.files)

    def plan() -> cache.Plan:
        depth = source.channels or first_channels(listing)

        def fill(write: cache.Write) -> dict[str, Any]:
            return decode_all(listing, size, depth, source.channels, source.skip_broken, write)

        return cache.Plan((rows, *size, depth), np.dtype(np.uint8), fill)

    settings = {"channels": source.channels, "skip_broken": source.skip_broken}
    name = entry_name(listing, size, settings)
    x, info = cache.open_entry(cache_folder(cache_path), name, limit_gb, plan)
    broken = info["broken"]
    _print_info(listing, broken, info["peak"])

    is_readable = np.ones(rows, bool)
    is_readable[broken] = False
    parts = []
    start = 0
    for count in listing.splits.values():
        end = start + count
        part = np.arange(start, end, dtype=np.int32)
        parts.append(part[is_readable[start:end]])
        start = end
    train, validation, test = parts

    y = np.array(listing.labels, np.int32)
    data = Data(x, y, train, validation, x, y, test, len(listing.classes))
    return replace(data, classes=listing.classes, skipped=len(broken))


def _print_info(listing: Listing, broken: Sequence[int], peak: int) -> None:
    """Print which images were skipped, and which value is white in images of 16 bits."""
    if broken:
        total = len(listing.files)
        first = listing.name(broken[0])
        print(f"skip_broken: skipped {len(broken)} of {total} images, first {first}", flush=True)
    if peak:
        print(
            f"{listing.path}: values of images of 16 bits are at most {peak:,}: {white(peak):,} is"
            " white",
            flush=True,
        )


def resize(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    size: tuple[int, int],
    cache_path: str | None,
    limit_gb: float,
    outputs: int,
) -> Data:
    """Return the data of image arrays (rows, height, width[, channels]) at another size (height,
    width)."""
    x_train = _with_channels(train[0])
    x_test = _with_channels(test[0])
    rows = np.arange(len(x_train) + len(x_test), dtype=np.int32)
    shape = (len(rows), *size, x_train.shape[3])

    def fill(write: cache.Write) -> dict[str, Any]:
        progress = cache.Progress(f"images at {size[0]} x {size[1]}", len(rows))
        _write_resized((x_train, x_test), size, write, progress)
        return {}

    digest = hashlib.blake2b(digest_size=12)
    for array in (x_train, x_test):
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.data)
    name = f"{digest.hexdigest()}-{size[0]}x{size[1]}"
    plan = cache.Plan(shape, x_train.dtype, fill)
    x, _ = cache.open_entry(cache_folder(cache_path), name, limit_gb, lambda: plan)

    y = np.concatenate([train[1], test[1]])
    train_rows = rows[: len(x_train)]
    test_rows = rows[len(x_train) :]
    return Data(x, y, train_rows, rows[:0], x, y, test_rows, outputs)


def _with_channels(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x if x.ndim == 4 else x[..., None])


def _write_resized(
    arrays: Sequence[np.ndarray],
    size: tuple[int, int],
    write: cache.Write,
    progress: cache.Progress,
) -> None:
    """Write the images of arrays at `size`, one array after the other."""
    import tensorflow as tf

    done = 0
    for array in arrays:
        dtype = tf.as_dtype(array.dtype)
        for start in range(0, len(array), BATCH):
            images = array[start : start + BATCH]
            with tf.device("CPU:0"):
                resized = as_type(tf.image.resize(images, size), dtype)
            write(done, resized.numpy())
            done += len(images)
            progress.show(done)
