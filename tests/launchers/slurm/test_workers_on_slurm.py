"""Warm workers on a real cluster: jobs that run many trials."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from lab import slurm, wait_for

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.trial import current_trial
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job
from tests.launchers.launcher_contract import check_sharing, shares_a_gpu

pytestmark = pytest.mark.usefixtures("cluster")
MakeJob = Callable[..., Job]


def where(cfg: Any) -> float:
    print(f"JOB {os.environ['SLURM_JOB_ID']} PID {os.getpid()} GPUS {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
    return 2.0


def show_part(cfg: Any) -> float:
    print(f"JOB PART {os.environ['SWEEPYARD_GPU_SHARE']}", flush=True)
    time.sleep(1.5)  # because the first sample of the memory comes after a second
    return 0.0


def fail(cfg: Any) -> float:
    raise ValueError("no such layer")


def die(cfg: Any) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def patient(cfg: Any) -> float:
    where(cfg)
    trial = current_trial()
    for step in range(300):
        time.sleep(0.1)
        trial.report({"objective": float(step)}, step=step)
        if trial.should_stop():
            break
    return 0.0


def greedy(cfg: Any) -> float:
    """Fill more memory than the trial's share for 3 s, and then more than the available memory."""
    hoards = []
    for megabytes in (450, 400):
        hoards.append(bytearray(megabytes * 1_000_000))
        hoards[-1][::4096] = b"x" * len(hoards[-1][::4096])
        time.sleep(3)
    return float(len(hoards))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., SlurmTrials]]:
    """Yield a function (**settings) that returns the launcher of a driver; close all launchers at the end."""
    started = []

    def one(**settings: Any) -> SlurmTrials:
        launcher = SlurmTrials(
            SlurmLauncherConf(poll_s=0.5, max_submissions_per_min=600, **settings), tmp_path / "study"
        )
        launcher.open()
        started.append(launcher)
        return launcher

    yield one
    for launcher in started:
        launcher.close()


def submit(launcher: SlurmTrials, jobs: list[Job], count: int) -> dict[int, Outcome]:
    """Send all jobs and wait for `count` ends."""
    outcomes: dict[int, Outcome] = {}
    left, deadline = list(jobs), time.monotonic() + 90
    while len(outcomes) < count:
        assert time.monotonic() < deadline, (outcomes, launcher.notes())
        while left and launcher.submit(left[0]):
            left.pop(0)
        outcomes |= dict(launcher.poll(0.2))
    return outcomes


def runs(launcher: SlurmTrials, job: Job) -> Callable[[], bool]:
    return lambda: launcher.poll(0.1) == [] and (job.folder.path / "metrics.jsonl").exists()


def job_and_gpus(job: Job) -> tuple[str, list[str]]:
    """Return the SLURM job and the GPUs of the trial."""
    words = words_of(job)
    return words[1], words[5:]


def words_of(job: Job) -> list[str]:
    return next(line for line in job.attempt_folder.log.read_text().splitlines() if line.startswith("JOB")).split()


def state_of(slurm_job: str) -> str:
    return slurm("sacct", "--noheader", "--allocations", "--format=State", f"--jobs={slurm_job}").strip()


@pytest.mark.long
def test_one_job_runs_many_trials_each_with_its_own_end(start: Any, make_job: MakeJob) -> None:
    settings = {"trials_per_job": None}
    launcher = start(array_parallelism=1, **settings)
    jobs = [make_job(n, task, **settings) for n, task in enumerate([where, fail, die, where, where])]
    outcomes = submit(launcher, jobs, 5)
    states = [outcomes[number].state for number in range(5)]
    assert states == [State.COMPLETED, State.FAILED, State.LOST, State.COMPLETED, State.COMPLETED]
    assert "no such layer" in outcomes[1].error
    assert len({job_and_gpus(jobs[number])[0] for number in (0, 3, 4)}) == 1
    began = time.monotonic()
    launcher.close()
    assert time.monotonic() - began < 2
    wait_for(lambda: state_of(job_and_gpus(jobs[0])[0]) == "COMPLETED", 20)  # an idle worker ends without an error


@pytest.mark.long
@pytest.mark.parametrize("gpus", [{"gpus_per_node": 2}, {"gres": "gpu:2", "cpus_per_gpu": 1, "cpus_per_task": None}])
def test_trials_at_once_share_the_gpus_and_a_job_ends_after_its_number(
    start: Any, make_job: MakeJob, gpus: dict[str, Any], tmp_path: Path
) -> None:
    launcher = start(array_parallelism=2, trials_per_job=2, trials_at_once=2)
    jobs = [make_job(number, where, trials_per_job=2, trials_at_once=2, **gpus) for number in range(4)]
    outcomes = submit(launcher, jobs, 4)
    assert {end.state for end in outcomes.values()} == {State.COMPLETED}, outcomes
    assert len([*tmp_path.glob("study/arrays/*/1/elements/*")]) == 2  # one array of workers
    by_job: dict[str, list[list[str]]] = {}
    for job in jobs:
        slurm_job, owned = job_and_gpus(job)
        by_job.setdefault(slurm_job, []).append(owned)
    assert sorted(map(sorted, by_job.values())) == [[["0,1"], ["2,3"]]] * 2


