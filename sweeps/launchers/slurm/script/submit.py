"""Submission of a SLURM job, or of an array of jobs, through submitit."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from sweeps.base.errors import UserError
from sweeps.base.files import make_private, write_whole
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm import environment, shell
from sweeps.launchers.slurm.queue import with_hint, write_job_id
from sweeps.launchers.slurm.script.request import PRIVATE, place_of
from sweeps.launchers.slurm.script.script import SETUP, setup_text
from sweeps.trial.job import Outcome, State
from sweeps.trial.packing import pack
from sweeps.trial.run import copies
from sweeps.trial.run.program import interpreter_options

_TIMEOUT_S = 20  # because sbatch would retry for minutes without a controller
_TIMEOUT_CODES = (124, 137, -9)  # timeout(1)
_BUSY = re.compile(
    "MaxSubmitJob|Resource temporarily unavailable|temporarily unable to accept job|"
    "Unable to contact slurm controller|Connection refused"
)
_UNANSWERED = re.compile("Socket timed out|Transport endpoint|Zero Bytes were transmitted")
_SETTINGS = {
    "invalid partition": "partition",
    "invalid account": "account",
    "invalid qos": "qos",
    "invalid feature": "constraint",
    "generic resource": "gres",
    "time limit is invalid": "timeout_min",
    "memory specification": "mem_gb",
}
"""Settings by words of sbatch's refusals."""
_PYTHON = (
    # not -m, because calls are pickled by module name
    "from sweeps.launchers.slurm.inside.in_job import main; main()"
)
# because functions of the app are pickled as byte code, which differs between versions of Python
_CHECK_VERSION = """import sys
if sys.version_info[:2] != {version}:
    sys.exit("the driver has Python {version[0]}.{version[1]}, this is " + sys.version.split()[0])
"""


class RefusedError(Exception):
    """SLURM will never accept this job; the text is its error, `habits` the variables of the shell
    that it obeys."""

    def __init__(self, error: str, habits: Collection[str] = ()) -> None:
        super().__init__(error)
        self.habits = habits

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of a trial whose job was refused, with the settings that SLURM's words
        are about."""
        names = [name for words, name in _SETTINGS.items() if words in str(self).lower()]
        habits = [
            f"{variable}={os.environ[variable]}"
            for variable in self.habits
            if shell.HABITS[variable] in names
        ]
        advice = f". Change hydra.launcher.{' or hydra.launcher.'.join(names)}" if names else ""
        advice += f", because of {' and '.join(habits)} in your shell" if habits else ""
        return Outcome(
            State.REFUSED,
            f"SLURM refused the job: {str(self).rstrip('.')}{advice}",
            request_refused=True,
        )


class BusyError(Exception):
    """SLURM does not accept the job now: a limit on submitted jobs is reached, or its controller is
    away."""


class UnansweredError(BusyError):
    """SLURM did not answer: the job may have been submitted."""


def check_commands() -> None:
    """Raise UserError if this machine lacks a command of SLURM."""
    for command in ("sbatch", "srun", "squeue", "scancel"):
        if shutil.which(command) is None:
            problem = f"hydra/launcher=slurm: this machine has no {command} command."
            raise UserError(
                f"{problem}\nRun the command on a login node, or use hydra/launcher=local"
            )


def write_call(
    folder: Path, settings: SlurmLauncherConf, function: Callable[..., None], *arguments: Any
) -> None:
    """Write the call that a job with its files in `folder` will execute. Raises OSError."""
    make_private(folder / PRIVATE)
    path = sys.path if environment.is_own_python(settings) else environment.app_path()
    call = path, copies.in_use(), pack((function, arguments))
    write_whole(folder / PRIVATE / "call.pkl", pack(call), sync=False)


def write_setup(folder: Path, lines: Sequence[str] | None) -> None:
    """Write the lines of `setup`, which may contain secrets, for the job with its files in
    `folder`. Raises OSError."""
    if lines:
        (folder / PRIVATE / SETUP).touch(mode=0o600)
        (folder / PRIVATE / SETUP).write_text(setup_text(lines))


def submit(folder: Path, requested: Mapping[str, Any]) -> str:
    """Submit a job, or an array, with its files in `folder`, and return its id.

    `requested` are the parameters of `request.parameters`.

    Raises RefusedError, BusyError or UnansweredError, and OSError if its files could not be
    written.
    """
    private = folder / PRIVATE
    make_private(private)
    executor = _Executor(private)
    executor.update_parameters(**requested)
    try:
        # because submitit prints each error that it raises
        with contextlib.redirect_stderr(io.StringIO()):
            job = executor._submit_command(_python_line(folder, requested))
        job_id = str(job.job_id)
        write_job_id(folder, job_id)
        return job_id
    except FailedJobError as error:
        raise _explain(error, executor.script) from error
    except (FailedSubmissionError, OSError) as error:  # which may follow a successful submission
        raise UnansweredError(str(error)) from error


def _python_line(folder: Path, requested: Mapping[str, Any]) -> str:
    """Return the words after the command that starts Python, for a shell."""
    is_own = requested["srun_args"][-1] == sys.executable
    program = _PYTHON
    options: list[str] = []
    if is_own:
        options = interpreter_options()
    else:
        program = _CHECK_VERSION.format(version=sys.version_info[:2]) + _PYTHON
    array = requested["additional_parameters"].get("array", "")
    words = shlex.join(["-u", *options, "-c", program])
    return f"{words} {place_of(folder, array)}/{PRIVATE}"


def _explain(error: FailedJobError, script: str) -> RefusedError | BusyError:
    """Return what the error of sbatch means for this batch script."""
    # because the output is not text
    cause = error.__cause__
    if not isinstance(cause, subprocess.CalledProcessError):
        return UnansweredError(f"the output of sbatch cannot be read: {cause}")

    message = str(error).replace("sbatch: error: ", "").strip()
    if not message and cause.returncode in _TIMEOUT_CODES:
        return UnansweredError(with_hint(f"sbatch took longer than {_TIMEOUT_S} s"))
    if not message or _UNANSWERED.search(message):
        return UnansweredError(with_hint(message or f"sbatch ended with {cause.returncode}"))
    if _BUSY.search(message):
        return BusyError(with_hint(message))
    return RefusedError(with_hint(message.replace("\n", "; ")), shell.habits(script))


class _Executor(submitit.SlurmExecutor):
    script = ""  # the newest batch script

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        text = super()._make_submission_file_text(command, uid)
        has_ranks = "--label" in self.parameters.get("srun_args", ())
        # because an unbuffered srun would label each piece of 1 kB, and cut the lines of ranks
        self.script = text.replace("srun --unbuffered ", "srun ") if has_ranks else text
        return self.script

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return sbatch(str(submission_file_path), self.script)


def sbatch(argument: str, script: str) -> list[str]:
    """Return the command that submits a job, or with `--test-only` tests the script on its standard
    input.

    `script` is the text of the batch script, whose options win over variables of the shell.
    """
    unset = [f"--unset={name}" for name in shell.left_out(script)]
    return ["env", *unset, "timeout", "--kill-after=1", str(_TIMEOUT_S), "sbatch", argument]


def may_pass(message: str) -> bool:
    """Return whether the error of sbatch is no refusal: a limit on submitted jobs, or a controller
    that is away."""
    return (
        not message
        or with_hint(message) != message
        or bool(_BUSY.search(message) or _UNANSWERED.search(message))
    )
