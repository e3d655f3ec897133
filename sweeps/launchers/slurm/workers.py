"""Trials in warm SLURM jobs: each job is a worker that runs many, one after the other or several at once."""

import hashlib
import logging
import math
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.launchers.contract import Exit, Rounds, TrialJob
from sweeps.launchers.slurm.ends import end_of
from sweeps.launchers.slurm.in_worker import Plan, run_worker
from sweeps.launchers.slurm.jobs import BUSY_PAUSE_S, check_commands
from sweeps.launchers.slurm.jobs import submit as slurm_job
from sweeps.launchers.slurm.queue import ENDED, Watcher, cancel
from sweeps.launchers.slurm.ticket import OwnEnd, Ticket
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.folder import State

log = logging.getLogger(__name__)

_TICK_S = 0.05
_AHEAD = 4  # trials a worker that wait in the queue, so that a worker never waits for the driver
_FILES_LATE_S = 5.0


@dataclass
class _Waiting:
    """A trial that is queued, or that a worker runs. `token` is the name of its file."""

    job: TrialJob
    token: str
    pool: Path
    settings: SlurmLauncherConf


@dataclass
class _Worker:
    folder: Path
    ticket: Ticket
    ended_at: float | None = None


class SlurmWorkers:
    """The SLURM launcher with `trials_per_job` above one, as our loop sees it (`contract.TrialLauncher`).

    Trials that ask for the same resources form a class, which has a queue and workers of its own under `folder`.
    """

    def __init__(self, settings: SlurmLauncherConf, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._watcher = Watcher(settings.poll_s)
        self._waiting: dict[int, _Waiting] = {}
        self._workers: dict[str, _Worker] = {}
        self._over: list[Exit] = []
        self._not_before = 0.0
        self._rounds = Rounds()
        self._busy = ""

    def check(self, config: DictConfig) -> None:
        settings = read(config.hydra.launcher, SlurmLauncherConf)
        if settings.nodes * settings.tasks_per_node > 1:
            raise UserError(
                "hydra.launcher.trials_per_job: a trial of several tasks or nodes needs a job of its own; "
                "set hydra.launcher.trials_per_job=1"
            )

    def open(self) -> None:
        """Find the workers that an earlier driver left."""
        check_commands()
        for note in self._folder.glob("*/*/job.json"):
            ticket = Ticket.read(note.parent)
            if ticket:
                self._follow(_Worker(note.parent, ticket))

    def has_room(self, ahead: bool = False) -> bool:
        if ahead and self._settings.detach:  # nobody will be there to queue the others
            return True
        of_each = self._settings.trials_at_once + (_AHEAD if ahead else 0)
        return len(self._waiting) < self._settings.array_parallelism * of_each

    def submit(self, job: TrialJob) -> bool:
        if not self.has_room(ahead=True):
            return False
        waiting = self._place(job)
        (waiting.pool / "queue").mkdir(parents=True, exist_ok=True)
        aside = waiting.pool / waiting.token  # not in the queue, where a worker would take it half-written
        aside.write_bytes(cloudpickle.dumps(job))
        Ticket(waiting.token).write(job.attempt)
        aside.rename(waiting.pool / "queue" / waiting.token)
        self._waiting[job.number] = waiting
        return True

    def adopt(self, job: TrialJob) -> bool:
        """Take over the trial's newest attempt if it is queued, or a worker that may live has claimed it."""
        job.attempt = job.folder.attempts()[-1]
        ticket = Ticket.read(job.attempt)
        if ticket is None:
            return False
        waiting = replace(self._place(job), token=ticket.name)
        queued = (waiting.pool / "queue" / ticket.name).exists()
        if not queued and self._claimer(waiting) is None and OwnEnd.read(job.attempt) is None:
            return False
        self._waiting[job.number] = waiting
        return True

    def poll(self, timeout_s: float) -> list[Exit]:
        deadline = time.monotonic() + timeout_s
        while True:
            if self._rounds.due(len(self._waiting)):
                self._look_at_trials()
            for worker in list(self._workers.values()):
                self._look_at(worker)
            self._staff()
            if self._over or time.monotonic() >= deadline:
                break
            time.sleep(min(_TICK_S, timeout_s))
        over, self._over = self._over, []
        return over

    def _look_at_trials(self) -> None:
        for waiting in list(self._waiting.values()):
            own = OwnEnd.read(waiting.job.attempt)
            if own:
                self._end(waiting, own.state, own.error)

    def cancel(self, number: int) -> None:
        waiting = self._waiting[number]
        if self._withdraw(waiting):
            self._end(waiting, State.CANCELLED, "it was cancelled")
            return
        worker = self._claimer(waiting)
        if worker:
            (worker.folder / "cancel").mkdir(exist_ok=True)
            (worker.folder / "cancel" / waiting.token).touch()

    def withdraw(self) -> None:
        for waiting in list(self._waiting.values()):
            if self._withdraw(waiting):
                self._end(waiting, State.CANCELLED, "it was cancelled")

    def close(self, keep: bool = False) -> None:
        if not keep:
            self._cancel_workers()
        while keep and not self._staff() and not self._busy:  # what stays needs its workers
            time.sleep(_TICK_S)
        self._waiting.clear()
        self._workers.clear()
        self._watcher.stop()

    def _cancel_workers(self) -> None:
        for waiting in self._waiting.values():
            self._withdraw(waiting)
        ids = [worker.ticket.id for worker in self._workers.values() if worker.ticket.id]
        problem = cancel(ids) if ids else ""
        if problem:
            log.warning("these jobs may still run: %s\nTo cancel them: scancel %s", problem, " ".join(ids))

    def notes(self) -> list[str]:
        """What keeps workers waiting, for the terminal: one line for each reason."""
        infos = [self._watcher.info(name) for name in self._workers]
        reasons = Counter(info.reason for info in infos if info and info.state == "PENDING")
        lines = [f"{count} workers pending: {reason}" for reason, count in reasons.most_common()]
        return lines + [note for note in (self._busy, self._watcher.problem) if note]

    def _place(self, job: TrialJob) -> _Waiting:
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        asked = repr(slurm_job.request("", Path(), settings))
        pool = self._folder / hashlib.blake2s(asked.encode(), digest_size=4).hexdigest()
        return _Waiting(job, f"{time.time_ns()}-{job.number}.{job.attempt.name}.job", pool, settings)

    def _end(self, waiting: _Waiting, state: State, error: str) -> None:
        del self._waiting[waiting.job.number]
        self._over.append(Exit(waiting.job.number, state, error))

    def _withdraw(self, waiting: _Waiting) -> bool:
        """Take a trial out of the queue, unless a worker was quicker."""
        try:
            (waiting.pool / "queue" / waiting.token).unlink()
        except FileNotFoundError:
            return False
        return True

    def _claimer(self, waiting: _Waiting) -> _Worker | None:
        found = (w for w in self._workers.values() if (w.folder / "claimed" / waiting.token).exists())
        return next(found, None)

    def _follow(self, worker: _Worker) -> None:
        self._workers[worker.ticket.name] = worker
        self._watcher.watch(worker.ticket.name, worker.ticket.id)

    def _look_at(self, worker: _Worker) -> None:
        """When a worker is over, so are the trials that it ran."""
        info = self._watcher.info(worker.ticket.name)
        if info is None:
            return
        if info.state not in ENDED:
            if worker.ticket.id is None:
                slurm_job.finish_submission(worker.folder, info.id)
                worker.ticket = Ticket(worker.ticket.name, info.id)
            return
        worker.ended_at = worker.ended_at or time.monotonic()
        if info.state in {"COMPLETED", "FAILED"} and time.monotonic() - worker.ended_at < _FILES_LATE_S:
            return
        self._watcher.forget(worker.ticket.name)
        del self._workers[worker.ticket.name]
        claimed = {path.name for path in worker.folder.glob("claimed/*")}
        lost = [waiting for waiting in self._waiting.values() if waiting.token in claimed]
        if not claimed and info.state != "COMPLETED":  # it never got as far: the next would not either
            lost = [
                w for w in self._waiting.values() if w.pool == worker.folder.parent and self._withdraw(w)
            ][:1]
        for waiting in lost:
            self._end(waiting, *end_of(info.state, info.id, worker.folder / "log"))

    def _staff(self) -> bool:
        """Submit a worker that is missing, and take back those that are not needed and still wait.

        Returns whether there are as many as may be.
        """
        enough = True
        for pool in {waiting.pool for waiting in self._waiting.values()}:
            of_pool = [waiting for waiting in self._waiting.values() if waiting.pool == pool]
            staff = [worker for worker in self._workers.values() if worker.folder.parent == pool]
            needed = math.ceil(len(of_pool) / of_pool[0].settings.trials_at_once)
            if len(staff) < needed and len(self._workers) < self._settings.array_parallelism:
                enough = False
                self._hire(of_pool)
            pending = [w for w in staff if (i := self._watcher.info(w.ticket.name)) and i.state == "PENDING"]
            if len(staff) > needed and pending:
                excess = pending[needed - len(staff) :]
                cancel([worker.ticket.id for worker in excess if worker.ticket.id])
                for worker in excess:
                    self._watcher.forget(worker.ticket.name)
                    del self._workers[worker.ticket.name]
        return enough

    def _hire(self, of_pool: list[_Waiting]) -> None:
        """Submit one worker."""
        if time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + 60 / self._settings.max_submissions_per_min
        pool, settings, job = of_pool[0].pool, of_pool[0].settings, of_pool[0].job
        folder = pool / f"{time.time_ns()}"
        folder.mkdir(parents=True)
        name = f"{slurm_job.name_of(job).rsplit('-', 2)[0]}-worker-{pool.name}-{folder.name[-9:]}"
        Ticket(name).write(folder)
        plan = Plan(
            settings.trials_per_job,
            settings.trials_at_once,
            settings.gpus_per_node or 0,
            settings.cpus_per_task or 1,
            settings.timeout_min * 60 - settings.signal_delay_s,
            settings.worker_idle_s,
            settings.preload,
        )
        try:
            ticket = slurm_job.submit_call(
                Ticket(name), folder, _for_all(settings), run_worker, str(folder), list(sys.path), plan
            )
        except slurm_job.RefusedError as error:
            for waiting in of_pool:
                if self._withdraw(waiting):
                    self._end(waiting, State.FAILED, f"SLURM refused the job: {error}")
            return
        except slurm_job.BusyError as error:
            self._busy = f"SLURM takes no job now: {error}"
            self._not_before = time.monotonic() + BUSY_PAUSE_S
            return
        self._busy = ""
        self._follow(_Worker(folder, ticket))


def _for_all(settings: SlurmLauncherConf) -> SlurmLauncherConf:
    """The request of a worker: what its trials need side by side."""
    times = settings.trials_at_once
    return replace(
        settings,
        cpus_per_task=(settings.cpus_per_task or 1) * times,
        gpus_per_node=settings.gpus_per_node and settings.gpus_per_node * times,
        mem_gb=settings.mem_gb and settings.mem_gb * times,
    )
