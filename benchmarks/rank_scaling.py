"""What a second process (rank) brings: images a second of two ranks, side by side with one rank alone.

    python benchmarks/rank_scaling.py [mlp cnn cnn512 resnet20 resnet50v2]

Weak scaling: every rank trains batches of the same size, pinned to a core of its own, on one thread. In one pair of
processes the ways take turns, A B C A B C, each for an epoch of the same rows:

- alone: the chief trains without the other, as a training of one process does.
- apart: both train at once, each for itself, until both are done: what the machine leaves of twice the speed.
- waiting: and wait for each other at each step, exchanging one number: what steps that take unequally long cost.
- ranks: both train together (`nodes=2`, or `ranks=2`). Its efficiency: images a second / (2 x those of alone).
- loop: both train by the custom loop that Keras documents for tf.distribute: a distributed dataset, and from Python a
  tf.function a step (https://keras.io/guides/distributed_training_with_tensorflow/). Same model, optimizer and metrics.

Last, on its own: MirroredStrategy over two logical CPUs in one process, on both cores.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from side_by_side import ROOT, machine, spread

ROUNDS = 7


@dataclass(frozen=True)
class Case:
    """Of each rank: how many examples a step, and how many steps are timed."""

    batch: int
    steps: int
    overrides: tuple[str, ...]


MNIST = ("dataset=mnist", f"dataset.path={ROOT.parent / 'shared' / 'data' / 'mnist.npz'}")
PICTURES = ("dataset=digits",)
CASES = {
    "mlp": Case(128, 150, MNIST),
    "mlp2048": Case(2048, 10, MNIST),
    "cnn": Case(128, 40, ("model=cnn", *MNIST)),
    "cnn512": Case(512, 10, ("model=cnn", *MNIST)),
    "resnet20": Case(64, 6, ("model._target_=rank_scaling.resnet20", *PICTURES, "dataset.size=32")),
    "resnet50v2": Case(32, 3, ("model=resnet50v2", *PICTURES, "dataset.size=128")),
}


def resnet20(input_shape: tuple[int, ...], outputs: int, **_: Any) -> Any:
    """He et al., Deep Residual Learning for Image Recognition, 2015, section 4.2, with n = 3: 0.27 million weights."""
    import keras
    from keras import layers

    def convolution(x: Any, filters: int, stride: int = 1) -> Any:
        return layers.BatchNormalization()(layers.Conv2D(filters, 3, stride, "same", use_bias=False)(x))

    inputs = keras.Input(input_shape)
    x = layers.Reshape((*input_shape[:2], 1))(inputs) if len(input_shape) == 2 else inputs
    x = layers.ReLU()(convolution(x, 16))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        for block in range(3):
            first = stride if block == 0 else 1
            shortcut = x if first == 1 else layers.Conv2D(filters, 1, first, use_bias=False)(x)
            x = layers.ReLU()(convolution(x, filters, first))
            x = layers.ReLU()(layers.Add()([convolution(x, filters), shortcut]))
    return keras.Model(inputs, layers.Dense(outputs)(layers.GlobalAveragePooling2D()(x)))


def main() -> None:
    print(f"{machine()}; {ROUNDS} rounds; median (lowest to highest)")
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        seconds = on_two_ranks(name)
        images = {
            way: [case.steps * case.batch * (1 if way == "alone" else 2) / s for s in times]
            for way, times in seconds.items()
        }
        print(f"\n{name}, {case.batch} examples a step and rank")
        for way, speeds in images.items():
            print(f"  {way:9} {spread(speeds, 'images/s')}")
        for way in ("apart", "waiting", "ranks", "loop"):
            ratios = [one / (2 * alone) for one, alone in zip(images[way], images["alone"], strict=True)]
            print(f"  efficiency of {way}: {spread(ratios, '')}")
        faster = [one / other for one, other in zip(images["ranks"], images["loop"], strict=True)]
        print(f"  ranks against loop: {spread(faster, 'times')}")
        print(f"  mirrored  {spread(on_two_devices(name), 'images/s')}", flush=True)


def child(*arguments: str, core: int | None = None) -> "subprocess.Popen[str]":
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    quiet = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}
    environment = os.environ | quiet | (threads if core is not None else {})
    pin = [] if core is None else ["taskset", "-c", str(core)]
    command = [*pin, sys.executable, __file__, "--measure", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: "subprocess.Popen[str]") -> Any:
    out, err = process.communicate()
    if process.returncode:
        sys.exit(err)
    return json.loads(out.splitlines()[-1])


def on_two_ranks(name: str) -> dict[str, list[float]]:
    """The seconds of each way, a round after the other."""
    first = random.randrange(20000, 31000)
    addresses = json.dumps([f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"])
    cores = sorted(os.sched_getaffinity(0))[:2]
    ranks = [child("rank", name, str(rank), addresses, core=core) for rank, core in enumerate(cores)]
    found = [result(rank) for rank in ranks]
    return found[0]  # type: ignore[no-any-return]


def on_two_devices(name: str) -> list[float]:
    return result(child("mirrored", name))  # type: ignore[no-any-return]


def prepared(name: str, batches: int) -> tuple[Any, Any]:
    """The configuration of a case, with steps of so many batches, and its data."""
    import hydra

    import trainers.config.schema  # noqa: F401 (registers the schema)
    from trainers.data import dataset as data

    case = CASES[name]
    plain = ("hydra/sweeper=basic", "hydra/launcher=basic", f"batch_size={case.batch * batches}", f"ranks={batches}")
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base=None):
        cfg = hydra.compose("config", [*plain, *case.overrides])
    return cfg, data.load(cfg.dataset, "classification", 0)


def built(name: str, strategy: Any, batches: int) -> tuple[Any, Any, Any]:
    """(cfg, data, model) under a strategy."""
    import keras

    from trainers.model import compile_for, network
    from trainers.phases import phases
    from trainers.schedules import plan

    cfg, dataset = prepared(name, batches)
    keras.utils.set_random_seed(0)
    planned = plan(cfg, len(dataset.training_rows))
    with strategy.scope():
        model = network(cfg, dataset)
        compile_for(model, cfg, dataset, planned, phases(cfg, planned)[0])
    return cfg, dataset, model


def trainer(name: str, strategy: Any, batches: int) -> Callable[[], None]:
    """An epoch of the product's loop."""
    import numpy as np

    from trainers.compiled import compile_passes

    _, dataset, model = built(name, strategy, batches)
    train, _ = compile_passes(model, dataset)
    size = CASES[name].batch * batches
    rows = np.resize(dataset.order(0, 1), CASES[name].steps * size)

    def epoch() -> None:
        train(rows, size)

    return epoch


