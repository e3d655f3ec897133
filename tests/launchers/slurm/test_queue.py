"""What is known of jobs from squeue and sacct: good, slow, failing and missing ones, and from a real cluster."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm, slurm, wait_for

from sweeps.launchers.slurm import queue
from sweeps.launchers.slurm.queue import GONE, JobInfo, Watcher, cancel, sacct, squeue


def run_job(*options: str) -> str:
    return slurm("sbatch", "--parsable", "--output=/dev/null", *options).strip()


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """Asked by the test alone."""
    monkeypatch.setattr(queue, "_ABSENT_S", 0.05)
    monkeypatch.setattr(queue, "_SACCT_PAUSE_S", 0.0)
    return Watcher(poll_s=3600)


def test_sacct_tells_the_ends_of_jobs_and_who_cancelled_them(cluster: None) -> None:
    mark = str(time.time_ns())
    options = {"ends": ["--wrap=true"], "fails": ["--wrap=exit 3"], "waits": ["--hold", "--wrap=true"]}
    ids = [run_job(f"--job-name={name}-{mark}", *words) for name, words in options.items()]
    slurm("scancel", ids[2])
    expected = [("COMPLETED", None), ("FAILED", None), ("CANCELLED", str(os.getuid()))]
    found: Any = {}

    def told() -> bool:
        nonlocal found
        found = sacct(ids)
        known = [found[f"{name}-{mark}"] for name in options if f"{name}-{mark}" in found]
        return [(info.state, info.by) for info in known] == expected

    wait_for(told, 30)


@pytest.mark.parametrize(
    "script, known",
    [
        ("sleep 5", None),
        ("echo 'sacct: error: no slurmdbd' >&2; exit 1", None),
        ("echo '7|COMPLETED|a-study-1.1-none'", JobInfo("7", "COMPLETED")),
        ("echo '7|CANCELLED by 12|a-study-1.1-none'", JobInfo("7", "CANCELLED", by="12")),
        ("echo '7|COMPLETED|a-study-1.1-none'; echo '7.0|OUT_OF_MEMORY|x'", JobInfo("7", "OUT_OF_MEMORY")),
        ("echo '8|COMPLETED|somebody-elses'; echo '7|'; echo", None),  # the id that was noted is another job's
    ],
)
def test_a_job_that_squeue_forgot(
    scripted_slurm: ScriptedSlurm, watcher: Watcher, monkeypatch: Any, script: str, known: JobInfo | None
) -> None:
    monkeypatch.setattr(queue, "_TIMEOUT_S", 0.5)
    scripted_slurm.say("sacct", script)
    watcher.watch("a-study-1.1-none", "7")
    watcher.ask()
    first = watcher.info("a-study-1.1-none")
    time.sleep(0.1)
    watcher.ask()
    second = watcher.info("a-study-1.1-none")
    assert first == known  # one silence is no death
    assert second == (known or JobInfo("7", GONE))


def missing(scripted_slurm: ScriptedSlurm, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(scripted_slurm.folder))
    (scripted_slurm.folder / "sacct").unlink()


def cannot_fork(scripted_slurm: ScriptedSlurm, monkeypatch: Any) -> None:
    def run(*args: Any, **settings: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", run)


def talks_nonsense(scripted_slurm: ScriptedSlurm, monkeypatch: Any) -> None:
    monkeypatch.setattr(queue, "squeue", lambda: {"here": None})


@pytest.mark.parametrize(
    "what, said",
    [(missing, "sacct cannot be run"), (cannot_fork, "squeue cannot be run"), (talks_nonsense, "could not be asked")],
)
def test_the_watcher_survives_and_says_what_it_met(
    scripted_slurm: ScriptedSlurm, monkeypatch: Any, what: Callable[..., None], said: str
) -> None:
    scripted_slurm.say("squeue", "/bin/cat $F/jobs")
    (scripted_slurm.folder / "names").write_text("here\n")
    scripted_slurm.list("RUNNING")
    what(scripted_slurm, monkeypatch)
    watcher = Watcher(poll_s=0.01)
    watcher.watch("here", None)
    watcher.watch("a", "7")
    wait_for(lambda: said in watcher.problem, 5)
    monkeypatch.undo()
    monkeypatch.setattr(queue, "_SACCT_PAUSE_S", 0.0)
    monkeypatch.setenv("PATH", str(scripted_slurm.folder), prepend=":")
    wait_for(lambda: watcher.info("here") == JobInfo("1", "RUNNING", "None"), 5)
    watcher.stop()


def test_squeue_of_a_user_with_odd_jobs(scripted_slurm: ScriptedSlurm) -> None:
    rows = [
        "1|RUNNING|None|a|b",
        "2|CANCELLED|None|twice",
        "3|PENDING|Priority|twice",
        "4|FAILED|None|twice",
        "",
        "odd",
    ]
    (scripted_slurm.folder / "jobs").write_bytes("\n".join(rows).encode() + b"\n5|RUNNING|None|\xff\n")
    listed = squeue()
    assert isinstance(listed, dict)
    assert {name: info.id for name, info in listed.items()} == {"a|b": "1", "twice": "3", "\ufffd": "5"}


def test_who_cancelled_a_job_is_asked_once_it_is_cancelled(scripted_slurm: ScriptedSlurm, watcher: Watcher) -> None:
    (scripted_slurm.folder / "names").write_text("mine\n")
    watcher.watch("mine", "1")
    scripted_slurm.list("CANCELLED")
    scripted_slurm.say("sacct", "echo '1|RUNNING|mine'")  # the accounting is late
    watcher.ask()
    assert watcher.info("mine") == JobInfo("1", "CANCELLED", "None")
    scripted_slurm.say("sacct", "echo '1|CANCELLED by 0|mine'")
    watcher.ask()
    assert watcher.info("mine") == JobInfo("1", "CANCELLED", by="0")
    scripted_slurm.say("sacct", 'echo again >> "$F/asked"')
    watcher.ask()
    info = watcher.info("mine")
    assert info and info.by == "0"
    assert not scripted_slurm.lines("asked")


def test_scancel_says_what_went_wrong(scripted_slurm: ScriptedSlurm, tmp_path: Path, monkeypatch: Any) -> None:
    assert cancel(["1", "2"]) == ""
    assert cancel(["3"], pending_only=True) == ""
    assert scripted_slurm.lines("scancelled") == ["1 2", "--state=PENDING 3"]
    scripted_slurm.say("scancel", "echo 'scancel: error: Invalid job id specified' >&2; exit 1")
    assert cancel(["1"]) == ""
    scripted_slurm.say("scancel", "echo 'scancel: error: no controller' >&2; exit 1")
    assert "no controller" in cancel(["1"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "scancel cannot be run" in cancel(["1"])
