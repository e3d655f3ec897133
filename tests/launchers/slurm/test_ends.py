"""The names and the messages of the ends of trials, from SLURM's states and the logs, and on a real cluster."""

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm

from sweeps.launchers.slurm.follow import ends
from sweeps.launchers.slurm.follow.ends import outcome_of_attempt, outcome_of_job, outcomes_in_worker
from sweeps.launchers.slurm.follow.listing import ENDED, GONE, JobInfo
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.trial.folder import AttemptFolder, TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import SYSTEM_METRICS, MetricsLine
from sweeps.trial.run.sent_job import Job
from tests.launchers.launcher_contract import exits

SRUN = "srun: error: lab1: task 0: "


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    """Return the attempt of a job whose set-up succeeded and whose trial began."""
    place = TrialFolder(tmp_path / "study" / "0").new_attempt()
    (place.path / "slurm").mkdir()
    (place.path / "slurm" / "set_up").touch()
    place.begin(time.time())
    return place


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("log", [None, "", "hello", f"{SRUN}Exited with exit code 2", f"{SRUN}Killed"])
def test_every_end_has_words(attempt: AttemptFolder, state: str, log: str | None) -> None:
    if log is not None:
        attempt.log.write_text(log)
    for folder in (attempt.path, attempt.path.parent):  # the second folder was never set up
        end = outcome_of_job(JobInfo("7", state), folder)
        assert end.error and "SLURM job 7" in end.error
        assert end.state.is_over or end.state in {State.CANCELLED, State.REFUSED}


FAILED = JobInfo("7", "FAILED")


@pytest.mark.parametrize(
    ("info", "log", "state", "words"),
    [
        (JobInfo("7", "CANCELLED", by=str(os.getuid())), "", State.CANCELLED, "cancelled with scancel"),
        (JobInfo("7", "CANCELLED"), "", State.CANCELLED, "cancelled with scancel"),  # who did is not known
        (JobInfo("7", "CANCELLED", by=""), "", State.CANCELLED, "cancelled with scancel"),
        (JobInfo("7", "CANCELLED", by="12345"), "", State.LOST, "cancelled by user 12345"),
        (JobInfo("7", "CANCELLED", by="SLURM"), "", State.LOST, "cancelled by SLURM"),
        (JobInfo("7", "PREEMPTED"), "", State.LOST, "preempted"),
        (JobInfo("7", "NODE_FAIL"), "", State.LOST, "its node failed"),
        (JobInfo("7", GONE), "", State.LOST, "SLURM has no record of it"),
        (JobInfo("7", "TIMEOUT"), "", State.TIMED_OUT, "time limit"),
        (JobInfo("7", "OUT_OF_MEMORY"), "", State.OUT_OF_MEMORY, "more memory than it requested"),
        (FAILED, "slurmstepd: error: Detected 1 oom-kill event", State.OUT_OF_MEMORY, "more memory"),
        (FAILED, f"bye\n{SRUN}Exited with exit code 3", State.FAILED, "without a result, task 0 on lab1"),
        (FAILED, f"half a line{SRUN}Exited with exit code 3", State.FAILED, "(SLURM job 7): half a line"),
        (
            FAILED,
            f"OSError: [Errno 30] Read-only file system: 'x'\n{SRUN}Exited with exit code 74",
            State.LOST,
            "(SLURM job 7): OSError: [Errno 30] Read-only file system: 'x'",
        ),
        (FAILED, f"{SRUN}Segmentation fault", State.FAILED, "crashed, task 0 on lab1"),
        (FAILED, f"{SRUN}Killed", State.LOST, "killed from outside, task 0 on lab1"),
        (FAILED, "hello", State.LOST, "its job was killed from outside"),
        (JobInfo("7", "COMPLETED"), "bye", State.FAILED, "ended without a result (SLURM job 7): bye"),
    ],
)
def test_reasons_of_slurm_and_of_the_log(
    attempt: AttemptFolder, info: JobInfo, log: str, state: State, words: str
) -> None:
    attempt.log.write_text(log)
    end = outcome_of_attempt(info, attempt)
    assert (end.state, words in end.error) == (state, True), end


def test_job_that_never_started_is_refused(attempt: AttemptFolder) -> None:
    attempt.log.write_text(f"no module named x\n{SRUN}Exited with exit code 1")
    (attempt.path / "started").unlink()
    end = outcome_of_attempt(FAILED, attempt)
    assert end.state is State.REFUSED
    assert "before the trial began" in end.error and "no module named x" in end.error
    (attempt.path / "slurm" / "set_up").unlink()
    end = outcome_of_attempt(FAILED, attempt)
    assert (end.state, "a setup line failed" in end.error) == (State.REFUSED, True)


