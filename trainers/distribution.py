"""The devices of one training: the CPU, one GPU, several GPUs that share each batch, or several
processes (ranks).

Ranks use TensorFlow's `MultiWorkerMirroredStrategy`: it broadcasts the chief's initial weights,
sums gradients and metrics over all ranks, and detects lost ranks.
"""

import json
import math
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import keras
import numpy as np
import tensorflow as tf

from sweeps.trial import RankLost, World
from sweeps.trial.machine import gpus as trial_gpus
from trainers import quiet_tensorflow

_PACK_BYTES = 4 << 20  # because large gradients are sent faster in pieces


def claim_gpus(gpus: int) -> list[str]:
    """Claim the first `gpus` visible GPUs, hide the rest, and return their logical names, such as
    "GPU:0".

    GPU memory is allocated as it is needed, of a GPU that trials share at most this trial's part.
    Call this function before TensorFlow runs anything. Raises ValueError if fewer GPUs are visible.
    """
    with quiet_tensorflow.drop_no_gpu_lines(gpus):
        visible = tf.config.list_physical_devices("GPU")
    assigned = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if gpus and not visible and assigned not in ("", "-1", "NoDevFiles"):
        raise ValueError(
            f"gpus={gpus}: GPUs are assigned to this trial (CUDA_VISIBLE_DEVICES={assigned}), but"
            " TensorFlow sees none. Its CUDA wheels or the driver are missing.\nInstall the"
            " wheels: pip install -c constraints.txt -e '.[cuda]'   (and check that nvidia-smi"
            " works there)"
        )
    if gpus > len(visible):
        raise ValueError(
            f"gpus={gpus}, but this process sees {len(visible)}; try gpus={len(visible)}"
        )
    tf.config.set_visible_devices(visible[:gpus], "GPU")
    fraction = trial_gpus.memory_fraction() if gpus else None
    for gpu in visible[:gpus]:
        if fraction is None:
            tf.config.experimental.set_memory_growth(gpu, True)
            continue
        # By a variable, because TensorFlow refuses set_memory_growth for a GPU with a limit.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        limit = tf.config.LogicalDeviceConfiguration(
            memory_limit=int(fraction * trial_gpus.memory_bytes() / 2**20)
        )
        tf.config.set_logical_device_configuration(gpu, [limit])
    return [f"GPU:{index}" for index in range(gpus)]


def strategy(devices: list[str], world: World) -> tf.distribute.Strategy:
    """Return the strategy with which `devices` and all ranks train; TensorFlow's default for a
    single device.

    Several ranks wait here for each other without a time limit. Call this function before
    TensorFlow runs anything.
    """
    if world.size > 1:
        # Not SlurmClusterResolver of tf.distribute, because it sorts node10 before node2.
        task = {"type": "worker", "index": world.rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": world.addresses}, "task": task})
        tf.get_logger().setLevel("ERROR")  # because it logs every collective operation
        # Without timeout_seconds, because each collective would leave two sleeping threads:
        # trainers.ranks.Watchdog.
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_PACK_BYTES)
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if len(devices) < 2:
        return tf.distribute.get_strategy()
    # Not the default ring, because it breaks a second strategy in the same process.
    reduction = tf.distribute.HierarchicalCopyAllReduce()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def check_same_epoch(strategy: tf.distribute.Strategy, epoch: int) -> None:
    """Raise RankLost unless all ranks read a checkpoint of the same epoch, because shared disks may
    lag on one node."""

    def mean_epoch() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce("mean", tf.constant([float(epoch)]))

    mean = float(strategy.experimental_local_results(strategy.run(mean_epoch))[0][0])
    if mean != epoch:
        raise RankLost(
            f"it read the checkpoint of epoch {epoch}; another rank read one of another epoch"
        )


