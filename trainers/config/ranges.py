"""The keys of each section, and what they may be: the same name means the same thing in every optimizer."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from trainers.config.augment import SETTINGS

CACHE_GB = 20.0
ABSENT = object()
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class Number:
    """A number, a list of them, or null, as its words say: "a whole number >= 1 or null"."""

    words: str

    def allows(self, value: object) -> bool:
        """Whether `value` has the right type and lies in the range."""
        if value is None:
            return self.words.endswith(" or null")
        if self.words.startswith("a list of "):
            return isinstance(value, list) and all(map(self._holds, value))
        return self._holds(value)

    def _holds(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if "whole" in self.words else int | float):
            return False
        bounds = re.findall(r"([<>]=?) (\S+)", self.words)
        return math.isfinite(value) and all(_SIGNS[sign](value, float(bound)) for sign, bound in bounds)


@dataclass(frozen=True)
class Kind:
    """What is no number."""

    words: str
    allows: Callable[[object], bool]


@dataclass(frozen=True)
class Reserved:
    """A key that the section's `_target_` is not called with."""

    allowed: Number | Kind
    default: Any = ABSENT  # in every section of that name; ABSENT: only some have the key
    takes_memory: bool = True  # whether another value makes another largest batch


def choice(*words: str) -> Kind:
    """One of some words."""
    return Kind(f"{', '.join(words[:-1])} or {words[-1]}", words.__contains__)


SHARE = Number("a number >= 0 and <= 1")
SHARE_BELOW_1 = Number("a number >= 0 and < 1")
SHARE_BETWEEN = Number("a number > 0 and < 1")
NOT_NEGATIVE = Number("a number >= 0")
POSITIVE = Number("a number > 0")
POSITIVE_OR_NULL = Number("a number > 0 or null")
COUNT = Number("a whole number >= 1")
COUNT_OR_NULL = Number("a whole number >= 1 or null")
COUNTS = Number("a list of whole numbers >= 1")
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
LAYERS = Kind("true, false or a number of layers >= 1", lambda value: FLAG.allows(value) or COUNT.allows(value))
CHANNELS = Kind(
    "1 (grey), 3 (colour), 4 (colour and transparency) or null",
    lambda value: value in (None, 1, 3, 4) and not FLAG.allows(value),
)
FOLDER = Kind("a folder, such as dataset.cache=/scratch/me, or null", lambda value: isinstance(value, str | None))
NAMES = Kind(
    "a list of names, such as [torch,numpy]",
    lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
)
ANYTHING = Kind("anything", lambda value: True)  # others look at it
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
        "gradient_accumulation_steps": Number("a whole number >= 2 or null"),
        "initial_accumulator_value": NOT_NEGATIVE,
        "l1_regularization_strength": NOT_NEGATIVE,
        "l2_regularization_strength": NOT_NEGATIVE,
        "l2_shrinkage_regularization_strength": NOT_NEGATIVE,
        "learning_rate_power": Number("a number <= 0"),
        "loss_scale_factor": POSITIVE_OR_NULL,
        "momentum": SHARE,
        "nesterov": FLAG,
        "rho": SHARE,
        "use_ema": FLAG,
        "weight_decay": Number("a number >= 0 or null"),
    },
    "dataset": {
        "augment": Reserved(ANYTHING, dict.fromkeys(SETTINGS)),  # trainers/config/augment.py
        "batches": Reserved(choice("without", "with"), "without", takes_memory=False),  # replacement
        "cache": Reserved(FOLDER, None, takes_memory=False),  # of images; null = sweepyard/ in KERAS_HOME or ~/.cache
        "cache_gb": Reserved(POSITIVE, CACHE_GB, takes_memory=False),  # what it may hold
        "channels": CHANNELS,
        "inputs": COUNT,
        "labels": Reserved(choice("sparse", "one_hot"), "sparse"),
        # rows of x_train; null = unknown
        "n_train": Reserved(Number("a whole number >= 2 or null"), None, takes_memory=False),
        "noise": NOT_NEGATIVE,
        "points": Number("a whole number >= 2"),
        "resident_gb": Reserved(NOT_NEGATIVE, 2.0),  # more is read ahead from disk, not held in memory
        "size": Reserved(ANYTHING, None),  # pixels that images are resized to: trainers/data/examples.py
        "skip_broken": FLAG,
        # of x_train, a share or a number of rows, drawn by seed
        "subset": Reserved(Number("a number > 0 or null"), None, takes_memory=False),
        "task": Reserved(TASK, None),
        "test_points": COUNT,
        # who judges: a part of x_train, the test set, or with none the training loss
        "validation": Reserved(choice("split", "test", "none"), "split", takes_memory=False),
        "validation_split": Reserved(SHARE_BETWEEN, 1 / 6, takes_memory=False),  # of x_train
    },
    "model": {
        "dropout": SHARE_BELOW_1,
        "filters": COUNTS,
        "fine_tune": Reserved(LAYERS),
        "fine_tune_lr": Reserved(POSITIVE_OR_NULL, takes_memory=False),
        "head_epochs": Reserved(Number("a whole number >= 0"), takes_memory=False),
        "hidden": COUNTS,
        "initial_bias": Number("a number or null"),
        "initial_weight": Number("a number or null"),
        "jit": Reserved(FLAG, False),  # compile each step with XLA
        "kernel_size": COUNT,
        "sync_batch_norm": Reserved(FLAG, False),  # statistics of the whole batch, over all devices
    },
    "loss": {
        "alpha": SHARE,
        "delta": POSITIVE,
        "direction": Reserved(ANYTHING, "minimize"),  # what a study does with the objective
        "from_logits": FLAG,
        "gamma": NOT_NEGATIVE,
        "label_smoothing": SHARE,
        "objective": Reserved(ANYTHING, "val_loss"),  # the metric that a study is searched and sorted by
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
        "reserve": SHARE_BELOW_1,
        "save_model": choice("best", "last", "none"),
        "try_timeout_s": POSITIVE,
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
        "lr_follows": Reserved(FLAG),  # whether lr grows as the batch does
        "maximum": COUNT_OR_NULL,
    },
}


def check(section: str, values: Mapping[str, Any]) -> None:
    """Check the values of a config section by their names; raises ValueError for the first that is wrong."""
    for name, value in values.items():
        key = SECTIONS[section].get(str(name), ANYTHING)
        allowed = key.allowed if isinstance(key, Reserved) else key
        if not allowed.allows(value):
            shown = "null" if value is None else value
            raise ValueError(f"{section}.{name}={shown}: must be {allowed.words}")


def reserved(section: str) -> dict[str, Reserved]:
    """The keys of a section that its `_target_` is not called with."""
    return {name: key for name, key in SECTIONS[section].items() if isinstance(key, Reserved)}


def defaults(section: str, target: str = "") -> dict[str, Any]:
    """What a section holds before its YAML says anything."""
    given = {name: deepcopy(key.default) for name, key in reserved(section).items() if key.default is not ABSENT}
    return {"_target_": target, **given} if target else given


def passed_on(section: str, settings: Iterable[object]) -> list[str]:
    """Those of a section's keys that its `_target_` is called with."""
    return [str(key) for key in settings if key not in reserved(section) and not str(key).startswith("_")]
