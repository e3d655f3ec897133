"""Images of any size as one array: decoded or resized once, then read from the cache."""

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sweeps.trial import staged
from trainers.data import cache
from trainers.data.arrays import Data
from trainers.data.listing import (
    FORMATS,
    REMEDY,
    Listing,
    Undecodable,
    cache_folder,
    check_each_class,
    entry_name,
    first_channels,
    header_channels,
    list_images,
)

BATCH = 64


@dataclass(frozen=True)
class ImageFolder:
    """The source of `dataset=image_folder`."""

    listing: Listing
    channels: int | None
    skip_broken: bool


def folder(path: str, channels: int | None = None, skip_broken: bool = False) -> ImageFolder:
    """Return the images in `path`, which contains a folder for each class, or train/, validation/ and test/ of such.

    channels: number to which all images are converted, 1 or 3 (4 with transparency); None if all images agree.
    skip_broken: skip and count images that cannot be decoded.
    """
    return ImageFolder(list_images(staged(path)), channels, skip_broken)


def decode(source: ImageFolder, size: tuple[int, int], cache_path: str | None, limit_gb: float) -> Data:
    """Return the images of a folder at `size` (height, width), resized by tf.image.resize (bilinear)."""
    listing = source.listing
    settings = {"channels": source.channels, "skip_broken": source.skip_broken}
    rows = len(listing.files)

    def plan() -> cache.Plan:
        depth = source.channels or first_channels(listing)
        shape = (rows, *size, depth)
        return cache.Plan(shape, np.dtype(np.uint8), lambda write: _decode_all(source, size, depth, write))

    x, info = cache.open_entry(cache_folder(cache_path), entry_name(listing, size, settings), limit_gb, plan)
    readable = np.ones(rows, bool)
    readable[info["broken"]] = False
    bounds = np.cumsum([0, *listing.splits.values()])
    train, validation, test = (np.arange(a, b)[readable[a:b]].astype(np.int32) for a, b in pairwise(bounds))
    if skipped := len(info["broken"]):
        print(f"skip_broken: skipped {skipped} of {rows} images, first {listing.name(info['broken'][0])}", flush=True)
    y = np.array(listing.labels, np.int32)
    return Data(x, y, train, validation, x, y, test, len(listing.classes), classes=listing.classes, skipped=skipped)


def resize(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    size: tuple[int, int],
    cache_path: str | None,
    limit_gb: float,
    outputs: int,
) -> Data:
    """Return the data of image arrays (rows, height, width[, channels]) at another size (height, width)."""
    arrays = [np.ascontiguousarray(x if x.ndim == 4 else x[..., None]) for x in (train[0], test[0])]
    digest = hashlib.blake2b(digest_size=12)
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.data)
    total = sum(len(array) for array in arrays)
    shape = (total, *size, arrays[0].shape[3])

    def fill(write: cache.Write) -> dict[str, Any]:
        import tensorflow as tf

        progress, done = cache.Progress(f"images at {size[0]} x {size[1]}", total), 0
        for array in arrays:
            for start in range(0, len(array), BATCH):
                images = array[start : start + BATCH]
                with tf.device("CPU:0"):
                    write(done, _as(tf.image.resize(images, size), tf.as_dtype(array.dtype)).numpy())
                done += len(images)
                progress.show(done)
        return {}

    name = f"{digest.hexdigest()}-{size[0]}x{size[1]}"
    plan = cache.Plan(shape, arrays[0].dtype, fill)
    x, _ = cache.open_entry(cache_folder(cache_path), name, limit_gb, lambda: plan)
    rows = np.arange(total, dtype=np.int32)
    y = np.concatenate([train[1], test[1]])
    return Data(x, y, rows[: len(arrays[0])], rows[:0], x, y, rows[len(arrays[0]) :], outputs)


def _decode_all(source: ImageFolder, size: tuple[int, int], depth: int, write: cache.Write) -> dict[str, Any]:
    """Write all images of a folder, with all cores. Raises ValueError with the first image that cannot be decoded."""
    import tensorflow as tf

    listing = source.listing
    total = len(listing.files)
    progress = cache.Progress(f"images of {listing.path} at {size[0]} x {size[1]} x {depth}", total)
    with tf.device("CPU:0"):
        paths = tf.constant([listing.name(row) for row in range(total)])

        def decode_row(row: Any) -> Any:
            # 0 = the channels of the file. If their number is not `depth`, ensure_shape fails and Pillow tries below.
            file, channels = tf.io.read_file(paths[row]), source.channels or 0
            image = tf.ensure_shape(tf.io.decode_image(file, channels, expand_animations=False), (None, None, depth))
            return row, _as(tf.image.resize(image, size), tf.uint8)

        images = tf.data.Dataset.range(total).map(decode_row, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        missing = np.ones(total, bool)
        for rows, batch in images.ignore_errors().batch(BATCH).prefetch(2).as_numpy_iterator():
            missing[rows] = False
            for row, image in zip(rows, batch, strict=True):  # not one slice, because rows may be missing
                write(int(row), image)
            progress.show(int(rows[-1]) + 1)
        broken: dict[int, str] = {}
        is_permanent = True
        for row in np.flatnonzero(missing).tolist():
            try:
                # Pillow, because it reads more than TensorFlow, such as a BMP with a palette.
                image = _by_pillow(listing.name(row), depth, convert=source.channels is not None)
                write(row, _as(tf.image.resize(image, size), tf.uint8).numpy())
            except (OSError, SyntaxError, ValueError) as error:
                broken[row] = f"{listing.name(row)} ({error})"
                is_permanent &= getattr(error, "errno", None) is None  # not permanent, because a disk may recover
    if broken and not source.skip_broken:
        more = f", and {len(broken) - 1} more images" if len(broken) > 1 else ""
        error_type = Undecodable if is_permanent else ValueError
        raise error_type(f"{next(iter(broken.values()))}{more} cannot be decoded\n{REMEDY}")
    if is_permanent:
        check_each_class(listing, set(range(total)) - broken.keys())
    return {"broken": list(broken), "classes": listing.classes}


def _by_pillow(path: str, depth: int, convert: bool) -> np.ndarray:
    from PIL import Image

    if not convert and (channels := header_channels(path)) != depth:
        raise ValueError(f"it has {channels} channels, not {depth}; dataset.channels=3 converts all")
    with Image.open(Path(path), formats=FORMATS) as image:
        pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[depth]))
    return pixels.reshape(*pixels.shape[:2], depth)


def _as(images: Any, dtype: Any) -> Any:
    import tensorflow as tf

    # Not clipped, because interpolated values stay between the darkest and the brightest pixel.
    return tf.cast(images + 0.5, dtype) if dtype.is_integer else tf.cast(images, dtype)
