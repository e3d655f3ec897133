"""GPUs that trials take and share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.launchers.local.gpus import Gpus


def test_whole_gpus_are_taken_once() -> None:
    gpus = Gpus(["0", "1", "2"])
    first = gpus.take(2)
    assert (first, gpus.take(2), gpus.take(0)) == (["0", "1"], None, [])
    assert gpus.take(1) == ["2"]
    gpus.release(first or [], 2)
    assert gpus.take(2) == ["0", "1"]


@pytest.mark.parametrize("count", [2, 3, 7, 49])
def test_parts_fill_all_gpus_evenly(count: int) -> None:
    gpus = Gpus(["GPU-a", "MIG-b"])
    for _ in range(2):
        taken = [gpus.take(1 / count) for _ in range(2 * count + 1)]
        assert taken == [["GPU-a"], ["MIG-b"]] * count + [None]
        for names in taken[:-1]:
            gpus.release(names or [], 1 / count)


def test_a_whole_gpu_is_no_shared_gpu() -> None:
    gpus = Gpus(["0", "1"])
    assert gpus.take(0.5) == ["0"]
    assert (gpus.take(2), gpus.take(1), gpus.take(1), gpus.take(0.5)) == (None, ["1"], None, ["0"])


def test_a_larger_part_counts_the_trials_beside() -> None:
    gpus = Gpus(["0"])
    assert [gpus.take(0.25) for _ in range(2)] == [["0"]] * 2
    assert gpus.take(0.5) is None  # because its GPU has room for one other trial
    gpus.release(["0"], 0.25)
    assert (gpus.take(0.5), gpus.take(0.25)) == (["0"], None)


def test_benchmark_without_a_gpu_ends_with_the_reason() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "benchmarks/gpu_sharing.py")]
    environment = {**os.environ, "PYTHONPATH": str(root / "tests/fakes"), "FAKE_NVML": "none"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "NVML finds no GPU on this machine, so nothing was measured\n")
