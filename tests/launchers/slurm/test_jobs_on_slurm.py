"""The events of a queued or running job, on a real cluster."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import cluster_sh, job_maker, slurm, wait_for

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.launchers.slurm.queue import read_job_id
from sweeps.trial import current_trial
from sweeps.trial.job import State
from sweeps.trial.run.sent_job import Job
from tests.launchers.launcher_contract import exits

MakeJob = Callable[..., Job]


def sleep(cfg: Any) -> float:
    time.sleep(60)
    return 0.0


def quick(cfg: Any) -> float:
    return 1.0


def train(cfg: Any) -> float:
    """Train epochs of 0.2 s until a stop is requested; save the state after each epoch."""
    trial = current_trial()
    trial.checkpoint_folder.mkdir(exist_ok=True)
    saved = trial.checkpoint_folder / "epoch"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for epoch in range(first, 3000):
        time.sleep(0.2)
        saved.write_text(str(epoch))
        trial.report({"objective": 1 / epoch}, step=epoch)
        if trial.should_stop() or (epoch >= first + 40 and first > 1):
            break
    return 1 / epoch


def deaf(cfg: Any) -> float:
    time.sleep(200)
    return 0.0


def submit(trials: SlurmTrials, *jobs: Job) -> None:
    for job in jobs:
        while not trials.submit(job):
            time.sleep(0.05)


def running(job: Job) -> Callable[[], bool]:
    log = job.attempt_folder.log
    return lambda: log.exists() and "step 1 " in log.read_text()


def job_id(job: Job) -> str:
    slurm_id = read_job_id(job.attempt_folder.path)
    assert slurm_id
    return slurm_id


@pytest.fixture(scope="module")
def overtime(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmTrials]:
    """Submit a trial that ignores signals and reaches its time limit after more than a minute."""
    folder = tmp_path_factory.mktemp("overtime")
    settings = SlurmLauncherConf(poll_s=0.5, max_submissions_per_min=600, trials_per_job=1)
    launcher = SlurmTrials(settings, folder / "study")
    launcher.open()
    with job_maker(folder) as make:
        overtime = {"timeout_min": 1, "signal_delay_s": 0, "additional_parameters": {"nodelist": "lab3"}}
        submit(launcher, make(1, deaf, **overtime))
    yield launcher
    launcher.close()


@pytest.mark.long  # because SLURM warns jobs and declares nodes dead after delays
@pytest.mark.usefixtures("overtime")  # goes on meanwhile
def test_preempted_cancelled_warned_and_killed_nodes(trials: SlurmTrials, make_job: MakeJob) -> None:
    preempted = make_job(1, train, partition="scavenge", additional_parameters={"nodelist": "lab1"})
    by_hand = make_job(2, sleep, partition="scavenge", additional_parameters={"nodelist": "lab2"})
    # SLURM looks every 30 s, for the 30 s to come, and warns once: not before 15 s, when the trial listens.
    warned = make_job(4, train, timeout_min=1, signal_delay_s=15, additional_parameters={"nodelist": "lab3"})
    on_dying_node = make_job(5, train, additional_parameters={"nodelist": "lab4"})
    submit(trials, preempted, by_hand, warned, on_dying_node)
    wait_for(running(preempted))
    wait_for(running(on_dying_node))
    wait_for((by_hand.folder.path / ".hydra").exists)
    urgent = make_job(6, quick, partition="urgent", mem_gb=7.8, additional_parameters={"nodelist": "lab1"})
    submit(trials, urgent)
    slurm("scancel", job_id(by_hand))
    cluster_sh("kill", "lab4")
    try:
        ends = exits(trials, 5, 120)
    finally:
        cluster_sh("revive", "lab4")
    jobs = [preempted, by_hand, warned, on_dying_node, urgent]
    ends = {job.number: job.attempt_folder.close(ends[job.number]) for job in jobs}
    states = {number: end.state for number, end in ends.items()}
    assert states == {1: State.LOST, 2: State.CANCELLED, 4: State.TIMED_OUT, 5: State.LOST, 6: State.COMPLETED}, ends
    # Both trials observed the stop in time, and saved their state.
    assert [job.attempt_folder.stop_reason() for job in (preempted, warned)] == [State.LOST, State.TIMED_OUT]
    assert all(end.error for number, end in ends.items() if number < 6)
    assert "preempted" in ends[1].error or "SLURM requested its" in ends[1].error
    assert "node failed" in ends[5].error
    assert ends[5].node.startswith("lab") and ends[5].node_failed

    reached = int((warned.folder.checkpoint / "epoch").read_text())
    second = make_job(4, train)
    submit(trials, second)
    assert exits(trials, 1)[4].state is State.COMPLETED
    steps = [line.step for line in second.folder.read_metrics().values]
    assert steps == list(range(1, reached + 42))


@pytest.mark.long
def test_a_lost_process_ends_when_its_successor_starts(trials: SlurmTrials, make_job: MakeJob) -> None:
    job = make_job(1, train)
    submit(trials, job)
    wait_for(running(job))
    job.folder.new_attempt()
    assert exits(trials, 1)[1].state is State.LOST
    assert "attempt 2 has started" in job.attempt_folder.log.read_text()


def test_held_job_and_pending_reason(trials: SlurmTrials, make_job: MakeJob, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr("sweeps.launchers.slurm.follow.following._STUCK_S", 1.0)
    held = make_job(1, quick, additional_parameters={"hold": True})
    crowded = make_job(2, quick, nodes=4, additional_parameters={"begin": "now+1hour"})
    submit(trials, held, crowded)
    deadline = time.monotonic() + 10
    while not (caplog.messages and len(trials.notes()) == 2):
        assert time.monotonic() < deadline, trials.notes()
        trials.poll(0.2)
    assert f"scontrol release {job_id(held)}" in caplog.messages[0]
    assert set(trials.notes()) == {"1 pending: JobHeldUser", "1 pending: BeginTime"}
    trials.cancel_pending()
    assert {end.state for end in exits(trials, 2).values()} == {State.CANCELLED}


@pytest.mark.long
def test_a_limit_on_submitted_jobs_is_a_reason_to_wait(
    trials: SlurmTrials, make_job: MakeJob, monkeypatch: Any
) -> None:
    monkeypatch.setattr("sweeps.launchers.slurm.follow.following.BUSY_PAUSE_S", 0.5)
    first, second = (make_job(number, quick, qos="narrow") for number in (1, 2))
    assert trials.submit(first)
    time.sleep(0.2)
    assert not trials.submit(second)
    assert any("QOSMaxSubmitJobPerUserLimit" in note for note in trials.notes())
    exits(trials, 1)
    wait_for(lambda: trials.submit(second))
    assert exits(trials, 1)[2].state is State.COMPLETED


@pytest.mark.long
def test_array_parallelism(make_job: MakeJob, tmp_path: Path) -> None:
    narrow = SlurmTrials(SlurmLauncherConf(array_parallelism=2, trials_per_job=1), tmp_path / "study")
    first = make_job(1, sleep)
    try:
        submit(narrow, first, make_job(2, sleep))
        time.sleep(0.6)
        assert not narrow.submit(make_job(3, sleep))
    finally:
        narrow.close()
    wait_for(lambda: "CANCELLED" in slurm("squeue", "-t", "all", "-h", "-o", "%T", "-j", job_id(first)))


@pytest.mark.long
def test_dead_controller_and_dead_accounting(trials: SlurmTrials, make_job: MakeJob, monkeypatch: Any) -> None:
    monkeypatch.setattr("sweeps.launchers.slurm.follow.following.BUSY_PAUSE_S", 1.0)
    before, during = make_job(1, train), make_job(2, quick)
    submit(trials, before)
    wait_for(running(before))
    cluster_sh("kill", "slurmdbd")
    cluster_sh("kill", "slurmctld")
    died = time.monotonic()
    try:
        assert not trials.submit(during)
        assert any("SLURM accepts no jobs now" in note for note in trials.notes())
        while time.monotonic() < died + 12:
            assert trials.poll(0.5) == []
    finally:
        cluster_sh("revive", "slurmctld")
    wait_for(lambda: trials.submit(during))
    assert exits(trials, 1)[2].state is State.COMPLETED
    slurm("scancel", job_id(before))
    assert exits(trials, 1)[1].state is State.CANCELLED  # because accounting alone knows the user
    cluster_sh("revive", "slurmdbd")


@pytest.mark.long
@pytest.mark.parametrize("after_sbatch", ["killed before the id was written down", "over"])
def test_new_driver_adopts_jobs_of_an_earlier_driver(
    after_sbatch: str, trials: SlurmTrials, make_job: MakeJob, tmp_path: Path
) -> None:
    earlier = SlurmTrials(SlurmLauncherConf(trials_per_job=1), tmp_path / "study")
    job = make_job(1, train if after_sbatch != "over" else quick, additional_parameters={"begin": "now+2"})
    submit(earlier, job)
    earlier_id = job_id(job)
    earlier.slurm.watcher.stop()  # without close(), as if the driver was killed
    if after_sbatch == "over":
        wait_for(lambda: "COMPLETED" in slurm("squeue", "-t", "all", "-h", "-o", "%T", "-j", earlier_id))
        assert trials.adopt(job)
        assert exits(trials, 1)[1].state is State.COMPLETED
        return
    (job.attempt_folder.path / "job.json").unlink()
    assert trials.adopt(job)
    wait_for(lambda: trials.poll(0.1) == [] and running(job)())
    slurm("scancel", "--signal", signal.SIGUSR1.name.removeprefix("SIG"), earlier_id)
    end = job.attempt_folder.close(exits(trials, 1)[1])
    assert (end.state, "SLURM requested its" in end.error) == (State.LOST, True)
    assert job_id(job) == earlier_id


def test_job_cancelled_by_its_owner_is_cancelled(trials: SlurmTrials, make_job: MakeJob) -> None:
    job = make_job(1, train)
    submit(trials, job)
    wait_for(running(job))
    slurm("scancel", job_id(job))
    end = job.attempt_folder.close(exits(trials, 1)[1])
    assert (end.state, "scancel" in end.error) == (State.CANCELLED, True)
    assert job.attempt_folder.stop_reason() is State.LOST  # therefore the trial saved its state


def test_no_job_to_adopt(trials: SlurmTrials, make_job: MakeJob) -> None:
    assert not trials.adopt(make_job(1, quick))


@pytest.mark.long
def test_time_limit_without_listening(overtime: SlurmTrials) -> None:
    outcomes: list[Any] = []
    deadline = time.monotonic() + 150
    while not outcomes:
        assert time.monotonic() < deadline
        outcomes = overtime.poll(0.5)
    [(_, end)] = outcomes
    assert (end.state, "time limit" in end.error) == (State.TIMED_OUT, True)
