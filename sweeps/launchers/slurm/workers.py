"""Trials in warm SLURM jobs: each job is a worker that runs many, one after the other or several at once."""

import hashlib
import math
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.files import CorruptFile, write_whole
from sweeps.launchers.slurm.base import SlurmBase
from sweeps.launchers.slurm.ends import end_of, ends_in_worker
from sweeps.launchers.slurm.in_worker import run_worker, token_of
from sweeps.launchers.slurm.queue import ENDED, Followed, SlurmError, name_of, noted_id, squeue
from sweeps.launchers.slurm.request import parameters, request
from sweeps.launchers.slurm.submit import RefusedError
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial import copies
from sweeps.trial.job import Job, Outcome, Request, State

_AHEAD = 4  # trials a worker that wait in the queue, so that a worker never waits for the driver
_FRUITLESS = 2
_GONE_S = 90.0  # how long a renamed file may be in neither of two folders, as an NFS client sees them


@dataclass
class Waiting:
    """A trial that is queued, or that a worker runs."""

    job: Job
    pool: Path  # the folder of the queue and the workers that trials share which ask for the same resources
    gone_since: float | None = None  # since when it is seen neither in the queue nor with a worker

    @property
    def file(self) -> Path:
        return self.pool / "queue" / token_of(self.job)

    def end(self, seen: Collection[str]) -> Outcome | None:
        """How it ended, if it did; `seen` are the names of the files in the queue and in the hands of the workers.

        Raises CorruptFile if its end is damaged, and it runs: it will write it again.
        """
        placed, now = self.file.name in seen, time.monotonic()
        self.gone_since = None if placed else self.gone_since or now
        try:
            end = self.job.attempt_folder.end()
        except CorruptFile as error:
            if placed:
                raise
            return Outcome(State.LOST, str(error))
        if not end and self.gone_since and now - self.gone_since > _GONE_S:
            end = Outcome(
                State.LOST, f"{self.file} is gone, and no worker has it: deleted, or damaged (see their logs)"
            )
        return end


