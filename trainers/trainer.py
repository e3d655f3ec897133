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
from trainers import checkpoint, confusion, distribution, networks
from trainers.checkpoint import Progress, Saved
from trainers.compiled import Evaluate, Train, compile_passes
from trainers.data.arrays import Data
from trainers.data.dataset import load
from trainers.epoch_parts import CALL_OF_RANKS_S, CALL_S, Part, mean_metrics, train_parts
from trainers.line import is_line, least_squares, line_of
from trainers.model import compile_for, network
from trainers.parallel import device_settings, effective_lr, replicas
from trainers.phases import Phase, phases
from trainers.ranks import Watchdog, detect_lost_ranks
from trainers.schedules import Plan, plan
from trainers.stability import convergence_metrics


def train(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    """Train as `cfg` (trainers/config/schema.py) describes; resume from the trial's checkpoint if
    it has one.

    Each epoch, counted from 1, reports loss, val_loss, learning_rate, epoch_time (s, with
    validation) and images_per_second (without validation); in a classification also accuracy and
    val_accuracy (0..1). With trainer.report_every_steps, steps of the training are reported in
    place of epochs: trainers/epoch_parts.py.

    Returns the metrics of the best epoch (highest val_accuracy, or lowest val_loss in a
    regression), best_epoch, as epoch_time the median of all epochs but the first, test_loss and
    test_accuracy of the final weights, and the metrics of trainers/stability.py; for a line also
    its weight, bias, mse and r2. If the trial should stop, a checkpoint is written and only the
    best epoch is returned. All ranks return the same; only the chief writes files.

    Raises:
        Diverged: a loss is NaN or infinite; the epoch is reported.
        RankLost: another rank of the training is gone.
    """
    size = cfg.nodes * cfg.ranks
    if trial.world.size != size:
        settings = f"nodes={cfg.nodes} ranks={cfg.ranks}"
        raise ValueError(
            f"{settings}: {size} processes are needed, but this trial has {trial.world.size}.\n"
            f"Use a launcher, which starts them: python sweep.py -m {settings}"
        )
    # Resolved here, because a section that is passed on alone cannot resolve references to other
    # sections.
    OmegaConf.resolve(cfg)
    with detect_lost_ranks(trial.world.size):
        return _train(cfg, trial)


def _train(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    devices = distribution.claim_gpus(cfg.gpus)
    if not devices:
        # Disabled because it takes a tenth of a second and, on a CPU, makes none of these models
        # faster.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    watchdog = Watchdog(trial)
    with watchdog:
        strategy = distribution.strategy(devices, trial.world)
    training = _prepare(cfg, trial, strategy, watchdog)

    for phase in phases(cfg, training.planned)[training.progress.phase - 1 :]:
        evaluate = training.run(phase)
        if training.stopped:
            return training.best
    with watchdog:
        test = evaluate("test") if "test" in training.dataset.subsets else {}
    result = _result(training, test)
    if cfg.trainer.get("save_model", "none") != "none" and trial.world.is_chief:
        _save_model(training)
    return result


def _task(cfg: DictConfig) -> str:
    return str(cfg.dataset.get("task") or cfg.loss.get("task"))


def _prepare(
    cfg: DictConfig, trial: Trial, strategy: tf.distribute.Strategy, watchdog: Watchdog
) -> "_Training":
    """Load the data and the checkpoint, build the network, and describe the training."""
    has_ranks = trial.world.size > 1
    dataset = load(cfg.dataset, _task(cfg), cfg.seed)
    if has_ranks:
        networks.fetch(cfg.model, dataset.x.shape[1:])
    keras.utils.set_random_seed(cfg.seed)
    dataset.announce(trial)

    planned = plan(cfg, len(dataset.training_rows))
    if trial.world.is_chief:
        print(_describe(cfg, planned), flush=True)
    trial.record_settings({**planned.settings, "effective_learning_rate": effective_lr(cfg)})

    saved = checkpoint.newest(trial.checkpoint_folder)
    if has_ranks:
        watchdog.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        epoch = saved.progress.epoch if saved else 0
        with watchdog:
            distribution.check_same_epoch(strategy, epoch)
    with strategy.scope(), watchdog:
        model = network(cfg, dataset)
    return _Training(cfg, trial, dataset, planned, model, saved, watchdog)


def _result(training: "_Training", test: dict[str, float]) -> dict[str, float]:
    """Return the metrics of a complete training; `test` are those of the test set."""
    cfg = training.cfg
    result = {**training.best, "epoch_time": training.median_epoch_s}
    if cfg.lr_scaling != "none":
        result["base_learning_rate"] = cfg.lr
        result["effective_learning_rate"] = effective_lr(cfg)
    if training.dataset.skipped:
        result["skipped_images"] = float(training.dataset.skipped)
    for name, value in test.items():
        result[f"test_{name}"] = float(value)
    result |= _convergence_metrics(training.progress, cfg)
    result |= _line_metrics(training.model, training.dataset, _task(cfg), training.trial)
    return result


def _save_model(training: "_Training") -> None:
    """Save the model in the trial's folder and, if it predicts classes, record its confusion
    matrix."""
    dataset = training.dataset
    folder = training.trial.folder / "model"
    shape = dataset.x.shape[1:]
    weights = training.best_weights
    model = networks.save(training.model, weights, folder, shape, dataset.outputs)
    if _task(training.cfg) == "classification":
        confusion.record(training.trial, model, dataset)


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
        self.progress = self.saved.progress if self.saved else Progress()
        self.best_weights = self.saved.best if self.saved else None
        self._saved_at = time.monotonic()
        self._is_seeded = False

    @property
    def median_epoch_s(self) -> float:
        """Return the median duration of the epochs, without the first one, in which TensorFlow
        traces."""
        durations = [seconds for _, seconds in self.progress.history]
        return median(durations[1:] or durations)

    @property
    def best(self) -> dict[str, float]:
        """Return the metrics of the best epoch, and its number."""
        return {**self.progress.best, "best_epoch": self.progress.best_epoch}

    def run(self, phase: Phase) -> Evaluate:
        """Train the rest of a phase, unless the trial should stop, and return the function that
        evaluates the model."""
        train_pass, evaluate = self._compile(phase)
        while not self._is_over(phase):
            self._run_epoch(train_pass, evaluate)
            if self.stopped:  # within an epoch, where no checkpoint is written
                return evaluate
            self.stopped = self.progress.epoch < self.planned.epochs and self.trial.should_stop()
            self._save_if_due()
            if self.stopped:
                return evaluate
        # As at the end of Keras' fit, because with use_ema the averages become the weights.
        self.model.optimizer.finalize_variable_values(self.model.trainable_variables)
        return evaluate

    def _compile(self, phase: Phase) -> tuple[Train, Evaluate]:
        """Compile the model and its passes for a phase, and restore the checkpoint."""
        self.progress.phase = phase.number
        with self.model.distribute_strategy.scope(), self.watchdog:
            compile_for(self.model, self.cfg, self.dataset, self.planned, phase)
            if self.saved:
                self.saved.assign_to(self.model)
                self.saved = None
        if not self._is_seeded:
            distribution.seed_dropout_by_replica(self.model)
            self._is_seeded = True
        # because ranks wait for each other when they create their metrics' variables
        with self.watchdog:
            return compile_passes(self.model, self.dataset, self.cfg.seed, self.watchdog.steps)

    def _is_over(self, phase: Phase) -> bool:
        """Return whether a phase has all its epochs, or the last phase makes no progress."""
        progress = self.progress
        if progress.epoch >= phase.end:
            return True
        patience = self.cfg.trainer.get("early_stopping_patience")
        if patience is None or phase.end < self.planned.epochs:
            return False
        return bool(progress.epoch - max(progress.best_epoch, phase.first) >= patience)

    def _save_if_due(self) -> None:
        """Save a checkpoint: after the interval, if the trial stops, and after its last epoch, so
        that it can train longer."""
        is_last = self.progress.epoch >= self.planned.epochs
        interval_s = self.cfg.trainer.get("checkpoint_interval_s", 10.0)
        is_due = self.stopped or is_last or time.monotonic() - self._saved_at >= interval_s
        if is_due and self.trial.world.is_chief:
            folder = self.trial.checkpoint_folder
            checkpoint.save(folder, self.progress, self.model, self.best_weights)
            self._saved_at = time.monotonic()

    def _run_epoch(self, train_pass: Train, evaluate: Evaluate) -> None:
        """Train one epoch, report it, and compare it with the best epoch. Raises Diverged."""
        progress = self.progress
        rate = float(self.model.optimizer.learning_rate.numpy())  # at the start of the epoch
        index = progress.epoch
        progress.epoch += 1
        order = self.dataset.order(self.cfg.seed, progress.epoch)[: self.planned.images[index]]
        started = time.perf_counter()
        with self.watchdog:
            parts = self._train_parts(train_pass, evaluate, order, self.planned.batch_sizes[index])
            if self.stopped:
                return
            metrics = {**parts[-1].metrics, **self._validate(evaluate)}
        metrics |= {
            "epoch_time": time.perf_counter() - started,
            "images_per_second": len(order) / sum(part.seconds for part in parts),
            "learning_rate": rate,
        }
        self._report(metrics, self.planned.steps[index])

        metrics |= mean_metrics(parts)
        progress.history.append([metrics[_criterion(metrics)], metrics["epoch_time"]])
        self._compare_with_best(metrics)

    def _compare_with_best(self, metrics: dict[str, float]) -> None:
        progress = self.progress
        if _is_better(metrics, progress.best):
            progress.best_epoch = progress.epoch
            progress.best = metrics
            if self.cfg.trainer.get("save_model") == "best":
                self.best_weights = self.model.get_weights()

    def _train_parts(
        self, train_pass: Train, evaluate: Evaluate, order: np.ndarray, batch_size: int
    ) -> list[Part]:
        """Train the epoch's parts, and report all but the last, until the trial stops."""
        epoch = self.progress.epoch
        every = self.cfg.trainer.get("report_every_steps")
        validates_every = self.cfg.trainer.get("validate_every_steps")
        call_s = CALL_S if self.trial.world.size == 1 else CALL_OF_RANKS_S
        parts = []
        for part in train_parts(
            train_pass, order, batch_size, epoch, every, validates_every, call_s
        ):
            parts.append(part)
            if part.end == self.planned.steps[epoch - 1]:
                break
            metrics = part.metrics
            is_validated = validates_every is not None and part.end % validates_every == 0
            if is_validated:
                metrics = {**metrics, **self._validate(evaluate)}
            self._report(metrics, part.end)
            # only after a validation
            self.stopped = is_validated and self.trial.should_stop()
            if self.stopped:
                break
        return parts

    def _validate(self, evaluate: Evaluate) -> dict[str, float]:
        distribution.average_statistics(self.model)
        if "validation" not in self.dataset.subsets:
            return {}
        return {f"val_{name}": value for name, value in evaluate("validation").items()}

    def _report(self, metrics: dict[str, float], steps: int) -> None:
        """Report metrics after `steps` of the epoch; by epoch, or by step of the training. Raises
        Diverged."""
        planned = self.planned
        epoch = self.progress.epoch
        if self.cfg.trainer.get("report_every_steps") is None:
            self.trial.report(metrics, step=epoch)
        else:
            earlier_steps = sum(planned.steps[: epoch - 1])
            is_partial = steps < planned.steps[epoch - 1]
            epochs = epoch - 1 + steps / planned.steps_of_whole[epoch - 1]
            self.trial.report(
                {**metrics, "epoch": epochs}, step=earlier_steps + steps, partial=is_partial
            )
        _check_finite(metrics, epoch)


def _describe(cfg: DictConfig, planned: Plan) -> str:
    description = str(planned)
    if replicas(cfg) > 1:
        description += f", shared by {device_settings(cfg)}"
    rate = effective_lr(cfg)
    if rate != cfg.lr:
        description += f"; lr {cfg.lr:g} becomes {rate:g} ({cfg.lr_scaling})"
    unit = "an epoch" if cfg.trainer.get("report_every_steps") is None else "a batch"
    return f"{description}. In the lines below a step is {unit}"


def _check_finite(metrics: dict[str, float], epoch: int) -> None:
    losses = {name: metrics[name] for name in ("loss", "val_loss") if name in metrics}
    if not all(math.isfinite(loss) for loss in losses.values()):
        shown = ", ".join(f"{name} is {loss}" for name, loss in losses.items())
        raise Diverged(f"{shown} in epoch {epoch}")


def _criterion(metrics: dict[str, float]) -> str:
    """Return the name of the metric that decides which epoch is best; the training loss if
    validation=none."""
    return next(name for name in ("val_accuracy", "val_loss", "loss") if name in metrics)


def _is_better(metrics: dict[str, float], best: dict[str, float]) -> bool:
    name = _criterion(metrics)
    sign = 1 if name == "val_accuracy" else -1
    return not best or sign * metrics[name] > sign * best[name]


def _convergence_metrics(progress: Progress, cfg: DictConfig) -> dict[str, float]:
    values, seconds = zip(*progress.history, strict=True)
    higher_is_better = _criterion(progress.best) == "val_accuracy"
    return convergence_metrics(values, seconds, progress.best_epoch, cfg.target, higher_is_better)


def _line_metrics(model: keras.Model, dataset: Data, task: str, trial: Trial) -> dict[str, float]:
    if task != "regression" or not isinstance(dataset.x, np.ndarray) or not is_line(model):
        return {}
    x = dataset.x[dataset.training_rows]
    y = dataset.y[dataset.training_rows]
    best = least_squares(x, y)
    if best:
        trial.note("closed form (least squares)", best)
    return line_of(model, x, y)
