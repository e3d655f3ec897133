"""What the devices of one training share: how many there are, how many examples a step of all takes, and at what rate.

`gpus` and `ranks` count a node's. One process a node, or a rank, takes part; each of its GPUs has an equal share of
every batch.
"""

from typing import Any

KERAS_TRAINER = "trainers.trainer.train"
LR_SCALING = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}
"""The power of a batch's size that its learning rate follows."""


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
