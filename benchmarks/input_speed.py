"""What images cost before a network sees them: the trainer's way and Keras' own, side by side.

    python benchmarks/input_speed.py [path/to/cifar10_images.tar.xz]

CIFAR-10 as JPEG files in class folders, resized to 128 x 128, batch 32, one core but for the first pass:

- first pass: all files decoded into the cache, against one pass of `keras.utils.image_dataset_from_directory`;
- input alone: what reaches the training step, from memory and from the file, against that dataset, whose every epoch
  decodes again; and as a share of a training step of MobileNetV2;
- augmentation (strong) in the compiled step, against the same Keras layers in a `tf.data` map;
- larger than memory: a CNN over 6 GB of images in a process that may use 2 GB, against the same from memory (24 GB).

Each measurement is a process of its own. Rounds are repeated, one of each way after the other, so that other work on
the machine hits all alike; what is compared is CPU time.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from side_by_side import ROOT, machine, spread

SIZE, BATCH, ROUNDS = 128, 32, 3
EACH = 300  # images a class: 3,000 in all
STEPS = 12  # of MobileNetV2
ROWS = 125_000  # of the file that is larger than memory, 49 kB each: 6.1 GB
LIMIT_GB = 2  # of the process that trains from it, TensorFlow and all


def main() -> None:
    archive = sys.argv[1] if len(sys.argv) > 1 else str(ROOT.parent / "shared" / "data" / "cifar10_images.tar.xz")
    with tempfile.TemporaryDirectory() as folder:
        unpack(archive, Path(folder))
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, measurements in found.items():
                measurements.append(in_own_process(way, folder))
    print(f"{machine()}; {10 * EACH} images of 32 x 32 at {SIZE} x {SIZE}, batch {BATCH}, {ROUNDS} rounds")
    for way, measurements in found.items():
        line = f"{way:28} {spread([m['images_per_second'] for m in measurements], 'images/s'):42}"
        for name in [name for name in measurements[0] if name != "images_per_second"]:
            line += f"  {name} {statistics.median(m[name] for m in measurements):.3g}"
        print(line)
    step_s = 1 / median(found, "step_of_mobilenet")
    for way in ("input_from_memory", "input_from_file", "input_of_keras"):
        print(f"{way}: {1 / median(found, way) / step_s:.2%} of a MobileNetV2 training step")
    ratio = median(found, "train_from_file") / median(found, "train_from_memory")
    print(f"larger than memory: {ratio:.1%} of the speed from memory (all shares by CPU time)")


def median(found: dict[str, list[dict[str, float]]], way: str) -> float:
    return statistics.median(m["per_cpu_second"] for m in found[way])


def unpack(archive: str, folder: Path) -> None:
    """The first images of each class."""
    taken: Counter[str] = Counter()
    with tarfile.open(archive) as files:
        for member in files:
            kind = str(Path(member.name).parent)
            if member.isfile() and "/train/" in member.name and taken[kind] < EACH:
                taken[kind] += 1
                files.extract(member, folder, filter="data")


def in_own_process(way: str, folder: str) -> dict[str, float]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, "--measure", way, folder]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if child.returncode:
        sys.exit(f"{way} failed:\n{child.stderr}")
    measured: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return measured


def timed(work: Callable[[], int], warm: bool = True) -> dict[str, float]:
    """Of `work`, which returns the number of its images: a run to warm up, and one that counts."""
    if warm:
        work()
    started, cpu = time.perf_counter(), time.process_time()
    images = work()
    wall_s = time.perf_counter() - started
    cpu_s = time.process_time() - cpu
    return {"images_per_second": images / wall_s, "per_cpu_second": images / cpu_s, "cores_used": cpu_s / wall_s}


def loaded(folder: str, resident_gb: float, augment: str = "none"):  # type: ignore[no-untyped-def]
    """The configuration of a folder, and its data."""
    import hydra

    import trainers.config.schema  # noqa: F401 (registers the schema)
    from trainers.data import dataset as data

    overrides = [
        *("hydra/sweeper=basic", "hydra/launcher=basic", "dataset=image_folder", f"dataset.size={SIZE}"),
        *(f"dataset.path={folder}/cifar10/train", f"dataset.cache={folder}/cache"),
        *(f"dataset.resident_gb={resident_gb}", f"dataset.augment={augment}"),
        *("model=cnn", "model.filters=[8]", "model.hidden=[16]"),
    ]
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base=None):
        cfg = hydra.compose("config", overrides)
    return cfg, data.load(cfg.dataset, "classification", 0)


def of_keras(folder: str):  # type: ignore[no-untyped-def]
    import keras

    return keras.utils.image_dataset_from_directory(
        f"{folder}/cifar10/train", image_size=(SIZE, SIZE), batch_size=BATCH, seed=0, verbose=False
    )


def first_pass(folder: str) -> dict[str, float]:
    import tensorflow as tf

    from trainers.data.images import decode
    from trainers.data.images import folder as folder_of

    all_cores()
    tf.image.resize(tf.zeros((1, 1, 1)), (1, 1))
    with tempfile.TemporaryDirectory() as cache:
        return timed(lambda: len(decode(folder_of(f"{folder}/cifar10/train"), (SIZE, SIZE), cache, 20).y), warm=False)


def first_pass_of_keras(folder: str) -> dict[str, float]:
    import tensorflow as tf

    all_cores()
    tf.image.resize(tf.zeros((1, 1, 1)), (1, 1))
    return timed(lambda: sum(len(labels) for _, labels in of_keras(folder)), warm=False)


def input_alone(folder: str, resident_gb: float) -> dict[str, float]:
    """What the compiled pass does before its step: the batch, as the file holds it."""
    import numpy as np
    import tensorflow as tf

    from trainers.compiled import read_ahead

    _, dataset = loaded(folder, resident_gb)
    x = tf.constant(dataset.x.all()) if dataset.resident else dataset.x

    @tf.function(autograph=False)
    def epoch(rows: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
        ahead = None if dataset.resident else read_ahead(x, rows, bounds, tf.distribute.get_strategy())

        def body(index: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            batch = ahead.get_next() if ahead else tf.gather(x, rows[bounds[index] : bounds[index + 1]])
            return index + 1, total + tf.reduce_sum(tf.cast(batch[:, 0, 0, 0], tf.int64))

        start = tf.zeros((), tf.int64), tf.zeros((), tf.int64)
        return tf.while_loop(lambda i, _: i < tf.shape(bounds, tf.int64)[0] - 1, body, start, parallel_iterations=1)

    def work() -> int:
        rows = dataset.order(0, 1)
        epoch(tf.constant(rows), tf.constant(np.arange(0, len(rows) + BATCH, BATCH).clip(max=len(rows))))
        return len(rows)

    return timed(work)


def input_of_keras(folder: str) -> dict[str, float]:
    dataset = of_keras(folder)
    return timed(lambda: sum(len(labels) for _, labels in dataset))


def step_of_mobilenet(folder: str) -> dict[str, float]:
    import keras

    from trainers.compiled import compile_passes

    _, dataset = loaded(folder, 2)
    model = keras.applications.MobileNetV2((SIZE, SIZE, 3), weights=None, classes=10, classifier_activation=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    train, _ = compile_passes(model, dataset)
    rows = dataset.order(0, 1)[: STEPS * BATCH]

    def work() -> int:
        train(rows, BATCH)
        return len(rows)

    return timed(work)


def augment(folder: str) -> dict[str, float]:
    """In a compiled loop over images in memory, as in a training."""
    import tensorflow as tf

    from trainers.data.augment import augment

    _, dataset = loaded(folder, 2, "strong")
    x = tf.constant(dataset.x.all())
    steps = 20

    @tf.function(autograph=False)
    def epoch() -> tf.Tensor:
        def body(index: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            images = tf.cast(x[index * BATCH : (index + 1) * BATCH], tf.float32) / 255.0
            images = augment(images, dataset.augment, tf.zeros(2, tf.int64), index, True)
            return index + 1, total + tf.reduce_sum(images[:, 0, 0, 0])

        start = tf.zeros((), tf.int64), tf.zeros(())
        return tf.while_loop(lambda i, _: i < steps, body, start, parallel_iterations=1)

    def work() -> int:
        epoch()
        return steps * BATCH

    return timed(work)


def augment_of_keras(folder: str) -> dict[str, float]:
    import keras
    import tensorflow as tf

    _, dataset = loaded(folder, 2)
    layers = keras.Sequential(
        [
            keras.layers.RandomFlip("horizontal"),
            keras.layers.RandomRotation(5 / 360),
            keras.layers.RandomZoom(0.2),
            keras.layers.RandomTranslation(0.2, 0.2),
        ]
    )
    images = tf.data.Dataset.from_tensor_slices(dataset.x.all()[: 20 * BATCH]).batch(BATCH)
    changed = images.map(lambda x: layers(tf.cast(x, tf.float32) / 255.0, training=True), tf.data.AUTOTUNE).prefetch(2)
    return timed(lambda: sum(len(batch) for batch in changed))


def train_larger_than_memory(folder: str, in_memory: bool) -> dict[str, float]:
    """The same rows from the file, under a limit that they do not fit into, or from memory."""
    from dataclasses import replace

    import numpy as np

    from trainers.compiled import compile_passes
    from trainers.data.on_disk import OnDisk
    from trainers.model import build

    path = Path(folder) / "large.npy"
    cfg, dataset = loaded(folder, 0)
    if not path.exists():
        large = np.lib.format.open_memmap(path, "w+", np.uint8, (ROWS, SIZE, SIZE, 3))
        for row in range(0, ROWS, 1000):
            large[row : row + 1000] = dataset.x.take(np.arange(row, row + 1000) % len(dataset.y))
        large.flush()
        del large
    rows = np.arange(ROWS, dtype=np.int32)
    x = OnDisk(path)
    y = np.resize(dataset.y, ROWS)
    model = build(cfg, dataset)
    some = replace(dataset, training_rows=rows[:320], validation_rows=rows[:32])
    passes = compile_passes(model, some)
    float(passes[0](some.training_rows, BATCH)["loss"])  # all that TensorFlow takes before the data come
    if not in_memory:
        limit = LIMIT_GB * 10**9
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    dataset = replace(
        dataset, resident=in_memory, x=x, y=y, x_test=x, y_test=y, training_rows=rows, validation_rows=rows[:32]
    )
    train, _ = compile_passes(model, dataset)

    def work() -> int:
        order = dataset.order(0, 1)[:3200]
        train(order, BATCH)
        return len(order)

    return timed(work) | {"MB_of_images": x.nbytes / 2**20, "MB_in_use": memory_mb("VmData")}


def memory_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def all_cores() -> None:
    os.sched_setaffinity(0, CORES)


WAYS: dict[str, Callable[[str], dict[str, float]]] = {
    "first_pass": first_pass,
    "first_pass_of_keras": first_pass_of_keras,
    "input_from_memory": lambda folder: input_alone(folder, 2),
    "input_from_file": lambda folder: input_alone(folder, 0),
    "input_of_keras": input_of_keras,
    "step_of_mobilenet": step_of_mobilenet,
    "augment": augment,
    "augment_of_keras": augment_of_keras,
    "train_from_memory": lambda folder: train_larger_than_memory(folder, True),
    "train_from_file": lambda folder: train_larger_than_memory(folder, False),
}
CORES = os.sched_getaffinity(0)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        os.sched_setaffinity(0, {max(CORES)})
        print(json.dumps(WAYS[sys.argv[2]](sys.argv[3])))
    else:
        main()