@pytest.mark.long
def test_four_trials_share_a_gpu_in_one_job(start: Any, make_job: MakeJob, tmp_path: Path) -> None:
    settings = {"trials_per_job": None, "gpus_per_node": 1, "trials_per_gpu": 4, "mem_gb": 0.5}
    launcher = start(array_parallelism=1, trials_per_gpu=4)
    jobs = [make_job(number, shares_a_gpu, **settings) for number in range(5)]
    assert check_sharing(launcher, jobs, at_once=4) == ["0 0.25 0.2250"] * 5
    assert len([*tmp_path.glob("study/workers/*/*/slurm")]) == 1


@pytest.mark.long
def test_worker_runs_as_many_trials_on_a_gpu_as_its_memory_fits(
    start: Any, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "fakes")  # the job has the driver's sys.path
    setup = ["export FAKE_NVML_OWN_GB=30"]  # of 80 GB, so that 2 fit
    settings = {"trials_per_job": None, "gpus_per_node": 1, "trials_per_gpu": 4, "mem_gb": 0.5, "setup": setup}
    launcher = start(array_parallelism=1, trials_per_gpu=4)
    jobs = [make_job(number, show_part, **settings) for number in range(6)]  # all queued with a quarter
    submit(launcher, jobs, 6)
    ends = [job.attempt_folder.end() for job in jobs]
    assert [end and (end.state, end.gpus) for end in ends] == [
        (State.COMPLETED, part) for part in [0.25] * 4 + [0.5] * 2
    ]
    assert [words_of(job)[-1] for job in jobs] == ["0.25"] * 4 + ["0.5"] * 2


@pytest.mark.long
def test_killed_worker_costs_only_its_running_trial(start: Any, make_job: MakeJob) -> None:
    settings = {"trials_per_job": None}
    launcher = start(array_parallelism=1, **settings)
    first = make_job(1, patient, **settings)
    assert launcher.submit(first)
    wait_for(runs(launcher, first))
    second_driver = start(array_parallelism=1, **settings)
    assert second_driver.adopt(first)
    fork_server = psutil.Process(int(words_of(first)[3])).parent()
    fork_server.parent().kill()
    assert submit(second_driver, [], 1)[1].state is State.LOST
    for number, how, expected in [(3, ["--signal=USR1"], State.LOST), (4, [], State.CANCELLED)]:
        job = make_job(number, patient, **settings)
        assert second_driver.submit(job)
        wait_for(runs(second_driver, job))
        slurm("scancel", *how, job_and_gpus(job)[0])
        end = job.attempt_folder.close(submit(second_driver, [], 1)[number])
        assert (end.state, end.error != "") == (expected, True), end
        assert job.attempt_folder.stop_reason() is State.LOST  # therefore the trial saved its state


@pytest.mark.long
def test_a_worker_that_cannot_start_refuses_its_trials(start: Any, make_job: MakeJob) -> None:
    launcher = start(trials_per_job=None)
    jobs = [
        make_job(1, where, trials_per_job=None, setup=["no_such_module load"]),
        make_job(2, where, trials_per_job=None, setup=["no_such_module load"]),
        make_job(3, where, trials_per_job=None, partition="nowhere"),
        make_job(4, where, trials_per_job=None, preload=["no_such_module"]),
    ]
    outcomes = submit(launcher, jobs, 4)
    assert {end.state for end in outcomes.values()} == {State.REFUSED}
    for number, words in {1: "setup line failed", 2: "setup line failed", 3: "invalid partition", 4: "preload"}.items():
        assert words in outcomes[number].error


@pytest.mark.long
def test_largest_of_parallel_trials_is_blamed_for_memory(start: Any, make_job: MakeJob) -> None:
    settings = {"trials_per_job": None, "trials_at_once": 2, "mem_gb": 0.4}
    launcher = start(array_parallelism=1, **settings)
    outcomes = submit(launcher, [make_job(1, greedy, **settings), make_job(2, patient, **settings)], 2)
    assert {number: end.state for number, end in outcomes.items()} == {1: State.OUT_OF_MEMORY, 2: State.LOST}, outcomes
