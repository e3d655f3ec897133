"""Passes over a dataset that lies in memory, each compiled into one call.

Feeding a small model batch by batch from Python costs more than its arithmetic. Here the arrays are tensors,
an epoch is the list of its rows, and the loop over batches runs inside the graph. What happens to a batch is
Keras' own `train_step` and `test_step`. Bounds of batches stay on the CPU, where slicing wants them.
"""

from collections.abc import Callable
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from trainers.distribution import share_of

Pass = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]
Step = Callable[[tuple[tf.Tensor, tf.Tensor]], object]

EVALUATION_BATCH = 1024


def resident(array: np.ndarray, strategy: tf.distribute.Strategy) -> tf.Tensor:
    """`array` on the device that trains; in the host's memory if several do."""
    if strategy.num_replicas_in_sync == 1:
        return tf.constant(array)
    with tf.device("CPU:0"):
        return tf.constant(array)


def compile_passes(model: keras.Model, x: tf.Tensor, y: tf.Tensor, batch_size: int) -> tuple[Pass, Pass]:
    """Compile (train, evaluate), each f(x, y, rows) -> metrics, for arrays that look like x and y.

    `train` takes batches of `batch_size` in the order of `rows`; the last one may be smaller.
    `evaluate` returns the same whatever its batches are.
    """

    def train(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            total = tf.shape(rows, tf.int64)[0]
            steps = -(-total // batch_size)
            starts = tf.minimum(tf.range(steps + 1) * batch_size, total)
        return _pass(model, model.train_step, (x, y), rows, starts)

    def evaluate(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            total = tf.shape(rows, tf.int64)[0]
            steps = -(-total // EVALUATION_BATCH)
            starts = tf.range(steps + 1) * total // steps
        return _pass(model, model.test_step, (x, y), rows, starts)

    signature = (
        tf.TensorSpec((None, *x.shape[1:]), x.dtype),
        tf.TensorSpec((None, *y.shape[1:]), y.dtype),
        tf.TensorSpec((None,), tf.int32),
    )
    with model.distribute_strategy.scope():
        # Traced here, where nothing is timed yet. The graph is written out by hand: no autograph.
        compiled = [tf.function(f, signature, autograph=False) for f in (train, evaluate)]
        graphs = [function.get_concrete_function() for function in compiled]

    def reset_and_run(graph: Pass, x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        # Not inside the graph: while it is traced, Keras does not know all of its metrics yet.
        model.reset_metrics()
        return graph(x, y, rows)

    return partial(reset_and_run, graphs[0]), partial(reset_and_run, graphs[1])


def _pass(
    model: keras.Model, step: Step, arrays: tuple[tf.Tensor, tf.Tensor], rows: tf.Tensor, starts: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Run `step` on the batches of `rows` that lie between each two of `starts`; return the metrics."""
    strategy = model.distribute_strategy

    def on_replica(batch: tf.Tensor) -> None:
        mine = share_of(batch)
        if strategy.num_replicas_in_sync == 1:
            x, y = (tf.gather(array, mine) for array in arrays)
        else:
            with tf.device("CPU:0"):
                x, y = (tf.gather(array, mine) for array in arrays)
        step((_scaled(x), y))

    def body(index: tf.Tensor) -> tuple[tf.Tensor]:
        with tf.device("CPU:0"):
            batch = rows[starts[index] : starts[index + 1]]
        strategy.run(on_replica, args=(batch,))
        return (index + 1,)

    count = tf.shape(starts)[0] - 1
    tf.while_loop(lambda index: index < count, body, (tf.constant(0),), parallel_iterations=1)
    metrics: dict[str, tf.Tensor] = model.get_metrics_result()
    return metrics


def _scaled(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) / 255.0 if x.dtype == tf.uint8 else x
