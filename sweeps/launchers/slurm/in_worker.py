"""What runs inside a worker's SLURM job: trials, one after the other, as forks of a warm process.

A worker's folder, beside those of the other workers of the same resource class:

    ../queue/TOKEN       a trial that waits for any worker, as a cloudpickled Job             (driver)
    claimed/             there once this worker is ready to take trials                       (worker)
    claimed/TOKEN        one that it has taken, by renaming it, and that is not over          (worker)
    dismissed            "nothing more comes"                                                 (driver)
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import cloudpickle

from sweeps.errors import UserError
from sweeps.files import read_own
from sweeps.launchers.forks import Forks
from sweeps.launchers.slurm.in_job import Notice, say
from sweeps.launchers.slurm.request import request
from sweeps.settings import SlurmLauncherConf
from sweeps.trial.job import Job, Outcome, State

_TICK_S = 0.05
_LOOK_S = 0.5


def token_of(job: Job) -> str:
    """The name of a trial's file: in the queue's order, and known without reading any file."""
    return f"{job.number:07}.{job.attempt:04}.job"


def run_worker(folder: Path, settings: SlurmLauncherConf) -> None:
    """Run trials until nothing more comes, the time is nearly over, or as many have run as may."""
    Worker(folder, settings).run()


class Worker:
    def __init__(self, folder: Path, settings: SlurmLauncherConf) -> None:
        self._folder = folder
        self._claimed = folder / "claimed"
        self._settings = settings
        self._wanted = request(settings)
        self._forks = Forks(settings.preload, folder / "fork_server.log")
        # What SLURM gave the job, shared out evenly; SLURM itself confines it to its cores.
        self._gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        self._notice = Notice([], settings)
        self._running: dict[int, tuple[Job, list[str]]] = {}
        """The trials whose ends are not written down yet, and their GPUs."""
        self._ended: list[tuple[int, Outcome]] = []
        self._taken = 0

    def run(self) -> None:
        """Raises UserError if the job lacks GPUs, or the modules to preload cannot be imported."""
        if len(self._gpus) < (wanted := self._wanted.gpus * self._settings.trials_at_once):
            raise UserError(f"its trials need {wanted} GPUs, and SLURM gave it these: {self._gpus}")
        # SLURM tells every process of a job to end; the fork server must not, while its trials save their state.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._forks.open()
        self._notice.listen()
        busy_at = time.monotonic()
        while not self._is_done(time.monotonic() - busy_at):
            self._ended += self._forks.poll(_TICK_S if self._has_room() else _LOOK_S)
            for step in (self._write_ends, self._fence, self._take):
                try:
                    step()
                except OSError as error:  # a disk that is away for a moment ends no worker
                    say(f"tried again: {error}")
                    time.sleep(_LOOK_S)
            if self._running or not self._forks.ready:
                busy_at = time.monotonic()
        self._forks.close()

    def _may_take(self) -> bool:
        trials = self._settings.trials_per_job
        return not (self._notice.given or self._notice.is_due() or (trials is not None and self._taken >= trials))

    def _has_room(self) -> bool:
        return self._may_take() and len(self._running) < self._settings.trials_at_once

    def _is_done(self, idle_s: float) -> bool:
        if self._running:
            return False
        with suppress(OSError):
            if (self._folder / "dismissed").exists():
                return True
        return idle_s > self._settings.worker_idle_s or not self._may_take()

    def _take(self) -> None:
        """Claim the oldest trial in the queue, if there is one that no other worker is quicker to claim."""
        if not (self._forks.ready and self._has_room()):
            return
        if not self._taken:  # later it is gone if the driver has given this worker up
            self._claimed.mkdir(exist_ok=True)
        for waiting in sorted((self._folder.parent / "queue").glob("*.job")):
            claimed, number = self._claimed / waiting.name, waiting.name.partition(".")[0]
            if not number.isdecimal() or int(number) in self._running:  # an earlier attempt, which ends first
                continue
            try:
                waiting.rename(claimed)
            except FileNotFoundError:
                continue
            try:
                job: Job = cloudpickle.loads(read_own(claimed))
            except OSError:
                claimed.rename(waiting)
                raise
            except Exception as error:  # whatever unpickling half a file raises
                say(f"{waiting} cannot be read: {error!r}")
                claimed.unlink()
                continue
            self._taken += 1
            gpus = [self._gpus.pop(0) for _ in range(self._wanted.gpus)]
            self._running[job.number] = job, gpus
            self._notice.folders.append(job.attempt_folder)
            self._forks.start(job, [], gpus, self._wanted.cores or 1)
            return

    def _write_ends(self) -> None:
        while self._ended:
            number, end = self._ended[0]
            job, gpus = self._running[number]
            # One that was told to make room has no end yet: SLURM will say who told it.
            if job.attempt_folder.heard() is not State.LOST:
                job.attempt_folder.close(end)
                (self._claimed / token_of(job)).unlink(missing_ok=True)  # the driver may have given this worker up
            self._ended.pop(0)
            self._gpus += gpus
            self._notice.folders.remove(job.attempt_folder)
            del self._running[number]

    def _fence(self) -> None:
        """End the trials at which newer attempts have begun: the driver has given this worker up."""
        for number, (job, _) in self._running.items():
            if job.attempt_folder.successor.exists():
                self._forks.kill(number, State.LOST, "a newer attempt has taken over")
