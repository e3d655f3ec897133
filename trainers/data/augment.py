"""Augmentation of a batch of images on the training device, in one interpolation."""

import math

import tensorflow as tf

from trainers.config.augment import Augment


def augment(
    x: tf.Tensor, ranges: Augment, draw: tf.Tensor, batch: tf.Tensor, clipped: bool
) -> tf.Tensor:
    """Apply flip, rotation, zoom, shift and contrast, in this order, to each image by its own
    amounts from `ranges`.

    x: images (examples, height, width[, channels]). The operations equal those of Keras' layers.
    The amounts depend only on `draw` (two int64: seed and epoch) and `batch`, the batch's index in
    its epoch. If `clipped`, pixels are clipped to 0..1 after the contrast.
    """
    seed = tf.random.experimental.stateless_fold_in(draw, batch)
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync > 1:
        seed = tf.random.experimental.stateless_fold_in(seed, replica.replica_id_in_sync_group)
    uniform = tf.unstack(tf.random.stateless_uniform((7, tf.shape(x)[0]), seed))
    images = x if x.shape.rank == 4 else x[..., None]
    if ranges.moves:
        images = _project(images, ranges, uniform[:6])
    if ranges.contrast != (0, 0):
        factor = 1 + _between(ranges.contrast, uniform[6])[:, None, None, None]
        mean = tf.reduce_mean(images, (1, 2), keepdims=True)
        images = (images - mean) * factor + mean
        if clipped:
            images = tf.clip_by_value(images, 0.0, 1.0)
    return images if x.shape.rank == 4 else images[..., 0]


def _project(images: tf.Tensor, ranges: Augment, uniform: list[tf.Tensor]) -> tf.Tensor:
    """Apply flip, rotation, zoom and shift as one projection; the image is mirrored beyond its
    edges, as in Keras.

    Pixel o of the result is pixel c + A(o - c + t) of the image; c is the centre, A = flip x
    rotation x zoom.
    """
    height, width = (tf.cast(tf.shape(images)[axis], tf.float32) for axis in (1, 2))
    horizontal = _sign(ranges.flip in ("horizontal", "both"), uniform[0])
    vertical = _sign(ranges.flip in ("vertical", "both"), uniform[1])
    angle = _between(ranges.rotation, uniform[2]) * (math.pi / 180)
    zoom = 1 + _between(ranges.zoom, uniform[3])
    down = -_between(ranges.shift, uniform[4]) * height
    right = -_between(ranges.shift, uniform[5]) * width
    cos = tf.cos(angle) * zoom
    sin = tf.sin(angle) * zoom
    a0 = horizontal * cos
    a1 = -horizontal * sin
    b0 = vertical * sin
    b1 = vertical * cos
    x = (width - 1) / 2
    y = (height - 1) / 2
    a2 = x + a0 * (right - x) + a1 * (down - y)
    b2 = y + b0 * (right - x) + b1 * (down - y)
    zero = tf.zeros_like(angle)
    projected = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([a0, a1, a2, b0, b1, b2, zero, zero], axis=1),
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="REFLECT",
    )
    return tf.ensure_shape(projected, images.shape)


def _between(limits: tuple[float, float], uniform: tf.Tensor) -> tf.Tensor:
    low, high = limits
    return low + (high - low) * uniform


def _sign(flips: bool, uniform: tf.Tensor) -> tf.Tensor:
    return tf.where(uniform < 0.5, -1.0, 1.0) if flips else tf.ones_like(uniform)
