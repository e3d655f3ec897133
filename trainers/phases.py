"""The phases of a training: first only the head of a known network, then its base too, at another
learning rate.

Each phase has its own compiled passes and its own optimizer, because both depend on which layers
are frozen.
"""

from dataclasses import dataclass
from typing import Any

import keras

from trainers.networks import base_of
from trainers.parallel import effective_lr, lr_factor
from trainers.schedules import Plan


@dataclass(frozen=True)
class Phase:
    """Consecutive epochs of a training with the same trainable layers."""

    number: int  # counted from 1
    first: int  # first epoch of the phase, counted from 0
    end: int  # first epoch after the phase
    lr: float
    # trainable part of the base: all, nothing, or the number of its last layers
    trainable: bool | int


def phases(cfg: Any, plan: Plan) -> list[Phase]:
    """Return one phase, or two if only the head learns in the first `model.head_epochs`."""
    lr = effective_lr(cfg)
    fine_tune = cfg.model.get("fine_tune", True)
    head = int(cfg.model.get("head_epochs") or 0)
    if not head or head >= plan.epochs:
        return [Phase(1, 0, plan.epochs, lr, fine_tune if not head else False)]
    second = Phase(
        2, head, plan.epochs, lr_factor(cfg) * (cfg.model.get("fine_tune_lr") or cfg.lr), fine_tune
    )
    return [Phase(1, 0, head, lr, False), second]


def freeze(model: keras.Model, phase: Phase, pretrained: bool) -> None:
    """Freeze the layers of the model's base that do not learn in `phase`. Without a base, all
    layers learn.

    In a pretrained base all batch normalization stays frozen, because a few small batches would
    spoil its statistics (Keras' guide to transfer learning).
    """
    base = base_of(model)
    if base is None:
        return
    base.trainable = True
    count = len(base.layers)
    trainable = count if phase.trainable is True else int(phase.trainable)
    for index, layer in enumerate(base.layers):
        stays_frozen = pretrained and isinstance(layer, keras.layers.BatchNormalization)
        layer.trainable = index >= count - trainable and not stays_frozen
