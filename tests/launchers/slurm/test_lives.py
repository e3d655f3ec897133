"""What can happen to a job while it waits and runs, on a real cluster."""

import signal
import subprocess
import time

import pytest
from lab import cluster_sh, job_maker

from sweeps.launchers.slurm.jobs import SlurmTrials
from sweeps.launchers.slurm.ticket import Ticket
from sweeps.settings import SlurmLauncherConf
from sweeps.trial import current_trial
from sweeps.trial.folder import State, TrialFolder


def sleep(cfg):
    time.sleep(60)
    return 0.0


def quick(cfg):
    return 1.0


def train(cfg):
    """Epochs of 0.2 s, saved after each, until told to stop."""
    trial = current_trial()
    trial.checkpoint_folder.mkdir(exist_ok=True)
    saved = trial.checkpoint_folder / "epoch"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for epoch in range(first, 300):
        time.sleep(0.2)
        saved.write_text(str(epoch))
        trial.report({"objective": 1 / epoch}, step=epoch)
        if trial.should_stop() or (epoch >= first + 40 and first > 1):
            break
    return 1 / epoch


def deaf(cfg):
    time.sleep(200)
    return 0.0


def submit(trials, *jobs):
    for job in jobs:
        while not trials.submit(job):
            time.sleep(0.05)


def wait_for(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.1)


def running(job):
    return lambda: "step 1 " in ((job.attempt / "log").read_text() if (job.attempt / "log").exists() else "")


def job_id(job):
    ticket = Ticket.read(job.attempt)
    assert ticket and ticket.id
    return ticket.id


