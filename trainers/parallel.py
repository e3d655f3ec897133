"""Number of devices of a training, and the batch size and learning rate over all of them.

`gpus` and `ranks` are numbers per node. Each node has one process, or one per rank; each GPU gets
an equal share of every batch.
"""

from typing import Any

KERAS_TRAINER = "trainers.trainer.train"
LR_SCALING = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}
"""Exponent of the batch size in the learning rate."""


def replicas(cfg: Any) -> int:
    """Return the number of equal shares of every batch. Ranks of a node share its GPUs."""
    return int(max(cfg.gpus, cfg.ranks) * cfg.nodes)


def device_settings(cfg: Any) -> str:
    """Return the settings that make several replicas, as typed: `nodes=2 gpus=4`."""
    return " ".join(f"{name}={getattr(cfg, name)}" for name in _several(cfg))


def single_device_settings(cfg: Any) -> str:
    """Return the settings to type instead for training on one device: `nodes=1 gpus=1`."""
    return " ".join(f"{name}=1" for name in _several(cfg))


def _several(cfg: Any) -> list[str]:
    return [name for name in ("nodes", "ranks", "gpus") if getattr(cfg, name) > 1]


def batch_size(cfg: Any) -> int:
    """Return the number of examples per step over all devices, before any batch_schedule."""
    return int(cfg.batch_size if cfg.batch_per_gpu is None else cfg.batch_per_gpu * replicas(cfg))


def lr_factor(cfg: Any) -> float:
    """Return the factor of lr: batch / lr_batch_size (linear), or its square root (sqrt).

    Linear: Goyal et al., Accurate, Large Minibatch SGD, 2017. Square root, which keeps the variance
    of a step: Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014.
    """
    power = LR_SCALING[cfg.lr_scaling]
    return float((batch_size(cfg) / cfg.lr_batch_size) ** power) if power else 1.0


def effective_lr(cfg: Any) -> float:
    """Return the initial learning rate, before any lr_schedule."""
    return float(cfg.lr * lr_factor(cfg))
