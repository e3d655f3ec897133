"""Images a second of a training on one CPU core: `fit`, the trainer, and a compiled bound, side by side.

    python benchmarks/training_speed.py [mlp cnn resnet50v2]

The MLP and the CNN learn MNIST, ResNet50V2 pictures of 128 x 128 (digits of scikit-learn, resized), without a bound: at
its size nothing but arithmetic is left.

- fit: `model.fit(x, y)` on numpy arrays, with Keras' defaults.
- fit-N: the same, compiled with steps_per_execution=N and, in fit-N-plain, without XLA. The largest N covers the epoch.
- trainer: `trainers.trainer.train`, its own images_per_second.
- bound: the same steps, compiled, over resident tensors, with an Adam of its own and no metrics.

Each measurement is a process of its own; those of a round run one after the other with the same seed,
and rounds are repeated, so that other work on the machine hits all alike. The first epoch of each is for
warming up and not counted. A ratio is the median and the range of the rounds' ratios.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MNIST = f"dataset.path={ROOT.parent / 'shared' / 'data' / 'mnist.npz'}"


@dataclass(frozen=True)
class Case:
    """What is trained, and how often."""

    rounds: int
    ways: tuple[str, ...]
    overrides: tuple[str, ...]


def in_steps(*counts: int) -> tuple[str, ...]:
    """Return the names of `fit` with these steps_per_execution, with XLA and without."""
    names: list[str] = []
    for count in counts:
        names += [f"fit-{count}", f"fit-{count}-plain"]
    return tuple(names)


CASES = {
    "mlp": Case(
        5, ("fit", *in_steps(16, 391), "trainer", "bound"), ("dataset=mnist", MNIST, "batch_size=128", "epochs=6")
    ),
    # The rest of x_train is held out, so that the benchmark ends within minutes.
    "cnn": Case(
        5,
        ("fit", *in_steps(10, 94), "trainer", "bound"),
        ("dataset=mnist", MNIST, "batch_size=128", "epochs=3", "dataset.validation_split=0.8"),
    ),
    "resnet50v2": Case(
        3,
        ("fit", "trainer"),
        ("dataset=digits", "dataset.size=128", "dataset.subset=144", "dataset.validation_split=0.1", "epochs=3"),
    ),
}


def main() -> None:
    for model in sys.argv[1:] or CASES:
        case = CASES[model]
        measured: dict[str, list[dict[str, float]]] = {way: [] for way in case.ways}
        for seed in range(case.rounds):
            for way, measurements in measured.items():
                measurements.append(in_own_process(way, model, seed))
        print_table(model, measured)


def in_own_process(way: str, model: str, seed: int) -> dict[str, float]:
    """{"speed": images a second, "accuracy": on the test set} of one training in a process of its own."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, "--measure", way, model, str(seed)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if child.returncode:
        sys.exit(f"{way} {model} failed:\n{child.stderr}")
    measurement: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return measurement


def print_table(model: str, measured: dict[str, list[dict[str, float]]]) -> None:
    speeds = {way: [measurement["speed"] for measurement in rounds] for way, rounds in measured.items()}
    width = max(map(len, speeds))
    print(f"\n{model}, one core, {CASES[model].rounds} rounds: images a second")
    print(f"{'':{width}} {'median':>8} {'lowest':>8} {'highest':>8} {'trainer is':>22}  test accuracy")
    for way, values in speeds.items():
        accuracies = [measurement["accuracy"] for measurement in measured[way]]
        ratios = [ours / theirs for ours, theirs in zip(speeds["trainer"], values, strict=True)]
        shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) x"
        print(
            f"{way:{width}} {statistics.median(values):8.4g} {min(values):8.4g} {max(values):8.4g} {shown:>22}  "
            f"{statistics.median(accuracies):.4f} ({min(accuracies):.4f} to {max(accuracies):.4f})"
        )
    sys.stdout.flush()


def composed(model: str, seed: str):  # type: ignore[no-untyped-def]
    """The configuration that all ways train, and its data."""
    import hydra

    import trainers.config.schema  # noqa: F401 (registers the schema)
    from trainers.data import dataset as data

    overrides = [
        *("hydra/sweeper=basic", "hydra/launcher=basic", "trainer.checkpoint_interval_s=3600"),
        *(f"model={model}", f"seed={seed}", *CASES[model].overrides),
    ]
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base=None):
        cfg = hydra.compose("config", overrides)
    return cfg, data.load(cfg.dataset, "classification", cfg.seed)


