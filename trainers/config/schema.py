"""What a composed configuration holds: names, types, units and ranges.

A configuration is valid if and only if `OmegaConf.to_object(cfg)` returns. Otherwise that call raises
ValueError in one or two lines for the user, within milliseconds: nothing is imported, and of data files only
headers are read.
"""

from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from hydra.core.config_store import ConfigStore

from trainers import parallel
from trainers.config import largest_batch, networks, ranges, targets, training
from trainers.config.ranges import COUNT, COUNT_OR_NULL, NOT_NEGATIVE, POSITIVE, Kind, Number, choice, defaults
from trainers.data import download, examples
from trainers.schedules import MAX_EPOCHS

CONSTANT, CONSTANT_BATCH = "trainers.schedules.constant", "trainers.schedules.constant_batch"
_GIVEN = {
    "model": ("input_shape", "outputs"),
    "lr_schedule": ("at", "total"),
    "batch_schedule": ("batch_size", "epoch"),
}
"""What the `_target_` of a section is called with beside the settings there."""


@dataclass
class Tracking:
    """Where the study is shown."""

    enabled: bool = True  # False keeps everything in the trials' folders alone
    uri: str | None = None  # MLflow tracking URI; None = the embedded sqlite file
    experiment: str = "sweepyard"  # MLflow experiment that holds the study


def _key(default: object, allowed: Number | Kind, words: str) -> Any:
    """A key, and what is said of it if its value is not `allowed`: {cfg} stands for the whole configuration."""
    return field(default=default, metadata={"allowed": allowed, "words": words})


@dataclass
class Config:
    """The configuration of one trial. Sections with a `_target_` pass their other keys to it: ranges.py."""

    # learning rate
    lr: float = _key(0.001, POSITIVE, "the learning rate must be > 0 and finite; try lr=0.001")
    # examples a step over all devices together, which they share equally
    batch_size: int = _key(32, COUNT, "a step needs >= 1 example; try batch_size=32")
    # the share of each GPU (rank, node), in place of batch_size
    batch_per_gpu: int | None = _key(None, COUNT_OR_NULL, "must be >= 1, or null to go by batch_size")
    # passes over the training set
    epochs: int = _key(5, COUNT, "training needs >= 1 epoch; try epochs=5")
    # the budget in batches, or in training examples, in place of epochs
    steps: int | None = _key(None, COUNT_OR_NULL, "must be >= 1, or null for a budget of epochs={cfg.epochs}")
    images: int | None = _key(None, COUNT_OR_NULL, "must be >= 1, or null for a budget of epochs={cfg.epochs}")
    # GPUs of this trial on each node; 0 = CPU
    gpus: int = _key(0, NOT_NEGATIVE, "must be >= 0; gpus=0 trains on the CPU")
    # nodes of this trial, a process on each
    nodes: int = _key(1, COUNT, "must be >= 1; nodes=1 trains in one process")
    # processes of this trial on each node, on CPUs alone
    ranks: int = _key(1, COUNT, "must be >= 1; ranks=1 trains in one process")
    # lr follows the batch's size
    lr_scaling: str = _key("none", choice(*parallel.LR_SCALING), f"must be {', '.join(parallel.LR_SCALING)}")
    lr_batch_size: int | None = None  # the batch size that lr is for; needed to scale it
    # epochs from lr, in a straight line, to the scaled one
    warmup_epochs: float = _key(0.0, NOT_NEGATIVE, "must be >= 0")
    # in which gradients travel
    all_reduce_dtype: str = _key("float32", choice("float32", "bfloat16"), "must be float32 or bfloat16")
    # of weights, dropout, shuffling and the validation split
    seed: int = _key(0, Number("a number >= 0 and < 4294967296"), "must be 0 <= seed < 2**32; try seed=0")
    # a keras optimizer
    optimizer: dict[str, Any] = field(default_factory=partial(defaults, "optimizer"))
    # f(input_shape, outputs, **rest) -> keras.Model without a final softmax
    model: dict[str, Any] = field(default_factory=partial(defaults, "model"))
    # a keras loss
    loss: dict[str, Any] = field(default_factory=partial(defaults, "loss"))
    # f(**rest) -> ((x_train, y_train), (x_test, y_test))
    dataset: dict[str, Any] = field(default_factory=partial(defaults, "dataset"))
    # f(cfg, trial) -> float | dict[str, float]; preload: modules imported once for all trials of a study;
    # the other keys are its options
    trainer: dict[str, Any] = field(default_factory=partial(defaults, "trainer"))
    # f(at, total, **rest) -> shares of lr: trainers/schedules.py
    lr_schedule: dict[str, Any] = field(default_factory=partial(defaults, "lr_schedule", CONSTANT))
    # f(batch_size, epoch, **rest) -> batch size
    batch_schedule: dict[str, Any] = field(default_factory=partial(defaults, "batch_schedule", CONSTANT_BATCH))
    mixed_precision: bool = False  # compute in 16 bits where the network allows
    target: float | None = None  # val_accuracy (regression: val_loss) whose time is logged: time_to_target
    tracking: Tracking = field(default_factory=Tracking)
    # of a ready-made study (conf/study): scale (full | small) and its values at each
    study: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError in one or two lines: what is wrong, what is allowed, what to type instead."""
        _check_values(self)
        training.check_devices(self)
        training.check_budget(self)
        training.check_task(self)
        training.check_optimizer(self.optimizer, self)
        training.check_activation(self.model)
        found = examples.check(self.dataset, str(self.dataset.get("task") or self.loss.get("task")))
        training.check_objective(self)
        rows = examples.left_to_train(found, self.dataset)
        for section in ranges.SECTIONS:
            _check_target(section, getattr(self, section))
        training.check_schedules(self, rows)
        if found.shape is not None:
            networks.check_example(self.model, found.shape, found.name)
        networks.check(self.model, training.epochs_of(self, rows))
        training.check_several(self)
        largest_batch.check(self, rows)

    def check_here(self) -> None:
        """Raise ValueError in the same way for what is likely meant otherwise, or lacking where this runs. Nothing goes
        wrong otherwise: a study that was begun goes on.
        """
        training.check_plausible(self)
        networks.check_ignored(self.model)
        download.check(self.dataset)
        download.check_weights(self.model)


def _check_values(cfg: Config) -> None:
    """Raise ValueError for a key whose value is out of its range, whatever the others are."""
    for key in fields(cfg):
        value = getattr(cfg, key.name)
        if key.metadata and not key.metadata["allowed"].allows(value):
            raise ValueError(f"{key.name}={value}: {key.metadata['words'].format(cfg=cfg)}")
    if cfg.epochs > MAX_EPOCHS:
        raise ValueError(f"epochs={cfg.epochs} makes more than {MAX_EPOCHS:,} epochs; try epochs=100")
    for section in ranges.SECTIONS:
        ranges.check(section, getattr(cfg, section))


def _check_target(section: str, settings: dict[str, Any]) -> None:
    targets.check(f"{section}._target_", settings.get("_target_"))
    if section != "trainer":  # it is called with the whole configuration
        passed = tuple(ranges.passed_on(section, settings))
        targets.check_settings(section, settings["_target_"], passed, _GIVEN.get(section, ()))


# The first entry of conf/config.yaml's defaults list.
ConfigStore.instance().store(name="schema", node=Config)
