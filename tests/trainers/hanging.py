"""Networks that make the second of two ranks hang, alive, or break in the middle of an epoch."""

import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainers import networks

Trouble = Callable[[np.ndarray], np.ndarray]

_STEPS = 40
_calls = itertools.count()


def cnn_that_hangs(input_shape: tuple[int, ...], outputs: int, **settings: Any) -> keras.Model:
    return _behind(_wait, input_shape, outputs, settings)


def cnn_that_breaks(input_shape: tuple[int, ...], outputs: int, **settings: Any) -> keras.Model:
    """Return the same network, whose second rank raises."""
    return _behind(_break, input_shape, outputs, settings)


def _behind(trouble: Trouble, input_shape: tuple[int, ...], outputs: int, settings: dict[str, Any]) -> keras.Model:
    inputs = keras.Input(input_shape)
    return keras.Model(inputs, networks.cnn(input_shape, outputs, **settings)(_Meets(trouble)(inputs)))


class _Meets(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self._trouble = trouble

    def call(self, x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(self._trouble, [tf.zeros(())], tf.float32)]):
            return tf.identity(x)


def _wait(x: np.ndarray) -> np.ndarray:
    if _its_time():
        time.sleep(600)
    return x


def _break(x: np.ndarray) -> np.ndarray:
    if _its_time():
        raise ValueError("this rank's data are broken")
    return x


def _its_time() -> bool:
    task = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]
    return int(task["index"]) == 1 and next(_calls) > _STEPS
