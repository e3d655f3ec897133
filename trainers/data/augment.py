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
    *moves, contrast = tf.unstack(tf.random.stateless_uniform((7, tf.shape(x)[0]), seed))
    images = x if x.shape.rank == 4 else x[..., None]
    if ranges.moves:
        images = _project(images, ranges, moves)
    if ranges.contrast != (0, 0):
        images = _contrasted(images, _between(ranges.contrast, contrast))
        if clipped:
            images = tf.clip_by_value(images, 0.0, 1.0)
    return images if x.shape.rank == 4 else images[..., 0]


def _contrasted(images: tf.Tensor, contrast: tf.Tensor) -> tf.Tensor:
    """Multiply the distances of each image's values from their mean by 1 plus its contrast."""
    factor = 1 + tf.reshape(contrast, (-1, 1, 1, 1))
    mean = tf.reduce_mean(images, (1, 2), keepdims=True)
    return (images - mean) * factor + mean


def _project(images: tf.Tensor, ranges: Augment, uniform: list[tf.Tensor]) -> tf.Tensor:
    """Apply flip, rotation, zoom and shift as one projection; the image is mirrored beyond its
    edges, as in Keras.

    Pixel o of the result is pixel c + A(o - c + t) of the image; c is the centre, A = flip x
    rotation x zoom.
    """
    size = tf.shape(images)[1:3]
    height, width = tf.unstack(tf.cast(size, tf.float32))
    projected = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=_transforms(height, width, ranges, uniform),
        output_shape=size,
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="REFLECT",
    )
    return tf.ensure_shape(projected, images.shape)


def _transforms(
    height: tf.Tensor, width: tf.Tensor, ranges: Augment, uniform: list[tf.Tensor]
) -> tf.Tensor:
    """Return the eight numbers of each image's projection, shape (examples, 8)."""
    # A = [[ax, ay], [bx, by]]
    ax, ay, bx, by = _turn_and_zoom(ranges, uniform)
    centre_x = (width - 1) / 2
    centre_y = (height - 1) / 2
    # where the pixel (0, 0) comes from
    from_x = -_between(ranges.shift, uniform[5]) * width - centre_x
    from_y = -_between(ranges.shift, uniform[4]) * height - centre_y
    x = centre_x + ax * from_x + ay * from_y
    y = centre_y + bx * from_x + by * from_y
    zero = tf.zeros_like(ax)
    return tf.stack([ax, ay, x, bx, by, y, zero, zero], axis=1)


def _turn_and_zoom(ranges: Augment, uniform: list[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    """Return the four elements of flip x rotation x zoom, by rows, each of shape (examples,)."""
    horizontal = _sign(ranges.flip in ("horizontal", "both"), uniform[0])
    vertical = _sign(ranges.flip in ("vertical", "both"), uniform[1])
    degrees = _between(ranges.rotation, uniform[2])
    angle = degrees * (math.pi / 180)
    zoom = 1 + _between(ranges.zoom, uniform[3])
    cos = tf.cos(angle) * zoom
    sin = tf.sin(angle) * zoom
    return horizontal * cos, -horizontal * sin, vertical * sin, vertical * cos


def _between(limits: tuple[float, float], uniform: tf.Tensor) -> tf.Tensor:
    low, high = limits
    return low + (high - low) * uniform


def _sign(flips: bool, uniform: tf.Tensor) -> tf.Tensor:
    return tf.where(uniform < 0.5, -1.0, 1.0) if flips else tf.ones_like(uniform)
