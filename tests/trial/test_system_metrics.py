"""Samples of a real child process, with a stand-in for NVML on machines without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Request, State
from sweeps.trial.machine import facts
from sweeps.trial.metrics import SYSTEM_METRICS, MetricsLine
from tests.command_lines import some

FAKES = Path(__file__).parents[1] / "fakes"
CPU, MEMORY = "system/cpu_utilization_percentage", "system/memory_usage_megabytes"

SAMPLE = """
import subprocess, sys, time
from pathlib import Path
from sweeps.trial.machine.system_metrics import sampling
from sweeps.trial.folder import TrialFolder
with sampling(TrialFolder(Path(sys.argv[1])), float(sys.argv[2])):
    exec(sys.argv[3])
"""


def sample(folder: Path, body: str, interval_s: float = 0.1, **environment: str) -> tuple[list[MetricsLine], str]:
    """Return the samples of a process that runs `body`, and the process's log."""
    command = [sys.executable, "-c", SAMPLE, str(folder), str(interval_s), body]
    variables = {"CUDA_VISIBLE_DEVICES": "", **environment}
    path = os.pathsep.join([str(FAKES), os.getcwd(), *sys.path])  # noqa: PTH109
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path, **variables}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return TrialFolder(folder).read_metrics(name=SYSTEM_METRICS).values, ran.stderr


BUSY = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"


def test_a_busy_process(tmp_path: Path) -> None:
    lines, _ = sample(tmp_path, BUSY, interval_s=0.3)
    assert [line.step for line in lines] == list(range(len(lines)))
    assert set(lines[0].metrics) == {CPU, MEMORY}
    # An idle process is near 0, and other processes may use the CPU.
    assert max(line.metrics[CPU] for line in lines) > 10
    assert 5 < lines[0].metrics[MEMORY] < 500


def test_an_idle_process_with_a_busy_child(tmp_path: Path) -> None:
    lines, _ = sample(tmp_path, f"subprocess.run([sys.executable, '-c', {BUSY!r}])", interval_s=0.3)
    assert max(line.metrics[CPU] for line in lines) > 10


def test_the_default_interval_leaves_samples_of_a_short_run(tmp_path: Path) -> None:
    lines, _ = sample(tmp_path, "time.sleep(2)", interval_s=5.0)
    assert 1 <= len(lines) <= 2  # a sample after a second, and a sample at the end


def test_a_trial_that_ends_at_once_has_none(tmp_path: Path) -> None:
    assert sample(tmp_path, "pass", interval_s=5.0) == ([], "")


def test_second_attempt_continues_the_step_count(tmp_path: Path) -> None:
    first, _ = sample(tmp_path, "time.sleep(0.5)")
    both, _ = sample(tmp_path, "time.sleep(0.5)")
    assert len(both) > len(first) > 0
    assert [line.step for line in both] == list(range(len(both)))


@some(
    ("visible", "utilization"),
    [
        ("", {}),
        ("-1", {}),
        ("NoDevFiles", {}),
        ("0", {0: 10}),
        ("2", {0: 30}),
        ("3,1", {0: 40, 1: 20}),
        ("GPU-2", {0: 30}),
        ("MIG-1", {0: 120}),
        ("2,wrong,3", {0: 30}),
    ],
    4,
)
def test_only_the_trials_own_gpus(tmp_path: Path, visible: str, utilization: dict[int, float]) -> None:
    TrialFolder(tmp_path).new_attempt()
    lines, log = sample(tmp_path, "time.sleep(0.3)", CUDA_VISIBLE_DEVICES=visible)
    assert facts.read(TrialFolder(tmp_path)).process == ({"gpu_model": "NVIDIA Fake"} if utilization else {})
    gpus = {name: value for name, value in lines[-1].metrics.items() if "gpu" in name}
    expected = {}
    for i, busy in utilization.items():
        expected[f"system/gpu_{i}_utilization_percentage"] = busy
        expected[f"system/gpu_{i}_memory_usage_megabytes"] = busy / 10 * 8000
        expected[f"system/gpu_{i}_power_usage_watts"] = busy / 10 * 100
    assert gpus == expected
    assert log == ""


def test_a_shared_gpu_has_the_trials_own_memory_and_its_part_of_the_power(tmp_path: Path) -> None:
    shared = {"CUDA_VISIBLE_DEVICES": "1", "SWEEPYARD_GPU_SHARE": "0.25"}
    lines, _ = sample(tmp_path, "time.sleep(0.3)", FAKE_NVML_OWN_GB="20", **shared)
    gpu = {name.removeprefix("system/gpu_0_"): value for name, value in lines[-1].metrics.items() if "gpu" in name}
    assert gpu == {
        "utilization_percentage": 20,
        "memory_usage_megabytes": 20000,
        "memory_usage_percentage": 25,
        "power_usage_watts": 50,
    }
    attempt = TrialFolder(tmp_path).new_attempt(request=Request(0.25))
    attempt.begin(lines[0].time - 4)
    end = attempt.close(Outcome(State.COMPLETED), lines[0].time + 3596)
    assert (end.gpus, end.gpu_hours, end.used["gpu_memory"]) == (0.25, 0.25, 0.25)
    (tmp_path / "container").mkdir()  # where NVML has other process ids
    unlisted, _ = sample(tmp_path / "container", "time.sleep(0.3)", **shared)
    assert {name for name in unlisted[-1].metrics if "memory_usage" in name} == {MEMORY}


@pytest.mark.parametrize(
    ("environment", "message", "names"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0", "FAKE_NVML": "none"}, "No GPU metrics: NVML Shared Library Not Found", set()),
        ({"CUDA_VISIBLE_DEVICES": "9"}, "No GPU metrics: Invalid Argument (CUDA_VISIBLE_DEVICES=9)", set()),
        (
            {"CUDA_VISIBLE_DEVICES": "0", "FAKE_NVML": "no_power"},
            "No system/gpu_0_power_usage_watts: Not Supported",
            {"system/gpu_0_utilization_percentage", "system/gpu_0_memory_usage_megabytes"},
        ),
    ],
)
def test_missing_gpu_metrics_are_reported_once(
    tmp_path: Path, environment: dict[str, str], message: str, names: set[str]
) -> None:
    lines, log = sample(tmp_path, "time.sleep(0.5)", **environment)
    assert len(lines) > 1
    assert log.count(message) == 1
    assert {name for name in lines[-1].metrics if "gpu" in name} == names


def test_a_folder_that_vanishes_hurts_only_the_samples(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    body = f"import shutil; shutil.rmtree({str(folder)!r}); time.sleep(0.5)"
    lines, log = sample(folder, body)
    assert lines == []
    assert "No further system metrics: [Errno 2]" in log
