"""srun's refusals, as SLURM 22.05 words them, and its problems that may pass in another job."""

import pytest
from omegaconf import DictConfig

from sweeps.launchers.slurm.follow.ends import outcome_of_attempt, outcome_of_job
from sweeps.launchers.slurm.follow.listing import JobInfo
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import State
from tests.launchers.slurm.test_ends import attempt  # noqa: F401 - a fixture

UNABLE = "srun: error: Unable to create step for job 1: "


def end_of(attempt: AttemptFolder, *log: str, **settings: object) -> tuple[State, bool, str]:  # noqa: F811
    attempt.log.write_text("\n".join(log))
    (attempt.path / "started").unlink(missing_ok=True)
    end = outcome_of_attempt(JobInfo("7", "FAILED"), attempt, DictConfig(settings))
    return end.state, end.request_refused, end.error


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (["srun: unrecognized option '--bogus'", 'Try "srun --help" for more information'], "unrecognized option"),
        (['srun: error: Invalid numeric value "" for --cpus-per-task.'], 'Invalid numeric value "" for'),
        (["srun: error: cannot find mpi plugin", "srun: error: Invalid MPI type 'x', --mpi=list"], "Invalid MPI type"),
        ([f"{UNABLE}Memory required by task is not available"], "Memory required by task is not available"),
        ([f"{UNABLE}More processors requested than permitted"], "More processors requested than permitted"),
        ([f"{UNABLE}Invalid generic resource (gres) specification"], "Invalid generic resource (gres)"),
        (["srun: error: Invalid --ntasks-per-socket specification"], "Invalid --ntasks-per-socket"),
        (["srun: cluster lacks cpu binding", "srun: fatal: Failed to parse --cpu-bind= values."], "Failed to parse"),
        (["srun: fatal: SLURM_MEM_PER_CPU and SLURM_MEM_PER_NODE are mutually exclusive."], "are mutually exclusive"),
        (["srun: error: Task launch for StepId=1.0 failed on node a: Unable to satisfy cpu bind request"], "cpu bind"),
        (["a line of setup without an endsrun: error: Invalid --time specification"], "Invalid --time specification"),
    ],
)
def test_refusal_of_srun_has_its_words(attempt: AttemptFolder, log: list[str], problem: str) -> None:  # noqa: F811
    state, request_refused, error = end_of(attempt, "hello", *log, srun_args=None)
    assert (state, request_refused) == (State.REFUSED, True), error
    assert "srun refused to start it" in error and problem in error and "srun_args" not in error
    assert 'Change hydra.launcher.srun_args=["--mpi=x"]' in end_of(attempt, *log, srun_args=["--mpi=x"])[2]
    assert "Change hydra.launcher.srun_args=--mpi=x" in end_of(attempt, *log, srun_args="--mpi=x")[2]


@pytest.mark.parametrize(
    "log",
    [
        f"{UNABLE}Job/step already completing or completed",
        f"{UNABLE}Unable to contact slurm controller (connect failure)",
        f"{UNABLE}Socket timed out on send/recv operation",
        "srun: error: Unable to confirm allocation for job 1: Invalid job id specified",
        "srun: error: Task launch for StepId=1.0 failed on node a: Communication connection failure",
        "srun: error: Node failure on a",
        "srun: error: lab1: task 0: Killed",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)",
        "",
    ],
)
def test_problem_that_may_pass_loses_the_trial(attempt: AttemptFolder, log: str) -> None:  # noqa: F811
    state, request_refused, error = end_of(attempt, log)
    assert (state, request_refused) == (State.LOST, False), error


def test_trial_that_began_was_not_refused(attempt: AttemptFolder) -> None:  # noqa: F811
    attempt.log.write_text("srun: error: Invalid --time specification")  # of the app's own srun
    end = outcome_of_attempt(JobInfo("7", "FAILED"), attempt)
    assert (end.state, end.request_refused) == (State.LOST, False)


def test_refusal_of_srun_blames_no_node(attempt: AttemptFolder) -> None:  # noqa: F811
    attempt.log.write_text("srun: error: Invalid --time specification")
    assert outcome_of_job(JobInfo("7", "FAILED"), attempt.path).node == ""
