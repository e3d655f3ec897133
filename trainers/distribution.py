"""The devices of one training: the CPU, one GPU, several that share each batch, or those of several processes (ranks).

Several ranks run TensorFlow's own `MultiWorkerMirroredStrategy`: it sends the first weights of the chief to all, sums
gradients and metrics over all, and notices ranks that are gone.
"""

import json
import math
import os
from collections.abc import Iterable

import keras
import tensorflow as tf

from sweeps.trial import RankLost, World
from trainers import quiet_tensorflow

_PACK_BYTES = 4 << 20  # large gradients travel faster in pieces


def claim_gpus(gpus: int) -> list[str]:
    """Take the first `gpus` GPUs that this process can see, growing into their memory; hide all others.

    Returns their logical names, such as "GPU:0". Must be called before TensorFlow runs anything.
    Raises ValueError if there are not as many.
    """
    with quiet_tensorflow.drop_no_gpu_lines(gpus):
        seen = tf.config.list_physical_devices("GPU")
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if gpus and not seen and given not in ("", "-1", "NoDevFiles"):
        raise ValueError(
            f"gpus={gpus}: this trial was given GPUs (CUDA_VISIBLE_DEVICES={given}), but TensorFlow sees none: "
            "its CUDA wheels are missing, or the driver is\n"
            "Install them with: pip install -c constraints.txt -e '.[cuda]'   (and see whether nvidia-smi works there)"
        )
    if gpus > len(seen):
        raise ValueError(f"gpus={gpus}, but this process sees {len(seen)}; try gpus={len(seen)}")
    tf.config.set_visible_devices(seen[:gpus], "GPU")
    for gpu in seen[:gpus]:
        tf.config.experimental.set_memory_growth(gpu, True)
    return [f"GPU:{index}" for index in range(gpus)]


def strategy(devices: list[str], world: World) -> tf.distribute.Strategy:
    """How `devices`, and those of the other ranks, train together: one device alone by TensorFlow's default.

    Several ranks wait here for each other without end. Must be called before TensorFlow runs anything.
    """
    if world.size > 1:
        # Not tf.distribute's SlurmClusterResolver, which sorts node10 before node2.
        task = {"type": "worker", "index": world.rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": world.addresses}, "task": task})
        tf.get_logger().setLevel("ERROR")  # it tells of every exchange that it plans
        # Without timeout_seconds: see trainers.ranks.Patience.
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_PACK_BYTES)
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if len(devices) < 2:
        return tf.distribute.get_strategy()
    # The default ring breaks a second strategy in the same process.
    reduction = tf.distribute.HierarchicalCopyAllReduce()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def agree(strategy: tf.distribute.Strategy, epoch: int) -> None:
    """Raise RankLost unless all ranks have found the checkpoint of the same epoch: a shared disk may be late on one."""

    def mean_epoch() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce("mean", tf.constant([float(epoch)]))

    mean = float(strategy.experimental_local_results(strategy.run(mean_epoch))[0][0])
    if mean != epoch:
        raise RankLost(f"it read the checkpoint of epoch {epoch}, and another rank that of another one")


def rank_and_size(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Which of how many processes that train together this one is."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    return int(resolver.task_id), len(resolver.cluster_spec().as_dict()["worker"])


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """How many devices of this process train."""
    return int(strategy.num_replicas_in_sync // rank_and_size(strategy)[1])


def share_of_rank(rows: tf.Tensor, strategy: tf.distribute.Strategy) -> tf.Tensor:
    """The part of a batch's `rows` that this process works on."""
    return _share(rows, *rank_and_size(strategy))


def share_of_replica(rows: tf.Tensor) -> tf.Tensor:
    """The part of its process's `rows` that the calling replica works on."""
    context = tf.distribute.get_replica_context()
    here = local_replicas(context.strategy)
    return _share(rows, context.replica_id_in_sync_group % here, here)


def _share(rows: tf.Tensor, part: int | tf.Tensor, parts: int) -> tf.Tensor:
    if parts == 1:
        return rows
    count = tf.shape(rows)[0]
    return rows[count * part // parts : count * (part + 1) // parts]


def draw_by_replica(model: keras.Model) -> None:
    """Let dropout draw other numbers on each device: all would draw the same. Once, after weights are assigned."""
    strategy = model.distribute_strategy
    rank, here = rank_and_size(strategy)[0], local_replicas(strategy)
    for variable in model.non_trainable_variables:
        if variable.path.endswith("seed_generator_state"):
            copies = strategy.experimental_local_results(variable.value)
            for replica, copy in enumerate(copies):
                seed, counter = copy.numpy()
                copy.assign([seed + rank * here + replica, counter])


def reduce_in(optimizer: keras.optimizers.Optimizer, dtype: str) -> None:
    """Let gradients travel between devices as `dtype`; each device adds what it has got in the weights' own."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of mixed precision's loss scaling
    reduce = optimizer._all_reduce_sum_gradients  # Keras has no public place for this

    def shortened(pairs: Iterable[tuple[tf.Tensor, tf.Variable]]) -> list[tuple[tf.Tensor, tf.Variable]]:
        short = [(None if g is None else tf.cast(g, dtype), variable) for g, variable in pairs]
        return [(None if g is None else tf.cast(g, variable.dtype), variable) for g, variable in reduce(short)]

    optimizer._all_reduce_sum_gradients = shortened


def synchronize_batch_norm(model: keras.Model) -> None:
    """Let batch normalization take its statistics from the whole batch, over all devices. Before anything is traced."""
    for layer in _batch_norms(model):
        layer.synchronized = True


def average_statistics(model: keras.Model) -> None:
    """Give all devices the mean of their moving statistics, which drift apart unless batch norm is synchronized.

    All ranks must call it, outside of a tf.function.
    """
    drifting = [layer for layer in _batch_norms(model) if layer.trainable and not layer.synchronized]
    variables = [variable for layer in drifting for variable in (layer.moving_mean, layer.moving_variance)]
    strategy = model.distribute_strategy
    if not variables or strategy.num_replicas_in_sync == 1:
        return

    def mean() -> tf.Tensor:
        flat = tf.concat([tf.reshape(tf.convert_to_tensor(variable.value), [-1]) for variable in variables], 0)
        return tf.distribute.get_replica_context().all_reduce("mean", flat)

    flat = strategy.experimental_local_results(strategy.run(mean))[0]
    parts = tf.split(flat, [math.prod(variable.shape) for variable in variables])
    for variable, part in zip(variables, parts, strict=True):
        variable.assign(tf.reshape(part, variable.shape))


def _batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    # `model.layers` has not those inside a layer of somebody's own.
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]
