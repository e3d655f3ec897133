"""Images of any size made into one array: decoded or resized once, then read from the cache."""

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from trainers.data import cache
from trainers.data.arrays import Data
from trainers.data.listing import (
    Listing,
    Undecodable,
    cache_folder,
    check_left,
    entry_name,
    first_channels,
    header_channels,
    listing,
)

BATCH = 64


@dataclass(frozen=True)
class ImageFolder:
    """What `dataset=image_folder` names."""

    found: Listing
    channels: int | None
    skip_broken: bool


def folder(path: str, channels: int | None = None, skip_broken: bool = False) -> ImageFolder:
    """The images in `path`, a folder for each class; `path` may hold such folders as train/, validation/ and test/.

    channels: what all images are converted to, 1 or 3 (4 with transparency); None if they agree.
    skip_broken: leave out what cannot be decoded, and count it.
    """
    return ImageFolder(listing(path), channels, skip_broken)


def decoded(source: ImageFolder, size: tuple[int, int], place: str | None, limit_gb: float) -> Data:
    """The images of a folder at `size` (height, width), as tf.image.resize makes them, bilinear."""
    found = source.found
    kept = cache_folder(place)
    settings = {"channels": source.channels, "skip_broken": source.skip_broken}
    rows = len(found.files)

    def plan() -> cache.Plan:
        depth = source.channels or first_channels(found)
        shape = (rows, *size, depth)
        return cache.Plan(shape, np.dtype(np.uint8), lambda write: _decode(source, size, depth, write))

    x, info = cache.entry(kept, entry_name(found, size, settings), limit_gb, plan)
    good = np.ones(rows, bool)
    good[info["broken"]] = False
    bounds = np.cumsum([0, *found.splits.values()])
    parts = [np.arange(a, b)[good[a:b]].astype(np.int32) for a, b in pairwise(bounds)]
    if skipped := len(info["broken"]):
        print(f"skip_broken: left out {skipped} of {rows} images, first {found.name(info['broken'][0])}", flush=True)
    train, validation, test = parts
    y = np.array(found.labels, np.int32)
    return Data(x, y, train, validation, x, y, test, len(found.classes), classes=found.classes, skipped=skipped)


def resized(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    size: tuple[int, int],
    place: str | None,
    limit_gb: float,
    outputs: int,
) -> Data:
    """Arrays of images (rows, height, width[, channels]) at another size."""
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
                progress.at(done)
        return {}

    name = f"{digest.hexdigest()}-{size[0]}x{size[1]}"
    plan = cache.Plan(shape, arrays[0].dtype, fill)
    x, _ = cache.entry(cache_folder(place), name, limit_gb, lambda: plan)
    rows = np.arange(total, dtype=np.int32)
    y = np.concatenate([train[1], test[1]])
    return Data(x, y, rows[: len(arrays[0])], rows[:0], x, y, rows[len(arrays[0]) :], outputs)


def _decode(source: ImageFolder, size: tuple[int, int], depth: int, write: cache.Write) -> dict[str, Any]:
    """Write all images of a folder, by all cores. Raises ValueError that names what cannot be decoded."""
    import tensorflow as tf

    found = source.found
    total = len(found.files)
    progress = cache.Progress(f"images of {found.path} at {size[0]} x {size[1]} x {depth}", total)
    with tf.device("CPU:0"):
        paths = tf.constant([found.name(row) for row in range(total)])

        def one(row: Any) -> Any:
            # 0: as the file has them; those that differ are looked at below.
            file, wanted = tf.io.read_file(paths[row]), source.channels or 0
            image = tf.ensure_shape(tf.io.decode_image(file, wanted, expand_animations=False), (None, None, depth))
            return row, _as(tf.image.resize(image, size), tf.uint8)

        images = tf.data.Dataset.range(total).map(one, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        missing = np.ones(total, bool)
        for rows, batch in images.ignore_errors().batch(BATCH).prefetch(2).as_numpy_iterator():
            missing[rows] = False
            for row, image in zip(rows, batch, strict=True):  # some between them may be missing
                write(int(row), image)
            progress.at(int(rows[-1]) + 1)
        broken: dict[int, str] = {}
        lasting = True
        for row in np.flatnonzero(missing).tolist():
            try:
                # What TensorFlow does not read, such as a BMP with a palette, Pillow may.
                image = _by_pillow(found.name(row), depth, convert=source.channels is not None)
                write(row, _as(tf.image.resize(image, size), tf.uint8).numpy())
            except (OSError, SyntaxError, ValueError) as error:
                broken[row] = f"{found.name(row)} ({error})"
                lasting &= getattr(error, "errno", None) is None  # a disk may read it at another time
    if broken and not source.skip_broken:
        more = f", and {len(broken) - 1} more images" if len(broken) > 1 else ""
        raise (Undecodable if lasting else ValueError)(
            f"{next(iter(broken.values()))}{more} cannot be decoded\n"
            "Mend or remove it, or leave out and count all such files with dataset.skip_broken=true"
        )
    if lasting:
        check_left(found, set(range(total)) - broken.keys())
    return {"broken": list(broken), "classes": found.classes}


def _by_pillow(path: str, depth: int, convert: bool) -> np.ndarray:
    from PIL import Image

    if not convert and (held := header_channels(path)) != depth:
        raise ValueError(f"it has {held} channels, not {depth}; dataset.channels=3 converts all")
    with Image.open(Path(path), formats=("JPEG", "PNG", "BMP", "GIF")) as image:
        pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[depth]))
    return pixels.reshape(*pixels.shape[:2], depth)


def _as(images: Any, dtype: Any) -> Any:
    import tensorflow as tf

    # Between the brightest and the darkest pixel nothing needs to be cut off.
    return tf.cast(images + 0.5, dtype) if dtype.is_integer else tf.cast(images, dtype)
