"""Batches that are refused because their trial does not fit, and refused searches for the largest batch."""

import importlib
import json
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from sweeps.trial.machine import gpus
from tests.trainers.config.composing import CONF, check, compose
from trainers.config import largest_batch
from trainers.config.largest_batch import TooLarge
from trainers.config.schema import Config

GPUS = largest_batch._gpus.__wrapped__
LOCAL = {"_target_": largest_batch.HERE, "mem_gb": 4.0}


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    settings: dict[str, Any] = dict(LOCAL)
    monkeypatch.setattr(largest_batch, "_launcher", lambda: settings)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return settings


@pytest.fixture(autouse=True)
def fake_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largest_batch, "_gpus", lambda visible: "a GPU")


def keep(*overrides: str, largest: int = 100, too_large: int | None = 106) -> Path:
    cfg: Any = OmegaConf.to_container(compose(*overrides), resolve=True)
    where = str(largest_batch.hardware(cfg["gpus"]))
    file = largest_batch.answer_file(cfg, where)
    answer = {"largest_batch": largest, "too_large": too_large, "memory_gb": 1.0, "found": "2026-11-21"}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(largest_batch.answer_json(cfg, where, answer))
    return file


def check_search(*overrides: str) -> Config:
    with hydra.initialize_config_dir(str(CONF), version_base=None):
        config = OmegaConf.to_object(hydra.compose("config", ["+find=largest_batch", *overrides]))
    assert isinstance(config, Config)
    return config


def test_a_batch_that_is_known_not_to_fit_is_refused(launcher: dict[str, Any]) -> None:
    file = keep()
    check("batch_size=100")
    with pytest.raises(TooLarge) as raised:
        check("batch_size=106")
    first, second = str(raised.value).splitlines()
    where = f"{largest_batch._cpu()}, mem_gb=4"
    assert first == (
        f"batch_size=106 does not fit on this machine ({where}) with gpus=0: the largest batch that fits is 100, "
        "found by +find=largest_batch on 2026-11-21"
    )
    assert second == f"To discard this result: rm {file}"
    with pytest.raises(TooLarge) as raised:
        check("batch_size=105")
    assert str(raised.value).splitlines()[0] == (
        f"batch_size=105 is above 100, the largest batch that fitted on this machine ({where}) with gpus=0 "
        "(106 did not), found by +find=largest_batch on 2026-11-21"
    )
    file.unlink()
    check("batch_size=101")


@pytest.mark.parametrize(
    "same",
    [
        ("lr=0.5",),
        ("epochs=9", "seed=4", "lr_schedule=cosine"),
        ("optimizer.beta_2=0.9", "optimizer.epsilon=1e-5"),
        ("dataset.subset=500",),
        ("dataset.validation_split=0.3",),
        ("trainer.early_stopping_patience=3",),
        ("tracking=none",),
    ],
)
def test_settings_that_need_no_memory_do_not_matter(launcher: dict[str, Any], same: tuple[str, ...]) -> None:
    keep()
    with pytest.raises(TooLarge):
        check("batch_size=101", *same)


@pytest.mark.parametrize(
    "other",
    [
        ("model.hidden=[64]",),
        ("optimizer=sgd",),
        ("optimizer.amsgrad=true",),
        ("optimizer.weight_decay=0.1",),
        ("mixed_precision=true",),
        ("loss=focal",),
        ("dataset.size=16",),
        ("dataset.augment=light", "dataset.size=16"),
        ("trainer=own", "trainer._target_=json.dumps"),
    ],
)
def test_settings_that_need_memory_make_another_configuration(launcher: dict[str, Any], other: tuple[str, ...]) -> None:
    keep()
    check("batch_size=101", *other)


@pytest.mark.parametrize(
    "settings",
    [
        {"mem_gb": 8.0},
        {"mem_gb": None},
        {"_target_": largest_batch.SLURM},
        {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"},
    ],
)
def test_another_machine_or_limit_has_answers_of_its_own(launcher: dict[str, Any], settings: dict[str, Any]) -> None:
    keep()
    launcher.update(settings)
    check("batch_size=101")


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({}, True),
        ({"qos": "long", "timeout_min": 5, "account": "other", "setup": ["module load cuda"]}, True),
        ({"partition": "other"}, False),
        ({"constraint": "v100"}, False),
        ({"gres": "gpu:a100:1"}, False),
        ({"mem_gb": 8.0}, False),
        ({"mem_per_gpu": "40G"}, False),
        ({"cpus_per_task": 8}, False),
        ({"additional_parameters": {"reservation": "course"}}, False),
        (LOCAL, False),
    ],
)
def test_on_slurm_an_answer_holds_for_the_same_request(
    launcher: dict[str, Any], changed: dict[str, Any], refusal: bool
) -> None:
    launcher.update({"_target_": largest_batch.SLURM, "partition": "gpu", "additional_parameters": {}})
    keep()
    launcher.update(changed)
    if refusal:
        words = (
            r"batch_size=106 does not fit on a SLURM node \(partition=gpu, mem_gb=4\) with gpus=0: the largest batch"
        )
        with pytest.raises(TooLarge, match=words):
            check("batch_size=106")
    else:
        check("batch_size=106")


