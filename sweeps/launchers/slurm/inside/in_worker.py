"""The process inside a worker's SLURM job: trials, one after the other, as forks of a warm process.

A worker's folder, beside the folders of the other workers of its pool:

    ../queue/TOKEN       a trial that waits for any worker, as a pickled SentJob  (driver)
    claimed/             created when this worker is ready for trials  (worker)
    claimed/TOKEN        a trial that this worker claimed by a rename, and that is not over
                         (worker)
    dismissed            the request to end when idle  (driver)
"""

import os
import signal
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cloudpickle

from sweeps.base.errors import UserError
from sweeps.base.files import read_own
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.local.forks import Forks
from sweeps.launchers.local.gpus import Gpus
from sweeps.launchers.slurm.inside import mps
from sweeps.launchers.slurm.inside.in_job import Notice, print_safely
from sweeps.launchers.slurm.queue import token_of
from sweeps.launchers.slurm.script.request import request
from sweeps.trial.job import Outcome, State
from sweeps.trial.machine.gpus import fitting, names_in
from sweeps.trial.run.sent_job import SentJob
from sweeps.trial.run.staging import staging

_TICK_S = 0.05
_BUSY_TICK_S = 0.5


def run_worker(folder: Path, settings: SlurmLauncherConf, typical_s: float = 0.0) -> None:
    """Run trials until the worker is dismissed, idle too long, near its time limit, or at its
    number of trials.

    `typical_s` is how long trials took, as measured by the driver.
    """
    with staging(settings.stage or []):
        Worker(folder, settings, typical_s).run()


class Worker:
    """Claims trials from the queue and runs them."""

    def __init__(self, folder: Path, settings: SlurmLauncherConf, typical_s: float = 0.0) -> None:
        self._folder = folder
        self._claimed = folder / "claimed"
        self._settings = settings
        self._request = request(settings)
        self._forks = Forks(settings.preload, folder / "fork_server.log")
        # Only the GPUs are divided among trials, because SLURM confines the job to its cores.
        self._gpus = Gpus(names_in(os.environ.get("CUDA_VISIBLE_DEVICES", "")))
        # variables of the trials on each shared GPU
        self._mps: Mapping[str, Mapping[str, str]] = {}
        self._notice = Notice([], settings)
        # trials without a written outcome, and their GPUs
        self._running: dict[int, tuple[SentJob, list[str]]] = {}
        self._ended: list[tuple[int, Outcome]] = []
        self._claim_count = 0
        self._peak = 0.0  # largest part of a shared GPU's memory that a trial used
        self._typical_s = typical_s
        self._seconds: list[float] = []  # durations of the trials that ended here

    def run(self) -> None:
        """Run trials until done. Raises UserError if the job lacks GPUs or a preloaded module
        cannot be imported."""
        required = round(self._request.gpus * self._settings.slots)
        if len(self._gpus) < required:
            raise UserError(
                f"the trials need {required} GPUs, and SLURM allocated {list(self._gpus)}"
            )
        with mps.serving(self._gpus if self._settings.trials_per_gpu > 1 else ()) as self._mps:
            self._run()

    def _run(self) -> None:
        # Ignored also by the fork server, because its trials save their state after SLURM's
        # SIGTERM.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._forks.open()
        self._notice.listen()
        busy_at = time.monotonic()
        while not self._is_done(time.monotonic() - busy_at):
            self._ended += self._forks.poll(_TICK_S if self._has_room() else _BUSY_TICK_S)
            for step in (self._write_ends, self._fence, self._claim):
                try:
                    step()
                except OSError as error:  # because a disk may be away for a moment
                    print_safely(f"retrying: {error}")
                    time.sleep(_BUSY_TICK_S)
            if self._running or not self._forks.ready:
                busy_at = time.monotonic()
        self._forks.close()

    def _may_claim(self) -> bool:
        if self._claim_count == 0:
            # Any trial may be the first, because a worker that runs none would be replaced by an
            # equal worker.
            needed_s = 0.0
        elif self._claim_count == self._settings.trials_per_job:
            return False
        else:
            needed_s = statistics.median(self._seconds or [self._typical_s])
        return not (self._notice.was_received or self._notice.is_due(needed_s))

    def _has_room(self) -> bool:
        return self._may_claim() and len(self._running) < self._settings.slots

    def _is_done(self, idle_s: float) -> bool:
        if self._running:
            return False
        with suppress(OSError):
            if (self._folder / "dismissed").exists():
                return True
        return idle_s > self._settings.worker_idle_s or not self._may_claim()

    def _claim(self) -> None:
        """Claim and start a trial if there is room, on a shared GPU by the memory of the trials
        that have ended."""
        if not (self._forks.ready and self._has_room()):
            return
        sharers = self._settings.trials_per_gpu
        part = self._request.gpus if sharers == 1 else 1 / fitting(sharers, self._peak)
        gpus = self._gpus.take(part)
        if gpus is None:
            return
        job = None
        try:
            job = self._take_oldest()
        finally:
            if job is None:
                self._gpus.release(gpus, part)
        if job:
            self._start(replace(job, request=replace(job.request, gpus=part)), gpus)

    def _take_oldest(self) -> SentJob | None:
        """Take the oldest trial in the queue that no other worker takes first; return None if the
        queue is empty."""
        # only once, because the driver deletes the folder of a lost worker
        if not self._claim_count:
            self._claimed.mkdir(exist_ok=True)
        for waiting in sorted((self._folder.parent / "queue").glob("*.job")):
            claimed = self._claimed / waiting.name
            number = waiting.name.partition(".")[0]
            # because its earlier attempt must end first
            if not number.isdecimal() or int(number) in self._running:
                continue
            try:
                waiting.rename(claimed)
            except FileNotFoundError:
                continue
            try:
                job: SentJob = cloudpickle.loads(read_own(claimed))
            except OSError:
                claimed.rename(waiting)
                raise
            except Exception as error:  # because a truncated pickle may raise anything
                print_safely(f"{waiting} cannot be read: {error!r}")
                claimed.unlink()
                continue
            return job
        return None

    def _start(self, job: SentJob, gpus: list[str]) -> None:
        self._claim_count += 1
        self._running[job.number] = job, gpus
        self._notice.folders.append(job.attempt_folder)
        served = self._mps.get("".join(gpus), {})
        visible = served.get("CUDA_VISIBLE_DEVICES", ",".join(gpus))
        served_job = replace(job, environment={**job.environment, **served})
        self._forks.start(served_job, [], [visible], self._request.cores or 1)

    def _write_ends(self) -> None:
        while self._ended:
            number, end = self._ended[0]
            job, gpus = self._running[number]
            # The driver writes the outcome of a preempted trial, because only SLURM knows the
            # cause.
            if job.attempt_folder.stop_reason() is not State.LOST:
                written = job.attempt_folder.close(end)
                self._seconds.append(written.duration_s)
                self._peak = max(self._peak, written.used.get("gpu_memory", 0.0))
                # gone if the driver considers the worker lost
                claim = self._claimed / token_of(job.number, job.attempt)
                claim.unlink(missing_ok=True)
            self._ended.pop(0)
            self._gpus.release(gpus, job.request.gpus)
            self._notice.folders.remove(job.attempt_folder)
            del self._running[number]

    def _fence(self) -> None:
        """Kill trials with newer attempts, because the driver considers this worker lost."""
        for number, (job, _) in self._running.items():
            if job.attempt_folder.successor.exists():
                self._forks.kill(number, Outcome(State.LOST, "a newer attempt has started"))
