"""One projection equals the sequence of Keras' layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainers.config.augment import Augment, parse
from trainers.data.augment import augment

layers = keras.layers


def images(height: int = 24, width: int = 32, channels: int = 3) -> np.ndarray:
    """Return smooth images with values in 0..1, because a second interpolation changes smooth images little."""
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    waves = [np.sin(0.11 * (n + 1) * x + 0.07 * y + n) for n in range(channels)]
    return np.stack([0.5 + 0.4 * np.stack(waves, -1)] * 5).astype(np.float32)


def ours(x: np.ndarray, ranges: Augment, seed: int = 0, epoch: int = 1, batch: int = 0) -> np.ndarray:
    draw = tf.constant([seed, epoch], tf.int64)
    result: np.ndarray = augment(tf.constant(x), ranges, draw, tf.constant(batch, tf.int64), True).numpy()
    return result


@pytest.mark.parametrize(
    ("ranges", "layer"),
    [
        (Augment(rotation=(36, 36)), lambda: layers.RandomRotation((0.1, 0.1))),
        (Augment(rotation=(-90, -90)), lambda: layers.RandomRotation((-0.25, -0.25))),
        (Augment(zoom=(0.3, 0.3)), lambda: layers.RandomZoom((0.3, 0.3))),
        (Augment(zoom=(-0.5, -0.5)), lambda: layers.RandomZoom((-0.5, -0.5))),
        (Augment(shift=(0.25, 0.25)), lambda: layers.RandomTranslation((0.25, 0.25), (0.25, 0.25))),
        (Augment(shift=(-0.1, -0.1)), lambda: layers.RandomTranslation((-0.1, -0.1), (-0.1, -0.1))),
        (Augment(contrast=(0.7, 0.7)), lambda: layers.RandomContrast((-0.7 + 1e-9, 0.7), value_range=(0, 1))),
    ],
)
def test_each_change_equals_the_layer(ranges: Augment, layer) -> None:  # type: ignore[no-untyped-def]
    x = images()
    if ranges.contrast != (0, 0):
        expected = (x - x.mean((1, 2), keepdims=True)) * 1.7 + x.mean((1, 2), keepdims=True)
        expected = expected.clip(0, 1)
    else:
        expected = layer()(x, training=True).numpy()
    np.testing.assert_allclose(ours(x, ranges), expected, atol=2e-4)


def test_all_at_once_equal_the_layers_in_a_row() -> None:
    x = images(48, 64)
    row = keras.Sequential(
        [
            layers.RandomRotation((0.02, 0.02)),
            layers.RandomZoom((-0.2, -0.2)),
            layers.RandomTranslation((0.05, 0.05), (0.05, 0.05)),
        ]
    )
    result = ours(x, Augment(rotation=(7.2, 7.2), zoom=(-0.2, -0.2), shift=(0.05, 0.05)))
    inner = (slice(None), slice(8, -8), slice(8, -8))  # at the edges, filling comes before or after
    np.testing.assert_allclose(result[inner], row(x, training=True).numpy()[inner], atol=0.02)


@pytest.mark.parametrize(("flip", "axes"), [("horizontal", [2]), ("vertical", [1]), ("both", [1, 2])])
def test_flips_mirror_half_of_the_images(flip: str, axes: list[int]) -> None:
    x = np.random.default_rng(0).random((400, 6, 8, 1)).astype(np.float32)
    result = ours(x, Augment(flip=flip))
    for axis in axes:
        kept_or_flipped = [x, np.flip(x, axis)] if len(axes) == 1 else [x, *(np.flip(x, a) for a in (1, 2, (1, 2)))]
        as_which = np.argmin([np.abs(result - y).max((1, 2, 3)) for y in kept_or_flipped], axis=0)
        nearest = np.choose(as_which[:, None, None, None], kept_or_flipped)
        np.testing.assert_allclose(result, nearest, atol=1e-5)
        shares = np.bincount(as_which, minlength=len(kept_or_flipped)) / len(x)
        assert shares == pytest.approx(1 / len(kept_or_flipped), abs=0.08)


def test_amounts_are_drawn_by_seed_epoch_and_batch_alone() -> None:
    strong = parse("strong")
    assert strong is not None
    x = images()
    drawn = {key: ours(x, strong, *key).tobytes() for key in [(0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1)]}
    assert len(set(drawn.values())) == 4
    assert ours(x, strong, 0, 2, 0).tobytes() == drawn[0, 2, 0]
    first, second = ours(x, strong)[:2]
    assert np.abs(first - second).max() > 0.01  # each image has its own amounts


def test_images_without_channels_keep_their_shape() -> None:
    strong = parse("strong")
    assert strong is not None
    x = images(channels=1)[..., 0]
    assert ours(x, strong).shape == x.shape


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("none", None),
        ({"preset": None, "rotation": None, "flip": None}, None),
        ({"rotation": 0}, None),
        ("light", Augment(zoom=(-0.01, 0.01), shift=(-0.01, 0.01))),
        ("strong", Augment("horizontal", rotation=(-5.0, 5.0), zoom=(-0.2, 0.2), shift=(-0.2, 0.2))),
        ({"preset": "light", "zoom": [0, 0.5]}, Augment(zoom=(0.0, 0.5), shift=(-0.01, 0.01))),
        ({"contrast": 0.1}, Augment(contrast=(-0.1, 0.1))),
    ],
)
def test_requested_augmentations(value: object, expected: Augment | None) -> None:
    assert parse(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("storng", "dataset.augment=storng: must be none, light, strong, or ranges"),
        (3, "dataset.augment=3: must be none, light, strong, or ranges"),
        ({"rotations": 3}, "dataset.augment.rotations: unknown; use flip, rotation, zoom, shift, contrast or preset"),
        ({"flip": "up"}, "dataset.augment.flip=up: must be none, horizontal, vertical, both"),
        ({"rotation": -5}, "dataset.augment.rotation=-5: must be a number >= 0 or [low, high], degrees"),
        ({"zoom": [0.2, 0.1]}, "dataset.augment.zoom=[0.2, 0.1]: must be"),
        ({"zoom": -1.5}, "dataset.augment.zoom=-1.5: must be"),
        ({"shift": True}, "dataset.augment.shift=True: must be"),
        ({"contrast": "much"}, "dataset.augment.contrast=much: must be"),
    ],
)
def test_unknown_augmentations_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse(value)
    assert str(error.value).startswith(message)
