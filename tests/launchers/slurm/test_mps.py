"""NVIDIA's MPS in a worker's job, with stand-ins for its command and for NVML."""

import importlib
import sys
from pathlib import Path

import pytest

from sweeps.launchers.slurm.inside import mps
from sweeps.trial.machine import gpus

CONTROL = """#!/bin/sh
echo "$* $(cat) $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY $(stat -c %a $CUDA_MPS_PIPE_DIRECTORY/..)" >> {log}
exit {code}
"""


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set NVML to be the stand-in, and return the path of MPS's command, which comes first."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "fakes")
    monkeypatch.delitem(sys.modules, "pynvml")
    for module in (gpus, mps):
        monkeypatch.setattr(module, "pynvml", importlib.import_module("pynvml"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "nvidia-cuda-mps-control"


def write(control: Path, code: int = 0) -> Path:
    control.write_text(CONTROL.format(log=(log := control.with_name("log")), code=code))
    control.chmod(0o755)
    return log


def test_each_gpu_has_its_daemon_until_the_end(control: Path) -> None:
    log = write(control)
    with mps.serving(["1", "MIG-0"]) as served:
        pipes = [served[gpu]["CUDA_MPS_PIPE_DIRECTORY"] for gpu in ("1", "MIG-0")]
        assert [served[gpu]["CUDA_VISIBLE_DEVICES"] for gpu in ("1", "MIG-0")] == ["GPU-1", "MIG-0"]
        assert log.read_text().splitlines() == [f"-d  GPU-1 {pipes[0]} 700", f"-d  MIG-0 {pipes[1]} 700"]
    assert [line.split()[0] for line in log.read_text().splitlines()[2:]] == ["quit", "quit"]
    assert not any(Path(pipe).parent.exists() for pipe in pipes)


@pytest.mark.parametrize("nvml", ["", "none"])
def test_trials_start_without_mps_after_its_failure(
    control: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], nvml: str
) -> None:
    monkeypatch.setenv("FAKE_NVML", nvml)
    write(control, code=1)
    with mps.serving(["1"]) as served:
        assert not served
    assert "MPS does not serve GPU 1, so its trials compute in turns: " in capfd.readouterr().out


def test_a_node_without_mps(control: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with mps.serving(["1"]) as served:
        assert not served
    assert capfd.readouterr().out == ""
