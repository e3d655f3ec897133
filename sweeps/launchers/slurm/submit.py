"""One SLURM job, submitted through submitit."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from sweeps.files import write_whole
from sweeps.launchers.slurm.queue import note_id
from sweeps.launchers.slurm.request import WARNING
from sweeps.trial import copies

_TIMEOUT_S = 20  # with the controller away it would try for minutes
_LATE = (124, 137, -9)  # timeout(1)
_BUSY = re.compile(
    "MaxSubmitJob|Resource temporarily unavailable|temporarily unable to accept job|"
    "Unable to contact slurm controller|Connection refused"
)
_UNANSWERED = re.compile("Socket timed out|Transport endpoint|Zero Bytes were transmitted")
_OF_A_JOB = ("SLURM_", "SBATCH_", "PMI")
_PYTHON = "from sweeps.launchers.slurm.in_job import main; main()"  # not -m: calls are pickled by module name
_IGNORING = f'trap "" {WARNING.name} TERM; exec "$0" "$@"'  # until Python is ready to hear them


class RefusedError(Exception):
    """SLURM will never take this job, in its own words."""


class BusyError(Exception):
    """SLURM does not take the job now: a limit on submitted jobs is reached, or its controller is away."""


class UnansweredError(BusyError):
    """SLURM did not answer: the job may have been submitted all the same."""


def submit(folder: Path, asked: Mapping[str, Any], function: Callable[..., None], *arguments: Any) -> str:
    """Have `function(*arguments)` called in a job of its own, its files in `folder`. Returns the job's id.

    Raises RefusedError, BusyError or UnansweredError, and OSError if its files could not be written.
    """
    own = folder / "slurm"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    call = sys.path, copies.in_use(), cloudpickle.dumps((function, arguments))
    write_whole(own / "call.pkl", cloudpickle.dumps(call), sync=False)
    executor = _Executor(own)
    executor.update_parameters(**asked)
    python = ["bash", "-c", _IGNORING, sys.executable, "-u", "-c", _PYTHON, str(own)]
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it also raises
            job_id = str(executor._submit_command(shlex.join(python)).job_id)
        note_id(folder, job_id)
    except FailedJobError as error:
        if not isinstance(error.__cause__, subprocess.CalledProcessError):  # what it printed is no text
            raise UnansweredError(f"what sbatch said cannot be read: {error.__cause__}") from error
        words, code = str(error).replace("sbatch: error: ", "").strip(), error.__cause__.returncode
        if not words or _UNANSWERED.search(words):
            late = f"sbatch took longer than {_TIMEOUT_S} s"
            raise UnansweredError(words or (late if code in _LATE else f"sbatch ended with {code}")) from error
        if _BUSY.search(words):
            raise BusyError(words) from error
        raise RefusedError(words.replace("\n", "; ")) from error
    except (FailedSubmissionError, OSError) as error:  # sbatch may be through
        raise UnansweredError(str(error)) from error
    return job_id


class _Executor(submitit.SlurmExecutor):
    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        # A driver that runs in a job itself must not hand on what SLURM said of that one.
        inside = [name for name in os.environ if name.startswith(_OF_A_JOB) and "SLURM_JOB_ID" in os.environ]
        without = [f"--unset={name}" for name in inside if name != "SLURM_CONF"]
        return ["env", *without, "timeout", "--kill-after=1", str(_TIMEOUT_S), "sbatch", str(submission_file_path)]
