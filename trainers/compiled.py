"""Passes over a dataset, each compiled into one call.

Feeding a small model batch by batch from Python costs more than its arithmetic. Here an epoch is a
list of rows, and the graph loops over the batches: over arrays in memory, or over a file that is
read ahead. Each batch goes through Keras' own `train_step` or `test_step`. Bounds of batches stay
on the CPU, because slicing needs them there.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from trainers.config.augment import Augment
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
Batch = tuple[tf.Tensor, tf.Tensor]
"""x and y."""
Step = Callable[[Batch, tf.Tensor], None]
"""Train or test on a replica's share of a batch, whose loss has the weight of the second
argument."""

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

    arrays: tuple[tf.Tensor, ...]  # x and y; only y if x is read from a file
    rows: tf.Tensor
    bounds: tf.Tensor  # of the evaluation batches


class _Pass(NamedTuple):
    """The input of a compiled pass."""

    arrays: Any  # of _Placed
    rows: Any  # int32: rows of all batches
    bounds: Any  # int64: batch i is rows[bounds[i]:bounds[i + 1]]
    ends: Any  # int64: the number of steps up to the end of each part
    draw: Any  # int64: seed, epoch and number of the first batch
    weights: Any  # float64: of each replica's loss in the last step

    @property
    def steps(self) -> tf.Tensor:
        return tf.size(self.bounds, tf.int64) - 1

    def rows_of(self, index: tf.Tensor) -> tf.Tensor:
        return self.rows[self.bounds[index] : self.bounds[index + 1]]


def compile_passes(
    model: keras.Model, data: Data, seed: int = 0, steps: tf.Variable | None = None
) -> tuple[Train, Evaluate]:
    """Return (train, evaluate) for a compiled model with a built optimizer.

    Both count their steps in `steps` (int64), a variable made outside of the model's strategy.
    `evaluate(name)` computes the metrics of one of `data.subsets`: "training", "validation" or
    "test". If layers are frozen or unfrozen, or the model is compiled again, make new passes; the
    data stay in place.
    """
    passes = _Passes(model, data, seed, steps)
    return passes.train, passes.evaluate


class _Passes:
    """The training and the evaluation pass of a model."""

    def __init__(
        self, model: keras.Model, data: Data, seed: int, steps: tf.Variable | None
    ) -> None:
        def train_step(batch: Batch, weight: tf.Tensor) -> None:
            with weighed(weight):
                model.train_step(batch)

        def test_step(batch: Batch, weight: tf.Tensor) -> None:
            # without the weight, because metrics weigh each example equally
            model.test_step(batch)

        self._seed = seed
        self._strategy = model.distribute_strategy
        _check_sizes(data, self._strategy.num_replicas_in_sync)
        self._placed = _place(data, local_replicas(self._strategy) > 1)
        step = tf.function(train_step, jit_compile=True) if model.jit_compile else train_step
        training_loop = _Loop(model, data, step, steps, data.augment)
        test_loop = _Loop(model, data, test_step, steps)
        arrays = self._placed["training"].arrays
        with self._strategy.scope():
            # Traced now, because later calls are timed.
            self._train_graph = training_loop.compile(arrays)
            self._test_graph = test_loop.compile(arrays)

    def train(
        self,
        rows: np.ndarray,
        batch_size: int,
        epoch: int = 1,
        first: int = 0,
        every: int | None = None,
    ) -> list[Metrics]:
        """Train as `Train` describes."""
        last_start = (len(rows) - 1) // batch_size * batch_size
        last_batch, weights = share_last_batch(rows[last_start:], self._strategy)
        rows = np.concatenate([rows[:last_start], last_batch])
        bounds = np.append(np.arange(0, last_start + 1, batch_size), len(rows))
        steps = len(bounds) - 1
        part = every or steps
        ends = np.append(np.arange(part, steps, part), steps)

        with tf.device("CPU:0"):
            batches = _Pass(
                self._placed["training"].arrays,
                tf.constant(rows),
                tf.constant(bounds),
                tf.constant(ends),
                tf.constant((self._seed, epoch, first), tf.int64),
                tf.constant(weights),
            )
        return self._train_graph(batches)

    def evaluate(self, name: str) -> Metrics:
        """Return the metrics of a subset."""
        arrays, rows, bounds = self._placed[name]
        with tf.device("CPU:0"):
            ends = tf.constant([len(bounds) - 1], tf.int64)
            draw = tf.zeros(3, tf.int64)
            weights = tf.ones(self._strategy.num_replicas_in_sync, tf.float64)
        (metrics,) = self._test_graph(_Pass(arrays, rows, bounds, ends, draw, weights))
        return metrics


def _check_sizes(data: Data, devices: int) -> None:
    for name, subset in data.subsets.items():
        if len(subset.rows) < devices:
            raise ValueError(
                f"{devices} devices cannot share a {name} set of {len(subset.rows)} examples.\n"
                f"Use fewer devices, or a larger {name} set"
            )


@dataclass(eq=False)
class _Loop:
    """A loop of steps over batches, which TensorFlow runs as one graph."""

    _model: keras.Model
    _data: Data
    _step: Step
    _counter: tf.Variable | None
    _augment: Augment | None = None
    _names: Sequence[str] = ()  # of the metrics, which Keras knows once a step is traced

    @property
    def _strategy(self) -> tf.distribute.Strategy:
        return self._model.distribute_strategy

    def compile(self, arrays: tuple[tf.Tensor, ...]) -> Callable[[_Pass], list[Metrics]]:
        """Return a function that takes a step for each batch, of any number of rows, and returns
        the metrics of each part. Only shapes and types of `arrays` matter."""
        signature = _Pass(
            tuple(tf.TensorSpec((None, *array.shape[1:]), array.dtype) for array in arrays),
            rows=tf.TensorSpec((None,), tf.int32),
            bounds=tf.TensorSpec((None,), tf.int64),
            ends=tf.TensorSpec((None,), tf.int64),
            draw=tf.TensorSpec((3,), tf.int64),
            weights=tf.TensorSpec((self._strategy.num_replicas_in_sync,), tf.float64),
        )
        # No autograph, because the loops are tf.while_loops already.
        function = tf.function(self._run, [signature], autograph=False)
        graph = function.get_concrete_function()

        def metrics_of(batches: _Pass) -> list[Metrics]:
            parts = graph(batches).numpy().tolist()
            return [dict(zip(self._names, values, strict=True)) for values in parts]

        return metrics_of

    def _run(self, batches: _Pass) -> tf.Tensor:
        """Take all steps. Return the metrics of the parts, shape (parts, metrics)."""
        with tf.device("CPU:0"):
            ahead = None
            if not self._data.resident:
                ahead = read_ahead(self._data.x, batches.rows, batches.bounds, self._strategy)
            parts = tf.size(batches.ends)
            results = tf.TensorArray(tf.float64, parts)
            first_step = tf.zeros((), tf.int64)

        def take_part(
            part: tf.Tensor, index: tf.Tensor, results: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            (index,) = tf.while_loop(
                lambda index: index < batches.ends[part],
                lambda index: self._take_step(batches, index, ahead),
                (index,),
                parallel_iterations=1,
            )
            return part + 1, index, results.write(part, self._take_metrics())

        state = (0, first_step, results)
        _, _, results = tf.while_loop(
            lambda part, *_: part < parts, take_part, state, parallel_iterations=1
        )
        return results.stack()

    def _take_step(self, batches: _Pass, index: tf.Tensor, ahead: Any) -> tuple[tf.Tensor]:
        """Take the step `index`, and return the index of the next step."""
        with tf.device("CPU:0"):
            rows = share_of_rank(batches.rows_of(index), self._strategy)
            x = None if ahead is None else ahead.get_next()
        self._strategy.run(self._step_on_replica, args=(batches, index, rows, x))
        if self._counter is not None:
            self._counter.assign_add(1)
        return (index + 1,)

    def _take_metrics(self) -> tf.Tensor:
        """Return the model's metrics since the last call."""
        metrics = self._model.get_metrics_result()
        self._names = list(metrics)
        values = [tf.cast(value, tf.float64) for value in metrics.values()]
        stacked = tf.stack(values)
        # after the steps, because Keras does not know all metrics before steps are traced
        self._model.reset_metrics()
        return stacked

    def _step_on_replica(
        self, batches: _Pass, index: tf.Tensor, rows: tf.Tensor, x: tf.Tensor | None
    ) -> None:
        """Take the step `index` on the calling replica's share of the `rows` of this process. `x`
        are their examples if they are read from a file."""
        x, y = _examples(batches.arrays, rows, x)
        is_bytes = x.dtype == tf.uint8
        if is_bytes:  # as 0 to 1
            x = tf.cast(x, tf.float32) / 255.0
        if self._data.one_hot:
            y = tf.one_hot(y, self._data.outputs)
        if self._augment is not None:
            seed_and_epoch = batches.draw[:2]
            x = augment(x, self._augment, seed_and_epoch, batches.draw[2] + index, is_bytes)
        self._step((x, y), self._weight_of_replica(batches, index))

    def _weight_of_replica(self, batches: _Pass, index: tf.Tensor) -> tf.Tensor:
        """Return the weight of the calling replica's loss in a step: 1, and in the last step that
        of `batches.weights`."""
        weight = tf.ones((), tf.float64)
        if self._strategy.num_replicas_in_sync == 1:
            return weight
        with tf.device("CPU:0"):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_last = index + 1 == batches.steps
            return tf.where(is_last, batches.weights[replica], weight)


