"""Whether a network, an optimizer and schedules can be trained as a configuration says, before anything is imported."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainers import parallel, schedules
from trainers.config import targets

WRONG_ON_SEVERAL = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_accumulation_steps")
"""Settings of an optimizer that see one device's share of a batch where they should see the whole."""

ACTIVATED = ("trainers.networks.mlp", "trainers.networks.cnn")
NO_ACTIVATIONS = {"get", "serialize", "deserialize"}
"""Of what keras.activations holds."""


def check_optimizer(optimizer: Mapping[str, Any], cfg: Any) -> None:
    """Raise ValueError for settings that the optimizer has no use for, or gets wrong on several devices."""
    kind = str(optimizer.get("_target_"))
    if kind.endswith(".AdamW") and "weight_decay" in optimizer and optimizer["weight_decay"] is None:
        raise ValueError(
            "optimizer.weight_decay=null: adamw is adam with weight decay, a number >= 0; try optimizer=adam"
        )
    if parallel.replicas(cfg) < 2:
        return
    several = parallel.device_settings(cfg)
    for key in WRONG_ON_SEVERAL:
        if optimizer.get(key) is not None:
            raise ValueError(
                f"optimizer.{key} is wrong with {several}; leave it out, or use {parallel.single_device_settings(cfg)}"
            )
    if kind.endswith("ScheduleFreeAdamW"):
        raise ValueError(
            f"ScheduleFreeAdamW is wrong with {several}; use {parallel.single_device_settings(cfg)}, or optimizer=adamw"
        )


def check_several(cfg: Any) -> None:
    """Raise ValueError for XLA on several devices, and for a loss that belongs to a batch as a whole."""
    if parallel.replicas(cfg) < 2:
        return
    several, alone = parallel.device_settings(cfg), parallel.single_device_settings(cfg)
    if str(cfg.loss.get("_target_")).endswith("WeightedKappa"):
        raise ValueError(
            f"loss=weighted_kappa judges a batch as a whole, of which each of {several} sees a share; use {alone}"
        )
    if cfg.model.get("jit"):
        raise ValueError(f"model.jit=true does not work with {several}; leave it out, or use {alone}")


def check_activation(model: Mapping[str, Any]) -> None:
    """Raise ValueError for an activation that Keras does not have."""
    if model.get("_target_") not in ACTIVATED:
        return
    name, activations = model.get("activation"), targets.names_in("keras", "activations") - NO_ACTIVATIONS
    if name in activations:
        return
    hint = targets.near(str(name), activations) or "; try model.activation=relu"
    raise ValueError(f"model.activation={name}: keras.activations has none of that name{hint}")


def check_devices(cfg: Any) -> None:
    """Raise ValueError for devices, batches and rates that do not go together."""
    if cfg.ranks > 1 and cfg.gpus and cfg.trainer.get("_target_") == parallel.KERAS_TRAINER:
        raise ValueError(
            f"ranks={cfg.ranks} gpus={cfg.gpus}: ranks train on CPUs; with GPUs one process drives all of a node\n"
            f"Say gpus={cfg.gpus} for those of a node and nodes=N for several nodes, or ranks={cfg.ranks} gpus=0"
        )
    made = parallel.batch_size(cfg)
    # Other schedules bring a size of their own.
    shared = cfg.batch_per_gpu is not None and schedules.builtin_name(cfg.batch_schedule) == "constant_batch"
    if shared and cfg.batch_size not in (type(cfg).batch_size, made):
        raise ValueError(
            f"batch_per_gpu={cfg.batch_per_gpu} makes batches of {made}, batch_size={cfg.batch_size} "
            "says another thing; leave one of them out"
        )
    scaled, size = cfg.lr_scaling != "none", cfg.lr_batch_size
    if scaled != (size is not None) or (scaled and size < 1):
        raise ValueError(
            f"lr_scaling={cfg.lr_scaling} lr_batch_size={'null' if size is None else size}: to scale lr, say by which "
            "rule, and for which batch size (>= 1) it was found, as in lr_scaling=linear lr_batch_size=256; else leave "
            "both out"
        )
    if cfg.warmup_epochs and not scaled:
        raise ValueError(
            f"warmup_epochs={cfg.warmup_epochs} goes from lr to the lr that lr_scaling makes of it, and "
            "lr_scaling=none makes nothing; try lr_schedule=warmup"
        )


def check_budget(cfg: Any) -> None:
    """Raise ValueError for two budgets."""
    if cfg.steps is not None and cfg.images is not None:
        raise ValueError(f"steps={cfg.steps} and images={cfg.images} are two budgets; leave one of them out")


def check_task(cfg: Any) -> None:
    """Raise ValueError unless dataset and loss are for the same task."""
    data, loss = cfg.dataset.get("task"), cfg.loss.get("task")
    if data is None and loss is None:
        raise ValueError(
            "dataset.task and loss.task are both null: say what is learned with dataset.task=classification "
            "or dataset.task=regression"
        )
    if data is not None and loss is not None and data != loss:
        fitting = "cross_entropy" if data == "classification" else "mse"
        raise ValueError(f"The loss is for {loss}, the dataset is a {data}; try loss={fitting}")


def check_objective(cfg: Any) -> None:
    """Raise ValueError for labels that the loss does not take, and an objective that nothing gives."""
    if cfg.dataset.get("labels") == "one_hot" and ".Sparse" in str(cfg.loss.get("_target_")):
        raise ValueError(f"dataset.labels=one_hot, but {cfg.loss['_target_']} takes classes; try loss=softmax")
    if cfg.dataset.get("validation") == "none" and str(cfg.loss.get("objective")).startswith("val_"):
        raise ValueError(
            f"dataset.validation=none holds out nothing, so that there is no {cfg.loss['objective']} to be judged by\n"
            "Say loss.objective=loss loss.direction=minimize"
        )


def check_plausible(cfg: Any) -> None:
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
    return schedules.plan(cfg, rows).epochs if rows else int(cfg.steps or cfg.images)


def check_schedules(cfg: Any, rows: int | None) -> None:
    """Raise ValueError for batches that outgrow the `rows` for training (None: unknown) and rates that reach zero."""
    schedules.check_batch(cfg, parallel.batch_size(cfg), 1, rows)
    batches, rates = schedules.builtin_name(cfg.batch_schedule), schedules.builtin_name(cfg.lr_schedule)
    if (batches, rates) == ("constant_batch", "constant"):
        return
    if not batches or not rates:
        return  # somebody's own; seen when it runs
    if rows is None and batches != "constant_batch":
        return
    # What an epoch holds does not matter to a rate that follows epochs.
    planned = schedules.plan(cfg, rows or 100 * parallel.batch_size(cfg))
    phases = [(0, planned.epochs)]
    head = int(cfg.model.get("head_epochs") or 0)
    if 0 < head < planned.epochs:
        phases = [(0, head), (head, planned.epochs)]
    for first, end in phases:
        zero = (schedules.lr_factors(cfg, planned, first, end) * cfg.lr < schedules.SMALLEST_LR).nonzero()[0]
        if not len(zero):
            continue
        epoch = first + int(np.searchsorted(np.cumsum(planned.steps[first:end]), zero[0], "right")) + 1
        remedy = "final=0.01" if "final" in cfg.lr_schedule else "factor=0.9"
        if "start" in cfg.lr_schedule and epoch == first + 1:
            remedy = "start=0.1"
        raise ValueError(
            f"lr_schedule={rates} reaches 0 in epoch {epoch} of {planned.epochs}: "
            f"nothing would be learned there; try lr_schedule.{remedy}"
        )