def waiting(name: str, strategy: Any) -> Callable[[], None]:
    """The same, but of their gradients the ranks exchange one number."""
    import keras
    import tensorflow as tf

    def one_number(_: Any, pairs: Any) -> Any:
        found = list(pairs)
        number = tf.reshape(found[-1][0], [-1])[:1]
        with tf.control_dependencies([tf.distribute.get_replica_context().all_reduce("sum", number)]):
            return [(tf.identity(gradient), variable) for gradient, variable in found]

    with patch.object(keras.optimizers.Optimizer, "_all_reduce_sum_gradients", one_number):
        return trainer(name, strategy, 2)


def keras_loop(name: str, strategy: Any) -> Callable[[], None]:
    """An epoch of the documented loop."""
    import numpy as np
    import tensorflow as tf

    _, dataset, model = built(name, strategy, 2)
    size, steps = CASES[name].batch * 2, CASES[name].steps
    rows = np.resize(dataset.order(0, 1), steps * size)
    x = dataset.x if isinstance(dataset.x, np.ndarray) else dataset.x.all()
    x = x[rows]
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    pairs = tf.data.Dataset.from_tensor_slices((x, dataset.y[rows])).batch(size).with_options(options)
    scaled = pairs.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)).cache().prefetch(2)
    distributed = strategy.experimental_distribute_dataset(scaled)

    @tf.function
    def train_step(batch: Any) -> None:
        strategy.run(model.train_step, args=(batch,))

    def epoch() -> None:
        model.reset_metrics()
        for batch in distributed:
            train_step(batch)
        float(model.get_metrics_result()["loss"])

    return epoch


def rank(name: str, number: str, addresses: str) -> dict[str, list[float]]:
    import tensorflow as tf

    from sweeps.trial.job import World
    from trainers import distribution

    where = json.loads(addresses)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    together = distribution.strategy([], World(int(number), len(where), int(number), 1, tuple(where)))
    alone = tf.distribute.get_strategy()
    ways = {"ranks": trainer(name, together, 2), "loop": keras_loop(name, together)}
    ways["waiting"], ways["apart"] = waiting(name, together), trainer(name, alone, 1)
    if number == "0":
        ways["alone"] = ways["apart"]

    def meet() -> None:
        together.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones(1)))

    seconds: dict[str, list[float]] = {way: [] for way in ("alone", "apart", "waiting", "ranks", "loop")}
    for turn in range(ROUNDS + 1):
        for way, times in seconds.items():
            meet()
            started = time.perf_counter()
            if way in ways:
                ways[way]()
            meet()
            if turn:  # the first round warms up
                times.append(time.perf_counter() - started)
    meet()
    return seconds


def mirrored(name: str) -> list[float]:
    import tensorflow as tf

    from sweeps.trial.job import World
    from trainers import distribution

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    epoch = trainer(name, distribution.strategy(["CPU:0", "CPU:1"], World()), 2)
    epoch()
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        epoch()
        found.append(CASES[name].steps * CASES[name].batch * 2 / (time.perf_counter() - started))
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps({"rank": rank, "mirrored": mirrored}[sys.argv[2]](*sys.argv[3:])), flush=True)
        os._exit(0)  # a rank that waits for the other one's end would keep it waiting
    main()
