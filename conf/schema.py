"""What a composed configuration holds: names, types, units and ranges.

A configuration is valid if and only if `OmegaConf.to_object(cfg)` returns. Otherwise that call raises
ValueError in one or two lines for the user, within milliseconds: nothing is imported, and of data files only
headers are read.
"""

import math
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hydra.core.config_store import ConfigStore

from conf import parallel
from conf.checks import download, examples, largest_batch, networks, ranges, targets, training
from conf.checks.examples import CACHE_GB
from conf.plan import MOST_EPOCHS

SECTIONS = ("optimizer", "dataset", "model", "loss", "trainer", "lr_schedule", "batch_schedule")
TASKS = ("classification", "regression")


@dataclass
class Tracking:
    """Where the study is shown."""

    enabled: bool = True  # False keeps everything in the trials' folders alone
    uri: str | None = None  # MLflow tracking URI; None = the embedded sqlite file
    experiment: str = "sweepyard"  # MLflow experiment that holds the study


DATASET: dict[str, Any] = {
    "task": None,
    "n_train": None,
    "validation_split": 1 / 6,
    "validation": "split",
    "subset": None,
    "batches": "without",
    "labels": "sparse",
    "augment": dict.fromkeys(("preset", "flip", "rotation", "zoom", "shift", "contrast")),
    "size": None,
    "resident_gb": 2.0,
    "cache": None,
    "cache_gb": CACHE_GB,
}
LOSS = {"task": None, "objective": "val_loss", "direction": "minimize"}
_NOT_PASSED_ON: dict[str, tuple[str, ...]] = {
    "dataset": (*DATASET,),
    "loss": (*LOSS,),
    "model": ("jit", "sync_batch_norm", "fine_tune", "head_epochs", "fine_tune_lr"),
    "batch_schedule": ("lr_follows",),
}
_GIVEN = {
    "model": ("input_shape", "outputs"),
    "lr_schedule": ("at", "total"),
    "batch_schedule": ("batch_size", "epoch"),
}
"""What the `_target_` of a section is called with beside the settings there."""


def passed_on(section: str, settings: Iterable[object]) -> list[str]:
    """Those of a section's keys that its `_target_` is called with."""
    own = _NOT_PASSED_ON.get(section, ())
    return [str(key) for key in settings if key not in own and not str(key).startswith("_")]


