"""Passes over a dataset, each compiled into one call.

Feeding a small model batch by batch from Python costs more than its arithmetic. Here an epoch is a
list of rows, and the graph loops over the batches: over arrays in memory, or over a file that is
read ahead. Each batch goes through Keras' own `train_step` or `test_step`. Bounds of batches stay
on the CPU, because slicing needs them there.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from trainers.data.arrays import Data
from trainers.data.augment import augment
from trainers.data.on_disk import OnDisk
from trainers.distribution import (
    local_replicas,
    share_last_batch,
    share_of_rank,
    share_of_replica,
    weighed,
)

Metrics = dict[str, float]
Arrays = tuple[tf.Tensor, ...]
"""x and y, or only y if x is read from a file."""

EVALUATION_BATCH = 1024
"""Maximum number of examples in an evaluation step."""
EVALUATION_BYTES = 1 << 20
"""Maximum bytes of the examples in an evaluation step; activations of large examples take many
times that."""


class Train(Protocol):
    """A training pass over `rows` (int32) in order, in batches of `batch_size`; the last batch may
    be smaller.

    If several devices train, each gets an equal share of a batch, and of the last one a share of
    any size.

    Returns the metrics of each part of `every` steps; the last part may be shorter. None: the pass
    is one part. Augmentation is a function of (seed, `epoch`, number of the batch); the first batch
    has number `first`.
    """

    def __call__(
        self,
        rows: np.ndarray,
        batch_size: int,
        epoch: int = 1,
        first: int = 0,
        every: int | None = None,
    ) -> list[Metrics]: ...


Evaluate = Callable[[str], Metrics]


class _Placed(NamedTuple):
    """A subset of the data in the memory where the training reads it."""

    arrays: Arrays
    rows: tf.Tensor
    bounds: tf.Tensor  # bounds of the evaluation batches


def compile_passes(
    model: keras.Model, data: Data, seed: int = 0, steps: tf.Variable | None = None
) -> tuple[Train, Evaluate]:
    """Return (train, evaluate) for a compiled model with a built optimizer.

    Both count their steps in `steps` (int64), a variable made outside of the model's strategy.
    `evaluate(name)` computes the metrics of one of `data.subsets`: "training", "validation" or
    "test". If layers are frozen or unfrozen, or the model is compiled again, make new passes; the
    data stay in place.
    """
    strategy = model.distribute_strategy
    placed = _place(data, local_replicas(strategy) > 1)
    for name, subset in data.subsets.items():
        if len(subset.rows) < strategy.num_replicas_in_sync:
            raise ValueError(
                f"{strategy.num_replicas_in_sync} devices cannot share a {name} set of"
                f" {len(subset.rows)} examples.\nUse fewer devices, or a larger {name} set"
            )
    train_step = partial(_weighted_step, model)
    step = tf.function(train_step, jit_compile=True) if model.jit_compile else train_step
    with strategy.scope():
        # Traced now, because later calls are timed.
        train_graph = _compile(model, data, step, placed["training"], steps, training=True)
        test_graph = _compile(
            model, data, partial(_test_step, model), placed["training"], steps, training=False
        )

    def train(
        rows: np.ndarray, batch_size: int, epoch: int = 1, first: int = 0, every: int | None = None
    ) -> list[Metrics]:
        start = (len(rows) - 1) // batch_size * batch_size
        last, weights = share_last_batch(rows[start:], strategy)
        rows = np.concatenate([rows[:start], last])
        bounds = np.append(np.arange(0, start + 1, batch_size), len(rows))
        steps = len(bounds) - 1
        ends = np.append(np.arange(every or steps, steps, every or steps), steps)
        with tf.device("CPU:0"):
            draw = tf.constant((seed, epoch, first), tf.int64)
            order = tf.constant(rows), tf.constant(bounds), tf.constant(ends)
        return train_graph(placed["training"].arrays, *order, draw, tf.constant(weights))

    def evaluate(name: str) -> Metrics:
        arrays, rows, bounds = placed[name]
        with tf.device("CPU:0"):
            ends = tf.constant([len(bounds) - 1], tf.int64)
            draw = tf.zeros(3, tf.int64)
        return test_graph(
            arrays, rows, bounds, ends, draw, tf.ones(strategy.num_replicas_in_sync, tf.float64)
        )[0]

    return train, evaluate


def _weighted_step(
    model: keras.Model, batch: tuple[tf.Tensor, tf.Tensor], weight: tf.Tensor
) -> None:
    """Train on a replica's share of a batch, whose loss has this weight."""
    with weighed(weight):
        model.train_step(batch)


