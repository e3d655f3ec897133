"""Networks that make the second of two ranks hang, alive, or break in the middle of an epoch."""

import itertools
import json
import os
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainers import networks

_STEPS = 40
_calls = itertools.count()


def cnn_that_hangs(input_shape: tuple[int, ...], outputs: int, **settings: Any) -> keras.Model:
    inputs = keras.Input(input_shape)
    return keras.Model(inputs, networks.cnn(input_shape, outputs, **settings)(_Hangs()(inputs)))


class _Hangs(keras.layers.Layer):  # type: ignore[misc]
    def call(self, x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(_wait, [tf.zeros(())], tf.float32)]):
            return tf.identity(x)


def _wait(x: np.ndarray) -> np.ndarray:
    if _rank() == 1 and next(_calls) > _STEPS:
        time.sleep(600)
    return x


def _rank() -> int:
    return int(json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"])


def cnn_that_breaks(input_shape: tuple[int, ...], outputs: int, **settings: Any) -> keras.Model:
    """The same, but the second rank raises."""
    inputs = keras.Input(input_shape)
    return keras.Model(inputs, networks.cnn(input_shape, outputs, **settings)(_Breaks()(inputs)))


class _Breaks(keras.layers.Layer):  # type: ignore[misc]
    def call(self, x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(_break, [tf.zeros(())], tf.float32)]):
            return tf.identity(x)


def _break(x: np.ndarray) -> np.ndarray:
    if _rank() == 1 and next(_calls) > _STEPS:
        raise ValueError("this rank's data are broken")
    return x
