"""Whether a network, an optimizer and schedules can be trained as a configuration says, before anything is imported."""

import difflib
import math
from collections.abc import Mapping
from typing import Any

from conf import plan

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
SAVE_MODEL = ("best", "last", "none")


def check_optimizer(optimizer: Mapping[str, Any], gpus: int) -> None:
    """Raise ValueError for settings that the optimizer has no use for, or gets wrong on several GPUs."""
    kind = str(optimizer.get("_target_"))
    if kind.endswith(".AdamW") and "weight_decay" in optimizer and optimizer["weight_decay"] is None:
        raise ValueError(
            "optimizer.weight_decay=null: adamw is adam with weight decay, a number >= 0; try optimizer=adam"
        )
    if gpus < 2:
        return
    for key in WRONG_ON_SEVERAL:
        if optimizer.get(key) is not None:
            raise ValueError(f"optimizer.{key} is wrong with gpus={gpus}; leave it out, or use gpus=1")
    if kind.endswith("ScheduleFreeAdamW"):
        raise ValueError(f"ScheduleFreeAdamW is wrong with gpus={gpus}; use gpus=1, or optimizer=adamw")


def check_loss(loss: Mapping[str, Any], gpus: int) -> None:
    """Raise ValueError for a loss that belongs to a batch as a whole, on several GPUs."""
    if gpus > 1 and str(loss.get("_target_")).endswith("WeightedKappa"):
        raise ValueError(
            f"loss=weighted_kappa judges a batch as a whole, of which each of gpus={gpus} sees a share; use gpus=1"
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


def epochs_of(cfg: Any, rows: int | None) -> int:
    """How many epochs the budget makes; a guess from above if nobody knows the `rows`."""
    if cfg.steps is None and cfg.images is None:
        return int(cfg.epochs)
    return plan.plan(cfg, rows).epochs if rows else int(cfg.steps or cfg.images)


def check_schedules(cfg: Any, rows: int | None) -> None:
    """Raise ValueError for batches that outgrow the `rows` for training (None: unknown) and rates that reach zero."""
    sections = {"batch_schedule": cfg.batch_schedule, "lr_schedule": cfg.lr_schedule}
    if not all(str(section.get("_target_")).startswith("conf.plan.") for section in sections.values()):
        return  # somebody's own; seen when it runs
    constant = cfg.batch_schedule["_target_"] == "conf.plan.constant_batch"
    if constant and cfg.lr_schedule["_target_"] == "conf.plan.constant":
        return
    if rows is None and not constant:
        return
    # What an epoch holds does not matter to a rate that follows epochs.
    planned = plan.plan(cfg, rows or 100 * cfg.batch_size)
    _check_batches(cfg, rows, planned)
    phases = [(0, planned.epochs)]
    head = int(cfg.model.get("head_epochs") or 0)
    if 0 < head < planned.epochs:
        phases = [(0, head), (head, planned.epochs)]
    for first, end in phases:
        zero = (plan.shares(cfg, planned, first, end) * cfg.lr < plan.SMALLEST).nonzero()[0]
        if len(zero):
            epoch = first + _epoch_of(int(zero[0]), planned.steps[first:end])
            name = str(cfg.lr_schedule["_target_"]).rpartition(".")[2]
            remedy = "final=0.01" if "final" in cfg.lr_schedule else "factor=0.9"
            if "start" in cfg.lr_schedule and epoch == first + 1:
                remedy = "start=0.1"
            raise ValueError(
                f"lr_schedule={name} reaches 0 in epoch {epoch} of {planned.epochs}: nothing would be learned there; "
                f"try lr_schedule.{remedy}"
            )


def _check_batches(cfg: Any, rows: int | None, planned: plan.Plan) -> None:
    name = str(cfg.batch_schedule["_target_"]).rpartition(".")[2].removesuffix("_batch")
    size_of = plan.function(cfg.batch_schedule)
    sizes = [size_of(cfg.batch_size, epoch) for epoch in range(max(planned.epochs, 1))]
    for epoch, size in enumerate(sizes, start=1):
        if rows is not None and size > rows:
            raise ValueError(
                f"batch_schedule={name} reaches batch_size={size} in epoch {epoch}, larger than the training set "
                f"({rows} examples); try batch_schedule.maximum={2 ** int(math.log2(rows))}"
            )
        if cfg.gpus > 1 and size % cfg.gpus:
            raise ValueError(
                f"batch_schedule={name} reaches batch_size={size} in epoch {epoch}, which gpus={cfg.gpus} cannot share "
                f"equally; start and grow by multiples of {cfg.gpus}"
            )


def _epoch_of(step: int, steps: tuple[int, ...]) -> int:
    for epoch, count in enumerate(steps, start=1):
        if step < count:
            return epoch
        step -= count
    return len(steps)


def check_trainer(trainer: Mapping[str, Any]) -> None:
    """Raise ValueError for options of conf/trainer/keras.yaml that are none."""
    value = trainer.get("save_model", "none")
    if value not in SAVE_MODEL:
        raise ValueError(f"trainer.save_model={value}: must be {', '.join(SAVE_MODEL[:-1])} or {SAVE_MODEL[-1]}")
