"""Whether a network, an optimizer and schedules can be trained as a configuration says, before anything is imported."""

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np

from conf import parallel, plan

WRONG_ON_SEVERAL = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_accumulation_steps")
"""Settings of an optimizer that see one device's share of a batch where they should see the whole."""

ACTIVATIONS = (
    *("celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish"),
    *("hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu"),
    *("sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid"),
    *("sparsemax", "squareplus", "swish", "tanh", "tanh_shrink", "threshold"),
)
"""Of Keras 3.15, which a check has no time to import."""
ACTIVATED = ("trainers.networks.mlp", "trainers.networks.cnn")


def check_optimizer(optimizer: Mapping[str, Any], cfg: Any) -> None:
    """Raise ValueError for settings that the optimizer has no use for, or gets wrong on several devices."""
    kind = str(optimizer.get("_target_"))
    if kind.endswith(".AdamW") and "weight_decay" in optimizer and optimizer["weight_decay"] is None:
        raise ValueError(
            "optimizer.weight_decay=null: adamw is adam with weight decay, a number >= 0; try optimizer=adam"
        )
    if parallel.replicas(cfg) < 2:
        return
    several = parallel.named(cfg)
    for key in WRONG_ON_SEVERAL:
        if optimizer.get(key) is not None:
            raise ValueError(f"optimizer.{key} is wrong with {several}; leave it out, or use {parallel.alone(cfg)}")
    if kind.endswith("ScheduleFreeAdamW"):
        raise ValueError(f"ScheduleFreeAdamW is wrong with {several}; use {parallel.alone(cfg)}, or optimizer=adamw")


def check_jit(model: Mapping[str, Any], cfg: Any) -> None:
    """Raise ValueError for XLA on several devices."""
    if parallel.replicas(cfg) > 1 and model.get("jit"):
        raise ValueError(
            f"model.jit=true does not work with {parallel.named(cfg)}; leave it out, or use {parallel.alone(cfg)}"
        )


def check_loss(loss: Mapping[str, Any], cfg: Any) -> None:
    """Raise ValueError for a loss that belongs to a batch as a whole, on several devices."""
    if parallel.replicas(cfg) > 1 and str(loss.get("_target_")).endswith("WeightedKappa"):
        raise ValueError(
            f"loss=weighted_kappa judges a batch as a whole, of which each of {parallel.named(cfg)} sees a share; "
            f"use {parallel.alone(cfg)}"
        )


def check_activation(model: Mapping[str, Any]) -> None:
    """Raise ValueError for an activation that Keras does not have."""
    name = model.get("activation")
    if model.get("_target_") not in ACTIVATED or name in ACTIVATIONS:
        return
    near = difflib.get_close_matches(str(name), ACTIVATIONS, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "try model.activation=relu"
    raise ValueError(f"model.activation={name}: keras.activations has none of that name; {hint}")


def check_budget(cfg: Any) -> None:
    """Raise ValueError unless one budget is given, and it is positive."""
    for name in ("steps", "images"):
        value = getattr(cfg, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: must be >= 1, or null for a budget of epochs={cfg.epochs}")
    if cfg.steps is not None and cfg.images is not None:
        raise ValueError(f"steps={cfg.steps} and images={cfg.images} are two budgets; leave one of them out")


def check_meant(cfg: Any) -> None:
    """Raise ValueError for a target that no share of 1 reaches, and a warm-up that ends after the training."""
    if cfg.target is not None and cfg.target > 1 and cfg.loss.get("objective") == "val_accuracy":
        meant = f"; try target={cfg.target / 100:g}" if cfg.target <= 100 else ""
        raise ValueError(f"target={cfg.target:g}: val_accuracy is a share, from 0 to 1{meant}")
    epochs = cfg.epochs if cfg.steps is None and cfg.images is None else None
    for name, warmup in (
        ("lr_schedule.warmup_epochs", cfg.lr_schedule.get("warmup_epochs") or 0),
        ("warmup_epochs", cfg.warmup_epochs),
    ):
        if epochs is not None and warmup > epochs:
            raise ValueError(
                f"{name}={warmup:g} is longer than the training, which has epochs={epochs}: lr would never be reached; "
                f"try {name}={epochs / 10:g}"
            )


def epochs_of(cfg: Any, rows: int | None) -> int:
    """How many epochs the budget makes; a guess from above if nobody knows the `rows`."""
    if cfg.steps is None and cfg.images is None:
        return int(cfg.epochs)
    return plan.plan(cfg, rows).epochs if rows else int(cfg.steps or cfg.images)


def check_schedules(cfg: Any, rows: int | None) -> None:
    """Raise ValueError for batches that outgrow the `rows` for training (None: unknown) and rates that reach zero."""
    plan.check_batch(cfg, parallel.batch_size(cfg), 1, rows)
    targets = str(cfg.batch_schedule.get("_target_")), str(cfg.lr_schedule.get("_target_"))
    if targets == ("conf.plan.constant_batch", "conf.plan.constant"):
        return
    if not all(target.startswith("conf.plan.") for target in targets):
        return  # somebody's own; seen when it runs
    if rows is None and targets[0] != "conf.plan.constant_batch":
        return
    # What an epoch holds does not matter to a rate that follows epochs.
    planned = plan.plan(cfg, rows or 100 * parallel.batch_size(cfg))
    phases = [(0, planned.epochs)]
    head = int(cfg.model.get("head_epochs") or 0)
    if 0 < head < planned.epochs:
        phases = [(0, head), (head, planned.epochs)]
    for first, end in phases:
        zero = (plan.shares(cfg, planned, first, end) * cfg.lr < plan.SMALLEST).nonzero()[0]
        if not len(zero):
            continue
        epoch = first + int(np.searchsorted(np.cumsum(planned.steps[first:end]), zero[0], "right")) + 1
        remedy = "final=0.01" if "final" in cfg.lr_schedule else "factor=0.9"
        if "start" in cfg.lr_schedule and epoch == first + 1:
            remedy = "start=0.1"
        raise ValueError(
            f"lr_schedule={targets[1].rpartition('.')[2]} reaches 0 in epoch {epoch} of {planned.epochs}: "
            f"nothing would be learned there; try lr_schedule.{remedy}"
        )
