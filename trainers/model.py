"""The model of a configuration: its network, compiled with loss and optimizer."""

import keras
import numpy as np
from omegaconf import DictConfig

from trainers import distribution, networks
from trainers.config.training import check_optimizer
from trainers.data.arrays import Data
from trainers.instantiate import make
from trainers.parallel import replicas
from trainers.phases import Phase, freeze, phases
from trainers.schedules import Plan, is_constant, lr_factors, plan


def network(cfg: DictConfig, dataset: Data) -> keras.Model:
    """Build the model of a configuration, not yet compiled. Keras' global settings stay
    unchanged."""
    with networks.precision(cfg.mixed_precision, replicas(cfg)):
        model = networks.build(cfg.model, dataset.x.shape[1:], dataset.outputs)
    if cfg.model.get("sync_batch_norm") and replicas(cfg) > 1:
        distribution.synchronize_batch_norm(model)
    return model


def compile_for(
    model: keras.Model, cfg: DictConfig, dataset: Data, planned: Plan, phase: Phase
) -> None:
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
    # Checked here too, because a user's own optimizer has settings that the configuration does not
    # show.
    check_optimizer({**vars(optimizer), "_target_": type(optimizer).__name__}, cfg)
    accuracies = []
    if dataset.y.dtype == np.int32:
        accuracy = (
            keras.metrics.CategoricalAccuracy
            if dataset.one_hot
            else keras.metrics.SparseCategoricalAccuracy
        )
        accuracies = [accuracy(name="accuracy")]
    loss = make("loss", cfg.loss)
    # XLA only on request, because compiling a small model takes longer than the time it saves.
    model.compile(optimizer, loss, metrics=accuracies, jit_compile=bool(cfg.model.get("jit")))
    model.optimizer.build(model.trainable_variables)
    if replicas(cfg) > 1:
        distribution.weigh_loss(model.optimizer)
    if cfg.all_reduce_dtype != "float32" and replicas(cfg) > 1:
        distribution.reduce_gradients_in(model.optimizer, cfg.all_reduce_dtype)


def build(cfg: DictConfig, dataset: Data) -> keras.Model:
    """Build the compiled model of a configuration for the first phase, with the variables of its
    optimizer."""
    model = network(cfg, dataset)
    planned = plan(cfg, len(dataset.training_rows))
    compile_for(model, cfg, dataset, planned, phases(cfg, planned)[0])
    return model
