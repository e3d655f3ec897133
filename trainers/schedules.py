"""The learning rate of every step, looked up inside the graph."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


@keras.saving.register_keras_serializable("sweepyard")
class Table(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """The learning rates of a training that is planned (conf/plan.py), shape (steps,); later steps keep the last.

    A lookup by the optimizer's own count of steps: a training that goes on from its checkpoint goes on here too.
    """

    def __init__(self, rates: Any) -> None:
        self._rates = np.asarray(rates, np.float32)

    def __call__(self, step: Any) -> tf.Tensor:
        # Not kept as a tensor: each graph takes its own copy, on the device it runs on.
        rates = tf.constant(self._rates)
        return rates[tf.minimum(tf.cast(step, tf.int32), len(self._rates) - 1)]

    def get_config(self) -> dict[str, Any]:
        return {"rates": self._rates.tolist()}