def test_no_bound_without_an_app(launcher: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    monkeypatch.setattr(largest_batch, "_launcher", dict)
    check("batch_size=101")


def test_the_share_of_a_gpu_is_checked_as_the_whole_batch(launcher: dict[str, Any]) -> None:
    keep("gpus=2")
    check("gpus=2", "batch_per_gpu=50")
    with pytest.raises(TooLarge, match="batch_size=102 is above 100, the largest"):
        check("gpus=2", "batch_per_gpu=51")


def test_largest_batch_of_several_processes_is_unknown(launcher: dict[str, Any]) -> None:
    keep()
    check("ranks=2", "batch_size=200")


def test_no_bound_if_every_batch_fits(launcher: dict[str, Any]) -> None:
    keep(too_large=None)
    check("batch_size=1250")


def test_a_batch_that_grows_too_large_is_refused(launcher: dict[str, Any]) -> None:
    keep()
    check("batch_schedule=doubling", "batch_size=25", "epochs=3")
    with pytest.raises(TooLarge, match="batch_schedule reaches batch_size=200, which does not fit"):
        check("batch_schedule=doubling", "batch_size=25", "epochs=4")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\x00", b"[]", b"3", b"{}", b"[" * 100_000, b'{"place": 1, "configuration": {}}', b"{", b"null"],
)
def test_a_damaged_answer_is_named_and_ignored(
    launcher: dict[str, Any], content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    file = keep()
    file.write_bytes(content)
    largest_batch._print_once.cache_clear()
    check("batch_size=101")
    check("batch_size=102")
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"{file} is ignored: it contains no largest batch")
    assert line.endswith(f"To delete it: rm {file}")


@pytest.mark.parametrize("wrong", [{"largest_batch": "many"}, {"largest_batch": None}, {"place": "a toaster"}])
def test_an_answer_that_is_not_ours_is_ignored(launcher: dict[str, Any], wrong: dict[str, Any]) -> None:
    file = keep()
    file.write_text(json.dumps({**json.loads(file.read_text()), **wrong}))
    check("batch_size=101")


def test_a_folder_in_the_place_of_an_answer_is_ignored(launcher: dict[str, Any]) -> None:
    file = keep()
    file.unlink()
    file.mkdir()
    check("batch_size=101")


def test_answers_lie_beside_the_decoded_images(launcher: dict[str, Any], tmp_path: Path) -> None:
    assert keep().parent == tmp_path / "sweepyard" / "largest_batch"
    assert keep(f"dataset.cache={tmp_path}/other").parent == tmp_path / "other" / "largest_batch"


def test_the_same_data_by_another_path_are_the_same(launcher: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def of(path: str | None) -> object:
        sections: dict[str, Any] = {name: {} for name in ("model", "loss", "optimizer")}
        cfg = {**sections, "dataset": {"path": path}, "gpus": 0, "mixed_precision": False}
        return largest_batch.configuration(cfg)["dataset"]["path"]

    assert of("data.npz") == of(f"{Path.cwd()}/data.npz") != of("/other/data.npz")
    assert of(None) is None


@pytest.mark.parametrize(
    ("settings", "overrides", "words"),
    [
        ({"mem_gb": None}, (), ["gpus=0", "needs a memory limit", "hydra.launcher.mem_gb=8", "gpus=1"]),
        ({}, ("nodes=2",), ["nodes=2 ranks=1", "found for one process", "batch_per_gpu"]),
        ({}, ("ranks=2",), ["nodes=1 ranks=2", "found for one process", "batch_per_gpu"]),
        ({}, ("batch_schedule=doubling",), ["Remove batch_schedule"]),
        ({}, ("trainer.most=0",), ["trainer.most=0: must be a whole number >= 1 or null"]),
        ({}, ("trainer.precision=0",), ["trainer.precision=0: must be a number > 0 and < 1"]),
        ({}, ("trainer.reserve=1",), ["trainer.reserve=1: must be a number >= 0 and < 1"]),
        ({}, ("trainer.try_timeout_s=-1",), ["trainer.try_timeout_s=-1: must be a number > 0"]),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    launcher: dict[str, Any], settings: dict[str, Any], overrides: tuple[str, ...], words: list[str]
) -> None:
    launcher.update(settings)
    with pytest.raises(ValueError) as raised:
        check_search(*overrides)
    assert len(str(raised.value).splitlines()) <= 2
    assert all(word in str(raised.value) for word in words), raised.value


def test_a_search_is_valid(launcher: dict[str, Any]) -> None:
    keep()
    cfg = check_search("batch_size=512", "batch_schedule=constant")
    assert cfg.trainer["_target_"] == largest_batch.FINDS
    launcher["mem_gb"] = None
    check_search("gpus=1")


def test_the_type_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "fakes")
    monkeypatch.delitem(__import__("sys").modules, "pynvml", raising=False)
    monkeypatch.setattr(gpus, "pynvml", importlib.import_module("pynvml"))
    for visible, expected in (
        ("0", "NVIDIA Fake, 80 GB"),
        ("0,1", "NVIDIA Fake, 80 GB"),
        ("GPU-3", "NVIDIA Fake, 80 GB"),
        ("", None),
        ("-1", None),
        ("9", None),
        (None, "NVIDIA Fake, 80 GB"),
    ):
        assert GPUS(visible) == expected
    monkeypatch.setenv("FAKE_NVML", "none")
    assert GPUS("0") is None
    assert largest_batch.machine(0, None) == largest_batch._cpu()
    assert largest_batch.machine(0, 1.5) == f"{largest_batch._cpu()}, mem_gb=1.5"
