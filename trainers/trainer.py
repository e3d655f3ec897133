"""One training with Keras on TensorFlow, from configuration to result."""

import math
import time

import keras
import numpy as np
import tensorflow as tf
from hydra.utils import instantiate
from omegaconf import DictConfig

from sweeps.trial import Diverged, Trial
from trainers import checkpoint, data, distribution
from trainers.checkpoint import Progress
from trainers.compiled import Pass, compile_passes, resident


def train(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    """Train as `cfg` (conf/schema.py) says; go on from the trial's checkpoint if it has one.

    Each epoch, counted from 1, reports loss, val_loss, learning_rate, epoch_time (s, with validation) and
    images_per_second (training alone); for a classification also accuracy and val_accuracy (0..1).

    Returns the metrics of the best epoch (highest val_accuracy, or lowest val_loss in a regression),
    best_epoch, and test_loss and test_accuracy of the final weights. A training that was told to stop has
    written a checkpoint and returns without the test metrics.

    Raises:
        Diverged: a loss is NaN or infinite; that epoch is reported.
    """
    devices = distribution.claim_gpus(cfg.gpus)
    if not devices:
        # Rewriting the graph takes a tenth of a second and, on a CPU, makes none of these models faster.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = distribution.strategy(devices)
    keras.utils.set_random_seed(cfg.seed)
    task = cfg.dataset.get("task") or cfg.loss.get("task")
    dataset = data.load(cfg.dataset, task, cfg.seed)
    x, y = resident(dataset.x, strategy), resident(dataset.y, strategy)
    with strategy.scope():
        model = build(cfg, dataset, task)
        progress = checkpoint.restore(trial.checkpoint_folder, model)
    train_pass, evaluate = compile_passes(model, x, y, cfg.batch_size)

    saved_at = time.monotonic()
    while progress.epoch < cfg.epochs and not _has_stalled(progress, cfg.trainer):
        progress.epoch += 1
        order = data.epoch_order(dataset.training_rows, cfg.seed, progress.epoch)
        if len(devices) > 1:
            # A smaller last batch would be shared unequally and bias the gradients.
            order = order[: len(order) // cfg.batch_size * cfg.batch_size]
        metrics = _run_epoch(train_pass, evaluate, (x, y), order, dataset.validation_rows)
        metrics["learning_rate"] = float(model.optimizer.learning_rate.numpy())
        trial.report(metrics, step=progress.epoch)
        if not (math.isfinite(metrics["loss"]) and math.isfinite(metrics["val_loss"])):
            raise Diverged(
                f"loss is {metrics['loss']}, val_loss is {metrics['val_loss']} in epoch {progress.epoch}"
            )
        if _is_better(metrics, progress.best):
            progress.best_epoch, progress.best = progress.epoch, metrics
        stopped = progress.epoch < cfg.epochs and trial.should_stop()
        if stopped or time.monotonic() - saved_at >= cfg.trainer.get("checkpoint_interval_s", 10.0):
            checkpoint.save(trial.checkpoint_folder, progress, model)
            saved_at = time.monotonic()
        if stopped:
            return {**progress.best, "best_epoch": progress.best_epoch}

    # As Keras' fit ends: with use_ema, the averages become the weights.
    model.optimizer.finalize_variable_values(model.trainable_variables)
    x_test, y_test = resident(dataset.x_test, strategy), resident(dataset.y_test, strategy)
    test = evaluate(x_test, y_test, tf.range(len(dataset.x_test)))
    return {
        **progress.best,
        "best_epoch": progress.best_epoch,
        **{f"test_{name}": float(value) for name, value in test.items()},
    }


def build(cfg: DictConfig, dataset: data.Data, task: str) -> keras.Model:
    """The compiled model of a configuration, its optimizer's variables included."""
    model: keras.Model = instantiate(
        cfg.model, input_shape=dataset.x.shape[1:], outputs=dataset.outputs, _convert_="all"
    )
    optimizer = instantiate(cfg.optimizer, _convert_="all")
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        distribution.check_optimizer(optimizer)
    accuracy = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")] if task == "classification" else []
    loss = instantiate(data.described_target(cfg.loss), _convert_="all")
    # jit_compile: XLA's compilation costs a small model more than it ever wins back.
    model.compile(optimizer, loss, metrics=accuracy, jit_compile=False)
    optimizer.build(model.trainable_variables)
    return model


def _run_epoch(
    train_pass: Pass,
    evaluate: Pass,
    arrays: tuple[tf.Tensor, tf.Tensor],
    order: np.ndarray,
    validation_rows: np.ndarray,
) -> dict[str, float]:
    started = time.perf_counter()
    training = {name: float(value) for name, value in train_pass(*arrays, tf.constant(order)).items()}
    trained_s = time.perf_counter() - started
    validation = evaluate(*arrays, tf.constant(validation_rows))
    return {
        **training,
        **{f"val_{name}": float(value) for name, value in validation.items()},
        "epoch_time": time.perf_counter() - started,
        "images_per_second": len(order) / trained_s,
    }


def _is_better(metrics: dict[str, float], best: dict[str, float]) -> bool:
    if not best:
        return True
    if "val_accuracy" in metrics:
        return metrics["val_accuracy"] > best["val_accuracy"]
    return metrics["val_loss"] < best["val_loss"]


def _has_stalled(progress: Progress, options: DictConfig) -> bool:
    patience = options.get("early_stopping_patience")
    return patience is not None and progress.epoch - progress.best_epoch >= patience