def slurm(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout


@pytest.fixture(scope="module", autouse=True)
def overtime(tmp_path_factory):
    """A trial that does not listen, on its way to its time limit, which takes SLURM more than a minute."""
    launcher = SlurmTrials(SlurmLauncherConf(poll_s=0.5))
    with job_maker(tmp_path_factory.mktemp("overtime")) as make:
        settings = {"timeout_min": 1, "signal_delay_s": 0, "additional_parameters": {"nodelist": "lab3"}}
        submit(launcher, make(1, deaf, **settings))
    yield launcher
    launcher.close()


def test_preempted_cancelled_warned_and_killed_nodes(trials, make_job, ends):
    preempted = make_job(1, train, partition="scavenge", additional_parameters={"nodelist": "lab1"})
    by_hand = make_job(2, sleep, partition="scavenge", additional_parameters={"nodelist": "lab2"})
    by_us = make_job(3, sleep, additional_parameters={"nodelist": "lab2"})
    warned = make_job(4, train, timeout_min=1, signal_delay_s=50, additional_parameters={"nodelist": "lab3"})
    on_dying_node = make_job(5, train, additional_parameters={"nodelist": "lab4"})
    submit(trials, preempted, by_hand, by_us, warned, on_dying_node)
    wait_for(running(preempted))
    wait_for(running(on_dying_node))
    wait_for((by_us.folder.path / ".hydra").exists)
    urgent = make_job(6, quick, partition="urgent", mem_gb=7.8, additional_parameters={"nodelist": "lab1"})
    submit(trials, urgent)
    slurm("scancel", job_id(by_hand))
    trials.cancel(3)
    cluster_sh("kill", "lab4")
    try:
        found = ends(6)
    finally:
        cluster_sh("revive", "lab4")
    states = {number: end.state for number, end in sorted(found.items())}
    assert states == {
        1: State.LOST,
        2: State.LOST,
        3: State.CANCELLED,
        4: State.TIMED_OUT,
        5: State.LOST,
        6: State.COMPLETED,
    }, found
    # Both heard in time that they must end, and saved their state.
    assert preempted.folder.read_result().state is State.LOST
    assert warned.folder.read_result().state is State.TIMED_OUT
    assert "node failed" in found[5].error

    reached = int((warned.folder.checkpoint / "epoch").read_text())
    again = make_job(4, train)
    submit(trials, again)
    assert ends(1)[4].state is State.COMPLETED
    steps = [line.step for line in again.folder.read_metrics()[0]]
    assert steps == list(range(1, reached + 42))


def test_a_lost_process_ends_when_its_successor_starts(trials, make_job, ends):
    job = make_job(1, train)
    submit(trials, job)
    wait_for(running(job))
    job.folder.new_attempt()
    assert ends(1)[1].state is State.LOST
    assert "attempt 2 has taken over" in (job.attempt / "log").read_text()


def test_held_job_and_pending_reason(trials, make_job, ends, monkeypatch, caplog):
    monkeypatch.setattr("sweeps.launchers.slurm.jobs._HELD_S", 1.0)
    held = make_job(1, quick, additional_parameters={"hold": True})
    crowded = make_job(2, quick, nodes=4, additional_parameters={"begin": "now+1hour"})
    submit(trials, held, crowded)
    deadline = time.monotonic() + 10
    while not (caplog.messages and len(trials.notes()) == 2):
        assert time.monotonic() < deadline, trials.notes()
        trials.poll(0.2)
    assert f"scontrol release {job_id(held)}" in caplog.messages[0]
    assert set(trials.notes()) == {"1 pending: JobHeldUser", "1 pending: BeginTime"}
    trials.cancel(1)
    trials.cancel(2)
    assert {end.state for end in ends(2).values()} == {State.CANCELLED}


def test_a_limit_on_submitted_jobs_is_a_reason_to_wait(trials, make_job, ends, monkeypatch):
    monkeypatch.setattr("sweeps.launchers.slurm.jobs.BUSY_PAUSE_S", 0.5)
    first, second = (make_job(number, quick, qos="narrow") for number in (1, 2))
    assert trials.submit(first)
    time.sleep(0.2)
    assert not trials.submit(second)
    assert any("QOSMaxSubmitJobPerUserLimit" in note for note in trials.notes())
    ends(1)
    wait_for(lambda: trials.submit(second))
    assert ends(1)[2].state is State.COMPLETED


def test_array_parallelism_and_submission_rate(make_job):
    narrow = SlurmTrials(SlurmLauncherConf(array_parallelism=2, max_submissions_per_min=120))
    first = make_job(1, sleep)
    try:
        submit(narrow, first)
        second = make_job(2, sleep)
        assert not narrow.submit(second)  # half a second between two
        time.sleep(0.6)
        submit(narrow, second)
        time.sleep(0.6)
        assert not narrow.submit(make_job(3, sleep))
    finally:
        narrow.close()
    wait_for(lambda: "CANCELLED" in slurm("squeue", "-t", "all", "-h", "-o", "%T", "-j", job_id(first)))


def test_dead_controller_and_dead_accounting(trials, make_job, ends, monkeypatch):
    monkeypatch.setattr("sweeps.launchers.slurm.jobs.BUSY_PAUSE_S", 1.0)
    before, during = make_job(1, train), make_job(2, quick)
    submit(trials, before)
    wait_for(running(before))
    cluster_sh("kill", "slurmdbd")
    cluster_sh("kill", "slurmctld")
    died = time.monotonic()
    try:
        assert not trials.submit(during)
        assert any("SLURM takes no job now" in note for note in trials.notes())
        while time.monotonic() < died + 20:
            assert trials.poll(0.5) == []
    finally:
        cluster_sh("revive", "slurmctld")
    wait_for(lambda: trials.submit(during))
    assert ends(1)[2].state is State.COMPLETED
    slurm("scancel", job_id(before))
    assert ends(1)[1].state is State.LOST
    cluster_sh("revive", "slurmdbd")


@pytest.mark.parametrize("after_sbatch", ["id written down", "killed before the id was", "over"])
def test_a_new_driver_adopts_what_an_earlier_one_submitted(after_sbatch, trials, make_job, ends):
    earlier = SlurmTrials(SlurmLauncherConf())
    job = make_job(1, train if after_sbatch != "over" else quick, additional_parameters={"begin": "now+2"})
    submit(earlier, job)
    earlier_id = job_id(job)
    earlier._watcher.stop()  # and no close(): it was killed
    if after_sbatch == "killed before the id was":
        Ticket(Ticket.read(job.attempt).name).write(job.attempt)
        (job.attempt / f"{earlier_id}_submitted.pkl").rename(job.attempt / "0123456789.pkl")
    if after_sbatch == "over":
        wait_for(lambda: "COMPLETED" in slurm("squeue", "-t", "all", "-h", "-o", "%T", "-j", earlier_id))
    adopted = make_job_again(job)
    assert trials.adopt(adopted)
    if after_sbatch != "over":
        deadline = time.monotonic() + 60
        while not running(job)():
            assert time.monotonic() < deadline
            assert trials.poll(0.1) == []
        slurm("scancel", "--signal", signal.SIGUSR1.name.removeprefix("SIG"), earlier_id)
    expected = State.COMPLETED if after_sbatch == "over" else State.LOST
    assert ends(1)[1].state is expected
    assert job_id(job) == earlier_id


def test_nothing_to_adopt(trials, make_job):
    never_sent, unknown = make_job(1, quick), make_job(2, quick)
    Ticket("study-2.1-nowhere").write(unknown.attempt)
    assert not trials.adopt(never_sent)
    assert not trials.adopt(unknown)


def make_job_again(job):
    job.folder = TrialFolder(job.folder.path)
    return job


def test_time_limit_without_listening(overtime):
    found = []
    deadline = time.monotonic() + 150
    while not found:
        assert time.monotonic() < deadline
        found = overtime.poll(0.5)
    assert (found[0].state, "time limit" in found[0].error) == (State.TIMED_OUT, True)
