"""Warm workers: jobs that run many trials."""

import os
import signal
import subprocess
import threading
import time

import pytest

from sweeps.launchers.slurm.workers import SlurmWorkers
from sweeps.settings import SlurmLauncherConf
from sweeps.trial import current_trial
from sweeps.trial.folder import State


def where(cfg):
    print(f"JOB {os.environ['SLURM_JOB_ID']} GPUS {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
    return 2.0


def fail(cfg):
    raise ValueError("no such layer")


def die(cfg):
    os.kill(os.getpid(), signal.SIGKILL)


def patient(cfg):
    where(cfg)
    trial = current_trial()
    for step in range(300):
        time.sleep(0.2)
        trial.report({"objective": float(step)}, step=step)
        if trial.should_stop():
            break
    return 0.0


@pytest.fixture
def start(tmp_path):
    """start(**settings): the launcher of a driver; all are closed at the end."""
    started = []

    def one(**settings):
        launcher = SlurmWorkers(SlurmLauncherConf(poll_s=0.5, **settings), tmp_path / "study" / "workers")
        launcher.open()
        started.append(launcher)
        return launcher

    yield one
    for launcher in started:
        launcher.close()


def submit(launcher, jobs, count):
    """Send all jobs and wait for `count` ends."""
    found, left, deadline = {}, list(jobs), time.monotonic() + 90
    while len(found) < count:
        assert time.monotonic() < deadline, (found, launcher.notes())
        while left and launcher.submit(left[0]):
            left.pop(0)
        found |= {over.number: over for over in launcher.poll(0.2)}
    return found


def said(job):
    words = next(line for line in (job.attempt / "log").read_text().splitlines() if line.startswith("JOB"))
    return words.split()[1], words.split()[3:]


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_one_job_runs_many_trials_each_with_its_own_end(start, make_job):
    settings = {"trials_per_job": None}
    launcher = start(array_parallelism=1, **settings)
    jobs = [make_job(n, task, **settings) for n, task in enumerate([where, fail, die, where, where])]
    found = submit(launcher, jobs, 5)
    states = [found[number].state for number in range(5)]
    assert states == [State.COMPLETED, State.FAILED, State.LOST, State.COMPLETED, State.COMPLETED]
    assert "no such layer" in found[1].error
    assert len({said(jobs[number])[0] for number in (0, 3, 4)}) == 1


def test_trials_at_once_share_the_gpus_and_a_job_ends_after_its_number(start, make_job):
    settings = {"trials_per_job": 2, "trials_at_once": 2, "gpus_per_node": 2}
    launcher = start(array_parallelism=2, trials_per_job=2, trials_at_once=2)
    jobs = [make_job(number, where, **settings) for number in range(4)]
    found = submit(launcher, jobs, 4)
    assert {end.state for end in found.values()} == {State.COMPLETED}
    by_job = {}
    for job in jobs:
        slurm_job, gpus = said(job)
        by_job.setdefault(slurm_job, []).append(gpus)
    assert sorted(map(sorted, by_job.values())) == [[["0,1"], ["2,3"]]] * 2


def test_a_killed_worker_costs_its_running_trial_alone_and_a_new_driver_goes_on(start, make_job):
    settings = {"trials_per_job": None}
    launcher = start(array_parallelism=1, trials_at_once=1, trials_per_job=None)
    first = make_job(1, patient, **settings)
    assert launcher.submit(first)
    wait_for(lambda: launcher.poll(0.1) == [] and (first.folder.path / "metrics.jsonl").exists())
    slurm_job = said(first)[0]

    second_driver = start(array_parallelism=1, **settings)
    assert second_driver.adopt(first)
    subprocess.run(["scancel", "--signal=KILL", "--full", slurm_job], check=True)
    assert submit(second_driver, [], 1)[1].state is State.LOST
    follower = make_job(2, patient, **settings)
    assert second_driver.submit(follower)
    wait_for(lambda: second_driver.poll(0.1) == [] and (follower.folder.path / "metrics.jsonl").exists())
    second_driver.cancel(2)
    assert submit(second_driver, [], 1)[2].state is State.CANCELLED
    last = make_job(3, patient, **settings)
    assert second_driver.submit(last)
    wait_for(lambda: second_driver.poll(0.1) == [] and (last.folder.path / "metrics.jsonl").exists())
    subprocess.run(["scancel", "--signal=USR1", said(last)[0]], check=True)
    assert submit(second_driver, [], 1)[3].state is State.LOST
    assert last.folder.read_result().state is State.LOST  # it heard, and saved its state


def test_a_worker_that_cannot_start_is_a_trial_that_failed(start, make_job):
    launcher = start(trials_per_job=None)
    jobs = [
        make_job(1, where, trials_per_job=None, setup=["no_such_module load"]),
        make_job(2, where, trials_per_job=None, partition="nowhere"),
    ]
    found = submit(launcher, jobs, 2)
    assert "a setup line failed" in found[1].error
    assert "SLURM refused the job: invalid partition" in found[2].error


def test_a_queued_trial_is_whole_when_a_worker_can_see_it(start, make_job, tmp_path):
    launcher, queued = start(array_parallelism=300), threading.Event()
    seen = set()

    def look():
        while not queued.is_set():
            seen.update(file.name for file in tmp_path.glob("study/workers/*/queue/*.job"))

    watching = threading.Thread(target=look)
    watching.start()
    for job in [make_job(number, where) for number in range(100)]:
        assert launcher.submit(job)
    queued.set()
    watching.join()
    assert seen
    assert not [name for name in seen if name.startswith(".")]
