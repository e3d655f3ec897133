"""What runs inside a SLURM job: one attempt at a trial, in each of the job's tasks (ranks)."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import cloudpickle

from sweeps.launchers.contract import TrialJob
from sweeps.launchers.slurm.ticket import OwnEnd
from sweeps.trial.folder import State, TrialFolder
from sweeps.trial.process import run_trial

WARNING = signal.SIGUSR1
"""Sent before the time limit. Not SIGUSR2, which submitit's own handler takes for a reason to requeue."""

_FENCE_S = 5.0
_EARLY_S = 65  # sbatch(1): the warning "may be sent up to 60 seconds earlier than specified"
_WENT_WRONG = {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY}


def run_attempt(payload: bytes, path: Sequence[str]) -> None:
    """Run the trial and write `exit.json`.

    Args:
        payload: a cloudpickled TrialJob.
        path: the driver's sys.path, along which the app's own modules are found.

    Raises:
        SystemExit: with 1 if the trial went wrong, so that SLURM sees a failed job and ends its other ranks.
    """
    sys.path[:] = path
    job: TrialJob = cloudpickle.loads(payload)
    os.environ.update(job.environment)
    attempt, rank = job.attempt, int(os.environ["SLURM_PROCID"])
    if rank > 0:
        _move_aside(job, rank)
    threading.Thread(target=_fence, args=[attempt], daemon=True).start()
    settings = job.config.hydra.launcher
    Notice([job.folder], settings.timeout_min * 60 - settings.signal_delay_s).listen()
    run_trial(job, job_start())
    result = job.folder.read_result()
    assert result is not None
    if rank == 0:
        OwnEnd(result.state, result.error).write(attempt)
    if result.state in _WENT_WRONG:
        raise SystemExit(1)


def _move_aside(job: TrialJob, rank: int) -> None:
    """Give a rank above 0 a folder of its own: each file of a trial has one writer, and that is rank 0."""
    hydra = job.config.hydra
    hydra.sweep.subdir = f"{hydra.sweep.subdir}/attempts/{job.attempt.name}/rank{rank}"
    job.attempt = job.attempt / f"rank{rank}"
    job.attempt.mkdir(exist_ok=True)
    job.folder = TrialFolder(job.attempt)
    job.job_return = None


class Notice:
    """SLURM's notice that a job must end soon: its time is nearly over, or another job takes its place.

    The trials in `folders` hear of it as they hear of every stop, through `Trial.should_stop()`.
    """

    def __init__(self, folders: Sequence[TrialFolder], warned_after_s: float) -> None:
        self.folders = list(folders)
        self.given = False
        self._warned_after_s = warned_after_s

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
        near = time.time() - job_start() > self._warned_after_s - _EARLY_S
        reason = State.TIMED_OUT if number == WARNING and near else State.LOST
        print(f"SLURM says that this job must end soon ({signal.Signals(number).name})", flush=True)
        for folder in self.folders:
            if folder.stop_requested() is None:
                folder.request_stop(reason)


def job_start() -> float:
    """When the job began, in seconds since 1970; its batch script notes it."""
    return float(os.environ["SWEEPYARD_JOB_START"])


def _fence(attempt: Path) -> None:
    """End this process when a newer attempt has started: when a node is lost its processes may live on."""
    newer = attempt.with_name(str(int(attempt.name) + 1))
    while not newer.exists():
        time.sleep(_FENCE_S)
    print(f"attempt {newer.name} has taken over; this one ends", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
