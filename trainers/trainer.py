"""One training with Keras on TensorFlow, from configuration to result."""

import math
import time

import keras
import numpy as np
import tensorflow as tf
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from conf.plan import Plan, is_constant, plan, shares
from sweeps.trial import Diverged, Trial
from trainers import checkpoint, data, distribution, networks
from trainers.checkpoint import Progress
from trainers.compiled import Evaluate, Train, compile_passes
from trainers.phases import Phase, freeze, phases
from trainers.stability import arrivals


def train(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    """Train as `cfg` (conf/schema.py) says; go on from the trial's checkpoint if it has one.

    Each epoch, counted from 1, reports loss, val_loss, learning_rate, epoch_time (s, with validation) and
    images_per_second (training alone); for a classification also accuracy and val_accuracy (0..1).

    Returns the metrics of the best epoch (highest val_accuracy, or lowest val_loss in a regression),
    best_epoch, and test_loss and test_accuracy of the final weights; when it had arrived (trainers/stability.py);
    of a line also its weight, bias, mse and r2. A training that was told to stop has written a checkpoint and
    returns the best epoch alone.

    Raises:
        Diverged: a loss is NaN or infinite; that epoch is reported.
    """
    # Sections are passed on alone, where what they take from others would not be found.
    OmegaConf.resolve(cfg)
    devices = distribution.claim_gpus(cfg.gpus)
    if not devices:
        # Rewriting the graph takes a tenth of a second and, on a CPU, makes none of these models faster.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = distribution.strategy(devices)
    keras.utils.set_random_seed(cfg.seed)
    task = cfg.dataset.get("task") or cfg.loss.get("task")
    dataset = data.load(cfg.dataset, task, cfg.seed)
    dataset.announce(trial.checkpoint_folder.parent)
    planned = plan(cfg, len(dataset.training_rows))
    if not planned.epochs:
        raise ValueError(f"batch_size={cfg.batch_size} is larger than the training set ({len(dataset.training_rows)})")
    print(planned, flush=True)
    saved = checkpoint.newest(trial.checkpoint_folder)
    progress, best_weights = (saved.progress, saved.best) if saved else (Progress(), None)
    with strategy.scope():
        model = network(cfg, dataset)

    saved_at = time.monotonic()
    course = phases(cfg, planned)
    for phase in course[progress.phase - 1 :]:
        progress.phase = phase.number
        with strategy.scope():
            compile_for(model, cfg, dataset, planned, phase)
            if saved:
                saved.assign_to(model)
                saved = None
        train_pass, evaluate = compile_passes(model, dataset, cfg.seed)
        while progress.epoch < phase.end and not (phase is course[-1] and _has_stalled(progress, phase, cfg)):
            progress.epoch += 1
            rate = float(model.optimizer.learning_rate.numpy())
            metrics = _run_epoch(train_pass, evaluate, dataset, planned, cfg.seed, progress.epoch)
            metrics["learning_rate"] = rate
            trial.report(metrics, step=progress.epoch)
            _check_finite(metrics, progress.epoch)
            progress.history.append([metrics[_judge(metrics)], metrics["epoch_time"]])
            if _is_better(metrics, progress.best):
                progress.best_epoch, progress.best = progress.epoch, metrics
                if cfg.trainer.get("save_model") == "best":
                    best_weights = model.get_weights()
            stopped = progress.epoch < planned.epochs and trial.should_stop()
            if stopped or time.monotonic() - saved_at >= cfg.trainer.get("checkpoint_interval_s", 10.0):
                checkpoint.save(trial.checkpoint_folder, progress, model, best_weights)
                saved_at = time.monotonic()
            if stopped:
                return {**progress.best, "best_epoch": progress.best_epoch}
        # As Keras' fit ends: with use_ema, the averages become the weights.
        model.optimizer.finalize_variable_values(model.trainable_variables)

    test = evaluate("test") if "test" in dataset.subsets else {}
    result = {
        **progress.best,
        "best_epoch": progress.best_epoch,
        **dataset.notes,
        **{f"test_{name}": float(value) for name, value in test.items()},
        **_arrivals(progress, cfg),
        **_line(model, dataset, task),
    }
    if cfg.trainer.get("save_model", "none") != "none":
        # The folder of a trial is where its checkpoints are.
        networks.save(model, best_weights, trial.checkpoint_folder.parent / "model.keras")
    return result


def network(cfg: DictConfig, dataset: data.Data) -> keras.Model:
    """The model of a configuration, not yet compiled. Leaves Keras' settings as they were."""
    with networks.precision(cfg.mixed_precision):
        return networks.build(cfg.model, dataset.x.shape[1:], dataset.outputs)


def compile_for(model: keras.Model, cfg: DictConfig, dataset: data.Data, planned: Plan, phase: Phase) -> None:
    """Compile a model for one phase of its training, with an optimizer whose variables exist."""
    if "fine_tune" in cfg.model:  # a network of somebody's own keeps what it froze
        freeze(model, phase, pretrained=cfg.model.get("weights") not in (None, "random"))
    rate: dict[str, object] = {}
    if not is_constant(cfg):
        from trainers.schedules import Table

        rate["learning_rate"] = Table(shares(cfg, planned, phase.first, phase.end) * phase.lr)
    elif phase.lr != cfg.lr:
        rate["learning_rate"] = phase.lr
    optimizer = instantiate(cfg.optimizer, **rate, _convert_="all")
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        distribution.check_optimizer(optimizer)
    accuracies = []
    if dataset.y.dtype == np.int32:
        of = keras.metrics.CategoricalAccuracy if dataset.one_hot else keras.metrics.SparseCategoricalAccuracy
        accuracies = [of(name="accuracy")]
    loss = instantiate(data.described_target(cfg.loss), _convert_="all")
    # XLA's compilation costs a small model more than it ever wins back: only where it is asked for.
    model.compile(optimizer, loss, metrics=accuracies, jit_compile=bool(cfg.model.get("jit")))
    model.optimizer.build(model.trainable_variables)


def build(cfg: DictConfig, dataset: data.Data) -> keras.Model:
    """The model of a configuration as its training begins, compiled, its optimizer's variables included."""
    model = network(cfg, dataset)
    planned = plan(cfg, len(dataset.training_rows))
    compile_for(model, cfg, dataset, planned, phases(cfg, planned)[0])
    return model


def _run_epoch(
    train_pass: Train, evaluate: Evaluate, dataset: data.Data, planned: Plan, seed: int, epoch: int
) -> dict[str, float]:
    order = dataset.order(seed, epoch)[: planned.images[epoch - 1]]
    started = time.perf_counter()
    found = train_pass(order, planned.batch_sizes[epoch - 1], epoch)
    training = {name: float(value) for name, value in found.items()}
    trained_s = time.perf_counter() - started
    validation = evaluate("validation") if "validation" in dataset.subsets else {}
    return {
        **training,
        **{f"val_{name}": float(value) for name, value in validation.items()},
        "epoch_time": time.perf_counter() - started,
        "images_per_second": len(order) / trained_s,
    }


def _check_finite(metrics: dict[str, float], epoch: int) -> None:
    losses = {name: metrics[name] for name in ("loss", "val_loss") if name in metrics}
    if not all(math.isfinite(loss) for loss in losses.values()):
        shown = ", ".join(f"{name} is {loss}" for name, loss in losses.items())
        raise Diverged(f"{shown} in epoch {epoch}")


def _judge(metrics: dict[str, float]) -> str:
    """What an epoch is judged by; with dataset.validation=none the training loss."""
    return next(name for name in ("val_accuracy", "val_loss", "loss") if name in metrics)


def _is_better(metrics: dict[str, float], best: dict[str, float]) -> bool:
    judge = _judge(metrics)
    if not best or judge != "val_accuracy":
        return not best or metrics[judge] < best[judge]
    return metrics[judge] > best[judge]


def _has_stalled(progress: Progress, phase: Phase, cfg: DictConfig) -> bool:
    patience = cfg.trainer.get("early_stopping_patience")
    return patience is not None and progress.epoch - max(progress.best_epoch, phase.first) >= patience


def _arrivals(progress: Progress, cfg: DictConfig) -> dict[str, float]:
    values, seconds = zip(*progress.history, strict=True)
    higher = _judge(progress.best) == "val_accuracy"
    return arrivals(values, seconds, progress.best_epoch, cfg.target, higher)


def _line(model: keras.Model, dataset: data.Data, task: str) -> dict[str, float]:
    if task != "regression" or not isinstance(dataset.x, np.ndarray):
        return {}
    return networks.line_of(model, dataset.x, dataset.y, dataset.training_rows)