def test_full_disk_refuses_new_trials_and_costs_running_trials_an_attempt(attempt: AttemptFolder) -> None:
    attempt.log.touch()  # because nothing can be written to a full disk
    (attempt.path / "slurm" / "errno.28").touch()
    end = outcome_of_attempt(FAILED, attempt)
    assert end == Outcome(State.LOST, f"[Errno 28] No space left on device: '{attempt.path}' (SLURM job 7)")
    (attempt.path / "started").unlink()
    assert outcome_of_attempt(FAILED, attempt) == replace(end, state=State.REFUSED)
    for file in (attempt.log, attempt.path / "slurm" / "errno.28", attempt.path / "slurm" / "set_up"):
        file.unlink()
    end = outcome_of_attempt(JobInfo("7", "FAILED", "JobLaunchFailure"), attempt)
    assert (end.state, str(attempt.log) in end.error) == (State.REFUSED, True), end


@pytest.mark.parametrize(
    ("log", "number", "is_blamed"),
    [
        (None, errno.ENOSPC, False),
        (None, errno.EDQUOT, False),
        (None, errno.EFBIG, False),
        (None, errno.EIO, True),
        (None, 0, True),
        ("touch: cannot touch 'set_up': No space left on device", 0, False),
        ("module: command not found", 0, True),
    ],
)
def test_full_disk_is_no_fault_of_a_node(
    scripted_slurm: ScriptedSlurm,
    attempt: AttemptFolder,
    monkeypatch: pytest.MonkeyPatch,
    log: str | None,
    number: int,
    is_blamed: bool,
) -> None:
    def write(file: Path, content: bytes) -> None:
        if number:
            raise OSError(number, os.strerror(number), str(file))
        file.write_bytes(content)

    scripted_slurm.say("scontrol", "echo NodeList=lab1")
    monkeypatch.setattr(ends, "write_whole", write)
    (attempt.path / "slurm" / "set_up").unlink()
    if log is not None:
        attempt.log.write_text(log)
    end = outcome_of_job(FAILED, attempt.path)
    assert (end.state, end.node, end.node_failed) == (
        State.REFUSED,
        "lab1" if is_blamed else "",
        is_blamed and log is None,
    )
    assert {file.name for file in (attempt.path / "slurm").iterdir()} == set()


def test_preempted_job_is_lost_unless_its_owner_cancelled_the_job(attempt: AttemptFolder) -> None:
    attempt.append_stop_answer(State.LOST)
    for info, state, words in [
        (JobInfo("7", "COMPLETED"), State.LOST, "SLURM requested its"),
        (JobInfo("7", "PREEMPTED"), State.LOST, "preempted"),
        (JobInfo("7", "CANCELLED", by=str(os.getuid())), State.CANCELLED, "scancel"),
        (JobInfo("7", "CANCELLED", by="12345"), State.LOST, "user 12345"),
    ]:
        end = outcome_of_attempt(info, attempt)
        assert (end.state, words in end.error) == (state, True), end


def uses(job: Job, *megabytes: float, before: bool = False) -> None:
    began = time.time()
    job.attempt_folder.begin(began)
    for megabyte in megabytes:
        line = MetricsLine(0, began + (-10 if before else 1), {"system/memory_usage_megabytes": megabyte})
        job.folder.append_metrics(line, SYSTEM_METRICS)


KILLED = JobInfo("7", "OUT_OF_MEMORY")


def test_largest_trial_is_blamed_for_a_worker_killed_for_memory(
    scripted_slurm: ScriptedSlurm, make_job: Callable[..., Job], tmp_path: Path
) -> None:
    end = outcome_of_job(KILLED, tmp_path)
    jobs = [make_job(number, complete, mem_gb=1) for number in range(4)]
    uses(jobs[0], 1000)
    uses(jobs[1], 100, 1500)
    uses(jobs[2], 1200)
    uses(jobs[3], 9000, before=True)  # by an earlier attempt of the trial
    ends = dict(outcomes_in_worker(KILLED, end, jobs))
    assert {number: end.state for number, end in ends.items()} == {
        0: State.LOST,
        1: State.OUT_OF_MEMORY,
        2: State.LOST,
        3: State.LOST,
    }
    assert "killed for the memory of its trials" in ends[0].error
    within = dict(outcomes_in_worker(KILLED, end, [jobs[0], jobs[3]]))  # no trial used more than its share
    assert {end.state for end in within.values()} == {State.LOST}
    assert outcomes_in_worker(KILLED, end, [jobs[0]]) == [(0, end)]
    assert outcomes_in_worker(KILLED, end, []) == []


