"""Images of any size as one array: decoded or resized once, then read from the cache."""

import hashlib
from dataclasses import dataclass
from itertools import pairwise
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
    settings = {"channels": source.channels, "skip_broken": source.skip_broken}
    rows = len(listing.files)

    def plan() -> cache.Plan:
        depth = source.channels or first_channels(listing)
        shape = (rows, *size, depth)

        def fill(write: cache.Write) -> dict[str, Any]:
            return decode_all(listing, size, depth, source.channels, source.skip_broken, write)

        return cache.Plan(shape, np.dtype(np.uint8), fill)

    x, info = cache.open_entry(
        cache_folder(cache_path), entry_name(listing, size, settings), limit_gb, plan
    )
    readable = np.ones(rows, bool)
    readable[info["broken"]] = False
    bounds = np.cumsum([0, *listing.splits.values()])
    train, validation, test = (
        np.arange(a, b)[readable[a:b]].astype(np.int32) for a, b in pairwise(bounds)
    )
    if skipped := len(info["broken"]):
        print(
            f"skip_broken: skipped {skipped} of {rows} images, first"
            f" {listing.name(info['broken'][0])}",
            flush=True,
        )
    if peak := info["peak"]:
        print(
            f"{listing.path}: values of images of 16 bits are at most {peak:,}: {white(peak):,} is"
            " white",
            flush=True,
        )
    y = np.array(listing.labels, np.int32)
    return Data(
        x,
        y,
        train,
        validation,
        x,
        y,
        test,
        len(listing.classes),
        classes=listing.classes,
        skipped=skipped,
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
    arrays = [np.ascontiguousarray(x if x.ndim == 4 else x[..., None]) for x in (train[0], test[0])]
    digest = hashlib.blake2b(digest_size=12)
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.data)
    total = sum(len(array) for array in arrays)
    shape = (total, *size, arrays[0].shape[3])

    def fill(write: cache.Write) -> dict[str, Any]:
        import tensorflow as tf

        progress = cache.Progress(f"images at {size[0]} x {size[1]}", total)
        done = 0
        for array in arrays:
            for start in range(0, len(array), BATCH):
                images = array[start : start + BATCH]
                with tf.device("CPU:0"):
                    write(
                        done,
                        as_type(tf.image.resize(images, size), tf.as_dtype(array.dtype)).numpy(),
                    )
                done += len(images)
                progress.show(done)
        return {}

    name = f"{digest.hexdigest()}-{size[0]}x{size[1]}"
    plan = cache.Plan(shape, arrays[0].dtype, fill)
    x, _ = cache.open_entry(cache_folder(cache_path), name, limit_gb, lambda: plan)
    rows = np.arange(total, dtype=np.int32)
    y = np.concatenate([train[1], test[1]])
    return Data(x, y, rows[: len(arrays[0])], rows[:0], x, y, rows[len(arrays[0]) :], outputs)