def rank_and_size(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Return the index of this process and the number of processes that train together."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    return int(resolver.task_id), len(resolver.cluster_spec().as_dict()["worker"])


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Return how many devices of this process train."""
    return int(strategy.num_replicas_in_sync // rank_and_size(strategy)[1])


def share_of_rank(rows: tf.Tensor, strategy: tf.distribute.Strategy) -> tf.Tensor:
    """Return the part of a batch's `rows` that this process trains on."""
    return _share(rows, *rank_and_size(strategy))


def share_of_replica(rows: tf.Tensor) -> tf.Tensor:
    """Return the part of its process's `rows` that the calling replica trains on."""
    context = tf.distribute.get_replica_context()
    count = local_replicas(context.strategy)
    return _share(rows, context.replica_id_in_sync_group % count, count)


def _share(rows: tf.Tensor, part: int | tf.Tensor, parts: int) -> tf.Tensor:
    if parts == 1:
        return rows
    count = tf.shape(rows)[0]
    return rows[count * part // parts : count * (part + 1) // parts]


def share_last_batch(
    rows: np.ndarray, strategy: tf.distribute.Strategy
) -> tuple[np.ndarray, np.ndarray]:
    """Return an epoch's last batch for all replicas, and the weight of each replica's loss, shape
    (replicas,).

    Keras averages the mean losses of the replicas, as if their shares were equal. The weights,
    relative to an equal share, make this the mean over the batch. If there are fewer rows than
    replicas, replicas share a row.
    """
    replicas = strategy.num_replicas_in_sync
    ranks = rank_and_size(strategy)[1]
    if len(rows) < replicas:
        indices = np.arange(replicas) * len(rows) // replicas
        return rows[indices], replicas / (len(rows) * np.bincount(indices)[indices])
    of_ranks = np.diff(len(rows) * np.arange(ranks + 1) // ranks)
    sizes = np.diff(
        of_ranks[:, None] * np.arange(replicas // ranks + 1) // (replicas // ranks)
    ).ravel()
    return rows, sizes * replicas / len(rows)


class _Weight(threading.local):
    """The weight of the loss in the replica that is traced: each replica of a process has its own
    thread."""

    value: tf.Tensor | float = 1.0


_weight = _Weight()


def weigh_loss(optimizer: keras.optimizers.Optimizer) -> None:
    """Set the optimizer to weigh each replica's loss with the weight of `weighed`."""
    scale = optimizer.scale_loss
    optimizer.scale_loss = lambda loss: scale(loss) * tf.cast(_weight.value, loss.dtype)


@contextmanager
def weighed(weight: tf.Tensor) -> Iterator[None]:
    """Set the weight of the calling replica's loss while its training step is traced."""
    _weight.value = weight
    try:
        yield
    finally:
        _weight.value = 1.0


def seed_dropout_by_replica(model: keras.Model) -> None:
    """Add the replica's number to dropout's seeds, because all devices would draw the same numbers.

    Call this function once, after weights are assigned.
    """
    strategy = model.distribute_strategy
    rank = rank_and_size(strategy)[0]
    replicas = local_replicas(strategy)
    for variable in model.non_trainable_variables:
        if variable.path.endswith("seed_generator_state"):
            copies = strategy.experimental_local_results(variable.value)
            for replica, copy in enumerate(copies):
                seed, counter = copy.numpy()
                copy.assign([seed + rank * replicas + replica, counter])


def reduce_gradients_in(optimizer: keras.optimizers.Optimizer, dtype: str) -> None:
    """Convert gradients to `dtype` for the exchange between devices, and then back to the dtype of
    the weights."""
    # inside mixed precision's loss scaling
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    # a private method, because Keras has no public one for this
    reduce = optimizer._all_reduce_sum_gradients

    def shortened(
        pairs: Iterable[tuple[tf.Tensor, tf.Variable]],
    ) -> list[tuple[tf.Tensor, tf.Variable]]:
        short = [(None if g is None else tf.cast(g, dtype), variable) for g, variable in pairs]
        return [
            (None if g is None else tf.cast(g, variable.dtype), variable)
            for g, variable in reduce(short)
        ]

    optimizer._all_reduce_sum_gradients = shortened


def synchronize_batch_norm(model: keras.Model) -> None:
    """Set batch normalization to compute its statistics over all devices. Call this function before
    tracing."""
    for layer in _batch_norms(model):
        layer.synchronized = True


def average_statistics(model: keras.Model) -> None:
    """Average the moving statistics over all devices, because they drift apart unless batch norm is
    synchronized.

    All ranks must call this function, outside of a tf.function.
    """
    drifting = [
        layer for layer in _batch_norms(model) if layer.trainable and not layer.synchronized
    ]
    variables = [
        variable for layer in drifting for variable in (layer.moving_mean, layer.moving_variance)
    ]
    strategy = model.distribute_strategy
    if not variables or strategy.num_replicas_in_sync == 1:
        return

    def mean() -> tf.Tensor:
        flat = tf.concat(
            [tf.reshape(tf.convert_to_tensor(variable.value), [-1]) for variable in variables], 0
        )
        return tf.distribute.get_replica_context().all_reduce("mean", flat)

    flat = strategy.experimental_local_results(strategy.run(mean))[0]
    parts = tf.split(flat, [math.prod(variable.shape) for variable in variables])
    for variable, part in zip(variables, parts, strict=True):
        variable.assign(tf.reshape(part, variable.shape))


def _batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    # Not model.layers, because it lacks layers inside a user's own layer.
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