@pytest.mark.parametrize(
    ("info", "state", "words"),
    [
        (JobInfo("7", "COMPLETED"), State.LOST, "SLURM requested its"),
        (FAILED, State.LOST, "its worker ended"),
        (JobInfo("7", "TIMEOUT"), State.TIMED_OUT, "time limit"),
        (JobInfo("7", "CANCELLED"), State.CANCELLED, "scancel"),
        (JobInfo("7", "NODE_FAIL"), State.LOST, "node failed"),
    ],
)
def test_cause_of_a_workers_death_is_not_blamed_on_trials(
    attempt: AttemptFolder, make_job: Callable[..., Job], info: JobInfo, state: State, words: str
) -> None:
    attempt.log.write_text(f"{SRUN}Segmentation fault")
    [(_, end)] = outcomes_in_worker(info, outcome_of_job(info, attempt.path), [make_job(0, complete)])
    assert (end.state, words in end.error) == (state, True), end


def complete(cfg: Any) -> float:
    print("hello from the trial")
    return 3.0


def fail(cfg: Any) -> float:
    raise ValueError("no such layer")


def exit_3(cfg: Any) -> float:
    os._exit(3)


def exit_0(cfg: Any) -> float:
    os._exit(0)


def crash(cfg: Any) -> float:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0.0


def die(cfg: Any) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def eat_memory(cfg: Any) -> float:
    hoard = bytearray(600_000_000)
    hoard[::4096] = b"x" * len(hoard[::4096])
    time.sleep(20)
    return 0.0


@pytest.mark.long
def test_each_end_has_its_name(trials: SlurmTrials, make_job: Callable[..., Job], monkeypatch: Any) -> None:
    # As if the driver ran in a job itself, whose settings its own jobs must not inherit.
    for name, value in {"SLURM_JOB_ID": "1", "SLURM_MEM_PER_CPU": "100", "SLURM_NTASKS": "9"}.items():
        monkeypatch.setenv(name, value)
    cases: list[tuple[Any, dict[str, Any], State, str]] = [
        (complete, {}, State.COMPLETED, ""),
        (fail, {}, State.FAILED, "no such layer"),
        (exit_3, {}, State.FAILED, "without a result"),
        (exit_0, {}, State.FAILED, "without a result"),
        (crash, {}, State.FAILED, "crashed, task 0 on lab"),
        (die, {}, State.LOST, "killed from outside"),
        (eat_memory, {"mem_gb": 0.3}, State.OUT_OF_MEMORY, "more memory than it requested"),
        (complete, {"setup": ["module_that_is_not_there load"]}, State.REFUSED, "a setup line failed"),
        (complete, {"mem_gb": 500}, State.REFUSED, "SLURM refused the job: Memory specification"),
        (complete, {"partition": "nowhere"}, State.REFUSED, "invalid partition specified: nowhere"),
        (complete, {"mem_gb": None}, State.COMPLETED, ""),
        (complete, {"gres": "gpu:0", "cpus_per_gpu": 4, "cpus_per_task": None}, State.COMPLETED, ""),
    ]
    jobs = [make_job(number, task, **settings) for number, (task, settings, _, _) in enumerate(cases)]
    for job in jobs:
        while not trials.submit(job):
            time.sleep(0.1)
    outcomes = exits(trials, len(cases), 180)
    for number, (_, _, state, words) in enumerate(cases):
        own = jobs[number].attempt_folder.end()
        assert (own is not None) == (number in {0, 1, 10, 11})
        end: Outcome = jobs[number].attempt_folder.close(outcomes[number])
        assert (end.state, words in end.error) == (state, True), end
    assert outcomes[0].objective == [3.0]
    assert "hello from the trial" in jobs[0].attempt_folder.log.read_text()


def test_a_node_that_cannot_make_the_log_refuses_the_trial(trials: SlurmTrials, make_job: Callable[..., Job]) -> None:
    job = make_job(1, complete, additional_parameters={"begin": "now+1"})
    while not trials.submit(job):
        time.sleep(0.1)
    shutil.rmtree(job.attempt_folder.path)  # as on a node where the study's disk is not mounted
    end = exits(trials, 1)[1]
    assert (end.state, f"its node could not create {job.attempt_folder.log}" in end.error) == (State.REFUSED, True), end
    assert end.node.startswith("lab") and end.node_failed
