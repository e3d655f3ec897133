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
        is_pretrained = cfg.model.get("weights") not in (None, "random")
        freeze(model, phase, is_pretrained)
    optimizer = make("optimizer", cfg.optimizer, **_learning_rate(cfg, planned, phase))
    # Checked here too, because a user's own optimizer has settings that the configuration does not
    # show.
    check_optimizer({**vars(optimizer), "_target_": type(optimizer).__name__}, cfg)
    loss = make("loss", cfg.loss)
    # XLA only on request, because compiling a small model takes longer than the time it saves.
    uses_xla = bool(cfg.model.get("jit"))
    model.compile(optimizer, loss, metrics=_metrics(dataset), jit_compile=uses_xla)
    model.optimizer.build(model.trainable_variables)
    if replicas(cfg) > 1:
        distribution.weigh_loss(model.optimizer)
        if cfg.all_reduce_dtype != "float32":
            distribution.reduce_gradients_in(model.optimizer, cfg.all_reduce_dtype)


def _learning_rate(cfg: DictConfig, planned: Plan, phase: Phase) -> dict[str, object]:
    """Return the optimizer's setting for the learning rates of a phase; none if they are cfg.lr."""
    if not is_constant(cfg):
        from trainers.optimizers import Table

        factors = lr_factors(cfg, planned, phase.first, phase.end)
        return {"learning_rate": Table(factors * phase.lr)}
    return {} if phase.lr == cfg.lr else {"learning_rate": phase.lr}


def _metrics(dataset: Data) -> list[keras.metrics.Metric]:
    """Return the accuracy if the examples have classes."""
    if dataset.y.dtype != np.int32:
        return []
    if dataset.one_hot:
        return [keras.metrics.CategoricalAccuracy(name="accuracy")]
    return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]


def build(cfg: DictConfig, dataset: Data) -> keras.Model:
    """Build the compiled model of a configuration for the first phase, with the variables of its
    optimizer."""
    model = network(cfg, dataset)
    planned = plan(cfg, len(dataset.training_rows))
    compile_for(model, cfg, dataset, planned, phases(cfg, planned)[0])
    return model
