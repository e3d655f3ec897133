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
from sweeps.launchers.slurm_files import Ending
from sweeps.trial_folder import State, TrialFolder
from sweeps.trial_process import run_trial

WARNING = signal.SIGUSR1
"""Sent before the time limit. Not SIGUSR2, which submitit's own handler takes for a reason to requeue."""

_FENCE_S = 5.0
_EARLY_S = 65  # sbatch(1): the warning "may be sent up to 60 seconds earlier than specified"
_WENT_WRONG = {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY}


def run_attempt(payload: bytes, path: Sequence[str]) -> None:
    """Run the trial and write `ended.json`.

    Args:
        payload: a cloudpickled TrialJob.
        path: the driver's sys.path, along which the app's own modules are found.

    Raises:
        SystemExit: with 1 if the trial went wrong, so that SLURM calls the job failed and ends its other tasks.
    """
    sys.path[:] = path
    job: TrialJob = cloudpickle.loads(payload)  # noqa: S301 - submitit unpickled our caller from the same file
    os.environ.update(job.environment)
    rank = int(os.environ["SLURM_PROCID"])
    if rank > 0:
        _move_aside(job, rank)
    notice = Notice([job])
    notice.listen()
    threading.Thread(target=_fence, args=[job.attempt], daemon=True).start()
    run_trial(job, float(os.environ["SWEEPYARD_JOB_START"]))
    ending = settle(job, notice)
    if rank == 0:
        ending.write(job.attempt)
    if ending.state in _WENT_WRONG:
        raise SystemExit(1)


def _move_aside(job: TrialJob, rank: int) -> None:
    """Give a rank above 0 a folder of its own: each file of a trial has one writer, and that is rank 0."""
    launch = job.config.hydra
    launch.sweep.subdir = f"{launch.sweep.subdir}/attempts/{job.attempt.name}/rank{rank}"
    job.folder = TrialFolder(job.attempt / f"rank{rank}")
    job.folder.path.mkdir(exist_ok=True)
    job.job_return = None


class Notice:
    """SLURM's notice that a job must end soon: its time is nearly over, or another job takes its place.

    The trials hear of it as they hear of every stop, `Trial.should_stop()`.
    """

    def __init__(self, jobs: Sequence[TrialJob]) -> None:
        self.jobs = list(jobs)
        self.given: signal.Signals | None = None

    def listen(self) -> None:
        """From here on both signals are heard. A stop that an earlier attempt was given no longer counts."""
        for job in self.jobs:
            if job.folder.stop_requested() is State.TIMED_OUT:
                (job.folder.path / "stop").unlink()
        for number in (WARNING, signal.SIGTERM):
            signal.signal(number, self._hear)
        # SLURM signals every process of a job. Blocked, as what the trial starts inherits it, the warning ends none of
        # them; a thread takes it at once, while the main one may be deep in native code.
        signal.pthread_sigmask(signal.SIG_BLOCK, {WARNING})
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            self._hear(signal.sigwait({WARNING}), None)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.given = self.given or signal.Signals(number)
        for job in self.jobs:
            if job.folder.stop_requested() is None:
                job.folder.request_stop(State.TIMED_OUT)


def settle(job: TrialJob, notice: Notice) -> Ending:
    """How the attempt ended. A trial that stopped because of a notice has no result yet: it goes on elsewhere."""
    result = job.folder.read_result()
    assert result is not None  # run_trial writes it, whatever the task did
    if result.state is not State.TIMED_OUT or notice.given is None:
        return Ending(result.state, result.error)
    for name in ("result.json", "stop"):
        (job.folder.path / name).unlink()
    settings = job.config.hydra.launcher
    elapsed_s = time.time() - float(os.environ["SWEEPYARD_JOB_START"])
    if notice.given is WARNING and elapsed_s > settings.timeout_min * 60 - settings.signal_delay_s - _EARLY_S:
        return Ending(State.TIMED_OUT, f"its time limit of {settings.timeout_min} min was near")
    return Ending(
        State.LOST, f"SLURM told it to end ({notice.given.name}): preempted, or cancelled from outside"
    )


def _fence(attempt: Path) -> None:
    """End this process when a newer attempt has started: a lost node's processes may live on, and write, beside it."""
    newer = attempt.with_name(str(int(attempt.name) + 1))
    while not newer.exists():
        time.sleep(_FENCE_S)
    print(f"attempt {newer.name} has taken over; this one ends", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
