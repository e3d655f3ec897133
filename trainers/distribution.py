"""The devices of one training: the CPU, one GPU, or several that share each batch."""

import os

import tensorflow as tf


def claim_gpus(gpus: int) -> list[str]:
    """Take the first `gpus` GPUs that this process can see, growing into their memory; hide all others.

    Returns their logical names, such as "GPU:0". Must be called before TensorFlow runs anything.
    Raises ValueError if there are not as many.
    """
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


def strategy(devices: list[str]) -> tf.distribute.Strategy:
    """How `devices` train together: with fewer than two, TensorFlow's default."""
    if len(devices) < 2:
        return tf.distribute.get_strategy()
    # The default ring breaks a second strategy in the same process.
    reduction = tf.distribute.HierarchicalCopyAllReduce()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def share_of(rows: tf.Tensor) -> tf.Tensor:
    """The part of a batch's `rows` that the calling replica works on."""
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return rows
    count, replica = tf.shape(rows)[0], context.replica_id_in_sync_group
    return rows[count * replica // replicas : count * (replica + 1) // replicas]
