import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from sweeps.trial.machine import gpus
from tests.trainers.recorder import Recorder, compose, without_times
from trainers import distribution
from trainers.data import dataset as data
from trainers.model import build
from trainers.trainer import train

OFTEN = "trainer.checkpoint_interval_s=0"
# 1,280 training examples: 40 batches without a rest.
SETTINGS = ["epochs=2", "dataset.validation_split=0.14666", OFTEN]
RUNS = {
    "adam": [*SETTINGS, "optimizer=adam"],
    "nesterov": [*SETTINGS, "optimizer=nesterov"],
    "a rest": ["epochs=2", "batch_size=500", "dataset.validation_split=0.16733", OFTEN],  # of 1,249 examples
}
Trained = dict[str, tuple[dict[str, Any], Path]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return the results and the folders of the runs on two devices."""
    folders = {name: tmp_path_factory.mktemp("two") for name in RUNS}
    arguments = json.dumps({str(folders[name]): overrides for name, overrides in RUNS.items()})
    child = subprocess.run(
        [sys.executable, "-m", "tests.trainers.two_devices", arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    results = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    return {name: (result, folders[name]) for name, result in zip(RUNS, results, strict=True)}


@pytest.mark.long
@pytest.mark.parametrize("case", RUNS)
def test_two_devices_train_to_the_numbers_of_one(case: str, two: Trained, tmp_path: Path) -> None:
    outcome, folder = two[case]
    recorder = Recorder(tmp_path / "one")
    result = train(compose(*RUNS[case]), recorder)
    for ours, theirs in zip(outcome["reported"], recorder.reported, strict=True):
        assert without_times(ours) == pytest.approx(without_times(theirs), rel=1e-5)
    assert without_times(outcome["result"]) == pytest.approx(without_times(result), rel=1e-5)
    of_two = Recorder(folder).checkpoint()
    for name, array in recorder.checkpoint().items():
        if name != "progress":
            assert of_two[name] == pytest.approx(array, abs=1e-5)


def test_more_gpus_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gpus=99, but this process sees \d+; try gpus=\d+"):
        distribution.claim_gpus(99)


OWN = {
    "global_clipnorm": lambda: keras.optimizers.SGD(global_clipnorm=1.0),
    "gradient_accumulation_steps": lambda: keras.optimizers.SGD(gradient_accumulation_steps=2),
    "optimizer.clipnorm": lambda: keras.optimizers.SGD(clipnorm=1.0),
    "clipvalue": lambda: keras.optimizers.SGD(clipvalue=1.0),
    "ScheduleFreeAdamW": keras.optimizers.ScheduleFreeAdamW,
    "": lambda: keras.optimizers.SGD(momentum=0.9),
}


def own_optimizer(which: str, **_: object) -> keras.optimizers.Optimizer:
    """Return an optimizer whose configuration does not show the optimizer's settings."""
    return OWN[which]()


@pytest.mark.parametrize("wrong", OWN)
def test_optimizers_refused_on_several_devices(wrong: str) -> None:
    own = "optimizer._target_=tests.trainers.test_distribution.own_optimizer"
    cfg = compose(own, f"+optimizer.which='{wrong}'", "gpus=2")
    dataset = data.load(cfg.dataset, "classification", 0)
    if not wrong:
        build(cfg, dataset)
        return
    with pytest.raises(ValueError, match=f"{wrong} is wrong with gpus=2"):
        build(cfg, dataset)


def test_a_shared_gpu_has_a_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, limits, grown = object(), list[tuple[object, float]](), list[object]()
    monkeypatch.setenv("SWEEPYARD_GPU_SHARE", "0.25")
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")  # so that the variable is restored
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH")
    monkeypatch.setattr(gpus, "memory_bytes", lambda: 80e9)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: None)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda device, on: grown.append(device))
    limit = "set_logical_device_configuration"
    monkeypatch.setattr(tf.config, limit, lambda device, parts: limits.append((device, parts[0].memory_limit)))
    assert distribution.claim_gpus(1) == ["GPU:0"]
    assert limits == [(gpu, int((0.25 * 80e9 - 0.6e9) / 2**20))]
    assert (grown, os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]) == ([], "true")
    monkeypatch.delenv("SWEEPYARD_GPU_SHARE")
    distribution.claim_gpus(1)
    assert (len(limits), grown) == (1, [gpu])


def test_assigned_gpus_that_tensorflow_cannot_see_lack_their_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ValueError) as error:
        distribution.claim_gpus(2)
    assert "GPUs are assigned to this trial (CUDA_VISIBLE_DEVICES=0,1), but TensorFlow sees none" in str(error.value)
    assert "pip install -c constraints.txt -e '.[cuda]'" in str(error.value)
    assert len(str(error.value).splitlines()) == 2
    assert distribution.claim_gpus(0) == []
