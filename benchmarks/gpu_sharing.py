"""What a shared GPU brings: trials an hour with 1 and with 4 trials on each GPU, and whether their results are equal.

    python benchmarks/gpu_sharing.py [jax] [hydra.launcher.cpus_per_task=2 ...]

The trials train a small CNN with PyTorch (`jax`: with Keras on JAX) on 20,000 images of random numbers. In each of 3
rounds, the ways take turns with the same 8 trials. The speed is from the first trial's start to the last trial's end,
without the imports before.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from side_by_side import ROOT, spread

from sweeps.launchers.local.machine import visible_gpus
from sweeps.trial import Trial, current_trial

ROUNDS, TRIALS, WAYS = 3, 8, (1, 4)
FRAMEWORKS = {"torch": ["torch"], "jax": ["numpy"]}  # modules to preload; JAX has threads after its import
ConfigStore.instance().store(name="gpu_sharing", node={"framework": "torch", "lr": 0.001, "epochs": 5, "gpus": 1})


def images() -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 20000)
    return (rng.standard_normal((20000, 32, 32, 3)) + y[:, None, None, None] / 3).astype("float32"), y


def train_torch(cfg: Any, trial: Trial) -> float:
    import torch
    from torch import nn

    trial.limit_gpu_memory()
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    x, y = (torch.from_numpy(array).to("cuda") for array in images())
    x = x.permute(0, 3, 1, 2).contiguous()
    convolutions = [nn.Conv2d(3, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3), nn.ReLU()]
    model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to("cuda")
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=cfg.lr), nn.CrossEntropyLoss()
    for epoch in range(cfg.epochs):
        for start in range(0, len(x), 256):
            optimizer.zero_grad()
            loss(model(x[start : start + 256]), y[start : start + 256]).backward()
            optimizer.step()
        with torch.no_grad():
            value = float(loss(model(x[:2000]), y[:2000]))
        trial.report({"objective": value}, step=epoch)
    return value


def train_jax(cfg: Any, trial: Trial) -> float:
    os.environ.update(KERAS_BACKEND="jax", XLA_FLAGS="--xla_gpu_deterministic_ops=true")
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    x, y = images()
    convolutions = [
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPool2D(),
        layers.Conv2D(128, 3, activation="relu"),
    ]
    model = keras.Sequential(
        [keras.Input((32, 32, 3)), *convolutions, layers.GlobalAveragePooling2D(), layers.Dense(10)]
    )
    model.compile(keras.optimizers.Adam(cfg.lr), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for epoch in range(cfg.epochs):
        model.fit(x, y, batch_size=256, verbose=0)
        value = float(model.evaluate(x[:2000], y[:2000], verbose=0))
        trial.report({"objective": value}, step=epoch)
    return value


@hydra.main(version_base="1.3", config_path=None, config_name="gpu_sharing")
def app(cfg: Any) -> float:
    return {"torch": train_torch, "jax": train_jax}[cfg.framework](cfg, current_trial())


def run(folder: Path, framework: str, trials_per_gpu: int, options: list[str]) -> tuple[float, list[Any]]:
    """Run the trials as a study; return trials an hour, and the state and objective of each trial."""
    sweep = ["-m", "hydra/sweeper=grid", "hydra/launcher=local", "hydra.sweeper.tracking=false"]
    sweep += [f"hydra.launcher.trials_per_gpu={trials_per_gpu}", f"hydra.launcher.preload={FRAMEWORKS[framework]}"]
    rates = ",".join(f"{0.0005 * (1 + number):g}" for number in range(TRIALS))
    sweep += [f"framework={framework}", f"lr={rates}", f"hydra.sweep.dir={folder}", *options]
    subprocess.run([sys.executable, __file__, *sweep], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    files = sorted(folder.glob("*/attempts/*/end.json"), key=lambda file: int(file.parents[2].name))
    ends = [json.loads(file.read_text()) for file in files]
    seconds = max(end["ended_at"] for end in ends) - min(end["started_at"] for end in ends)
    return 3600 * len(ends) / seconds, [(end["state"], end.get("objective")) for end in ends]


def main() -> None:
    gpus = visible_gpus()
    if not gpus:
        raise SystemExit("NVML finds no GPU on this machine, so nothing was measured")
    framework = "jax" if "jax" in sys.argv[1:] else "torch"
    options = [word for word in sys.argv[1:] if word != "jax"]
    speeds: dict[int, list[float]] = {way: [] for way in WAYS}
    results: list[list[Any]] = []
    for number in range(ROUNDS):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                speed, ends = run(Path(folder, "study"), framework, way, options)
            speeds[way].append(speed)
            results.append(ends)
            print(f"round {number}, {way} on each of {len(gpus)} GPUs: {speed:.4g} trials an hour", flush=True)
    for way, each in speeds.items():
        print(f"{way} on a GPU: {spread(each, 'trials an hour')}")
    print(f"ratio: {statistics.median(speeds[WAYS[1]]) / statistics.median(speeds[WAYS[0]]):.3g}")
    states = {state for ends in results for state, _ in ends}
    print(f"states: {', '.join(sorted(states))}; all results equal: {all(ends == results[0] for ends in results)}")


if __name__ == "__main__":
    app() if "-m" in sys.argv or "--multirun" in sys.argv else main()