class SlurmWorkers(SlurmBase):
    """The SLURM launcher with `trials_per_job` above one, as our loop sees it (`contract.TrialLauncher`).

    Trials that ask for the same resources have a queue and workers of their own, a pool, under `folder`. Each trial
    that was submitted is queued, claimed by a worker that is followed, or over.
    """

    _TICK_S = 0.05

    def __init__(self, settings: SlurmLauncherConf, folder: Path) -> None:
        super().__init__(settings)
        self._folder = folder
        self._waiting: dict[int, Waiting] = {}
        self._fruitless: Counter[Path] = Counter()  # how many workers of a pool in a row ended before they took a trial

    def request(self, config: DictConfig) -> Request:
        settings = read(config.hydra.launcher, SlurmLauncherConf)
        if settings.nodes * settings.tasks_per_node > 1:
            raise UserError("a trial of several tasks or nodes needs a job of its own: hydra.launcher.trials_per_job=1")
        if settings.timeout_min * 60 <= settings.signal_delay_s:
            late = f"signal_delay_s={settings.signal_delay_s}"
            raise UserError(f"a worker starts no trial in its last {late} seconds: raise hydra.launcher.timeout_min")
        return request(settings)

    def open(self) -> None:
        """Find the workers that an earlier driver left."""
        super().open()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        living = None  # unknown
        with suppress(SlurmError):
            living = {name for name, info in squeue().items() if info.state not in ENDED}
        for folder in (file.parent for file in self._folder.glob("*/[0-9]*/slurm")):
            if living is None or name_of(folder) in living or any(folder.glob("claimed/*")):
                self._follow(folder, noted_id(folder))

    def has_room(self, ahead: bool = False) -> bool:
        if ahead and self._settings.detach:  # nobody will be there to queue the others
            return True
        of_each = self._settings.trials_at_once + (_AHEAD if ahead else 0)
        return len(self._waiting) < self._settings.array_parallelism * of_each

    def submit(self, job: Job) -> bool:
        return self.has_room(ahead=True) and self._written(job, lambda: self._queue(job))

    def _queue(self, job: Job) -> bool:
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        asked = repr((parameters(self._folder, settings), settings.preload, copies.in_use()))
        waiting = Waiting(job, self._folder / hashlib.blake2s(asked.encode(), digest_size=4).hexdigest())
        waiting.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(waiting.file, cloudpickle.dumps(job), sync=False)
        self._waiting[job.number] = waiting
        return True

    def adopt(self, job: Job) -> bool:
        """False if the attempt is not queued, perhaps under other settings, and no worker that may live has it."""
        places = (f"*/queue/{token_of(job)}", f"*/*/claimed/{token_of(job)}")  # in the order in which it moves
        found = next((file for place in places for file in self._folder.glob(place)), None)
        if found:
            self._waiting[job.number] = Waiting(job, self._folder / found.relative_to(self._folder).parts[0])
        return found is not None

    def cancel_pending(self) -> None:
        self._take_out(self._waiting.values(), Outcome(State.CANCELLED, "it was cancelled"))

    def _take_out(self, trials: Iterable[Waiting], end: Outcome) -> None:
        """End those trials that are still queued."""
        for waiting in list(trials):
            with self._concerning(f"trial {waiting.job.number}"), suppress(FileNotFoundError):  # a worker was quicker
                waiting.file.unlink()
                self._end(waiting, end)

    def close(self, keep: bool = False) -> None:
        with self._concerning("new workers"):
            while keep and not self._staff() and not self._busy:  # what stays needs its workers
                time.sleep(self._TICK_S)
        if not keep:
            killed = bool(self._waiting)
            self.cancel_pending()
            for worker in [] if killed else self._jobs.values():
                with self._concerning(worker.name):  # it ends by itself, and well
                    write_whole(worker.folder / "dismissed", "", sync=False)
            self._cancel(list(self._jobs.values()), only_pending=not killed)
        self._jobs.clear()
        self._waiting.clear()
        self._watcher.stop()

    def _end(self, waiting: Waiting, end: Outcome) -> None:
        del self._waiting[waiting.job.number]
        self._report(waiting.job.number, end)

    def _look(self) -> None:
        if self._rounds.due(len(self._waiting) + len(self._jobs)):
            with self._concerning("the queue of the workers"):
                self._look_at_trials()
            for worker in list(self._jobs.values()):
                with self._concerning(worker.name):
                    self._look_at_worker(worker)
        with self._concerning("new workers"):
            self._staff()

    def _look_at_trials(self) -> None:
        pools = {waiting.pool for waiting in self._waiting.values()}
        seen = {file.name for pool in pools for file in pool.glob("queue/*.job")}
        seen |= {file.name for worker in self._jobs.values() for file in worker.folder.glob("claimed/*")}
        for number, waiting in list(self._waiting.items()):
            with self._concerning(f"trial {number}"):
                if end := waiting.end(seen):
                    self._end(waiting, end)

    def _look_at_worker(self, worker: Followed) -> None:
        """When a worker is over, so are the trials that it ran."""
        info, pool, claimed = self._look_after(worker), worker.folder.parent, worker.folder / "claimed"
        if fruitful := claimed.exists():
            self._fruitless.pop(pool, None)
        if worker.info and worker.info.state == "RUNNING":
            worker.cancel_at = None  # it was quicker than we
        if info is None:
            return
        end = end_of(info, worker.folder)
        ran = [one.job for one in self._waiting.values() if (claimed / one.file.name).exists()]
        for number, of_trial in ends_in_worker(info, end, ran):
            self._end(self._waiting[number], of_trial)
        write_whole(worker.folder / "dismissed", "", sync=False)  # should it live on, it claims no more
        shutil.rmtree(claimed, ignore_errors=True)
        del self._jobs[worker.name]
        if fruitful or worker.cancel_at is not None or worker.never_was or not any(pool.glob("queue/*.job")):
            return
        if end.state is State.LOST:  # by no fault of what it asked for
            self._wait(f"a worker never began: {end.error}")
            return
        self._fruitless[pool] += 1  # the next one may get as far as a trial; not a third
        if self._fruitless[pool] >= _FRUITLESS:
            self._refuse(pool, f"its workers never began: {end.error}")

    def _refuse(self, pool: Path, why: str) -> None:
        self._take_out([one for one in self._waiting.values() if one.pool == pool], Outcome(State.REFUSED, why))

    def _staff(self) -> bool:
        """Submit a worker that is missing, and take back those that are not needed and still wait.

        Returns whether there are as many as may be.
        """
        enough = True
        for pool in {one.pool for one in self._waiting.values()} | {job.folder.parent for job in self._jobs.values()}:
            trials = [one.job for one in self._waiting.values() if one.pool == pool]
            staff = [job for job in self._jobs.values() if job.folder.parent == pool and job.cancel_at is None]
            surplus = len(staff) - math.ceil(len(trials) / self._settings.trials_at_once)
            pending = [job for job in staff if job.info and job.info.state == "PENDING"]
            if surplus > 0 and pending:
                self._cancel(pending[-surplus:], only_pending=True)
            elif surplus < 0 and len(self._jobs) < self._settings.array_parallelism:
                enough = False
                if self._may_send():
                    self._hire(pool, read(trials[0].config.hydra.launcher, SlurmLauncherConf))
        return enough

    def _hire(self, pool: Path, settings: SlurmLauncherConf) -> None:
        folder = pool / str(1 + max((int(one.name) for one in pool.glob("*") if one.name.isdecimal()), default=0))
        folder.mkdir(mode=0o700, parents=True)
        asked = parameters(folder, settings, settings.trials_at_once)
        try:
            if self._send(folder, asked, run_worker, folder, settings):
                return
        except RefusedError as error:
            self._refuse(pool, f"SLURM refused the job: {error}")
        shutil.rmtree(folder, ignore_errors=True)
