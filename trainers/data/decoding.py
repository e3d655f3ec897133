"""All images of a folder, decoded, turned upright and resized with all cores."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainers.data import cache, headers
from trainers.data.channels import REMEDY, check_each_class
from trainers.data.headers import Header, Unreadable
from trainers.data.listing import Listing, Undecodable

BATCH = 64
BITS = (8, 10, 12, 14, 16)
"""Bits that cameras use, of the 16 in a file."""
Broken = dict[int, Unreadable]  # by row


def decode_all(
    listing: Listing,
    size: tuple[int, int],
    depth: int,
    convert_to: int | None,
    skip_broken: bool,
    write: cache.Write,
) -> dict[str, Any]:
    """Write all images of a folder with `depth` channels, and return the info of the cache's entry.

    Raises ValueError, for the user, with the first image that cannot be decoded, unless
    `skip_broken`.
    """
    import tensorflow as tf

    total = len(listing.files)
    rows, broken = _read_headers(listing)
    progress = cache.Progress(f"images of {listing.path} at {size[0]} x {size[1]} x {depth}", total)
    decoder = _Decoder(listing, rows, size, depth, convert_to, write, progress)
    with tf.device("CPU:0"):
        peak, failed = decoder.decode_rows()
    progress.show(total)

    broken |= failed
    if broken and not skip_broken:
        raise _unreadable(listing, broken)
    if _is_lasting(broken):
        check_each_class(listing, set(range(total)) - broken.keys())
    return {"broken": sorted(broken), "classes": listing.classes, "peak": peak}


def _is_lasting(broken: Broken) -> bool:
    return all(error.is_lasting for error in broken.values())


def _unreadable(listing: Listing, broken: Broken) -> ValueError:
    """Return the error of a folder with broken images."""
    first = min(broken)
    more = f", nor can {len(broken) - 1} more" if len(broken) > 1 else ""
    error_type = Undecodable if _is_lasting(broken) else ValueError
    return error_type(
        f"{listing.name(first)} cannot be read as an image ({broken[first]}){more}\n{REMEDY}"
    )


def white(peak: int) -> int:
    """Return the value of white in images of 16 bits: the largest value of the least bits that
    contain `peak`."""
    return int(next(2**bits - 1 for bits in BITS if peak < 2**bits))


def as_type(images: Any, dtype: Any) -> Any:
    """Return the images of a TensorFlow resize as another type, rounded."""
    import tensorflow as tf

    # Not clipped, because interpolated values stay between the darkest and the brightest pixel.
    return tf.cast(images + 0.5, dtype) if dtype.is_integer else tf.cast(images, dtype)


def _read_headers(listing: Listing) -> tuple[dict[int, Header], Broken]:
    readable: dict[int, Header] = {}
    broken: Broken = {}
    for row in range(len(listing.files)):
        try:
            readable[row] = headers.read(listing.file(row))
        except Unreadable as error:
            broken[row] = error
    return readable, broken


@dataclass
class _Decoder:
    """Writes the images of one folder."""

    _listing: Listing
    _headers: dict[int, Header]
    _size: tuple[int, int]
    _depth: int
    _convert_to: int | None
    _write: cache.Write
    _progress: cache.Progress
    _written: int = 0

    @property
    def _channels(self) -> int:
        """Return the channels for TensorFlow: 0 = those of the file. If their number is not the
        depth, the image is missing."""
        return self._convert_to or 0

    @property
    def _colours(self) -> int:
        """Return the channels without opacity."""
        return 3 if self._depth in (3, 4) else 1

    def decode_rows(self) -> tuple[int, Broken]:
        """Write all images. Return the largest value of those of 16 bits, and the rows that cannot
        be decoded."""
        plain = [row for row, header in self._headers.items() if header.bits == 8]
        deep = [row for row, header in self._headers.items() if header.bits == 16]

        peak = self._find_peak(deep)
        missing = self._decode(deep, lambda file: self._decode_deep(file, peak))
        broken = {row: Unreadable("its 16 bits cannot be decoded") for row in missing}

        missing = self._decode(plain, self._decode_plain)
        return peak, broken | self._decode_by_pillow(missing)

    def _decode(self, rows: Sequence[int], decode_file: Callable[[Any], Any]) -> list[int]:
        """Write the images of `rows`, and return the rows whose images cannot be decoded."""
        import tensorflow as tf

        missing = set(rows)

        def decode_row(row: Any, path: Any, orientation: Any) -> Any:
            image = tf.ensure_shape(decode_file(tf.io.read_file(path)), (None, None, self._depth))
            upright = _turn_upright(image, orientation)
            return row, as_type(tf.image.resize(upright, self._size), tf.uint8)

        for written, images in self._each(rows, decode_row):
            # not one slice, because rows may be missing
            for row, image in zip(written.tolist(), images, strict=True):
                self._write(row, image)
                missing.remove(row)
            self._written += len(written)
            # its end is shown once
            self._progress.show(min(self._written, len(self._listing.files) - 1))
        return sorted(missing)

    def _decode_plain(self, file: Any) -> Any:
        import tensorflow as tf

        return tf.io.decode_image(file, self._channels, expand_animations=False)

    def _decode_deep(self, file: Any, peak: int) -> Any:
        """Return a PNG of 16 bits as float values of 0 to 255. Opacity always has all 16 bits."""
        import tensorflow as tf

        opacities = self._depth - self._colours
        scales = [255 / white(peak)] * self._colours + [255 / 65535] * opacities
        image = tf.ensure_shape(
            tf.io.decode_png(file, self._channels, tf.uint16), (None, None, self._depth)
        )
        return tf.cast(image, tf.float32) * scales

    def _find_peak(self, rows: Sequence[int]) -> int:
        """Return the largest value of a colour in these images of 16 bits; 0 without images."""
        import tensorflow as tf

        def find(row: Any, path: Any, orientation: Any) -> Any:
            image = tf.io.decode_png(tf.io.read_file(path), self._channels, tf.uint16)
            return row, tf.reduce_max(tf.cast(image[..., : self._colours], tf.int32))

        peaks = [int(values.max()) for _, values in self._each(rows, find)]
        return max(peaks, default=0)

    def _decode_by_pillow(self, rows: Sequence[int]) -> Broken:
        """Write images by Pillow, because it reads more than TensorFlow, such as a BMP with a
        palette."""
        import tensorflow as tf

        broken: Broken = {}
        for row in rows:
            try:
                pixels = load_by_pillow(
                    self._listing.file(row), self._depth, convert=self._convert_to is not None
                )
                upright = _turn_upright(tf.constant(pixels), self._headers[row].orientation)
                self._write(row, as_type(tf.image.resize(upright, self._size), tf.uint8).numpy())
            except Unreadable as error:
                broken[row] = error
        return broken

    def _each(self, rows: Sequence[int], work: Callable[..., Any]) -> Any:
        """Yield batches of what `work` returns of each row, path and orientation, without those
        that fail."""
        import tensorflow as tf

        if not rows:
            return iter(())
        paths = [os.fsencode(self._listing.file(row)) for row in rows]
        orientations = [self._headers[row].orientation for row in rows]
        inputs = tf.data.Dataset.from_tensor_slices((list(rows), paths, orientations))
        done = inputs.map(work, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return done.ignore_errors().batch(BATCH).prefetch(2).as_numpy_iterator()


def load_by_pillow(path: str, depth: int, convert: bool) -> np.ndarray:
    """Return the pixels of an image, uint8, shape (height, width, depth). Raises Unreadable."""
    channels = headers.read(path).channels
    if not convert and channels != depth:
        raise Unreadable(
            f"it has {channels} channels, not {depth}; dataset.channels=3 converts all"
        )
    with headers.open_image(path) as image:
        pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[depth]))
    return pixels.reshape(*pixels.shape[:2], depth)


def _turn_upright(image: Any, orientation: Any) -> Any:
    """Return an image as EXIF says that it is to be seen: https://exiftool.org/TagNames/EXIF.html
    (Orientation)."""
    import tensorflow as tf

    is_mirrored = tf.gather([False, True, False, True, True, False, True, False], orientation - 1)
    # counter-clockwise, after mirroring
    quarters = tf.gather([0, 0, 2, 2, 1, 3, 3, 1], orientation - 1)
    unmirrored = tf.cond(is_mirrored, lambda: tf.image.flip_left_right(image), lambda: image)
    return tf.image.rot90(unmirrored, quarters)
