"""One training with Keras on TensorFlow, from configuration to result."""

import math
import time
from dataclasses import dataclass
from statistics import median

import trainers.quiet_tensorflow  # noqa: F401 - before tensorflow

# isort: split

import keras
import numpy as np
import tensorflow as tf
from omegaconf import DictConfig, OmegaConf

from sweeps.trial import Diverged, Trial
from trainers import checkpoint, distribution, networks
from trainers.checkpoint import Progress, Saved
from trainers.compiled import Evaluate, Train, compile_passes
from trainers.config.training import check_optimizer
from trainers.data.arrays import Data
from trainers.data.dataset import load
from trainers.instantiate import make
from trainers.line import is_line, least_squares, line_of
from trainers.parallel import device_settings, effective_lr, replicas
from trainers.phases import Phase, freeze, phases
from trainers.ranks import Watchdog, detect_lost_ranks
from trainers.schedules import Plan, is_constant, lr_factors, plan
from trainers.stability import convergence_metrics


def train(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    """Train as `cfg` (trainers/config/schema.py) describes; resume from the trial's checkpoint if it has one.

    Each epoch, counted from 1, reports loss, val_loss, learning_rate, epoch_time (s, with validation) and
    images_per_second (without validation); in a classification also accuracy and val_accuracy (0..1).

    Returns the metrics of the best epoch (highest val_accuracy, or lowest val_loss in a regression), best_epoch, as
    epoch_time the median of all epochs but the first, test_loss and test_accuracy of the final weights, and the
    metrics of trainers/stability.py; for a line also its weight, bias, mse and r2. If the trial should stop, a
    checkpoint is written and only the best epoch is returned.
    All ranks return the same; only the chief writes files.

    Raises:
        Diverged: a loss is NaN or infinite; the epoch is reported.
        RankLost: another rank of the training is gone.
    """
    if trial.world.size != cfg.nodes * cfg.ranks:
        raise ValueError(
            f"nodes={cfg.nodes} ranks={cfg.ranks}: {cfg.nodes * cfg.ranks} processes are needed, but this trial has "
            f"{trial.world.size}.\n"
            f"Use a launcher, which starts them: python sweep.py -m nodes={cfg.nodes} ranks={cfg.ranks}"
        )
    # Resolved here, because a section that is passed on alone cannot resolve references to other sections.
    OmegaConf.resolve(cfg)
    with detect_lost_ranks(trial.world.size):
        return _train(cfg, trial)


def _train(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    devices = distribution.claim_gpus(cfg.gpus)
    if not devices:
        # Disabled because it takes a tenth of a second and, on a CPU, makes none of these models faster.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    task = cfg.dataset.get("task") or cfg.loss.get("task")
    watchdog = Watchdog(trial)
    with watchdog:
        strategy = distribution.strategy(devices, trial.world)
    dataset = load(cfg.dataset, task, cfg.seed)
    if trial.world.size > 1:
        networks.fetch(cfg.model, dataset.x.shape[1:])
    keras.utils.set_random_seed(cfg.seed)
    dataset.announce(trial)
    planned = plan(cfg, len(dataset.training_rows))
    if trial.world.is_chief:
        print(_describe(cfg, planned), flush=True)
    saved = checkpoint.newest(trial.checkpoint_folder)
    if trial.world.size > 1:
        watchdog.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        with watchdog:
            distribution.check_same_epoch(strategy, saved.progress.epoch if saved else 0)
    with strategy.scope(), watchdog:
        model = network(cfg, dataset)
    training = _Training(cfg, trial, dataset, planned, model, saved, watchdog)
    for phase in phases(cfg, planned)[training.progress.phase - 1 :]:
        evaluate = training.run(phase)
        if training.stopped:
            return training.best
    with watchdog:
        test = evaluate("test") if "test" in dataset.subsets else {}
    result = {
        **training.best,
        "epoch_time": training.median_epoch_s,
        **_learning_rates(cfg),
        **({"skipped_images": float(dataset.skipped)} if dataset.skipped else {}),
        **{f"test_{name}": float(value) for name, value in test.items()},
        **_convergence_metrics(training.progress, cfg),
        **_line_metrics(model, dataset, task, trial),
    }
    if cfg.trainer.get("save_model", "none") != "none" and trial.world.is_chief:
        networks.save(model, training.best_weights, trial.folder / "model", dataset.x.shape[1:], dataset.outputs)
    return result


@dataclass
class _Training:
    """The state of a running training, restored from the checkpoint `saved` if there is one."""

    cfg: DictConfig
    trial: Trial
    dataset: Data
    planned: Plan
    model: keras.Model
    saved: Saved | None
    watchdog: Watchdog
    stopped: bool = False

    def __post_init__(self) -> None:
        self.progress, self.best_weights = (self.saved.progress, self.saved.best) if self.saved else (Progress(), None)
        self._saved_at = time.monotonic()
        self._is_seeded = False

    @property
    def median_epoch_s(self) -> float:
        """Return the median duration of the epochs, without the first one, in which TensorFlow traces."""
        durations = [seconds for _, seconds in self.progress.history]
        return median(durations[1:] or durations)

    @property
    def best(self) -> dict[str, float]:
        """Return the metrics of the best epoch, and its number."""
        return {**self.progress.best, "best_epoch": self.progress.best_epoch}

    def run(self, phase: Phase) -> Evaluate:
        """Train the rest of a phase, unless the trial should stop, and return the function that evaluates the model."""
        self.progress.phase = phase.number
        with self.model.distribute_strategy.scope(), self.watchdog:
            compile_for(self.model, self.cfg, self.dataset, self.planned, phase)
            if self.saved:
                self.saved.assign_to(self.model)
                self.saved = None
        if not self._is_seeded:
            distribution.seed_dropout_by_replica(self.model)
            self._is_seeded = True
        with self.watchdog:  # because ranks wait for each other when they create their metrics' variables
            train_pass, evaluate = compile_passes(self.model, self.dataset, self.cfg.seed, self.watchdog.steps)
        is_last = phase.end == self.planned.epochs
        while self.progress.epoch < phase.end and not (is_last and _has_stalled(self.progress, phase, self.cfg)):
            self._run_epoch(train_pass, evaluate)
            self.stopped = self.progress.epoch < self.planned.epochs and self.trial.should_stop()
            interval_s = self.cfg.trainer.get("checkpoint_interval_s", 10.0)
            due = self.stopped or time.monotonic() - self._saved_at >= interval_s
            if due and self.trial.world.is_chief:
                checkpoint.save(self.trial.checkpoint_folder, self.progress, self.model, self.best_weights)
                self._saved_at = time.monotonic()
            if self.stopped:
                return evaluate
        # As at the end of Keras' fit, because with use_ema the averages become the weights.
        self.model.optimizer.finalize_variable_values(self.model.trainable_variables)
        return evaluate

    def _run_epoch(self, train_pass: Train, evaluate: Evaluate) -> None:
        """Train one epoch, report it, and compare it with the best epoch. Raises Diverged."""
        progress, dataset = self.progress, self.dataset
        rate = float(self.model.optimizer.learning_rate.numpy())  # at the start of the epoch
        order = dataset.order(self.cfg.seed, progress.epoch + 1)[: self.planned.images[progress.epoch]]
        batch_size = self.planned.batch_sizes[progress.epoch]
        progress.epoch += 1
        started = time.perf_counter()
        with self.watchdog:
            metrics = {name: float(value) for name, value in train_pass(order, batch_size, progress.epoch).items()}
            trained_s = time.perf_counter() - started
            distribution.average_statistics(self.model)
            if "validation" in dataset.subsets:
                metrics |= {f"val_{name}": float(value) for name, value in evaluate("validation").items()}
        metrics["epoch_time"] = time.perf_counter() - started
        metrics["images_per_second"] = len(order) / trained_s
        metrics["learning_rate"] = rate
        self.trial.report(metrics, step=progress.epoch)
        _check_finite(metrics, progress.epoch)
        progress.history.append([metrics[_criterion(metrics)], metrics["epoch_time"]])
        if _is_better(metrics, progress.best):
            progress.best_epoch, progress.best = progress.epoch, metrics
            if self.cfg.trainer.get("save_model") == "best":
                self.best_weights = self.model.get_weights()


def network(cfg: DictConfig, dataset: Data) -> keras.Model:
    """Build the model of a configuration, not yet compiled. Keras' global settings stay unchanged."""
    with networks.precision(cfg.mixed_precision, replicas(cfg)):
        model = networks.build(cfg.model, dataset.x.shape[1:], dataset.outputs)
    if cfg.model.get("sync_batch_norm") and replicas(cfg) > 1:
        distribution.synchronize_batch_norm(model)
    return model


def compile_for(model: keras.Model, cfg: DictConfig, dataset: Data, planned: Plan, phase: Phase) -> None:
    """Compile a model for one phase of its training, with an optimizer whose variables exist."""
    if "fine_tune" in cfg.model:  # not a user's own model, because it may freeze layers itself
        freeze(model, phase, pretrained=cfg.model.get("weights") not in (None, "random"))
    rate: dict[str, object] = {}
    if not is_constant(cfg):
        from trainers.optimizers import Table

        rate["learning_rate"] = Table(lr_factors(cfg, planned, phase.first, phase.end) * phase.lr)
    elif phase.lr != cfg.lr:
        rate["learning_rate"] = phase.lr
    optimizer = make("optimizer", cfg.optimizer, **rate)
    # Checked here too, because a user's own optimizer has settings that the configuration does not show.
    check_optimizer({**vars(optimizer), "_target_": type(optimizer).__name__}, cfg)
    accuracies = []
    if dataset.y.dtype == np.int32:
        accuracy = keras.metrics.CategoricalAccuracy if dataset.one_hot else keras.metrics.SparseCategoricalAccuracy
        accuracies = [accuracy(name="accuracy")]
    loss = make("loss", cfg.loss)
    # XLA only on request, because compiling a small model takes longer than the time it saves.
    model.compile(optimizer, loss, metrics=accuracies, jit_compile=bool(cfg.model.get("jit")))
    model.optimizer.build(model.trainable_variables)
    if cfg.all_reduce_dtype != "float32" and replicas(cfg) > 1:
        distribution.reduce_gradients_in(model.optimizer, cfg.all_reduce_dtype)


def build(cfg: DictConfig, dataset: Data) -> keras.Model:
    """Build the compiled model of a configuration for the first phase, with the variables of its optimizer."""
    model = network(cfg, dataset)
    planned = plan(cfg, len(dataset.training_rows))
    compile_for(model, cfg, dataset, planned, phases(cfg, planned)[0])
    return model


def _describe(cfg: DictConfig, planned: Plan) -> str:
    devices = f", shared by {device_settings(cfg)}" if replicas(cfg) > 1 else ""
    lr = f"; lr {cfg.lr:g} becomes {effective_lr(cfg):g} ({cfg.lr_scaling})" if effective_lr(cfg) != cfg.lr else ""
    return f"{planned}{devices}{lr}"


def _learning_rates(cfg: DictConfig) -> dict[str, float]:
    if cfg.lr_scaling == "none":
        return {}
    return {"base_learning_rate": cfg.lr, "effective_learning_rate": effective_lr(cfg)}


def _check_finite(metrics: dict[str, float], epoch: int) -> None:
    losses = {name: metrics[name] for name in ("loss", "val_loss") if name in metrics}
    if not all(math.isfinite(loss) for loss in losses.values()):
        shown = ", ".join(f"{name} is {loss}" for name, loss in losses.items())
        raise Diverged(f"{shown} in epoch {epoch}")


def _criterion(metrics: dict[str, float]) -> str:
    """Return the name of the metric that decides which epoch is best; the training loss if validation=none."""
    return next(name for name in ("val_accuracy", "val_loss", "loss") if name in metrics)


def _is_better(metrics: dict[str, float], best: dict[str, float]) -> bool:
    name = _criterion(metrics)
    sign = 1 if name == "val_accuracy" else -1
    return not best or sign * metrics[name] > sign * best[name]


def _has_stalled(progress: Progress, phase: Phase, cfg: DictConfig) -> bool:
    patience = cfg.trainer.get("early_stopping_patience")
    return patience is not None and progress.epoch - max(progress.best_epoch, phase.first) >= patience


def _convergence_metrics(progress: Progress, cfg: DictConfig) -> dict[str, float]:
    values, seconds = zip(*progress.history, strict=True)
    higher_is_better = _criterion(progress.best) == "val_accuracy"
    return convergence_metrics(values, seconds, progress.best_epoch, cfg.target, higher_is_better)


def _line_metrics(model: keras.Model, dataset: Data, task: str, trial: Trial) -> dict[str, float]:
    if task != "regression" or not isinstance(dataset.x, np.ndarray) or not is_line(model):
        return {}
    points = dataset.x[dataset.training_rows], dataset.y[dataset.training_rows]
    if best := least_squares(*points):
        trial.note("closed form (least squares)", best)
    return line_of(model, *points)