def fit(model_name: str, seed: str, steps: int = 1, jit: str | bool = "auto") -> dict[str, float]:
    """Keras' own loop over numpy arrays, which calls TensorFlow once for `steps` batches."""
    import keras

    from trainers.model import build

    cfg, dataset = composed(model_name, seed)
    keras.utils.set_random_seed(cfg.seed)
    model = build(cfg, dataset)
    model.compile(model.optimizer, model.loss, metrics=["accuracy"], steps_per_execution=steps, jit_compile=jit)
    x, y = as_floats(dataset.subsets["training"]), dataset.y[dataset.training_rows]
    test = dataset.subsets["test"]

    def epoch() -> None:
        model.fit(x, y, batch_size=cfg.batch_size, epochs=1, verbose=0)

    speed = images_per_second(epoch, len(x), cfg.epochs)
    judged = model.evaluate(as_floats(test), test.y[test.rows], verbose=0, return_dict=True)
    return {"speed": speed, "accuracy": judged["accuracy"]}


def as_floats(subset):  # type: ignore[no-untyped-def]
    """The examples as an array of 0..1."""
    x = subset.x[subset.rows] if hasattr(subset.x, "astype") else subset.x.take(subset.rows)
    return x.astype("float32") / 255 if x.dtype == "uint8" else x


def trainer(model_name: str, seed: str) -> dict[str, float]:
    """The product."""
    import tempfile

    from sweeps.trial import Trial
    from sweeps.trial.folder import TrialFolder
    from trainers.trainer import train

    cfg, _ = composed(model_name, seed)

    with tempfile.TemporaryDirectory() as path:
        folder = TrialFolder(Path(path))
        result = train(cfg, Trial(folder, folder.new_attempt().number))
        speeds = [line.metrics["images_per_second"] for line in folder.read_metrics().values]
    return {"speed": statistics.median(speeds[1:]), "accuracy": result["test_accuracy"]}


def bound(model_name: str, seed: str) -> dict[str, float]:
    """Forward, backward and Adam, and nothing else, in one compiled loop over resident tensors."""
    import keras
    import numpy as np
    import tensorflow as tf

    from trainers.data.arrays import epoch_order
    from trainers.model import build

    cfg, dataset = composed(model_name, seed)
    keras.utils.set_random_seed(cfg.seed)
    model = build(cfg, dataset)
    x, y = tf.constant(dataset.x.astype("float32") / 255), tf.constant(dataset.y)
    weights = [variable.value for variable in model.trainable_variables]
    moments = [(tf.Variable(tf.zeros_like(w)), tf.Variable(tf.zeros_like(w))) for w in weights]
    done = tf.Variable(0.0)

    def step(rows: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = model(tf.gather(x, rows), training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(y, rows), logits)
            loss = tf.reduce_mean(losses)
        rate = cfg.lr * tf.sqrt(1 - 0.999 ** done.assign_add(1.0)) / (1 - 0.9**done)
        for weight, gradient, (first, second) in zip(weights, tape.gradient(loss, weights), moments, strict=True):
            first.assign_add((gradient - first) * 0.1)
            second.assign_add((gradient * gradient - second) * 0.001)
            weight.assign_sub(rate * first / (tf.sqrt(second) + 1e-7))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, cfg.batch_size), tf.int32)])
    def epoch(batches: tf.Tensor) -> None:
        def body(index: tf.Tensor) -> tuple[tf.Tensor]:
            step(batches[index])
            return (index + 1,)

        tf.while_loop(lambda index: index < tf.shape(batches)[0], body, (tf.constant(0),), parallel_iterations=1)

    whole = len(dataset.training_rows) // cfg.batch_size * cfg.batch_size
    numbers = iter(range(1, cfg.epochs + 1))

    def run() -> None:
        order = epoch_order(dataset.training_rows, cfg.seed, next(numbers))[:whole]
        epoch(tf.constant(order.reshape(-1, cfg.batch_size)))

    speed = images_per_second(run, whole, cfg.epochs)
    predicted = model.predict(dataset.x_test.astype("float32") / 255, verbose=0).argmax(axis=1)
    return {"speed": speed, "accuracy": float(np.mean(predicted == dataset.y_test))}


def images_per_second(epoch: Callable[[], None], images: int, epochs: int) -> float:
    """Median over all epochs but the first."""
    speeds = []
    for _ in range(epochs):
        started = time.perf_counter()
        epoch()
        speeds.append(images / (time.perf_counter() - started))
    return statistics.median(speeds[1:])


def measure(way: str, model: str, seed: str) -> dict[str, float]:
    if way == "trainer":
        return trainer(model, seed)
    if way == "bound":
        return bound(model, seed)
    steps = way.split("-")[1] if "-" in way else "1"
    jit = False if way.endswith("-plain") else "auto"
    return fit(model, seed, int(steps), jit)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        way, *arguments = sys.argv[2:]
        print(json.dumps(measure(way, *arguments)))
    else:
        main()
