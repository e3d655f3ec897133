"""Checks that a network, an optimizer and schedules can be trained as configured, before anything
is imported."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig

from trainers import parallel, schedules
from trainers.config import targets

WRONG_ON_SEVERAL = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_accumulation_steps")
"""Optimizer settings that would apply to one device's share of a batch instead of the whole
batch."""

ACTIVATED = ("trainers.networks.mlp", "trainers.networks.cnn")
NO_ACTIVATIONS = {"get", "serialize", "deserialize"}
"""Names in keras.activations that are no activations."""


def check_optimizer(optimizer: Mapping[str, Any], cfg: Any) -> None:
    """Raise ValueError for settings that the optimizer does not use, or that are wrong on several
    devices."""
    kind = str(optimizer.get("_target_"))
    if kind.endswith(".AdamW") and optimizer.get("weight_decay", 0) is None:
        raise ValueError(
            "optimizer.weight_decay=null: adamw needs a weight decay >= 0; try optimizer=adam"
        )
    if parallel.replicas(cfg) < 2:
        return
    several = parallel.device_settings(cfg)
    single = parallel.single_device_settings(cfg)
    for key in WRONG_ON_SEVERAL:
        if optimizer.get(key) is not None:
            raise ValueError(f"optimizer.{key} is wrong with {several}; remove it, or use {single}")
    if kind.endswith("ScheduleFreeAdamW"):
        raise ValueError(
            f"ScheduleFreeAdamW is wrong with {several}; use {single}, or optimizer=adamw"
        )


def check_several(cfg: Any) -> None:
    """Raise ValueError for XLA, or a loss of the whole batch, on several devices."""
    if parallel.replicas(cfg) < 2:
        return
    several = parallel.device_settings(cfg)
    single = parallel.single_device_settings(cfg)
    if str(cfg.loss.get("_target_")).endswith("WeightedKappa"):
        raise ValueError(
            f"loss=weighted_kappa needs the whole batch, but {several} shares each batch among"
            f" devices; use {single}"
        )
    if cfg.model.get("jit"):
        raise ValueError(f"model.jit=true does not work with {several}; remove it, or use {single}")


def check_activation(model: Mapping[str, Any]) -> None:
    """Raise ValueError for an activation that Keras does not have. Without Keras any passes: see
    `targets.check`."""
    if model.get("_target_") not in ACTIVATED:
        return
    name = model.get("activation")
    activations = targets.names_in("keras", "activations") - NO_ACTIVATIONS
    if name in activations or not activations:
        return
    hint = targets.suggest(str(name), activations) or "; try model.activation=relu"
    raise ValueError(f"model.activation={name}: no such name in keras.activations{hint}")


def check_devices(cfg: Any) -> None:
    """Raise ValueError for devices, batch sizes and learning rates that conflict."""
    if cfg.ranks > 1 and cfg.gpus and cfg.trainer.get("_target_") == parallel.KERAS_TRAINER:
        raise ValueError(
            f"ranks={cfg.ranks} gpus={cfg.gpus}: ranks train on CPUs; one process uses all GPUs of"
            f" a node.\nType gpus={cfg.gpus} for the GPUs of each node, with nodes=N for more"
            f" nodes; or ranks={cfg.ranks} gpus=0"
        )
    # Because other schedules set a batch_size of their own.
    is_constant = schedules.builtin_name(cfg.batch_schedule) == "constant_batch"
    size = parallel.batch_size(cfg)
    if (
        is_constant
        and cfg.batch_per_gpu is not None
        and cfg.batch_size not in (type(cfg).batch_size, size)
    ):
        raise _batch_conflict(cfg, size)
    _check_lr_scaling(cfg)


def _check_lr_scaling(cfg: Any) -> None:
    """Raise ValueError for a setting of the scaled learning rate without another one that it
    needs."""
    is_scaled = cfg.lr_scaling != "none"
    size = cfg.lr_batch_size
    if is_scaled != (size is not None) or (is_scaled and size < 1):
        raise ValueError(
            f"lr_scaling={cfg.lr_scaling} lr_batch_size={'null' if size is None else size}:"
            " lr_scaling and lr_batch_size >= 1 need each other. Use both, as in lr_scaling=linear"
            " lr_batch_size=256 (the batch size of lr), or remove both"
        )
    if cfg.warmup_epochs and not is_scaled:
        raise ValueError(
            f"warmup_epochs={cfg.warmup_epochs} raises lr to the scaled lr, and has no effect with"
            " lr_scaling=none; try lr_schedule=warmup"
        )


def check_task(cfg: Any) -> None:
    """Raise ValueError unless data set and loss are for the same task."""
    data = cfg.dataset.get("task")
    loss = cfg.loss.get("task")
    if data is None and loss is None:
        raise ValueError(
            "dataset.task and loss.task are both null: the task is unknown. Use"
            " dataset.task=classification or dataset.task=regression"
        )
    if data is not None and loss is not None and data != loss:
        other_loss = "cross_entropy" if data == "classification" else "mse"
        raise ValueError(f"the loss is for {loss}, the data set for {data}; try loss={other_loss}")


def check_objective(cfg: Any) -> None:
    """Raise ValueError for labels that the loss does not take, and for a validation metric without
    validation data."""
    if cfg.dataset.get("labels") == "one_hot" and ".Sparse" in str(cfg.loss.get("_target_")):
        raise ValueError(
            f"dataset.labels=one_hot, but {cfg.loss['_target_']} takes classes; try loss=softmax"
        )
    if cfg.dataset.get("validation") == "none" and str(cfg.loss.get("objective")).startswith(
        "val_"
    ):
        raise ValueError(
            f"dataset.validation=none leaves no validation data, so that {cfg.loss['objective']} is"
            " missing.\nType loss.objective=loss loss.direction=minimize"
        )


def check_reports(trainer: Mapping[str, Any], dataset: Mapping[str, Any]) -> None:
    """Raise ValueError for validations within epochs that no report would show, or without
    validation data."""
    reports = trainer.get("report_every_steps")
    validates = trainer.get("validate_every_steps")
    if validates is None:
        return
    setting = f"trainer.validate_every_steps={validates}"
    if dataset.get("validation") == "none":
        raise ValueError(
            f"{setting}, but dataset.validation=none leaves no validation data. Remove one."
        )
    if reports is None:
        raise ValueError(
            f"{setting}: needs reports within epochs. Add trainer.report_every_steps={validates}"
        )
    if validates % reports:
        multiple = -(-validates // reports) * reports
        problem = f"must be a multiple of trainer.report_every_steps={reports}"
        raise ValueError(f"{setting}: {problem}; try trainer.validate_every_steps={multiple}")


def check_longer(cfg: Any) -> None:
    """Raise ValueError for a learning rate that depends on the end of the training."""
    is_ours = cfg.trainer.get("_target_") == parallel.KERAS_TRAINER
    if is_ours and schedules.depends_on_end(cfg):
        name = schedules.builtin_name(cfg.lr_schedule) or cfg.lr_schedule["_target_"]
        raise ValueError(
            f"lr_schedule={name} depends on the end of the training, so that a longer training is"
            " another trial"
        )


def check_plausible(cfg: Any) -> None:
    """Raise ValueError for settings without effect, an objective never reported, and a val_accuracy
    above 1."""
    _check_reported(cfg)
    _check_typed_batch(cfg)
    _check_typed_epochs(cfg)
    if cfg.target is not None and cfg.target > 1 and cfg.loss.get("objective") == "val_accuracy":
        hint = f"; try target={cfg.target / 100:g}" if cfg.target <= 100 else ""
        raise ValueError(f"target={cfg.target:g}: val_accuracy is between 0 and 1{hint}")
    has_epochs = cfg.steps is None and cfg.images is None
    for name, warmup in (
        ("lr_schedule.warmup_epochs", cfg.lr_schedule.get("warmup_epochs") or 0),
        ("warmup_epochs", cfg.warmup_epochs),
    ):
        if has_epochs and warmup > cfg.epochs:
            raise ValueError(
                f"{name}={warmup:g} is longer than the training (epochs={cfg.epochs}), so that lr"
                f" is never reached; try {name}={cfg.epochs / 10:g}"
            )


def _check_typed_epochs(cfg: Any) -> None:
    """Raise ValueError if typed epochs have no effect, because the budget is in steps or in
    images."""
    budget = next((name for name in ("steps", "images") if getattr(cfg, name) is not None), "")
    if budget and _is_typed("epochs"):
        problem = f"epochs={cfg.epochs} and {budget}={getattr(cfg, budget)} are two budgets"
        raise ValueError(f"{problem}.\nRemove epochs={cfg.epochs}, or type {budget}=null")


def _check_typed_batch(cfg: Any) -> None:
    """Raise ValueError if a typed batch_size has no effect, also if the value is the default."""
    size = parallel.batch_size(cfg)
    has_two = cfg.batch_per_gpu is not None and cfg.batch_size != size
    if has_two and _is_typed("batch_size"):
        raise _batch_conflict(cfg, size)


def _is_typed(key: str) -> bool:
    typed = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    return any(word.startswith(f"{key}=") for word in typed)


def _batch_conflict(cfg: Any, size: int) -> ValueError:
    problem = (
        f"batch_per_gpu={cfg.batch_per_gpu} (batch_size={size}) and batch_size={cfg.batch_size}"
        " conflict"
    )
    return ValueError(f"{problem}.\nRemove one.")


def _check_reported(cfg: Any) -> None:
    """Raise ValueError if our trainer reports no metric of the objective's name:
    trainers/trainer.py."""
    if cfg.trainer.get("_target_") != parallel.KERAS_TRAINER or not HydraConfig.initialized():
        return
    losses = (
        ["loss"]
        if "regression" in (cfg.dataset.get("task"), cfg.loss.get("task"))
        else ["accuracy", "loss"]
    )
    judged = [] if cfg.dataset.get("validation") == "none" else [f"val_{name}" for name in losses]
    metrics = [*judged, *losses, "epoch_time", "images_per_second", "learning_rate"]
    objective = HydraConfig.get().sweeper.get("objective") or []
    for name in [objective] if isinstance(objective, str) else objective:
        if name not in metrics:
            hint = targets.suggest(name, metrics)
            raise ValueError(
                f"hydra.sweeper.objective={name}: the trainer reports no such metric{hint}\n"
                f"Choose one of: {', '.join(metrics)}"
            )


def epochs_of(cfg: Any, rows: int | None) -> int:
    """Return the number of epochs of the budget; if `rows` is unknown, an upper bound."""
    if cfg.steps is None and cfg.images is None:
        return int(cfg.epochs)
    return schedules.plan(cfg, rows).epochs if rows else int(cfg.steps or cfg.images)


def check_schedules(cfg: Any, rows: int | None) -> None:
    """Raise ValueError for batches larger than the `rows` for training (None: unknown), and rates
    that reach zero."""
    schedules.check_batch(cfg, parallel.batch_size(cfg), 1, rows)
    batches = schedules.builtin_name(cfg.batch_schedule)
    rates = schedules.builtin_name(cfg.lr_schedule)
    if not batches or not rates:  # a user's own function, whose values are known only in training
        return
    if (batches, rates) == ("constant_batch", "constant"):
        return
    if rows is None and batches != "constant_batch":
        return
    # Any number of rows will do, because rates depend on epochs.
    planned = schedules.plan(cfg, rows or 100 * parallel.batch_size(cfg))
    head = int(cfg.model.get("head_epochs") or 0)
    bounds = [0, head, planned.epochs] if 0 < head < planned.epochs else [0, planned.epochs]
    for first, end in pairwise(bounds):
        _refuse_zero(cfg, planned, first, end)


def _refuse_zero(cfg: Any, planned: schedules.Plan, first: int, end: int) -> None:
    """Raise ValueError if the learning rate reaches zero in a phase, epochs `first` (from 0) up to
    `end`."""
    rates = schedules.lr_factors(cfg, planned, first, end) * cfg.lr
    zeros = np.flatnonzero(rates < schedules.SMALLEST_LR)
    if not len(zeros):
        return
    ends = np.cumsum(planned.steps[first:end])
    epoch = first + int(np.searchsorted(ends, zeros[0], "right")) + 1
    remedy = "final=0.01" if "final" in cfg.lr_schedule else "factor=0.9"
    if "start" in cfg.lr_schedule and epoch == first + 1:
        remedy = "start=0.1"
    name = schedules.builtin_name(cfg.lr_schedule)
    raise ValueError(
        f"lr_schedule={name} reaches 0 in epoch {epoch} of {planned.epochs}: "
        f"nothing would be learned there; try lr_schedule.{remedy}"
    )
