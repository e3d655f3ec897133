"""Passes over a dataset that lies in memory, each compiled into one call.

Feeding a small model batch by batch from Python costs more than its arithmetic. Here the arrays are tensors,
an epoch is the list of its rows, and the loop over batches runs inside the graph. What happens to a batch is
Keras' own `train_step` and `test_step`. Bounds of batches stay on the CPU, where slicing wants them.
"""

from collections.abc import Callable
from itertools import pairwise

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

    def train_epoch(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            total = tf.shape(rows, tf.int64)[0]
            steps = -(-total // batch_size)

        def body(index: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device("CPU:0"):
                batch = rows[index * batch_size : tf.minimum((index + 1) * batch_size, total)]
            _run_step(model, model.train_step, (x, y), batch)
            return (index + 1,)

        start = tf.zeros((), tf.int64)
        tf.while_loop(lambda index: index < steps, body, (start,), parallel_iterations=1)
        return dict(model.get_metrics_result())

    def test_batch(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        _run_step(model, model.test_step, (x, y), rows)
        return dict(model.get_metrics_result())

    signature = (
        tf.TensorSpec((None, *x.shape[1:]), x.dtype),
        tf.TensorSpec((None, *y.shape[1:]), y.dtype),
        tf.TensorSpec((None,), tf.int32),
    )
    with model.distribute_strategy.scope():
        # Traced here, where nothing is timed yet. The loop is written out by hand: no autograph.
        functions = [tf.function(f, signature, autograph=False) for f in (train_epoch, test_batch)]
        compiled: list[Pass] = [function.get_concrete_function() for function in functions]
    train_graph, test_graph = compiled

    # Metrics are reset outside of the graphs: while those are traced, Keras does not know all of its metrics yet.
    def train(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        model.reset_metrics()
        return train_graph(x, y, rows)

    def evaluate(x: tf.Tensor, y: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        model.reset_metrics()
        batches = -(-len(rows) // EVALUATION_BATCH)
        starts = [len(rows) * i // batches for i in range(batches + 1)]
        for start, end in pairwise(starts):
            metrics = test_graph(x, y, rows[start:end])
        return metrics

    return train, evaluate


def _run_step(model: keras.Model, step: Step, arrays: tuple[tf.Tensor, tf.Tensor], batch: tf.Tensor) -> None:
    """Let each replica take its share of the rows in `batch`."""
    strategy = model.distribute_strategy

    def on_replica(batch: tf.Tensor) -> None:
        mine = share_of(batch)
        if strategy.num_replicas_in_sync == 1:
            x, y = (tf.gather(array, mine) for array in arrays)
        else:
            with tf.device("CPU:0"):
                x, y = (tf.gather(array, mine) for array in arrays)
        step((_scaled(x), y))

    strategy.run(on_replica, args=(batch,))


def _scaled(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) / 255.0 if x.dtype == tf.uint8 else x
