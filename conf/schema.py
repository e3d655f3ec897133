"""What a composed configuration holds: names, types, units and ranges.

A configuration is valid if and only if `OmegaConf.to_object(cfg)` returns. Otherwise that call raises
ValueError in one or two lines for the user, within milliseconds: nothing is imported, and of data files only
headers are read.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore

from conf.checks import npz, ranges, targets

VALIDATION_SPLIT = 1 / 6
NPZ_LOADERS = ("trainers.data.sources.keras_dataset", "trainers.data.sources.npz")
SECTIONS = ("optimizer", "dataset", "model", "loss", "trainer")
TASKS = ("classification", "regression")


@dataclass
class Tracking:
    """Where the study is shown."""

    enabled: bool = True  # False keeps everything in the trials' folders alone
    uri: str | None = None  # MLflow tracking URI; None = the embedded sqlite file
    experiment: str = "sweepyard"  # MLflow experiment that holds the study


def _dataset_defaults() -> dict[str, Any]:
    return {"task": None, "n_train": None, "validation_split": VALIDATION_SPLIT}


def _loss_defaults() -> dict[str, Any]:
    return {"task": None, "objective": "val_loss", "direction": "minimize"}


@dataclass
class Config:
    """The configuration of one trial. Sections with a `_target_` pass their other keys to it."""

    lr: float = 0.001  # learning rate, > 0
    batch_size: int = 32  # examples a step over all GPUs together, >= 1, a multiple of gpus
    epochs: int = 5  # passes over the training set, >= 1
    gpus: int = 0  # GPUs of this trial, >= 0; 0 = CPU
    seed: int = 0  # of weights, dropout, shuffling and the validation split, 0 <= seed < 2**32
    # a keras optimizer; hyperparameters: conf/checks/ranges.py
    optimizer: dict[str, Any] = field(default_factory=dict)
    # f(input_shape, outputs, **rest) -> keras.Model without a final softmax
    model: dict[str, Any] = field(default_factory=dict)
    # a keras loss; not passed on: task (classification | regression; None = fits any), objective and
    # direction (the metric that a study is searched and sorted by, and whether to maximize or minimize it)
    loss: dict[str, Any] = field(default_factory=_loss_defaults)
    # f(**rest) -> ((x_train, y_train), (x_test, y_test)); not passed on: task (as for loss),
    # n_train (rows of x_train, None = unknown), validation_split (share of x_train, 0 < share < 1)
    dataset: dict[str, Any] = field(default_factory=_dataset_defaults)
    # f(cfg, trial) -> float | dict[str, float]; preload: modules imported once for all trials of a study;
    # the other keys are its options
    trainer: dict[str, Any] = field(default_factory=dict)
    tracking: Tracking = field(default_factory=Tracking)

    def __post_init__(self) -> None:
        """Raise ValueError in one or two lines: what is wrong, what is allowed, what to type instead."""
        _check_numbers(self)
        for section in SECTIONS:
            ranges.check(section, getattr(self, section))
        _check_task(self)
        if self.gpus > 1:
            _check_distribution(self)
        _check_training_set(self)
        for section in SECTIONS:
            targets.check(f"{section}._target_", getattr(self, section).get("_target_"))


def _check_numbers(cfg: Config) -> None:
    if not (math.isfinite(cfg.lr) and cfg.lr > 0):
        raise ValueError(f"lr={cfg.lr}: the learning rate must be > 0 and finite; try lr=0.001")
    if cfg.batch_size < 1:
        raise ValueError(f"batch_size={cfg.batch_size}: a step needs >= 1 example; try batch_size=32")
    if cfg.epochs < 1:
        raise ValueError(f"epochs={cfg.epochs}: training needs >= 1 epoch; try epochs=5")
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


def _check_distribution(cfg: Config) -> None:
    if cfg.batch_size % cfg.gpus:
        below = max(cfg.batch_size // cfg.gpus, 1) * cfg.gpus
        raise ValueError(
            f"batch_size={cfg.batch_size} cannot be shared equally by gpus={cfg.gpus}; try batch_size={below}"
        )
    for key in ("global_clipnorm", "gradient_accumulation_steps"):
        if cfg.optimizer.get(key) is not None:
            raise ValueError(f"optimizer.{key} is wrong with gpus={cfg.gpus}; leave it out, or use gpus=1")
    if str(cfg.optimizer.get("_target_")).endswith("ScheduleFreeAdamW"):
        raise ValueError(f"ScheduleFreeAdamW is wrong with gpus={cfg.gpus}; use gpus=1, or optimizer=adamw")


def _check_training_set(cfg: Config) -> None:
    rows = cfg.dataset.get("n_train")
    path = cfg.dataset.get("path")
    if cfg.dataset.get("_target_") in NPZ_LOADERS and (path is not None or "name" not in cfg.dataset):
        rows = npz.training_rows(path)
    if rows is None:
        return
    kept = training_size(int(rows), float(cfg.dataset.get("validation_split", VALIDATION_SPLIT)))
    if kept < 1:
        raise ValueError(
            f"dataset.validation_split={cfg.dataset['validation_split']} leaves no training example of {rows}"
        )
    if cfg.batch_size > kept:
        raise ValueError(
            f"batch_size={cfg.batch_size} is larger than the training set ({kept} examples after the "
            f"validation split); try batch_size={2 ** int(math.log2(kept))} or less"
        )


def training_size(rows: int, validation_split: float) -> int:
    """Examples left for training after the validation split of `rows`; at least one is held out."""
    return rows - max(1, round(rows * validation_split))


def register() -> None:
    """Make `schema` known to Hydra: the first entry of conf/config.yaml's defaults list."""
    ConfigStore.instance().store(name="schema", node=Config)


register()
