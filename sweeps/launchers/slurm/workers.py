"""Trials in warm SLURM jobs: each job is a worker that runs many, one after the other or several at once."""

import hashlib
import math
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.files import Unreadable, write_whole
from sweeps.launchers.slurm.base import Followed, SlurmBase
from sweeps.launchers.slurm.ends import end_of, ends_in_worker
from sweeps.launchers.slurm.in_worker import UNREAD, Plan, run_worker
from sweeps.launchers.slurm.queue import ENDED, JobInfo, squeue
from sweeps.launchers.slurm.request import parameters, request, times
from sweeps.launchers.slurm.submit import RefusedError
from sweeps.launchers.slurm.ticket import name_of
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import End, Job, Request, State

_AHEAD = 4  # trials a worker that wait in the queue, so that a worker never waits for the driver
_GONE_S = 90.0  # how long a renamed file may be in neither of two folders, as an NFS client sees them
_FRUITLESS = 2


@dataclass
class _Waiting:
    """A trial that is queued, or that a worker runs."""

    job: Job
    settings: SlurmLauncherConf
    pool: Path
    gone_since: float | None = None
    """Since when it is seen neither in the queue nor with a worker."""

    @property
    def token(self) -> str:
        """The name of its file: in the queue's order, and known without asking any file."""
        return f"{self.job.number:07}.{self.job.attempt:04}.job"

    @property
    def queued(self) -> Path:
        return self.pool / "queue" / self.token


