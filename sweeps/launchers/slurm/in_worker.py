"""What runs inside a worker's SLURM job: trials, one after the other, as forks of a warm process.

A worker's folder, beside those of the other workers of the same resource class:

    ../queue/TOKEN       a trial that waits for any worker, as a cloudpickled Job          (driver)
    claimed/TOKEN        the same, once this worker has taken it, by renaming it           (worker)
    claimed/TOKEN.unread the same, if it could not be read                                 (worker)
    done/TOKEN           the same, once the trial is over                                  (worker)
    cancel-TOKEN         "end this trial now"                                              (driver)
    dismissed            "nothing more comes"                                              (driver)
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import cloudpickle

from sweeps.errors import UserError
from sweeps.files import read_own
from sweeps.launchers.forks import Forks
from sweeps.launchers.slurm.in_job import Notice, job_start, warned_after_s
from sweeps.launchers.slurm.request import request
from sweeps.launchers.slurm.waiting import UNREAD
from sweeps.settings import SlurmLauncherConf
from sweeps.trial.job import End, Job, State

_TICK_S = 0.05
_LOOK_S = 0.5


def run_worker(folder: Path, settings: SlurmLauncherConf) -> None:
    """Run trials until nothing more comes, the time is nearly over, or as many have run as may.

    Raises:
        SystemExit: it cannot run any, and says why.
    """
    try:
        Worker(folder, settings).run()
    except UserError as error:
        raise SystemExit(str(error).replace("\n", "; ")) from error


class Worker:
    def __init__(self, folder: Path, settings: SlurmLauncherConf) -> None:
        self._folder = folder
        self._settings = settings
        self._wanted = request(settings)
        self._forks = Forks(settings.preload, folder / "fork_server.log")
        # What SLURM gave the job, shared out evenly; SLURM itself confines it to its cores.
        self._gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        self._owned: dict[int, list[str]] = {}
        self._notice = Notice([], warned_after_s(settings))
        self._running: dict[int, tuple[str, Job]] = {}
        self._ended: list[tuple[str, Job, End]] = []
        """Whose ends are not written down yet."""
        self._taken = 0
        self._look_at = 0.0

    def run(self) -> None:
        """Raises UserError if the job lacks GPUs, or the modules to preload cannot be imported."""
        if len(self._gpus) < (wanted := self._wanted.gpus * self._settings.trials_at_once):
            raise UserError(f"its trials need {wanted} GPUs, and SLURM gave it these: {self._gpus}")
        for name in ("claimed", "done"):
            (self._folder / name).mkdir(exist_ok=True)
        # SLURM tells every process of a job to end; the fork server must not, while its trials save their state.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._forks.open()
        self._notice.listen()
        busy_at = time.monotonic()
        while not self._is_done(time.monotonic() - busy_at):
            if self._may_take() and self._forks.ready and len(self._running) < self._settings.trials_at_once:
                self._despite_the_disk(self._take)
            for number, end in self._forks.poll(_TICK_S):
                self._end(number, end)
            self._despite_the_disk(self._write_ends)
            self._despite_the_disk(self._cancel)
            if self._running:
                busy_at = time.monotonic()
        self._forks.close()

    def _despite_the_disk(self, do: Callable[[], None]) -> None:
        """A disk that is away for a moment ends no worker: it is tried again with the next tick."""
        try:
            do()
        except OSError as error:
            print(f"tried again: {error}", flush=True)
            time.sleep(_LOOK_S)

    def _may_take(self) -> bool:
        trials = self._settings.trials_per_job
        late = time.time() - job_start() > warned_after_s(self._settings)
        return not (self._notice.given or late or (trials is not None and self._taken >= trials))

    def _is_done(self, idle_s: float) -> bool:
        if self._running or self._ended:
            return False
        with suppress(OSError):
            if (self._folder / "dismissed").exists():
                return True
        return idle_s > self._settings.worker_idle_s or not self._may_take()

    def _take(self) -> None:
        """Claim the oldest trial in the queue, if there is one that no other worker is quicker to claim."""
        for waiting in sorted((self._folder.parent / "queue").glob("*.job")):
            claimed = self._folder / "claimed" / waiting.name
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
                print(f"{waiting} cannot be read: {error!r}", flush=True)
                claimed.rename(claimed.with_name(waiting.name + UNREAD))
                continue
            self._taken += 1
            self._running[job.number] = waiting.name, job
            self._notice.folders.append(job.attempt_folder)
            self._owned[job.number] = [self._gpus.pop(0) for _ in range(self._wanted.gpus)]
            self._forks.start(job, [], self._owned[job.number], self._wanted.cores or 1)
            return

    def _end(self, number: int, end: End) -> None:
        token, job = self._running.pop(number)
        self._gpus += self._owned.pop(number)
        self._notice.folders.remove(job.attempt_folder)
        self._ended.append((token, job, end))

    def _write_ends(self) -> None:
        while self._ended:
            token, job, end = self._ended[0]
            # One that was told to make room has no end yet: SLURM will say who told it.
            if job.attempt_folder.heard() is not State.LOST:
                job.attempt_folder.close(end)
                with suppress(FileNotFoundError):  # the driver has given this worker up
                    (self._folder / "claimed" / token).rename(self._folder / "done" / token)
            self._ended.pop(0)

    def _cancel(self) -> None:
        """End the trials that the driver gave up here: it wrote so, or it began a newer attempt elsewhere."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        for number, (token, job) in self._running.items():
            if (self._folder / f"cancel-{token}").exists() or job.attempt_folder.successor.exists():
                self._forks.kill(number, State.CANCELLED, "it was cancelled")
