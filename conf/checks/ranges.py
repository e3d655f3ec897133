"""Types and ranges of hyperparameters by name: the same name means the same thing in every optimizer."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Number:
    """low <= value < high, or value > low if `above`; `high` itself is allowed if `closed`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    closed: bool = True
    whole: bool = False
    optional: bool = False  # null is allowed
    several: bool = False  # a list of such numbers

    def allows(self, value: object) -> bool:
        """Whether `value` has the right type and lies in the range."""
        if value is None:
            return self.optional
        if self.several:
            return isinstance(value, list) and all(self._holds(item) for item in value)
        return self._holds(value)

    def _holds(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        if not math.isfinite(value) or value < self.low or value > self.high:
            return False
        return not (self.above and value == self.low) and (self.closed or value != self.high)

    def __str__(self) -> str:
        noun = "whole number" if self.whole else "number"
        kind = f"a list of {noun}s" if self.several else f"a {noun}"
        bounds = [f"{'>' if self.above else '>='} {self.low:g}"] if self.low > -math.inf else []
        bounds += [f"{'<=' if self.closed else '<'} {self.high:g}"] if self.high < math.inf else []
        return " ".join([kind, " and ".join(bounds)]).strip() + (" or null" if self.optional else "")


@dataclass(frozen=True)
class Kind:
    """What is no number."""

    words: str
    allows: Callable[[object], bool]

    def __str__(self) -> str:
        return self.words


def choice(*words: str) -> Kind:
    """One of some words."""
    return Kind(f"{', '.join(words[:-1])} or {words[-1]}", words.__contains__)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_share_of_layers(value: object) -> bool:
    return _is_flag(value) or (isinstance(value, int) and value >= 1)


def _is_folder(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_channels(value: object) -> bool:
    return value in (None, 1, 3, 4) and not _is_flag(value)


SHARE = Number(0, 1)
SHARE_BELOW_1 = Number(0, 1, closed=False)
NOT_NEGATIVE = Number(0)
POSITIVE = Number(0, above=True)
POSITIVE_OR_NULL = Number(0, above=True, optional=True)
COUNT = Number(1, whole=True)
COUNTS = Number(1, whole=True, several=True)
FLAG = Kind("true or false", _is_flag)

RANGES: dict[str, dict[str, Number | Kind]] = {
    "optimizer": {
        "amsgrad": FLAG,
        "beta": NOT_NEGATIVE,
        "beta_1": SHARE_BELOW_1,
        "beta_2": SHARE_BELOW_1,
        "centered": FLAG,
        "clipnorm": POSITIVE_OR_NULL,
        "clipvalue": POSITIVE_OR_NULL,
        "ema_momentum": SHARE,
        "ema_overwrite_frequency": Number(1, whole=True, optional=True),
        "epsilon": POSITIVE,
        "global_clipnorm": POSITIVE_OR_NULL,
        "gradient_accumulation_steps": Number(2, whole=True, optional=True),
        "initial_accumulator_value": NOT_NEGATIVE,
        "l1_regularization_strength": NOT_NEGATIVE,
        "l2_regularization_strength": NOT_NEGATIVE,
        "l2_shrinkage_regularization_strength": NOT_NEGATIVE,
        "learning_rate_power": Number(high=0),
        "loss_scale_factor": POSITIVE_OR_NULL,
        "momentum": SHARE,
        "nesterov": FLAG,
        "rho": SHARE,
        "use_ema": FLAG,
        "weight_decay": Number(0, optional=True),
    },
    "model": {
        "dropout": SHARE_BELOW_1,
        "filters": COUNTS,
        "fine_tune": Kind("true, false or a number of layers >= 1", _is_share_of_layers),
        "fine_tune_lr": POSITIVE_OR_NULL,
        "head_epochs": Number(0, whole=True),
        "hidden": COUNTS,
        "initial_bias": Number(optional=True),
        "initial_weight": Number(optional=True),
        "jit": FLAG,
        "kernel_size": COUNT,
        "sync_batch_norm": FLAG,
    },
    "loss": {
        "alpha": SHARE,
        "delta": POSITIVE,
        "from_logits": FLAG,
        "gamma": NOT_NEGATIVE,
        "label_smoothing": SHARE,
        "pos_weight": POSITIVE,
        "power": POSITIVE,
    },
    "lr_schedule": {
        "decay_epochs": POSITIVE_OR_NULL,
        "every_epochs": POSITIVE,
        "factor": POSITIVE,
        "final": SHARE,
        "power": POSITIVE,
        "start": SHARE,
        "warmup_epochs": NOT_NEGATIVE,
        "warmup_share": Number(0, 1, above=True, closed=False),
    },
    "batch_schedule": {
        "every_epochs": COUNT,
        "increase": COUNT,
        "lr_follows": FLAG,
        "maximum": Number(1, whole=True, optional=True),
    },
    "dataset": {
        "batches": choice("without", "with"),
        "cache": Kind("a folder, such as dataset.cache=/scratch/me, or null", _is_folder),
        "cache_gb": POSITIVE,
        "channels": Kind("1 (grey), 3 (colour), 4 (colour and transparency) or null", _is_channels),
        "inputs": COUNT,
        "labels": choice("sparse", "one_hot"),
        "n_train": Number(2, whole=True, optional=True),
        "noise": NOT_NEGATIVE,
        "points": Number(2, whole=True),
        "resident_gb": NOT_NEGATIVE,
        "skip_broken": FLAG,
        "subset": Number(0, above=True, optional=True),
        "test_points": COUNT,
        "validation": choice("split", "test", "none"),
        "validation_split": Number(0, 1, above=True, closed=False),
    },
    "trainer": {
        "checkpoint_interval_s": NOT_NEGATIVE,
        "early_stopping_patience": Number(1, whole=True, optional=True),
        "most": Number(1, whole=True, optional=True),
        "precision": Number(0, 1, above=True, closed=False),
        "preload": Kind("a list of names, such as [torch,numpy]", _is_names),
        "reserve": SHARE_BELOW_1,
        "save_model": choice("best", "last", "none"),
        "try_timeout_s": POSITIVE,
    },
}


def check(section: str, values: Mapping[str, Any]) -> None:
    """Check the values of a config section by their names; raises ValueError for the first that is wrong."""
    for name, value in values.items():
        known = RANGES[section].get(str(name))
        if known is not None and not known.allows(value):
            shown = "null" if value is None else value
            raise ValueError(f"{section}.{name}={shown}: must be {known}")
