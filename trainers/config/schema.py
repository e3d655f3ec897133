"""The keys of a composed configuration: names, types and ranges. conf/config.yaml explains them.

A configuration is valid if and only if `OmegaConf.to_object(cfg)` returns. Otherwise that call
raises ValueError with one or two lines for the user, within milliseconds: it imports nothing, and
of data files it reads only the headers.
"""

import os
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from hydra.core.config_store import ConfigStore

from trainers import parallel
from trainers.config import largest_batch, networks, ranges, targets, training
from trainers.config.ranges import (
    COUNT,
    COUNT_OR_NULL,
    NOT_NEGATIVE,
    POSITIVE,
    Kind,
    Number,
    choice,
    defaults,
)
from trainers.data import download, examples
from trainers.schedules import MAX_EPOCHS

CONSTANT = "trainers.schedules.constant"
CONSTANT_BATCH = "trainers.schedules.constant_batch"
_ARGUMENTS = {
    "model": ("input_shape", "outputs"),
    "lr_schedule": ("at", "total"),
    "batch_schedule": ("batch_size", "epoch"),
}
"""The arguments of a section's `_target_` that are not settings of the section."""
_OF_SWEEPER = ("nodes", "ranks", "memory_axes", "refit", "refit_all_data")
"""The trainer's settings that the sweeper and the launcher read."""


@dataclass
class Tracking:
    """The MLflow store that shows the study."""

    enabled: bool = True
    uri: str | None = None
    experiment: str | None = None
    required: bool = True


def _key(default: object, allowed: Number | Kind, words: str) -> Any:
    """Return the field of a key; if its value is not `allowed`, the error is `words`, where {cfg}
    is the config."""
    return field(default=default, metadata={"allowed": allowed, "words": words})