@dataclass
class Config:
    """The configuration of one trial. Sections with a `_target_` pass their other keys to it."""

    lr: float = 0.001  # learning rate, > 0
    batch_size: int = 32  # examples a step over all devices together, >= 1, which they share equally
    batch_per_gpu: int | None = None  # the share of each GPU (rank, node), in place of batch_size, >= 1
    epochs: int = 5  # passes over the training set, >= 1
    steps: int | None = None  # the budget in batches, in place of epochs, >= 1
    images: int | None = None  # the budget in training examples, in place of epochs, >= 1
    gpus: int = 0  # GPUs of this trial on each node, >= 0; 0 = CPU
    nodes: int = 1  # nodes of this trial, a process on each, >= 1
    ranks: int = 1  # processes of this trial on each node, on CPUs alone, >= 1
    lr_scaling: str = "none"  # lr follows the batch's size: none | linear | sqrt
    lr_batch_size: int | None = None  # the batch size that lr is for; needed to scale it
    warmup_epochs: float = 0.0  # epochs from lr, in a straight line, to the scaled one, >= 0
    all_reduce_dtype: str = "float32"  # in which gradients travel: float32 | bfloat16
    seed: int = 0  # of weights, dropout, shuffling and the validation split, 0 <= seed < 2**32
    # a keras optimizer; hyperparameters: conf/checks/ranges.py
    optimizer: dict[str, Any] = field(default_factory=dict)
    # f(input_shape, outputs, **rest) -> keras.Model without a final softmax; not passed on: jit (compile each step
    # with XLA), sync_batch_norm (statistics of the whole batch, over all devices), and of a model with a base:
    # fine_tune, head_epochs, fine_tune_lr (conf/model/resnet50v2.yaml)
    model: dict[str, Any] = field(default_factory=partial(dict, jit=False, sync_batch_norm=False))
    # a keras loss; not passed on: task (classification | regression; None = fits any), objective and
    # direction (the metric that a study is searched and sorted by, and whether to maximize or minimize it)
    loss: dict[str, Any] = field(default_factory=LOSS.copy)
    # f(**rest) -> ((x_train, y_train), (x_test, y_test)); not passed on: task (as for loss),
    # n_train (rows of x_train, None = unknown), validation_split (share of x_train, 0 < share < 1),
    # validation (split; test: the test set judges; none: the training loss does), subset (of x_train, a share or a
    # number of rows, drawn by seed), batches (without | with replacement), labels (sparse | one_hot),
    # augment (none, light, strong, or ranges: conf/checks/augment.py), size (pixels that images are resized to, n or
    # [height, width]), resident_gb (more is read ahead from disk, not held in memory), cache (folder of decoded images;
    # None = sweepyard/ in KERAS_HOME or ~/.cache), cache_gb (what it may hold)
    dataset: dict[str, Any] = field(default_factory=partial(deepcopy, DATASET))
    # f(cfg, trial) -> float | dict[str, float]; preload: modules imported once for all trials of a study;
    # the other keys are its options
    trainer: dict[str, Any] = field(default_factory=dict)
    # f(at, total, **rest) -> shares of lr: conf/plan.py
    lr_schedule: dict[str, Any] = field(default_factory=partial(dict, _target_="conf.plan.constant"))
    # f(batch_size, epoch, **rest) -> batch size; not passed on: lr_follows (lr grows as the batch does)
    batch_schedule: dict[str, Any] = field(default_factory=partial(dict, _target_="conf.plan.constant_batch"))
    mixed_precision: bool = False  # compute in 16 bits where the network allows
    target: float | None = None  # val_accuracy (regression: val_loss) whose time is logged: time_to_target
    tracking: Tracking = field(default_factory=Tracking)
    # of a ready-made study (conf/study): scale (full | small) and its values at each
    study: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError in one or two lines: what is wrong, what is allowed, what to type instead."""
        _check_numbers(self)
        parallel.check(self)
        training.check_budget(self)
        for section in SECTIONS:
            ranges.check(section, getattr(self, section))
        _check_task(self)
        training.check_optimizer(self.optimizer, self)
        training.check_loss(self.loss, self)
        training.check_activation(self.model)
        rows, found = _check_training_set(self)
        for section in SECTIONS:
            _check_target(section, getattr(self, section))
        training.check_schedules(self, rows)
        if found.shape is not None:
            networks.check_example(self.model, found.shape, found.name)
        networks.check(self.model, training.epochs_of(self, rows))
        training.check_jit(self.model, self)
        largest_batch.check(self, rows)

    def check_here(self) -> None:
        """Raise ValueError in the same way for what is likely meant otherwise, or lacking where this runs. Nothing goes
        wrong otherwise: a study that was begun goes on.
        """
        training.check_meant(self)
        networks.check_heeded(self.model)
        download.check(self.dataset)
        download.check_weights(self.model)


def _check_target(section: str, settings: dict[str, Any]) -> None:
    targets.check(f"{section}._target_", settings.get("_target_"))
    if section != "trainer":  # it is called with the whole configuration
        passed = tuple(passed_on(section, settings))
        targets.check_settings(section, settings["_target_"], passed, _GIVEN.get(section, ()))


def _check_numbers(cfg: Config) -> None:
    if not (math.isfinite(cfg.lr) and cfg.lr > 0):
        raise ValueError(f"lr={cfg.lr}: the learning rate must be > 0 and finite; try lr=0.001")
    if cfg.batch_size < 1:
        raise ValueError(f"batch_size={cfg.batch_size}: a step needs >= 1 example; try batch_size=32")
    if cfg.epochs < 1:
        raise ValueError(f"epochs={cfg.epochs}: training needs >= 1 epoch; try epochs=5")
    if cfg.epochs > MOST_EPOCHS:
        raise ValueError(f"epochs={cfg.epochs} makes more than {MOST_EPOCHS:,} epochs; try epochs=100")
    if cfg.gpus < 0:
        raise ValueError(f"gpus={cfg.gpus}: must be >= 0; gpus=0 trains on the CPU")
    if not 0 <= cfg.seed < 2**32:
        raise ValueError(f"seed={cfg.seed}: must be 0 <= seed < 2**32; try seed=0")


def _check_task(cfg: Config) -> None:
    data, loss = cfg.dataset.get("task"), cfg.loss.get("task")
    for section, task in (("dataset", data), ("loss", loss)):
        if task is not None and task not in TASKS:
            raise ValueError(f"{section}.task={task}: must be {' or '.join(TASKS)}, or null if it fits any")
    if data is None and loss is None:
        raise ValueError(
            "dataset.task and loss.task are both null: say what is learned with dataset.task=classification "
            "or dataset.task=regression"
        )
    if data is not None and loss is not None and data != loss:
        fitting = "cross_entropy" if data == "classification" else "mse"
        raise ValueError(f"The loss is for {loss}, the dataset is a {data}; try loss={fitting}")


def _check_training_set(cfg: Config) -> tuple[int | None, examples.Examples]:
    """How many examples are left for training (None: unknown), and what they are."""
    dataset = cfg.dataset
    task = str(dataset.get("task") or cfg.loss.get("task"))
    found = examples.check(dataset, task)
    if dataset.get("labels") == "one_hot" and ".Sparse" in str(cfg.loss.get("_target_")):
        raise ValueError(f"dataset.labels=one_hot, but {cfg.loss['_target_']} takes classes; try loss=softmax")
    if dataset.get("validation") == "none" and str(cfg.loss.get("objective")).startswith("val_"):
        raise ValueError(
            f"dataset.validation=none holds out nothing, so that there is no {cfg.loss['objective']} to be judged by\n"
            "Say loss.objective=loss loss.direction=minimize"
        )
    rows = found.rows
    if rows is not None and dataset.get("validation", "split") == "split" and not found.validation_rows:
        share = float(dataset.get("validation_split", DATASET["validation_split"]))
        rows = training_size(rows, share)
        if rows < 1:
            raise ValueError(f"dataset.validation_split={share} leaves no training example of {found.rows}")
    return rows, found


def training_size(rows: int, validation_split: float) -> int:
    """Examples left for training after the validation split of `rows`; at least one is held out."""
    return rows - max(1, round(rows * validation_split))


# The first entry of conf/config.yaml's defaults list.
ConfigStore.instance().store(name="schema", node=Config)
