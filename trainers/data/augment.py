"""Augmentation of a batch of images on the device that trains, in one interpolation."""

import math

import tensorflow as tf

from trainers.config.augment import Augment


def augmented(x: tf.Tensor, ranges: Augment, draw: tf.Tensor, batch: tf.Tensor, clipped: bool) -> tf.Tensor:
    """Images (examples, height, width[, channels]) flipped, turned, zoomed, shifted and changed in contrast, in this
    order, as Keras' layers do, each by its own amount out of `ranges`.

    The amounts are a function of `draw` (two int64: seed and epoch) and `batch`, the batch's place in its epoch, alone.
    Contrast is cut off at 0 and 1 if `clipped`.
    """
    seed = tf.random.experimental.stateless_fold_in(draw, batch)
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync > 1:
        seed = tf.random.experimental.stateless_fold_in(seed, replica.replica_id_in_sync_group)
    drawn = tf.unstack(tf.random.stateless_uniform((7, tf.shape(x)[0]), seed))
    images = x if x.shape.rank == 4 else x[..., None]
    if ranges.moves:
        images = _moved(images, ranges, drawn[:6])
    if ranges.contrast != (0, 0):
        factor = 1 + _between(ranges.contrast, drawn[6])[:, None, None, None]
        mean = tf.reduce_mean(images, (1, 2), keepdims=True)
        images = (images - mean) * factor + mean
        if clipped:
            images = tf.clip_by_value(images, 0.0, 1.0)
    return images if x.shape.rank == 4 else images[..., 0]


def _moved(images: tf.Tensor, ranges: Augment, drawn: list[tf.Tensor]) -> tf.Tensor:
    """One projection for all four: a pixel o of the result is pixel c + A(o - c + t) of the image, c being the centre
    and A = flip x rotation x zoom. Beyond the edge the image is mirrored, as in Keras' layers by default.
    """
    height, width = (tf.cast(tf.shape(images)[axis], tf.float32) for axis in (1, 2))
    horizontal = _sign(ranges.flip in ("horizontal", "both"), drawn[0])
    vertical = _sign(ranges.flip in ("vertical", "both"), drawn[1])
    angle = _between(ranges.rotation, drawn[2]) * (math.pi / 180)
    zoom = 1 + _between(ranges.zoom, drawn[3])
    down = -_between(ranges.shift, drawn[4]) * height
    right = -_between(ranges.shift, drawn[5]) * width
    cos, sin = tf.cos(angle) * zoom, tf.sin(angle) * zoom
    (a0, a1), (b0, b1) = (horizontal * cos, -horizontal * sin), (vertical * sin, vertical * cos)
    x, y = (width - 1) / 2, (height - 1) / 2
    a2 = x + a0 * (right - x) + a1 * (down - y)
    b2 = y + b0 * (right - x) + b1 * (down - y)
    none = tf.zeros_like(angle)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([a0, a1, a2, b0, b1, b2, none, none], axis=1),
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="REFLECT",
    )
    return tf.ensure_shape(moved, images.shape)


def _between(limits: tuple[float, float], drawn: tf.Tensor) -> tf.Tensor:
    low, high = limits
    return low + (high - low) * drawn


def _sign(flips: bool, drawn: tf.Tensor) -> tf.Tensor:
    """-1 for half of the images, 1 for the others."""
    return tf.where(drawn < 0.5, -1.0, 1.0) if flips else tf.ones_like(drawn)
