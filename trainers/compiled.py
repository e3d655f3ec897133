"""Passes over a dataset that lies in memory, each compiled into one call.

Feeding a small model batch by batch from Python costs more than its arithmetic. Here the arrays are tensors, an
epoch is the list of its rows, and the loop over batches runs inside the graph. What happens to a batch is Keras'
own `train_step` and `test_step`.
"""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from trainers.distribution import share_of

Pass = Callable[[tf.Tensor, tf.Tensor, np.ndarray], dict[str, tf.Tensor]]

EVALUATION_BATCH = 1024


def resident(array: np.ndarray, strategy: tf.distribute.Strategy) -> tf.Tensor:
    """`array` on the device that trains; in the host's memory if several do."""
    if strategy.num_replicas_in_sync == 1:
        return tf.constant(array)
    with tf.device("CPU:0"):
        return tf.constant(array)


def compile_passes(
    model: keras.Model, x: tf.Tensor, y: tf.Tensor, batch_size: int, strategy: tf.distribute.Strategy
) -> tuple[Pass, Pass]:
    """Compile (train, evaluate), each f(x, y, rows) -> metrics, for arrays that look like x and y.

    `train` takes batches of `batch_size` in the order of `rows`. A smaller last batch is trained on too, except by
    several devices, where it would bias the gradients.
    `evaluate` returns the same whatever the batches are.
    """
    whole_batches_only = strategy.num_replicas_in_sync > 1

    def count_steps(total: tf.Tensor) -> tf.Tensor:
        return total // batch_size if whole_batches_only else -(-total // batch_size)

    def train(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        def batch(step: tf.Tensor) -> tf.Tensor:
            return rows[step * batch_size : (step + 1) * batch_size]

        return _loop(model, model.train_step, x, y, batch, count_steps(tf.shape(rows, tf.int64)[0]), strategy)

    def evaluate(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        total = tf.shape(rows, tf.int64)[0]
        steps = -(-total // EVALUATION_BATCH)

        def batch(step: tf.Tensor) -> tf.Tensor:
            return rows[total * step // steps : total * (step + 1) // steps]

        return _loop(model, model.test_step, x, y, batch, steps, strategy)

    signature = (
        tf.TensorSpec((None, *x.shape[1:]), x.dtype),
        tf.TensorSpec((None, *y.shape[1:]), y.dtype),
        tf.TensorSpec((None,), tf.int32),
    )
    with strategy.scope():
        # Traced here, where nothing is timed yet. The graph is written out by hand: no autograph.
        compiled = [tf.function(f, signature, autograph=False) for f in (train, evaluate)]
        train_pass, evaluate_pass = (function.get_concrete_function() for function in compiled)
    return train_pass, evaluate_pass


def _loop(
    model: keras.Model,
    step_function: Callable[[tuple[tf.Tensor, tf.Tensor]], object],
    x: tf.Tensor,
    y: tf.Tensor,
    batch: Callable[[tf.Tensor], tf.Tensor],
    steps: tf.Tensor,
    strategy: tf.distribute.Strategy,
) -> dict[str, tf.Tensor]:
    def on_replica(rows: tf.Tensor) -> None:
        mine = share_of(rows)
        if strategy.num_replicas_in_sync == 1:
            step_function((_scaled(tf.gather(x, mine)), tf.gather(y, mine)))
            return
        with tf.device("CPU:0"):
            inputs, labels = tf.gather(x, mine), tf.gather(y, mine)
        step_function((_scaled(inputs), labels))

    def body(step: tf.Tensor) -> tuple[tf.Tensor]:
        strategy.run(on_replica, args=(batch(step),))
        return (step + 1,)

    model.reset_metrics()
    tf.while_loop(lambda step: step < steps, body, (tf.constant(0, tf.int64),), parallel_iterations=1)
    metrics: dict[str, tf.Tensor] = model.get_metrics_result()
    return metrics


def _scaled(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) / 255.0 if x.dtype == tf.uint8 else x
