"""Real processes with every kind of end."""

import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from trainers.subprocess_run import OutOfMemory, cap_data, peak_gb, run_in_subprocess


def die_of(number: int) -> None:
    faulthandler.disable()  # because pytest's fault handler would print the stack
    os.kill(os.getpid(), number)
    time.sleep(60)


def raise_it(error: Exception) -> None:
    raise error


class ResourceExhaustedError(Exception):
    """An error with the name of TensorFlow's error."""


def fill(gb: float) -> float:
    filled = [np.ones(int(1e7), np.uint8) for _ in range(int(gb * 100))]
    time.sleep(0.1)
    return float(len(filled))


TOO_LARGE: list[tuple[str, Callable[[], object], str]] = [
    ("SIGSEGV", lambda: die_of(signal.SIGSEGV), "crashed (Segmentation fault)"),
    ("SIGABRT", lambda: die_of(signal.SIGABRT), "crashed (Aborted)"),
    ("MemoryError", lambda: raise_it(MemoryError("std::bad_alloc")), "MemoryError: std::bad_alloc"),
    ("TensorFlow's", lambda: raise_it(ResourceExhaustedError("OOM\nwhen allocating")), "OOM when allocating"),
    ("one array too large for any machine", lambda: np.ones(1 << 60, np.uint8), "MemoryError: Unable to allocate"),
]
ANOTHER: list[tuple[str, Callable[[], object], str]] = [
    ("an error", lambda: raise_it(ValueError("no such layer")), "ValueError: no such layer"),
    ("killed by somebody", lambda: die_of(signal.SIGKILL), "killed from outside (Killed)"),
    ("told to end", lambda: die_of(signal.SIGTERM), "killed from outside (Terminated)"),
    ("an exit code", lambda: os._exit(3), "exit code 3 and no result"),
]


def test_result_returns_from_another_process() -> None:
    assert run_in_subprocess(lambda: (os.getppid(), "fine"), limit_gb=100) == (os.getpid(), "fine")


@pytest.mark.parametrize(("work", "words"), [case[1:] for case in TOO_LARGE], ids=[case[0] for case in TOO_LARGE])
def test_out_of_memory_is_recognized(work: Callable[[], object], words: str) -> None:
    with pytest.raises(OutOfMemory) as raised:
        run_in_subprocess(work)
    assert words in str(raised.value)


@pytest.mark.parametrize(("work", "words"), [case[1:] for case in ANOTHER], ids=[case[0] for case in ANOTHER])
def test_study_ended_by_another_cause(work: Callable[[], object], words: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        run_in_subprocess(work)
    assert words in str(raised.value)


def slowly_die(seconds: float) -> None:
    """Close the pipe and die later, as a process that writes a large core does."""
    sys._getframe(2).f_locals["sender"].close()
    time.sleep(seconds)
    die_of(signal.SIGABRT)


def test_slowly_ending_process_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.subprocess_run.EXIT_TIMEOUT_S", 0.1)
    with pytest.raises(OutOfMemory, match="crashed"):
        run_in_subprocess(lambda: slowly_die(0.5), timeout_s=30)
    with pytest.raises(TimeoutError, match=r"took longer than 0\.2 s"):
        run_in_subprocess(lambda: slowly_die(60), timeout_s=0.2)


def test_killed_trial_writes_no_core_dump() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        assert run_in_subprocess(lambda: resource.getrlimit(resource.RLIMIT_CORE)[0]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def test_output_goes_to_the_given_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text("before\n")
    run_in_subprocess(lambda: os.write(1, b"out\n") + os.write(2, b"err\n"), log=tmp_path / "log")
    with pytest.raises(RuntimeError, match="No such file"):
        run_in_subprocess(lambda: None, log=tmp_path / "no" / "log")
    assert (tmp_path / "log").read_text() == "before\nout\nerr\n"
    assert "out" not in capfd.readouterr().out


def test_a_kill_is_for_memory_if_the_kernel_counts_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([7, 8])
    monkeypatch.setattr("trainers.subprocess_run._count_oom_kills", lambda: next(counts))
    with pytest.raises(OutOfMemory, match="the kernel killed its process for memory"):
        run_in_subprocess(lambda: die_of(signal.SIGKILL))


def test_hanging_process_is_killed_and_not_out_of_memory() -> None:
    began, before = time.monotonic(), psutil.Process().children()
    with pytest.raises(TimeoutError, match=r"took longer than 0\.3 s"):
        run_in_subprocess(lambda: time.sleep(60), timeout_s=0.3)
    assert time.monotonic() - began < 5
    left = [child for child in psutil.Process().children() if child not in before]
    assert not [child for child in left if child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.long
def test_the_watch_acts_before_the_limit_is_reached() -> None:
    limit_gb = psutil.Process().memory_info().rss / 1e9 + 0.5
    assert run_in_subprocess(lambda: fill(0.1), limit_gb) == 10
    with pytest.raises(OutOfMemory, match=r"95% of hydra\.launcher\.mem_gb="):
        run_in_subprocess(lambda: fill(5), limit_gb)


def test_leap_of_memory_beyond_the_limit_is_refused() -> None:
    def leap() -> None:
        cap_data(0.2)
        np.ones(int(1e9), np.uint8)

    with pytest.raises(OutOfMemory, match="MemoryError"):
        run_in_subprocess(leap, limit_gb=100)


def test_the_peak_is_remembered() -> None:
    def rise_and_fall() -> tuple[float, float]:
        before = peak_gb()
        np.ones(int(3e8), np.uint8)
        return before, peak_gb()

    before, after = run_in_subprocess(rise_and_fall)
    assert 0.2 < after - before < 0.5
