"""The process inside a SLURM job: one attempt at a trial, in each of the job's tasks (ranks)."""

import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

import cloudpickle

from sweeps.base.errors import UserError
from sweeps.base.files import NO_ROOM, read_own
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.script.request import WARNING
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import State, World
from sweeps.trial.ranks import is_failure
from sweeps.trial.run import copies
from sweeps.trial.run.children import ignore_sigterm_in_forks, kill_where_sigterm_is_ignored
from sweeps.trial.run.ending import end_process
from sweeps.trial.run.process import run_trial
from sweeps.trial.run.sent_job import Job, SentJob
from sweeps.trial.run.staging import staging
from sweeps.trial.times import now

_FENCE_S = 5.0
_RANKS_FENCE_S = 2.0
_CHECKS_AFTER_END = 5
_EARLY_S = 65  # sbatch(1): the warning "may be sent up to 60 seconds earlier than specified"


def main() -> None:
    """Execute the call that `submit` wrote to the folder on the command line, or exit with the
    reason."""
    file = Path(sys.argv[1]) / "call.pkl"
    try:
        path, *used_copies, call = cloudpickle.loads(read_own(file))
    except Exception as error:  # because a truncated pickle may raise anything
        raise SystemExit(f"{file} cannot be read: {error!r}") from error
    # the app's modules come first
    sys.path[:] = [*path, *(entry for entry in sys.path[1:] if entry not in path)]
    copies.use(*used_copies or [None])
    function, arguments = cloudpickle.loads(call)
    try:
        function(*arguments)
    except UserError as error:
        raise SystemExit(". ".join(line.rstrip(".") for line in str(error).splitlines())) from error
    except OSError as error:
        # recorded in an empty file, which a full disk often still accepts, unlike the log
        if error.errno not in NO_ROOM:
            raise
        with suppress(OSError):
            file.with_name(f"errno.{error.errno}").touch()
        with suppress(OSError):
            traceback.print_exc()
        os._exit(os.EX_IOERR)  # because frameworks wait for the other ranks in Python's clean-up


def call_of(
    job: Job, settings: SlurmLauncherConf
) -> tuple[Callable[..., None], SentJob, SlurmLauncherConf]:
    """Return the call that runs the trial, without the lines of `setup`, which may contain
    secrets."""
    return run_attempt, SentJob.of(job), replace(settings, setup=None)


def run_attempt(job: SentJob, settings: SlurmLauncherConf) -> None:
    """Run the trial. If it fails, exit with 1 and kill its other ranks.

    The driver read the settings, because the job may lack the driver's environment.
    """
    os.environ.update(job.environment)
    attempt = job.attempt_folder
    world = replace(world_of(os.environ), timeout_s=settings.rank_timeout_s)
    # because its driver gave this job up
    if world.is_chief and (attempt.is_over or attempt.successor.exists()):
        raise UserError(f"attempt {attempt.path} is over: this job does nothing")
    if world.size == 1:  # because through srun the last lines may reach the log after the end
        log = os.open(attempt.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1), os.dup2(log, 2)
    is_over = threading.Event()
    threading.Thread(target=_fence, args=[attempt, world, is_over], daemon=True).start()
    Notice([attempt] if world.is_chief else [], settings).listen()
    ignore_sigterm_in_forks()  # because a fork must not answer as the trial does
    kill_where_sigterm_is_ignored()
    with staging(getattr(settings, "stage", None) or []):
        end = run_trial(job, job_start(), world)
    is_over.set()
    if world.size > 1 and is_failure(end):
        _kill_step()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # because frameworks wait for lost ranks in their exit handlers
    end_process(exit_code=int(is_failure(end)))


def world_of(environment: Mapping[str, str]) -> World:
    """Return the world of this rank. Raises RuntimeError if the ranks do not fill one node after
    the other."""
    rank = int(environment["SLURM_PROCID"])
    size = int(environment["SLURM_STEP_NUM_TASKS"])
    if size == 1:
        return World(addresses=(socket.gethostname(),))
    nodes = environment.get("SWEEPYARD_NODES", "").split()
    if not nodes:
        command = ["scontrol", "show", "hostnames", environment["SLURM_STEP_NODELIST"]]
        nodes = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60
        ).stdout.split()
    addresses = [nodes[number * len(nodes) // size] for number in range(size)]
    if addresses[rank] != environment["SLURMD_NODENAME"]:
        raise RuntimeError(
            "hydra.launcher.srun_args: the ranks of a trial must fill one node after the other"
        )
    return World(rank, size, int(environment["SLURM_LOCALID"]), len(nodes), tuple(addresses))


class Notice:
    """SLURM's warning that a job must end soon, because of its time limit or preemption.

    The warning reaches the attempts in `folders` through `Trial.should_stop()`.
    """

    def __init__(self, folders: list[AttemptFolder], settings: SlurmLauncherConf) -> None:
        self.folders = folders
        self.was_received = False
        self._due_s = settings.timeout_min * 60 - settings.signal_delay_s

    def is_due(self, early_s: float = 0.0) -> bool:
        """Return whether the job's time is nearly over, whether or not SLURM sent a signal."""
        return now() - job_start() > self._due_s - early_s

    def listen(self) -> None:
        """Register the handlers of the warning and of SIGTERM."""
        for number in (WARNING, signal.SIGTERM):
            signal.signal(number, self._handle)
        # SLURM signals every process of a job. The trial's children survive the warning, because
        # they inherit the block. A thread receives the warning at once, because the main thread may
        # be in native code.
        signal.pthread_sigmask(signal.SIG_BLOCK, {WARNING})
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            self._handle(signal.sigwait({WARNING}), None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.was_received = True
        reason = State.TIMED_OUT if number == WARNING and self.is_due(_EARLY_S) else State.LOST
        print_safely(f"SLURM will end this job soon ({signal.Signals(number).name})")
        for folder in list(self.folders):
            try:
                if folder.stop_requested() is None:
                    folder.request_stop(reason)
            except OSError as error:  # because the other attempts must still be warned
                print_safely(f"{folder.path}: the request to stop cannot be written: {error}")


def job_start() -> float:
    """Return when the job started, in seconds since 1970, from its batch script."""
    return float(os.environ["SWEEPYARD_JOB_START"])


def print_safely(text: str) -> None:
    """Print a line, and continue if the log is on a full disk."""
    with suppress(OSError):
        print(text, flush=True)


def _fence(attempt: AttemptFolder, world: World, is_over: threading.Event) -> None:
    """Kill this process if a newer attempt has started, another rank has failed, or the attempt
    ended long ago.

    The processes of a lost node may survive, and this rank may hang. After `is_over` this process
    ends itself.
    """
    reason = ""
    checks_after_end = 0
    while not reason:
        if is_over.wait(_FENCE_S if world.size == 1 else _RANKS_FENCE_S):
            return
        with suppress(OSError):  # because a shared disk may be away for a moment
            checks_after_end += attempt.is_over and not world.is_chief
            if attempt.successor.exists():
                reason = f"attempt {attempt.successor.name} has started"
            elif checks_after_end > _CHECKS_AFTER_END:
                reason = "the trial is over"
            elif any(rank.stem != str(world.rank) for rank in attempt.path.glob("ranks/*.json")):
                reason = "another rank has failed"
    print_safely(f"{reason}; this process ends")
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_step() -> None:
    """Kill all ranks at once, because srun would wait for KillWait, 30 s or more, before it kills a
    hung rank."""
    step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
    # because srun kills the ranks later in any case
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scancel", "--signal=KILL", step], timeout=10, check=False)
