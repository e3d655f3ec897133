"""What is known of jobs that squeue no longer lists, with a good, a slow and a failing sacct, and with none."""

import subprocess
import time

import pytest

from sweeps.launchers.slurm.jobs import queue as slurm_states
from sweeps.launchers.slurm.queue import GONE, Watcher, sacct


def run_job(*options):
    done = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", *options], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_sacct_tells_the_ends_of_jobs():
    ids = {
        run_job("--wrap=true"): "COMPLETED",
        run_job("--wrap=exit 3"): "FAILED",
        run_job("--hold", "--job-name=held", "--wrap=true"): "CANCELLED",
    }
    subprocess.run(["scancel", "--name=held"], check=True)
    deadline = time.monotonic() + 30
    found = {}
    while {job_id: info.state for job_id, info in found.items()} != ids:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
        answer = sacct(ids)
        assert isinstance(answer, dict), answer
        found = answer


@pytest.mark.parametrize(
    "sacct_script", ["sleep 5", "echo 'sacct: error: no slurmdbd' >&2; exit 1", "echo '7|COMPLETED'"]
)
def test_a_job_that_squeue_forgot(sacct_script, tmp_path, monkeypatch):
    (tmp_path / "sacct").write_text(f"#!/bin/sh\n{sacct_script}\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(slurm_states, "_TIMEOUT_S", 1)
    monkeypatch.setattr(slurm_states, "_ABSENT_S", 2.0)
    watcher = Watcher(poll_s=60)
    watcher.watch("a-study-1.1-none", "7")
    watcher.ask()
    first = watcher.info("a-study-1.1-none")
    time.sleep(2.1)
    watcher.ask()
    second = watcher.info("a-study-1.1-none")
    watcher.stop()
    if "COMPLETED" in sacct_script:
        assert first and first.state == "COMPLETED"
    else:
        assert first is None  # one silence is no death
        assert second and second.state == GONE
