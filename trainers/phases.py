"""The phases of a training: the head of a known network alone first, then its base too, at a rate of its own.

What is frozen is baked into a compiled pass and an optimizer's variables: each phase has its own of both.
"""

from dataclasses import dataclass
from typing import Any

import keras

from trainers.networks import base_of
from trainers.parallel import effective_lr, lr_factor
from trainers.schedules import Plan


@dataclass(frozen=True)
class Phase:
    """Some epochs of a training that follow each other."""

    number: int
    """Counts from 1."""
    first: int
    """Epochs of the plan: from `first` up to `end`, counted from 0."""
    end: int
    lr: float
    learning: bool | int
    """How much of the base learns: all, nothing, or its last so many layers."""


def phases(cfg: Any, plan: Plan) -> list[Phase]:
    """One phase, or two if the head learns alone for `model.head_epochs`."""
    lr = effective_lr(cfg)
    fine_tune, head = cfg.model.get("fine_tune", True), int(cfg.model.get("head_epochs") or 0)
    if not head or head >= plan.epochs:
        return [Phase(1, 0, plan.epochs, lr, fine_tune if not head else False)]
    then = Phase(2, head, plan.epochs, lr_factor(cfg) * (cfg.model.get("fine_tune_lr") or cfg.lr), fine_tune)
    return [Phase(1, 0, head, lr, False), then]


def freeze(model: keras.Model, phase: Phase, pretrained: bool) -> None:
    """Let that part of the model's base learn which does in `phase`. Without a base everything learns.

    A frozen batch normalization works with the statistics that it came with. In a pretrained base all of them stay
    frozen: a few small batches would spoil what they know (Keras' guide to transfer learning).
    """
    base = base_of(model)
    if base is None:
        return
    base.trainable = True
    count = len(base.layers)
    learning = count if phase.learning is True else int(phase.learning)
    for place, layer in enumerate(base.layers):
        normalizes = pretrained and isinstance(layer, keras.layers.BatchNormalization)
        layer.trainable = place >= count - learning and not normalizes
