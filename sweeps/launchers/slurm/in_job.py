"""What runs inside a SLURM job: one attempt at a trial, in each of the job's tasks (ranks)."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

import cloudpickle

from sweeps.errors import UserError
from sweeps.files import NO_ROOM, read_own
from sweeps.launchers.slurm.request import WARNING
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial import copies
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import Job, State, World
from sweeps.trial.process import run_trial
from sweeps.trial.ranks import went_wrong

_FENCE_S = 5.0
_RANKS_FENCE_S = 2.0
_LOOKS_SINCE_END = 5
_EARLY_S = 65  # sbatch(1): the warning "may be sent up to 60 seconds earlier than specified"


def main() -> None:
    """Carry out the call that `submit` left in the folder which the command line names, or end and say why not."""
    file = Path(sys.argv[1]) / "call.pkl"
    try:
        path, *kept, call = cloudpickle.loads(read_own(file))
    except Exception as error:  # whatever unpickling half a file raises
        raise SystemExit(f"{file} cannot be read: {error!r}") from error
    sys.path[:] = path  # the driver's, along which the app's own modules are found
    copies.use(*kept or [None])
    function, arguments = cloudpickle.loads(call)
    try:
        function(*arguments)
    except UserError as error:
        raise SystemExit(str(error).replace("\n", "; ")) from error
    except OSError as error:  # the log too may be on a full disk, which often still takes a file without content
        if error.errno not in NO_ROOM:
            raise
        with suppress(OSError):
            file.with_name(f"errno.{error.errno}").touch()
        with suppress(OSError):
            traceback.print_exc()
        os._exit(os.EX_IOERR)  # in Python's own clean-up frameworks wait for the other ranks


def run_attempt(job: Job) -> None:
    """Run the trial, whose chief writes its end. One that went wrong exits with 1, and ends its other ranks."""
    os.environ.update(job.environment)
    settings = read(job.config.hydra.launcher, SlurmLauncherConf)
    attempt, world = job.attempt_folder, replace(world_of(os.environ), timeout_s=settings.rank_timeout_s)
    if world.size == 1:  # straight into the log: through srun the last lines may come after the end
        log = os.open(attempt.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1), os.dup2(log, 2)
    threading.Thread(target=_fence, args=[attempt, world], daemon=True).start()
    Notice([attempt] if world.is_chief else [], settings).listen()
    end = run_trial(job, job_start(), world)
    if world.size > 1:
        if went_wrong(end):
            _kill_step()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(went_wrong(end))  # in Python's own clean-up frameworks wait for ranks that are gone
    if went_wrong(end):
        raise SystemExit(1)


def world_of(environment: Mapping[str, str]) -> World:
    """The ranks of this job's step, seen by one. Raises RuntimeError if they do not fill one node after the other."""
    rank, size = int(environment["SLURM_PROCID"]), int(environment["SLURM_STEP_NUM_TASKS"])
    if size == 1:
        return World(addresses=(socket.gethostname(),))
    command = ["scontrol", "show", "hostnames", environment["SLURM_STEP_NODELIST"]]
    nodes = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    addresses = [nodes[one * len(nodes) // size] for one in range(size)]
    if addresses[rank] != environment["SLURMD_NODENAME"]:
        raise RuntimeError("hydra.launcher.srun_args: the ranks of a trial must fill one node after the other")
    return World(rank, size, int(environment["SLURM_LOCALID"]), len(nodes), tuple(addresses))


class Notice:
    """SLURM's notice that a job must end soon: its time is nearly over, or another job takes its place.

    The attempts in `folders` hear of it as they hear of every stop, through `Trial.should_stop()`.
    """

    def __init__(self, folders: list[AttemptFolder], settings: SlurmLauncherConf) -> None:
        self.folders = folders
        self.given = False
        self._due_s = settings.timeout_min * 60 - settings.signal_delay_s

    def is_due(self, early_s: float = 0.0) -> bool:
        """Whether the job's time is nearly over, whether or not SLURM has said so."""
        return time.time() - job_start() > self._due_s - early_s

    def listen(self) -> None:
        """From here on both signals are heard."""
        for number in (WARNING, signal.SIGTERM):
            signal.signal(number, self._hear)
        # SLURM signals every process of a job. What the trial starts inherits the block and so outlives the
        # warning; a thread takes it at once, while the main one may be deep in native code.
        signal.pthread_sigmask(signal.SIG_BLOCK, {WARNING})
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            self._hear(signal.sigwait({WARNING}), None)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.given = True
        reason = State.TIMED_OUT if number == WARNING and self.is_due(_EARLY_S) else State.LOST
        say(f"SLURM says that this job must end soon ({signal.Signals(number).name})")
        for folder in list(self.folders):
            try:
                if folder.stop_requested() is None:
                    folder.request_stop(reason)
            except OSError as error:  # the others must hear it, and the next signal too
                say(f"{folder.path} could not be told: {error}")


def job_start() -> float:
    """When the job began, in seconds since 1970; its batch script notes it."""
    return float(os.environ["SWEEPYARD_JOB_START"])


def say(words: str) -> None:
    """Print it, if the log takes it: it may lie on a full disk, for which nobody may end who has more to do."""
    with suppress(OSError):
        print(words, flush=True)


def _fence(attempt: AttemptFolder, world: World) -> None:
    """End this process when a newer attempt has started: when a node is lost its processes may live on. And when
    another rank has given up, for it may be this one that hangs, or when the chief has ended the attempt long ago.
    """
    why, looks_since_end = "", 0
    while not why:
        time.sleep(_FENCE_S if world.size == 1 else _RANKS_FENCE_S)
        with suppress(OSError):  # a shared disk may be away for a moment
            looks_since_end += attempt.is_over and not world.is_chief
            if attempt.successor.exists():
                why = f"attempt {attempt.successor.name} has taken over"
            elif looks_since_end > _LOOKS_SINCE_END:
                why = "the trial is over"
            elif any(rank.stem != str(world.rank) for rank in attempt.path.glob("ranks/*.json")):
                why = "another rank has given up"
    say(f"{why}; this process ends")
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_step() -> None:
    """Kill all ranks at once: srun, which sees this one fail, lets a stopped one live for KillWait, 30 s or more."""
    step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
    with suppress(OSError, subprocess.TimeoutExpired):  # without the command srun does it, later
        subprocess.run(["scancel", "--signal=KILL", step], timeout=10, check=False)
