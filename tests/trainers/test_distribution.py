import json
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.trainers.recorder import Recorder, compose, without_times
from trainers import data, distribution
from trainers.trainer import build, train

# 1,280 training examples: 40 batches without a rest.
SETTINGS = ("epochs=2", "dataset.validation_split=0.14666")


@pytest.mark.parametrize("optimizer", ["adam", "nesterov"])
def test_two_devices_train_as_one_does(optimizer: str, tmp_path: Path) -> None:
    settings = [*SETTINGS, f"optimizer={optimizer}", "trainer.checkpoint_interval_s=0"]
    command = [sys.executable, "-m", "tests.trainers.two_devices", str(tmp_path / "two"), *settings]
    child = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr
    two = json.loads(child.stdout.splitlines()[-1])

    one = Recorder(tmp_path / "one")
    result = train(compose(*settings), one)
    for ours, theirs in zip(two["reported"], one.reported, strict=True):
        assert without_times(ours) == pytest.approx(without_times(theirs), rel=1e-5)
    assert without_times(two["result"]) == pytest.approx(without_times(result), rel=1e-5)
    of_two = Recorder(tmp_path / "two").checkpoint()
    for name, array in one.checkpoint().items():
        if name != "progress":
            assert of_two[name] == pytest.approx(array, abs=1e-5)


def test_a_rest_is_left_out(tmp_path: Path) -> None:
    # 1,250 examples in batches of 500.
    command = [sys.executable, "-m", "tests.trainers.two_devices", str(tmp_path), "epochs=1", "batch_size=500"]
    child = subprocess.run(
        [*command, "trainer.checkpoint_interval_s=0"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    steps = [array for array in Recorder(tmp_path).checkpoint().values() if array.dtype.kind == "i"]
    assert steps[0] == 2


def test_more_gpus_than_there_are() -> None:
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
    """One whose configuration does not show its settings."""
    return OWN[which]()


@pytest.mark.parametrize("wrong", OWN)
def test_optimizers_that_go_wrong_on_several_devices(wrong: str) -> None:
    own = "optimizer._target_=tests.trainers.test_distribution.own_optimizer"
    cfg = compose(own, f"+optimizer.which='{wrong}'", "gpus=2")
    dataset = data.load(cfg.dataset, "classification", 0)
    if not wrong:
        build(cfg, dataset)
        return
    with pytest.raises(ValueError, match=f"{wrong} is wrong with gpus=2"):
        build(cfg, dataset)


def test_gpus_that_were_given_but_are_not_seen_are_missing_their_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ValueError) as error:
        distribution.claim_gpus(2)
    assert "was given GPUs (CUDA_VISIBLE_DEVICES=0,1), but TensorFlow sees none" in str(error.value)
    assert "pip install -c constraints.txt -e '.[cuda]'" in str(error.value)
    assert len(str(error.value).splitlines()) == 2
    assert distribution.claim_gpus(0) == []
