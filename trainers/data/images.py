"""Images of any size as one array: decoded or resized once, then read from the cache."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
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

    def plan() -> cache.Plan:
        depth = source.channels or first_channels(listing)
        fill = partial(decode_all, listing, size, depth, source.channels, source.skip_broken)
        return cache.Plan((len(listing.files), *size, depth), np.dtype(np.uint8), fill)

    name = entry_name(listing, size, vars(source))
    x, info = cache.open_entry(cache_folder(cache_path), name, limit_gb, plan)
    broken = info["broken"]
    _print_info(listing, broken, info["peak"])

    train, validation, test = _split_rows(listing, broken)
    y = np.array(listing.labels, np.int32)
    data = Data(x, y, train, validation, x, y, test, len(listing.classes))
    return replace(data, classes=listing.classes, skipped=len(broken))


def _split_rows(listing: Listing, broken: Sequence[int]) -> list[np.ndarray]:
    """Return the rows of training, validation and test images, without broken ones."""
    rows = np.arange(len(listing.files), dtype=np.int32)
    bounds = np.cumsum([*listing.splits.values()])[:-1]
    return [np.setdiff1d(part, broken) for part in np.split(rows, bounds)]


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


def resize(data: Data, size: tuple[int, int], cache_path: str | None, limit_gb: float) -> Data:
    """Return image arrays (rows, height, width[, channels]) at another size (height, width)."""
    arrays = [_with_channels(x) for x in (data.x, data.x_test)]
    y = np.concatenate([data.y, data.y_test])
    shape = (sum(len(x) for x in arrays), *size, arrays[0].shape[3])
    plan = cache.Plan(shape, arrays[0].dtype, partial(_write_resized, arrays, size))
    name = _entry_name(arrays, size)
    x, _ = cache.open_entry(cache_folder(cache_path), name, limit_gb, lambda: plan)
    test_rows = data.test_rows + len(data.x)
    return replace(data, x=x, y=y, x_test=x, y_test=y, test_rows=test_rows)


def _with_channels(x: Any) -> np.ndarray:
    return np.ascontiguousarray(x if x.ndim == 4 else x[..., None])


def _entry_name(arrays: Sequence[np.ndarray], size: tuple[int, int]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.data)
    return f"{digest.hexdigest()}-{size[0]}x{size[1]}"


def _write_resized(
    arrays: Sequence[np.ndarray], size: tuple[int, int], write: cache.Write
) -> dict[str, Any]:
    """Write the images of arrays at `size`, one after the other, and return no info."""
    import tensorflow as tf

    progress = cache.Progress(f"images at {size[0]} x {size[1]}", sum(map(len, arrays)))
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
    return {}