class SlurmWorkers(SlurmBase):
    """The SLURM launcher with `trials_per_job` above one, as our loop sees it (`contract.TrialLauncher`).

    Trials that ask for the same resources form a class, which has a queue and workers of its own, its pool, under
    `folder`. Each trial that was submitted is queued, claimed by a worker that is followed, or over.
    """

    _TICK_S = 0.05
    _WAITS = "workers pending"

    def __init__(self, settings: SlurmLauncherConf, folder: Path) -> None:
        super().__init__(settings)
        self._folder = folder
        self._waiting: dict[int, _Waiting] = {}
        self._workers: dict[str, Followed] = {}
        self._fruitless: dict[Path, int] = {}
        """How many workers of a pool in a row ended before they took a trial."""

    def _jobs(self) -> Iterable[Followed]:
        return list(self._workers.values())

    def request(self, config: DictConfig) -> Request:
        settings = read(config.hydra.launcher, SlurmLauncherConf)
        if settings.nodes * settings.tasks_per_node > 1:
            raise UserError(
                "hydra.launcher.trials_per_job: a trial of several tasks or nodes needs a job of its own; "
                "set hydra.launcher.trials_per_job=1"
            )
        if settings.timeout_min * 60 <= settings.signal_delay_s:
            raise UserError(
                f"hydra.launcher.timeout_min={settings.timeout_min}: a worker takes no trial once it is warned of "
                f"its end, signal_delay_s={settings.signal_delay_s} before; raise timeout_min"
            )
        return request(settings)

    def open(self) -> None:
        """Find the workers that an earlier driver left."""
        super().open()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        left = [folder.parent for folder in self._folder.glob("*/[0-9]*/slurm")]
        listed = squeue() if left else {}
        for folder in left:
            known = listed.get(name_of(folder)) if isinstance(listed, dict) else JobInfo("", "")
            if (known and known.state not in ENDED) or any(folder.glob("claimed/*")):
                worker = self._follow(folder, None)
                self._workers[worker.name] = worker

    def has_room(self, ahead: bool = False) -> bool:
        if ahead and self._settings.detach:  # nobody will be there to queue the others
            return True
        of_each = self._settings.trials_at_once + (_AHEAD if ahead else 0)
        return len(self._waiting) < self._settings.array_parallelism * of_each

    def submit(self, job: Job) -> bool:
        return self.has_room(ahead=True) and self._written(job, lambda: self._queue(job))

    def _queue(self, job: Job) -> bool:
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        asked = repr((parameters(self._folder, settings), _plan(settings)))
        pool = self._folder / hashlib.blake2s(asked.encode(), digest_size=4).hexdigest()
        waiting = _Waiting(job, settings, pool)
        waiting.queued.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(waiting.queued, cloudpickle.dumps(job))
        self._waiting[job.number] = waiting
        return True

    def adopt(self, job: Job) -> bool:
        """False if the attempt is not queued, and no worker that may live has claimed it."""
        waiting = _Waiting(job, read(job.config.hydra.launcher, SlurmLauncherConf), self._folder)
        places = (f"*/queue/{waiting.token}", f"*/*/claimed/{waiting.token}*")
        found = next((file for place in places for file in self._folder.glob(place)), None)
        if found:  # its pool may be that of other settings than today's
            waiting.pool = self._folder / found.relative_to(self._folder).parts[0]
            self._waiting[job.number] = waiting
        return found is not None

    def cancel(self, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is None or self._withdraw(waiting):
            return
        for worker in self._workers.values():
            if (worker.folder / "claimed" / waiting.token).exists():
                write_whole(worker.folder / f"cancel-{waiting.token}", "")

    def withdraw(self) -> None:
        for number, waiting in list(self._waiting.items()):
            with self._concerning(f"trial {number}"):
                self._withdraw(waiting)

    def _withdraw(self, waiting: _Waiting, end: End | None = None) -> bool:
        """Take a trial out of the queue, unless a worker was quicker, and so end it."""
        try:
            waiting.queued.unlink()
        except FileNotFoundError:
            return False
        self._end(waiting, end or End(State.CANCELLED, "it was cancelled"))
        return True

    def close(self, keep: bool = False) -> None:
        with self._concerning("new workers"):
            while keep and not self._staff() and not self._busy:  # what stays needs its workers
                time.sleep(self._TICK_S)
        if not keep:
            killed = bool(self._waiting)
            self.withdraw()
            for worker in () if killed else self._workers.values():
                with self._concerning(worker.name):  # it ends by itself, and well
                    write_whole(worker.folder / "dismissed", "")
            self._cancel_all(only_pending=not killed)
        self._waiting.clear()
        self._workers.clear()
        self._watcher.stop()

    def _end(self, waiting: _Waiting, end: End) -> None:
        del self._waiting[waiting.job.number]
        self._over.append((waiting.job.number, end))

    def _look(self) -> None:
        if self._rounds.due(len(self._waiting) + len(self._workers)):
            with self._concerning("the queue of the workers"):
                self._look_at_trials()
            for worker in list(self._workers.values()):
                with self._concerning(worker.name):
                    self._look_at_worker(worker)
        with self._concerning("new workers"):
            self._staff()

    def _look_at_trials(self) -> None:
        pools = {waiting.pool for waiting in self._waiting.values()}
        seen = {file.name for pool in pools for file in (pool / "queue").glob("*.job")}
        claimed = {
            file.name for worker in self._workers.values() for file in worker.folder.glob("claimed/*.job*")
        }
        for number, waiting in list(self._waiting.items()):
            with self._concerning(f"trial {number}"):
                self._look_at(waiting, waiting.token in seen | claimed, waiting.token + UNREAD in claimed)

    def _look_at(self, waiting: _Waiting, placed: bool, unread: bool) -> None:
        try:
            end = waiting.job.attempt_folder.end()
        except Unreadable as error:
            if placed:
                raise
            end = End(State.LOST, str(error))
        if unread:
            end = end or End(State.LOST, f"{waiting.queued} could not be read by its worker")
        waiting.gone_since = None if placed else waiting.gone_since or time.monotonic()
        if waiting.gone_since and time.monotonic() - waiting.gone_since > _GONE_S:
            end = end or End(State.LOST, f"{waiting.queued} is gone, and no worker has it")
        if end:
            self._end(waiting, end)

    def _look_at_worker(self, worker: Followed) -> None:
        """When a worker is over, so are the trials that it ran."""
        info = self._info(worker)
        if info is None:
            return
        pool, fruitful = worker.folder.parent, any(worker.folder.glob("[cd]*/*"))  # claimed or done
        if fruitful:
            self._fruitless.pop(pool, None)
        if info.state not in ENDED:
            if info.state == "RUNNING":
                worker.cancel_at = None  # it was quicker than we
            return
        if not self._is_final(worker, info):
            return
        self._watcher.forget(worker.name)
        del self._workers[worker.name]
        end = end_of(info, worker.folder)
        ran = [one for one in self._waiting.values() if (worker.folder / "claimed" / one.token).exists()]
        for number, of_trial in ends_in_worker(info, end, [one.job for one in ran]):
            self._end(self._waiting[number], of_trial)
        shutil.rmtree(worker.folder / "claimed", ignore_errors=True)  # should it live on, it claims no more
        taken_back = worker.cancel_at is not None or self._never_was(worker, info)
        if not fruitful and not taken_back and any((pool / "queue").glob("*.job")):
            self._note_fruitless(pool, end)

    def _note_fruitless(self, pool: Path, end: End) -> None:
        """A worker never got as far as a trial. The next one may; not a third."""
        if end.state is State.LOST:  # by no fault of what it asked for
            self._wait(f"a worker never began: {end.error}")
            return
        self._fruitless[pool] = self._fruitless.get(pool, 0) + 1
        if self._fruitless[pool] >= _FRUITLESS:
            self._refuse(pool, f"its workers never began: {end.error}")

    def _refuse(self, pool: Path, why: str) -> None:
        for waiting in [one for one in self._waiting.values() if one.pool == pool]:
            self._withdraw(waiting, End(State.REFUSED, why))

    def _staff(self) -> bool:
        """Submit a worker that is missing, and take back those that are not needed and still wait.

        Returns whether there are as many as may be.
        """
        enough = True
        pools = {one.pool for one in self._waiting.values()} | {
            job.folder.parent for job in self._workers.values()
        }
        for pool in pools:
            trials = [one for one in self._waiting.values() if one.pool == pool]
            staff = [
                job for job in self._workers.values() if job.folder.parent == pool and job.cancel_at is None
            ]
            settings = trials[0].settings if trials else None
            needed = math.ceil(len(trials) / settings.trials_at_once) if settings else 0
            if settings and len(staff) < needed and len(self._workers) < self._settings.array_parallelism:
                enough = False
                if self._may_send():
                    self._hire(pool, settings)
            pending = [
                job for job in staff if (info := self._watcher.info(job.name)) and info.state == "PENDING"
            ]
            if len(staff) > needed and pending:
                self._cancel(pending[needed - len(staff) :], only_pending=True)
        return enough

    def _hire(self, pool: Path, settings: SlurmLauncherConf) -> None:
        folder = pool / str(1 + max((int(one.name) for one in pool.glob("[0-9]*")), default=0))
        folder.mkdir(mode=0o700, parents=True)
        try:
            worker = self._send(
                folder, times(settings, settings.trials_at_once), run_worker, folder, _plan(settings)
            )
        except RefusedError as error:
            self._refuse(pool, f"SLURM refused the job: {error}")
            worker = None
        if worker:
            self._workers[worker.name] = worker
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _plan(settings: SlurmLauncherConf) -> Plan:
    wanted = request(settings)
    return Plan(
        settings.trials_per_job,
        settings.trials_at_once,
        wanted.gpus,
        wanted.cores or 1,
        settings.timeout_min * 60 - settings.signal_delay_s,
        settings.worker_idle_s,
        settings.preload,
    )
