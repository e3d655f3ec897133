"""One attempt as one SLURM job: what it asks for, and its submission through submitit."""

import contextlib
import hashlib
import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError, JobPaths

from sweeps.launchers.contract import TrialJob
from sweeps.launchers.slurm.in_job import WARNING, run_attempt
from sweeps.launchers.slurm.ticket import Ticket
from sweeps.settings import SlurmLauncherConf

_TIMEOUT_S = 20
"""How long sbatch may take; with the controller away it would try for minutes."""

_LIMIT = ("MaxSubmitJob", "Resource temporarily unavailable", "temporarily unable to accept job")
_UNREACHABLE = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Transport endpoint",
)
_IGNORING = f'trap "" {WARNING.name} TERM; exec "$0" "$@"'  # until Python is ready to hear them


class RefusedError(Exception):
    """SLURM will not take this job, in its own words. Asking again would not help."""


class BusyError(Exception):
    """SLURM does not take the job now: a limit on submitted jobs is reached, or it does not answer.

    `unsure` tells that the job may have been submitted all the same.
    """

    def __init__(self, words: str, unsure: bool) -> None:
        super().__init__(words)
        self.unsure = unsure


def name_of(job: TrialJob) -> str:
    """study-trial.attempt-hash: a name that no other attempt has, so that its job is found without an id."""
    study = re.sub(r"[^\w.-]", "_", job.study)[:60]
    unique = hashlib.blake2s(str(job.attempt).encode(), digest_size=4).hexdigest()
    return f"{study}-{job.number}.{job.attempt.name}-{unique}"


def submit(job: TrialJob, settings: SlurmLauncherConf) -> Ticket:
    """Submit the attempt.

    Raises:
        RefusedError: the request can never be met.
        BusyError: it could not be submitted now.
    """
    ticket = Ticket(name_of(job))
    ticket.write(job.attempt)
    return submit_call(ticket, job.attempt, settings, run_attempt, cloudpickle.dumps(job), list(sys.path))


def submit_call(
    ticket: Ticket, folder: Path, settings: SlurmLauncherConf, function: Any, *args: Any
) -> Ticket:
    """Have `function(*args)` called in a job of its own, its files and log in `folder`. Raises as above."""
    executor = _Executor(folder, python=shlex.join(["bash", "-c", _IGNORING, sys.executable]))
    try:
        executor.update_parameters(**request(ticket.name, folder / "log", settings))
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it also raises
            submitted = executor.submit(function, *args)
    except (FailedJobError, FailedSubmissionError) as error:
        for left in [*folder.glob("*.pkl"), *folder.glob(".submission_file_*")]:
            left.unlink()
        words = str(error).replace("sbatch: error: ", "").strip()
        if any(text in words for text in _LIMIT):
            raise BusyError(words, unsure=False) from error
        if not words or any(text in words for text in _UNREACHABLE):
            raise BusyError(words or f"sbatch took longer than {_TIMEOUT_S} s", unsure=True) from error
        raise RefusedError(words.replace("\n", "; ")) from error
    ticket = Ticket(ticket.name, submitted.job_id)
    ticket.write(folder)
    return ticket


def finish_submission(folder: Path, job_id: str) -> None:
    """What submitit does after sbatch, for a driver that died before it. The job waits a minute for that."""
    pickle = JobPaths(folder, job_id).submitted_pickle
    if not pickle.exists():
        for waiting in folder.glob("*.pkl"):
            waiting.rename(pickle)
    Ticket(_named(folder), job_id).write(folder)


def _named(folder: Path) -> str:
    ticket = Ticket.read(folder)
    assert ticket is not None
    return ticket.name


class _Executor(submitit.SlurmExecutor):
    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["timeout", str(_TIMEOUT_S), *super()._make_submission_command(submission_file_path)]


def request(name: str, log: Path, settings: SlurmLauncherConf) -> dict[str, Any]:
    """What a job asks SLURM for, as the parameters of submitit's SlurmExecutor."""
    root = shlex.quote(str(Path(__file__).parents[2]))
    asked = {key: getattr(settings, key) for key in _PLAIN}
    asked |= {"time": settings.timeout_min, "ntasks_per_node": settings.tasks_per_node}
    asked["gpus_per_node"] = settings.gpus_per_node or None  # to ask for 0 is refused where there are none
    asked["mem"] = settings.mem_gb and f"{round(settings.mem_gb * 1024)}MB"
    srun = ["--output", str(log), "--open-mode=append", "--kill-on-bad-exit=1"]
    if settings.nodes * settings.tasks_per_node > 1:
        srun += ["--label"]  # whose line is it
    if settings.cpus_per_task:
        srun += [f"--cpus-per-task={settings.cpus_per_task}"]  # since SLURM 22.05 a step does not inherit it
    # Not through submitit, which warns that GPUs counted by node would not do.
    cpus_per_gpu = {"cpus-per-gpu": settings.cpus_per_gpu} if settings.cpus_per_gpu else {}
    return {
        **{key: value for key, value in asked.items() if value is not None},
        "job_name": name,
        "stderr_to_stdout": True,
        "srun_args": [*srun, *(settings.srun_args or [])],
        "setup": [
            "set -e",
            "export SWEEPYARD_JOB_START=$(date +%s.%N)",
            *(settings.setup or []),
            f"export PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}}",
        ],
        "additional_parameters": {
            **cpus_per_gpu,
            **settings.additional_parameters,
            "output": str(log),
            "no-requeue": True,  # a lost trial goes on in a new attempt, as a new job
            "signal": f"{WARNING.name.removeprefix('SIG')}@{settings.signal_delay_s}",
        },
    }


_PLAIN = [
    *("nodes", "cpus_per_task", "gpus_per_task", "mem_per_cpu", "mem_per_gpu", "gres"),
    *("partition", "qos", "account", "constraint", "exclude", "comment"),
]
