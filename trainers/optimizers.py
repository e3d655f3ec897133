"""Optimizers that Keras lacks, whose steps set weights to exactly zero, and learning rates from a
table."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops


@keras.saving.register_keras_serializable("sweepyard")
class Table(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """Learning rates, shape (steps,), from trainers/schedules.py; later steps use the last rate.

    The index is the optimizer's own count of steps, because it is restored from a checkpoint.
    """

    def __init__(self, rates: Any) -> None:
        self._rates = np.asarray(rates, np.float32)

    def __call__(self, step: Any) -> tf.Tensor:
        # Converted in each call, because each graph needs its own copy on its device.
        rates = tf.constant(self._rates)
        return rates[tf.minimum(tf.cast(step, tf.int32), len(self._rates) - 1)]

    def get_config(self) -> dict[str, Any]:
        return {"rates": self._rates.tolist()}


class _Proximal(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Minimizes loss + l1 |w| + l2/2 w^2 over all weights; l1 and l2 have the names of Keras'
    Ftrl."""

    def __init__(
        self,
        learning_rate: Any = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength

    def _step(self, variable: keras.Variable, gradient: Any, rate: Any) -> None:
        """Take a gradient step, then the proximal step of the penalties at the same rate."""
        target = variable - rate * gradient
        shrunk = ops.maximum(ops.abs(target) - rate * self.l1_regularization_strength, 0)
        self.assign(
            variable, ops.sign(target) * shrunk / (1 + rate * self.l2_regularization_strength)
        )

    def get_config(self) -> dict[str, Any]:
        strengths = ("l1_regularization_strength", "l2_regularization_strength")
        return {**super().get_config(), **{name: getattr(self, name) for name in strengths}}


@keras.saving.register_keras_serializable("sweepyard")
class ProximalGradientDescent(_Proximal):
    """Gradient descent with a proximal step for the penalties.

    Duchi and Singer, Efficient Online and Batch Learning Using Forward Backward Splitting, JMLR 10,
    2009, eq. 19; the arithmetic equals TensorFlow's ApplyProximalGradientDescent.
    """

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        self._step(
            variable, ops.cast(gradient, variable.dtype), ops.cast(learning_rate, variable.dtype)
        )


@keras.saving.register_keras_serializable("sweepyard")
class ProximalAdagrad(_Proximal):
    """AdaGrad with a proximal step for the penalties, each weight at its own rate.

    Duchi, Hazan and Singer, Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization, JMLR 12, 2011, section 5 (composite mirror descent); the arithmetic equals
    TensorFlow's ApplyProximalAdagrad.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate, l1_regularization_strength, l2_regularization_strength, **options
        )
        self.initial_accumulator_value = initial_accumulator_value

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        start = keras.initializers.Constant(self.initial_accumulator_value)
        self._accumulators = self.add_optimizer_variables(
            variables, "accumulator", initializer=start
        )

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        gradient = ops.cast(gradient, variable.dtype)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        self.assign_add(accumulator, ops.square(gradient))
        # Not below 1e-30, because a weight without gradients and an accumulator of 0 must stay
        # unchanged.
        rate = ops.cast(learning_rate, variable.dtype) * ops.rsqrt(ops.maximum(accumulator, 1e-30))
        self._step(variable, gradient, rate)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "initial_accumulator_value": self.initial_accumulator_value}
