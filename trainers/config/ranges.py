"""The keys of each section and their allowed values; the comments of conf/ explain them. A name
means the same in every optimizer."""

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from trainers.config.augment import SETTINGS

CACHE_GB = 20.0
ABSENT = object()


@dataclass(frozen=True)
class Number:
    """A number in a range, a list of such numbers, or null."""

    low: float = -math.inf
    above: float = -math.inf
    high: float = math.inf
    below: float = math.inf
    whole: bool = False
    many: bool = False  # whether it is a list
    nullable: bool = False

    @property
    def words(self) -> str:
        """Return the description for messages: "a whole number >= 1 or null"."""
        noun = "whole number" if self.whole else "number"
        words = f"a list of {noun}s" if self.many else f"a {noun}"
        limits = {">=": self.low, ">": self.above, "<=": self.high, "<": self.below}
        bounds = [f"{sign} {limit}" for sign, limit in limits.items() if math.isfinite(limit)]
        if bounds:
            words += f" {' and '.join(bounds)}"
        return f"{words} or null" if self.nullable else words

    def allows(self, value: object) -> bool:
        """Return whether `value` has the right type and is in the range."""
        if value is None:
            return self.nullable
        if self.many:
            return isinstance(value, list) and all(map(self._is_in_range, value))
        return self._is_in_range(value)

    def _is_in_range(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.whole and not isinstance(value, int):
            return False
        is_finite = math.isfinite(value)
        return is_finite and self.low <= value <= self.high and self.above < value < self.below


@dataclass(frozen=True)
class Kind:
    """Allowed values other than numbers."""

    words: str
    allows: Callable[[object], bool]


@dataclass(frozen=True)
class Reserved:
    """A key that is not passed to the section's `_target_`."""

    allowed: Number | Kind
    # value in every section of that name; ABSENT: only some sections have the key
    default: Any = ABSENT
    takes_memory: bool = True  # whether the largest batch depends on the value


def choice(*words: str) -> Kind:
    """Return the kind whose values are these words."""
    return Kind(f"{', '.join(words[:-1])} or {words[-1]}", words.__contains__)


SHARE = Number(low=0, high=1)
SHARE_BELOW_1 = Number(low=0, below=1)
SHARE_BETWEEN = Number(above=0, below=1)
NOT_NEGATIVE = Number(low=0)
POSITIVE = Number(above=0)
POSITIVE_OR_NULL = Number(above=0, nullable=True)
COUNT = Number(low=1, whole=True)
COUNT_OR_NULL = Number(low=1, whole=True, nullable=True)
COUNTS = Number(low=1, whole=True, many=True)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
LAYERS = Kind(
    "true, false or a number of layers >= 1",
    lambda value: FLAG.allows(value) or COUNT.allows(value),
)
CHANNELS = Kind(
    "1 (grey), 3 (colour), 4 (colour and transparency) or null",
    lambda value: value in (None, 1, 3, 4) and not FLAG.allows(value),
)
FOLDER = Kind(
    "a folder, such as dataset.cache=/scratch/me, or null",
    lambda value: isinstance(value, str | None),
)
NAMES = Kind(
    "a list of names, such as [torch,numpy]",
    lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
)
ANYTHING = Kind("anything", lambda value: True)  # because another module checks it
TASKS = ("classification", "regression")
TASK = Kind(f"{' or '.join(TASKS)}, or null if it fits any", (None, *TASKS).__contains__)

SECTIONS: dict[str, dict[str, Number | Kind | Reserved]] = {
    "optimizer": {
        "amsgrad": FLAG,
        "beta": NOT_NEGATIVE,
        "beta_1": SHARE_BELOW_1,
        "beta_2": SHARE_BELOW_1,
        "centered": FLAG,
        "clipnorm": POSITIVE_OR_NULL,
        "clipvalue": POSITIVE_OR_NULL,
        "ema_momentum": SHARE,
        "ema_overwrite_frequency": COUNT_OR_NULL,
        "epsilon": POSITIVE,
        "global_clipnorm": POSITIVE_OR_NULL,
        "gradient_accumulation_steps": Number(low=2, whole=True, nullable=True),
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
        "weight_decay": Number(low=0, nullable=True),
    },
    "dataset": {
        "augment": Reserved(ANYTHING, dict.fromkeys(SETTINGS)),  # trainers/config/augment.py
        "batches": Reserved(choice("without", "with"), "without", takes_memory=False),
        "cache": Reserved(FOLDER, None, takes_memory=False),
        "cache_gb": Reserved(POSITIVE, CACHE_GB, takes_memory=False),
        "channels": CHANNELS,
        "inputs": COUNT,
        "labels": Reserved(choice("sparse", "one_hot"), "sparse"),
        "n_train": Reserved(Number(low=2, whole=True, nullable=True), None, takes_memory=False),
        "noise": NOT_NEGATIVE,
        "points": Number(low=2, whole=True),
        "resident_gb": Reserved(NOT_NEGATIVE, 2.0),
        "size": Reserved(ANYTHING, None),  # because trainers/data/examples.py checks it
        "skip_broken": FLAG,
        "subset": Reserved(POSITIVE_OR_NULL, None, takes_memory=False),
        "task": Reserved(TASK, None),
        "test_points": COUNT,
        "validation": Reserved(choice("split", "test", "none"), "split", takes_memory=False),
        "validation_split": Reserved(SHARE_BETWEEN, 1 / 6, takes_memory=False),
    },
    "model": {
        "dropout": SHARE_BELOW_1,
        "filters": COUNTS,
        "fine_tune": Reserved(LAYERS),
        "fine_tune_lr": Reserved(POSITIVE_OR_NULL, takes_memory=False),
        "head_epochs": Reserved(Number(low=0, whole=True), takes_memory=False),
        "hidden": COUNTS,
        "initial_bias": Number(nullable=True),
        "initial_weight": Number(nullable=True),
        "jit": Reserved(FLAG, False),
        "kernel_size": COUNT,
        "sync_batch_norm": Reserved(FLAG, False),
    },
    "loss": {
        "alpha": SHARE,
        "delta": POSITIVE,
        "direction": Reserved(ANYTHING, "minimize"),
        "from_logits": FLAG,
        "gamma": NOT_NEGATIVE,
        "label_smoothing": SHARE,
        "objective": Reserved(ANYTHING, "val_loss"),
        "pos_weight": POSITIVE,
        "power": POSITIVE,
        "task": Reserved(TASK, None),
    },
    "trainer": {
        "checkpoint_interval_s": NOT_NEGATIVE,
        "early_stopping_patience": COUNT_OR_NULL,
        "most": COUNT_OR_NULL,
        "precision": SHARE_BETWEEN,
        "preload": NAMES,
        "report_every_steps": COUNT_OR_NULL,
        "reserve": SHARE_BELOW_1,
        "save_model": choice("best", "last", "none"),
        "try_timeout_s": POSITIVE,
        "validate_every_steps": COUNT_OR_NULL,
    },
    "lr_schedule": {
        "decay_epochs": POSITIVE_OR_NULL,
        "every_epochs": POSITIVE,
        "factor": POSITIVE,
        "final": SHARE,
        "power": POSITIVE,
        "start": SHARE,
        "warmup_epochs": NOT_NEGATIVE,
        "warmup_share": SHARE_BETWEEN,
    },
    "batch_schedule": {
        "every_epochs": COUNT,
        "increase": COUNT,
        "lr_follows": Reserved(FLAG),
        "maximum": COUNT_OR_NULL,
    },
}


def check(section: str, values: Mapping[str, Any]) -> None:
    """Raise ValueError for the first value of a config section that is not allowed."""
    for name, value in values.items():
        key = SECTIONS[section].get(str(name), ANYTHING)
        allowed = key.allowed if isinstance(key, Reserved) else key
        if not allowed.allows(value):
            shown = "null" if value is None else value
            raise ValueError(f"{section}.{name}={shown}: must be {allowed.words}")


def reserved(section: str) -> dict[str, Reserved]:
    """Return the keys of a section that are not passed to its `_target_`."""
    return {name: key for name, key in SECTIONS[section].items() if isinstance(key, Reserved)}


def defaults(section: str, target: str = "") -> dict[str, Any]:
    """Return the values of a section before its YAML is merged."""
    values: dict[str, Any] = {"_target_": target} if target else {}
    for name, key in reserved(section).items():
        if key.default is not ABSENT:
            values[name] = deepcopy(key.default)
    return values


def passed_on(section: str, settings: Iterable[object]) -> list[str]:
    """Return the keys of a section that are passed to its `_target_`."""
    names = [str(key) for key in settings if key not in reserved(section)]
    return [name for name in names if not name.startswith("_")]
