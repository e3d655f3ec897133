"""Trains on several ranks and, in the chief, on one, in float64, where a fault cannot hide behind rounding; prints what
came of it, a JSON line a case.

    python -m tests.trainers.ranks_and_one RANK RANKS FOLDER CASES     (CASES: lists of overrides, as JSON)
"""

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import World
from sweeps.trial.ranks import exchange_addresses
from tests.trainers.recorder import compose
from trainers import distribution, networks
from trainers.compiled import compile_passes
from trainers.data import dataset as data
from trainers.model import compile_for, network
from trainers.phases import phases
from trainers.schedules import plan

STEPS = 30


def normalized(
    input_shape: tuple[int, ...], outputs: int, *, hidden: list[int], activation: str, dropout: float
) -> keras.Model:
    """Return a network with batch normalization and the hyperparameters of the MLP."""
    stack = [layers.Reshape((*input_shape, 1)), layers.Conv2D(hidden[0], 3), layers.BatchNormalization()]
    stack += [layers.Activation(activation)]
    stack += [layers.Flatten(), layers.Dropout(dropout), layers.Dense(outputs)]
    return keras.Sequential([keras.Input(input_shape), *stack])


def trained(strategy: tf.distribute.Strategy, overrides: list[str]) -> tuple[keras.Model, dict[str, float]]:
    """Return the model after `STEPS` steps of the whole batch, and the training and validation metrics."""
    cfg = compose(*overrides)
    keras.utils.set_random_seed(1)
    dataset = data.load(cfg.dataset, "classification", cfg.seed)
    planned = plan(cfg, len(dataset.training_rows))
    with strategy.scope():
        model = network(cfg, dataset)
        compile_for(model, cfg, dataset, planned, phases(cfg, planned)[0])
    distribution.seed_dropout_by_replica(model)
    train, evaluate = compile_passes(model, dataset)
    size = planned.batch_sizes[0]
    metrics = train(dataset.order(0, 1)[: STEPS * size], size)[0]
    distribution.average_statistics(model)
    return model, metrics | {f"val_{name}": value for name, value in evaluate("validation").items()}


def outcome(strategy: tf.distribute.Strategy, overrides: list[str]) -> dict[str, Any]:
    """Return the metrics, all weights in one list, and the states of the random generators."""
    model, metrics = trained(strategy, overrides)
    seeds = [v.numpy().tolist() for v in model.non_trainable_variables if v.path.endswith("seed_generator_state")]
    weights = [v.numpy().ravel() for v in model.weights if "seed" not in v.path]
    return {"metrics": metrics, "weights": np.concatenate(weights).tolist(), "seeds": seeds}


def main() -> None:
    rank, ranks, folder, cases = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    faulthandler.dump_traceback_later(870)  # where a rank hangs
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    networks._output = layers.Dense  # because the output layer is float32 in every precision
    attempt = TrialFolder(folder).attempt(0)
    attempt.path.mkdir(parents=True, exist_ok=True)
    world = exchange_addresses(attempt, World(rank, ranks, rank, addresses=("127.0.0.1",) * ranks))
    several = distribution.strategy([], world)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})  # as trainers.trainer does
    for overrides in cases:
        result = outcome(several, [f"ranks={ranks}", *overrides])
        alone = outcome(tf.distribute.get_strategy(), overrides) if rank == 0 else None
        print(json.dumps({**result, "alone": alone}), flush=True)


if __name__ == "__main__":
    main()