def read_ahead(
    x: np.ndarray | OnDisk, rows: tf.Tensor, bounds: tf.Tensor, strategy: tf.distribute.Strategy
) -> Any:
    """Return an iterator of this rank's shares of the batches, of which batch i is
    rows[bounds[i]:bounds[i + 1]]; it reads the next two while one is trained."""

    def read(index: tf.Tensor) -> tf.Tensor:
        share = share_of_rank(rows[bounds[index] : bounds[index + 1]], strategy)
        examples = tf.numpy_function(x.take, [share], x.dtype, stateful=False)
        return tf.ensure_shape(examples, (None, *x.shape[1:]))

    steps = tf.data.Dataset.range(tf.size(bounds, tf.int64) - 1)
    examples = steps.map(read, num_parallel_calls=2, deterministic=True)
    return iter(examples.prefetch(2))


def _examples(
    arrays: tuple[tf.Tensor, ...], rows: tf.Tensor, x: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return x and y of the calling replica's share of a process's `rows`; `x` as in
    `_step_on_replica`."""
    several = local_replicas(tf.distribute.get_strategy()) > 1
    with tf.device("CPU:0") if several else nullcontext():
        own_rows = share_of_replica(rows)
        own_x = tf.gather(arrays[0], own_rows) if x is None else share_of_replica(x)
        return own_x, tf.gather(arrays[-1], own_rows)


def evaluation_bounds(x: np.ndarray | OnDisk, rows: int) -> list[int]:
    """Return the bounds of the batches in which `rows` examples of `x` are evaluated."""
    example_bytes = x.dtype.itemsize * int(np.prod(x.shape[1:]))
    largest = max(1, EVALUATION_BYTES // example_bytes)
    batches = -(-rows // min(EVALUATION_BATCH, largest))
    return [rows * batch // batches for batch in range(batches + 1)]


@lru_cache(maxsize=1)
def _place(data: Data, several: bool) -> dict[str, _Placed]:
    """Return the subsets of the data on the device that trains; in the host's memory if several
    devices train.

    The result is cached, because passes are compiled again after each phase of fine-tuning.
    """
    tensors: dict[int, tf.Tensor] = {}

    def place(array: np.ndarray | OnDisk) -> tf.Tensor:
        if id(array) not in tensors:
            values = array.all() if isinstance(array, OnDisk) else array
            with tf.device("CPU:0") if several else nullcontext():
                tensors[id(array)] = tf.constant(values)
        return tensors[id(array)]

    placed = {}
    for name, (x, y, rows) in data.subsets.items():
        arrays = (place(x), place(y)) if data.resident else (place(y),)
        bounds = evaluation_bounds(x, len(rows))
        with tf.device("CPU:0"):
            placed[name] = _Placed(arrays, tf.constant(rows), tf.constant(bounds, tf.int64))
    return placed
