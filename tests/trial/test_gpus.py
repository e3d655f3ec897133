"""Names of GPUs, and a trial's part of a shared GPU's memory, with a stand-in for NVML."""

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweeps.trial import Trial
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import gpus

_JAX = "XLA_PYTHON_CLIENT_MEM_FRACTION"


@pytest.fixture(autouse=True)
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set NVML to have four GPUs of 80 GB."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "fakes")
    monkeypatch.delitem(sys.modules, "pynvml")
    monkeypatch.setattr(gpus, "pynvml", importlib.import_module("pynvml"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    monkeypatch.delenv(_JAX, raising=False)
    monkeypatch.setenv(gpus.SHARE, "0.25")


def test_names_end_before_the_first_invalid_name() -> None:
    assert gpus.names_in(" 0,GPU-5, MIG-GPU-5/1/0 ,-1,2") == ["0", "GPU-5", "MIG-GPU-5/1/0"]
    assert gpus.names_in("NoDevFiles") == gpus.names_in("") == []


def test_a_divided_gpu_is_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.names_here() == ["0", "1", "2", "3"]
    monkeypatch.setenv("FAKE_NVML", "mig")
    assert gpus.names_here() == ["MIG-0", "MIG-1", "1", "2", "3"]


def test_gpus_are_identified_by_number_and_uuid() -> None:
    assert [gpus.handle(name) for name in ("2", "GPU-2", "GPU-", "MIG-1")] == [2, 2, 0, 11]
    assert [gpus.uuid(name) for name in ("2", "MIG-1")] == ["GPU-2", "MIG-1"]
    with pytest.raises(gpus.pynvml.NVMLError):
        gpus.handle("GPU-x")


@pytest.mark.parametrize(
    ("share", "nvml", "fraction"),
    [("1", "", None), ("0.25", "", 0.25 - 0.6 / 80), ("0.01", "", 0.005), ("0.5", "none", 0.45)],
)
def test_a_framework_gets_the_share_less_a_reserve(
    monkeypatch: pytest.MonkeyPatch, share: str, nvml: str, fraction: float | None
) -> None:
    monkeypatch.setenv(gpus.SHARE, share)
    monkeypatch.setenv("FAKE_NVML", nvml)
    assert gpus.memory_fraction() == (fraction and pytest.approx(fraction))
    gpus.limit_jax()
    assert os.environ.get(_JAX) == (fraction and f"{fraction:.4f}")


@pytest.mark.parametrize("name", [_JAX, "XLA_CLIENT_MEM_FRACTION"])
def test_a_users_own_fraction_for_jax_is_left(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, ".1")
    gpus.limit_jax()
    assert {variable: text for variable, text in os.environ.items() if "MEM_FRACTION" in variable} == {name: ".1"}


def test_a_trial_limits_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fractions: list[float] = []
    cuda = SimpleNamespace(is_available=lambda: True, set_per_process_memory_fraction=fractions.append)
    trial = Trial(TrialFolder(tmp_path), 1)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    trial.limit_gpu_memory()  # without PyTorch nothing changes
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    trial.limit_gpu_memory()
    monkeypatch.delenv(gpus.SHARE)
    trial.limit_gpu_memory()
    assert fractions == [pytest.approx(0.2425)]