def _test_step(model: keras.Model, batch: tuple[tf.Tensor, tf.Tensor], weight: tf.Tensor) -> None:
    """Test on a replica's share of a batch. Metrics weigh each example equally, so the weight is
    not needed."""
    model.test_step(batch)


def _compile(
    model: keras.Model,
    data: Data,
    step: Callable[[tuple[tf.Tensor, tf.Tensor], tf.Tensor], object],
    example: _Placed,
    counter: tf.Variable | None,
    training: bool,
) -> Callable[..., list[Metrics]]:
    """Return f(arrays, rows, bounds, ends, draw, weights), which calls `step` on rows between
    neighbouring `bounds`.

    `weights` are those of the replicas in the last step. Returns the metrics of the steps up to
    each of `ends`.
    """
    strategy = model.distribute_strategy
    names: list[str] = []

    def run(
        arrays: Arrays,
        rows: tf.Tensor,
        bounds: tf.Tensor,
        ends: tf.Tensor,
        draw: tf.Tensor,
        weights: tf.Tensor,
    ) -> tf.Tensor:
        with tf.device("CPU:0"):
            ahead = None if data.resident else _read_ahead(data.x, rows, bounds, strategy)

        def on_replica(index: tf.Tensor, batch: tf.Tensor, read: Arrays) -> None:
            x, y = _prepare(data, *_examples(arrays, batch, read))
            if training and data.augment is not None:
                x = augment(x, data.augment, draw[:2], draw[2] + index, data.x.dtype == np.uint8)
            step((x, y), _weight_of_replica(weights, index, bounds, strategy))

        def body(index: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device("CPU:0"):
                batch = share_of_rank(rows[bounds[index] : bounds[index + 1]], strategy)
                read = () if ahead is None else (ahead.get_next(),)
            strategy.run(on_replica, args=(index, batch, read))
            if counter is not None:
                counter.assign_add(1)
            return (index + 1,)

        return _run_parts(model, body, ends, names)

    # No autograph, because the loops are tf.while_loops already.
    graph = tf.function(run, _signature(example, strategy), autograph=False).get_concrete_function()

    def metrics_of(*arguments: object) -> list[Metrics]:
        return [
            dict(zip(names, values, strict=True)) for values in graph(*arguments).numpy().tolist()
        ]

    return metrics_of


def _run_parts(
    model: keras.Model,
    body: Callable[[tf.Tensor], tuple[tf.Tensor]],
    ends: tf.Tensor,
    names: list[str],
) -> tf.Tensor:
    """Call `body` for each step up to each of `ends`. Return the metrics of the parts, and write
    their `names`."""

    def part(number: tf.Tensor, index: tf.Tensor, results: tf.TensorArray) -> tuple[Any, ...]:
        (index,) = tf.while_loop(
            lambda index: index < ends[number], body, (index,), parallel_iterations=1
        )
        metrics = dict(model.get_metrics_result())
        names[:] = metrics
        results = results.write(
            number, tf.stack([tf.cast(value, tf.float64) for value in metrics.values()])
        )
        # after the steps, because Keras does not know all metrics before steps are traced
        model.reset_metrics()
        return number + 1, index, results

    with tf.device("CPU:0"):
        parts = tf.size(ends)
        zero = tf.zeros((), tf.int64)
        first = 0, zero, tf.TensorArray(tf.float64, parts)
    return tf.while_loop(lambda number, *_: number < parts, part, first, parallel_iterations=1)[
        -1
    ].stack()


def _prepare(data: Data, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return examples as the model takes them: bytes as 0 to 1, and labels one-hot if the loss
    compares them so."""
    x = tf.cast(x, tf.float32) / 255.0 if x.dtype == tf.uint8 else x
    return x, tf.one_hot(y, data.outputs) if data.one_hot else y


def _signature(example: _Placed, strategy: tf.distribute.Strategy) -> tuple[Any, ...]:
    """Return the shapes and types of arrays, rows, bounds, ends, draw and weights, for any number
    of rows and steps."""
    return (
        tuple(tf.TensorSpec((None, *array.shape[1:]), array.dtype) for array in example.arrays),
        tf.TensorSpec((None,), tf.int32),
        tf.TensorSpec((None,), tf.int64),
        tf.TensorSpec((None,), tf.int64),
        tf.TensorSpec((3,), tf.int64),
        tf.TensorSpec((strategy.num_replicas_in_sync,), tf.float64),
    )


def _weight_of_replica(
    weights: tf.Tensor, index: tf.Tensor, bounds: tf.Tensor, strategy: tf.distribute.Strategy
) -> tf.Tensor:
    """Return the weight of the calling replica's loss in this step: 1, and in the last step that of
    `weights`."""
    weight = tf.ones((), tf.float64)
    if strategy.num_replicas_in_sync > 1:
        with tf.device("CPU:0"):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            weight = tf.where(index + 2 == tf.size(bounds, tf.int64), weights[replica], weight)
    return weight


def _examples(arrays: Arrays, batch: tf.Tensor, read: Arrays) -> tuple[tf.Tensor, tf.Tensor]:
    """Return x and y of the calling replica's share of a rank's batch; `read` is x of the batch if
    it is in a file."""
    several = local_replicas(tf.distribute.get_strategy()) > 1
    with tf.device("CPU:0") if several else nullcontext():
        rows = share_of_replica(batch)
        x = share_of_replica(read[0]) if read else tf.gather(arrays[0], rows)
        return x, tf.gather(arrays[-1], rows)


def _read_ahead(
    x: Any, rows: tf.Tensor, bounds: tf.Tensor, strategy: tf.distribute.Strategy
) -> Any:
    """Return an iterator of this rank's shares of the batches, which reads the next two while one
    is trained."""

    def read(index: tf.Tensor) -> tf.Tensor:
        batch = share_of_rank(rows[bounds[index] : bounds[index + 1]], strategy)
        examples = tf.numpy_function(x.take, [batch], x.dtype, stateful=False)
        return tf.ensure_shape(examples, (None, *x.shape[1:]))

    steps = tf.data.Dataset.range(tf.shape(bounds, tf.int64)[0] - 1)
    return iter(steps.map(read, num_parallel_calls=2, deterministic=True).prefetch(2))


def evaluation_bounds(x: np.ndarray | OnDisk, rows: int) -> list[int]:
    """Return the bounds of the batches in which `rows` examples of `x` are evaluated."""
    largest = max(1, EVALUATION_BYTES // (x.dtype.itemsize * int(np.prod(x.shape[1:]))))
    batches = -(-rows // min(EVALUATION_BATCH, largest))
    return [rows * i // batches for i in range(batches + 1)]


@lru_cache(maxsize=1)
def _place(data: Data, several: bool) -> dict[str, _Placed]:
    """Return the subsets of the data on the device that trains; in the host's memory if several
    devices train.

    The result is cached, because passes are compiled again after each phase of fine-tuning.
    """
    tensors: dict[int, tf.Tensor] = {}

    def place(array: np.ndarray | OnDisk) -> tf.Tensor:
        if id(array) not in tensors:
            with tf.device("CPU:0") if several else nullcontext():
                tensors[id(array)] = tf.constant(
                    array.all() if isinstance(array, OnDisk) else array
                )
        return tensors[id(array)]

    placed = {}
    for name, (x, y, rows) in data.subsets.items():
        arrays = (place(x), place(y)) if data.resident else (place(y),)
        with tf.device("CPU:0"):
            bounds = tf.constant(evaluation_bounds(x, len(rows)), tf.int64)
            placed[name] = _Placed(arrays, tf.constant(rows), bounds)
    return placed