@dataclass
class Config:
    """The configuration of one trial. A section with a `_target_` passes its other keys to the
    target: ranges.py."""

    lr: float = _key(0.001, POSITIVE, "the learning rate must be > 0 and finite; try lr=0.001")
    batch_size: int = _key(32, COUNT, "a step needs >= 1 example; try batch_size=32")
    batch_per_gpu: int | None = _key(None, COUNT_OR_NULL, "must be >= 1, or null to use batch_size")
    epochs: int = _key(5, COUNT, "training needs >= 1 epoch; try epochs=5")
    steps: int | None = _key(
        None, COUNT_OR_NULL, "must be >= 1, or null for a budget of epochs={cfg.epochs}"
    )
    images: int | None = _key(
        None, COUNT_OR_NULL, "must be >= 1, or null for a budget of epochs={cfg.epochs}"
    )
    gpus: int = _key(0, NOT_NEGATIVE, "must be >= 0; gpus=0 trains on the CPU")
    nodes: int = _key(1, COUNT, "must be >= 1; nodes=1 trains in one process")
    ranks: int = _key(1, COUNT, "must be >= 1; ranks=1 trains in one process")
    lr_scaling: str = _key(
        "none", choice(*parallel.LR_SCALING), f"must be {', '.join(parallel.LR_SCALING)}"
    )
    lr_batch_size: int | None = None
    warmup_epochs: float = _key(0.0, NOT_NEGATIVE, "must be >= 0")
    all_reduce_dtype: str = _key(
        "float32", choice("float32", "bfloat16"), "must be float32 or bfloat16"
    )
    seed: int = _key(0, Number(low=0, below=2**32), "must be 0 <= seed < 2**32; try seed=0")
    # a keras optimizer
    optimizer: dict[str, Any] = field(default_factory=partial(defaults, "optimizer"))
    # f(input_shape, outputs, **settings) -> keras.Model without a final softmax
    model: dict[str, Any] = field(default_factory=partial(defaults, "model"))
    # a keras loss
    loss: dict[str, Any] = field(default_factory=partial(defaults, "loss"))
    # f(**settings) -> ((x_train, y_train), (x_test, y_test))
    dataset: dict[str, Any] = field(default_factory=partial(defaults, "dataset"))
    # f(cfg, trial) -> float | dict[str, float]; preload: modules imported once for all trials of a
    # study
    trainer: dict[str, Any] = field(default_factory=partial(defaults, "trainer"))
    # f(at, total, **settings) -> factors of lr: trainers/schedules.py
    lr_schedule: dict[str, Any] = field(default_factory=partial(defaults, "lr_schedule", CONSTANT))
    # f(batch_size, epoch, **settings) -> batch size
    batch_schedule: dict[str, Any] = field(
        default_factory=partial(defaults, "batch_schedule", CONSTANT_BATCH)
    )
    mixed_precision: bool = False
    target: float | None = None
    tracking: Tracking = field(default_factory=Tracking)
    # of a ready-made study (conf/study): scale (full | small) and its values at each
    study: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError in one or two lines: the problem, the allowed values, and what to type
        instead."""
        _check_values(self)
        training.check_devices(self)
        training.check_task(self)
        training.check_optimizer(self.optimizer, self)
        training.check_activation(self.model)
        data = examples.check(self.dataset, str(self.dataset.get("task") or self.loss.get("task")))
        training.check_objective(self)
        training.check_reports(self.trainer, self.dataset)
        rows = examples.count_training_rows(data, self.dataset)
        for section in ranges.SECTIONS:
            _check_target(section, getattr(self, section))
        training.check_schedules(self, rows)
        if data.shape is not None:
            networks.check_example(self.model, data.shape, data.name)
        networks.check(self.model, training.epochs_of(self, rows))
        training.check_several(self)
        largest_batch.check(self, rows)

    def check_typed(self) -> None:
        """Raise ValueError, of a new study, for a likely mistake.

        The configuration is valid all the same, so that a study that has begun can resume.
        """
        training.check_plausible(self)
        networks.check_ignored(self.model)

    def check_here(self) -> None:
        """Raise ValueError, before trials start, for another backend of Keras, and for data that
        this machine lacks."""
        backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
        if backend != "tensorflow" and self.trainer.get("_target_") == parallel.KERAS_TRAINER:
            raise ValueError(
                f"KERAS_BACKEND={backend}: this trainer needs Keras on TensorFlow.\n"
                "Type: export KERAS_BACKEND=tensorflow"
            )
        download.check(self.dataset)
        examples.check_values(self.dataset)
        download.check_weights(self.model)

    def check_longer(self) -> None:
        """Raise ValueError if a larger budget makes another training, not the same one, longer."""
        training.check_longer(self)

    def last_step(self) -> int | None:
        """Return the last step that the training reports; None if only the training shows it."""
        is_ours = self.trainer.get("_target_") == parallel.KERAS_TRAINER
        if not is_ours or self.trainer.get("report_every_steps"):
            return None
        data = examples.check(self.dataset, str(self.dataset.get("task") or self.loss.get("task")))
        return training.epochs_of(self, examples.count_training_rows(data, self.dataset))

    def unread(self) -> list[str]:
        """Return the keys that somebody added and that nothing reads; none with a trainer of the
        user's own."""
        if self.trainer.get("_target_") != parallel.KERAS_TRAINER:
            return []
        names = [key.name for key in fields(self)]
        settings = [*ranges.SECTIONS["trainer"], "_target_", *_OF_SWEEPER]
        added = [f"trainer.{name}" for name in self.trainer if name not in settings]
        return [name for name in vars(self) if name not in names] + added


def _check_values(cfg: Config) -> None:
    """Raise ValueError for a key whose value is out of its range, and for two budgets."""
    for key in fields(cfg):
        value = getattr(cfg, key.name)
        if key.metadata and not key.metadata["allowed"].allows(value):
            raise ValueError(f"{key.name}={value}: {key.metadata['words'].format(cfg=cfg)}")
    if cfg.steps is not None and cfg.images is not None:
        raise ValueError(f"steps={cfg.steps} and images={cfg.images} are two budgets. Remove one.")
    if cfg.epochs > MAX_EPOCHS:
        raise ValueError(
            f"epochs={cfg.epochs} makes more than {MAX_EPOCHS:,} epochs; try epochs=100"
        )
    for section in ranges.SECTIONS:
        ranges.check(section, getattr(cfg, section))


def _check_target(section: str, settings: dict[str, Any]) -> None:
    targets.check(f"{section}._target_", settings.get("_target_"))
    if section != "trainer":  # because a trainer is called with the whole configuration
        passed = tuple(ranges.passed_on(section, settings))
        targets.check_settings(section, settings["_target_"], passed, _ARGUMENTS.get(section, ()))


# The first entry of conf/config.yaml's defaults list.
ConfigStore.instance().store(name="schema", node=Config)
