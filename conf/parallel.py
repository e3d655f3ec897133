"""What the devices of one training share: how many there are, how many examples a step of all takes, and at what rate.

`gpus` and `ranks` count a node's. One process a node, or a rank, takes part; each of its GPUs has an equal share of
every batch.
"""

from typing import Any

KERAS_TRAINER = "trainers.trainer.train"
LR_SCALING = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}
"""The power of a batch's size that its learning rate follows."""
ALL_REDUCE_DTYPES = ("float32", "bfloat16")


def replicas(cfg: Any) -> int:
    """Into how many equal shares every batch is cut. Several ranks of a node share its GPUs, if it has any."""
    return int(max(cfg.gpus, cfg.ranks) * cfg.nodes)


def named(cfg: Any) -> str:
    """What of a configuration makes the replicas, as it is typed: `nodes=2 gpus=4`."""
    return " ".join(f"{name}={getattr(cfg, name)}" for name in _several(cfg))


def alone(cfg: Any) -> str:
    """What is typed instead to train on one device: `nodes=1 gpus=1`."""
    return " ".join(f"{name}=1" for name in _several(cfg))


def _several(cfg: Any) -> list[str]:
    return [name for name in ("nodes", "ranks", "gpus") if getattr(cfg, name) > 1]


def batch_size(cfg: Any) -> int:
    """Examples a step, over all devices, before any batch_schedule."""
    return int(cfg.batch_size if cfg.batch_per_gpu is None else cfg.batch_per_gpu * replicas(cfg))


def lr_factor(cfg: Any) -> float:
    """What lr is multiplied with: batch / lr_batch_size, by the linear rule of Goyal et al., Accurate, Large Minibatch
    SGD, 2017, or its square root, which keeps the variance of a step: Krizhevsky, One weird trick for parallelizing
    convolutional neural networks, 2014.
    """
    power = LR_SCALING[cfg.lr_scaling]
    return float((batch_size(cfg) / cfg.lr_batch_size) ** power) if power else 1.0


def effective_lr(cfg: Any) -> float:
    """The learning rate with which training begins, before any lr_schedule."""
    return float(cfg.lr * lr_factor(cfg))


def check(cfg: Any) -> None:
    """Raise ValueError in one or two lines: what is wrong, what is allowed, what to type instead."""
    for name in ("nodes", "ranks"):
        if getattr(cfg, name) < 1:
            raise ValueError(f"{name}={getattr(cfg, name)}: must be >= 1; {name}=1 trains in one process")
    if cfg.ranks > 1 and cfg.gpus and cfg.trainer.get("_target_") == KERAS_TRAINER:
        raise ValueError(
            f"ranks={cfg.ranks} gpus={cfg.gpus}: ranks train on CPUs; with GPUs one process drives all of a node\n"
            f"Say gpus={cfg.gpus} for those of a node and nodes=N for several nodes, or ranks={cfg.ranks} gpus=0"
        )
    if cfg.batch_per_gpu is not None:
        if cfg.batch_per_gpu < 1:
            raise ValueError(f"batch_per_gpu={cfg.batch_per_gpu}: must be >= 1, or null to go by batch_size")
        constant = cfg.batch_schedule.get("_target_") == "conf.plan.constant_batch"  # others bring a size of their own
        if constant and cfg.batch_size not in (type(cfg).batch_size, batch_size(cfg)):
            raise ValueError(
                f"batch_per_gpu={cfg.batch_per_gpu} makes batches of {batch_size(cfg)}, batch_size={cfg.batch_size} "
                "says another thing; leave one of them out"
            )
    if cfg.all_reduce_dtype not in ALL_REDUCE_DTYPES:
        raise ValueError(f"all_reduce_dtype={cfg.all_reduce_dtype}: must be {' or '.join(ALL_REDUCE_DTYPES)}")
    _check_lr_scaling(cfg)


def _check_lr_scaling(cfg: Any) -> None:
    if cfg.lr_scaling not in LR_SCALING:
        raise ValueError(f"lr_scaling={cfg.lr_scaling}: must be {', '.join(LR_SCALING)}")
    scaled = cfg.lr_scaling != "none"
    if scaled != (cfg.lr_batch_size is not None) or (scaled and cfg.lr_batch_size < 1):
        given = "null" if cfg.lr_batch_size is None else cfg.lr_batch_size
        raise ValueError(
            f"lr_scaling={cfg.lr_scaling} lr_batch_size={given}: to scale lr, say by which rule, and for which batch "
            "size (>= 1) it was found, as in lr_scaling=linear lr_batch_size=256; else leave both out"
        )
    if cfg.warmup_epochs < 0:
        raise ValueError(f"warmup_epochs={cfg.warmup_epochs}: must be >= 0")
    if cfg.warmup_epochs and not scaled:
        raise ValueError(
            f"warmup_epochs={cfg.warmup_epochs} goes from lr to the lr that lr_scaling makes of it, and "
            "lr_scaling=none makes nothing; try lr_schedule=warmup"
        )
