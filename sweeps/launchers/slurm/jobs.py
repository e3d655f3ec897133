"""Trials as SLURM jobs: each attempt one job with the resources of its own trial."""

import logging
import shutil
import time
from collections import Counter, deque
from dataclasses import dataclass

from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.launchers.contract import Exit, Rounds, TrialJob
from sweeps.launchers.slurm.ends import end_of
from sweeps.launchers.slurm.jobs import submit as slurm_job
from sweeps.launchers.slurm.queue import ENDED, JobInfo, Watcher, cancel, squeue
from sweeps.launchers.slurm.ticket import OwnEnd, Ticket
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.folder import State, TrialFolder

log = logging.getLogger(__name__)

_TICK_S = 0.2
_CATCH_UP_S = 0.3  # the loop asks a few times a second: what it may submit in between is not lost
BUSY_PAUSE_S = 10.0
_CANCEL_AGAIN_S = 20.0
_FILES_LATE_S = 5.0  # how long a file of another node may take to show on a shared folder
_HELD_S = 60.0
_HELD = (
    "Held",
    "held",
    "BadConstraints",
    "NeverSatisfied",
    "PartitionDown",
    "PartitionInactive",
    "ReqNodeNotAvail",
)


@dataclass
class _Attempt:
    """An attempt whose job is queued or runs."""

    job: TrialJob
    name: str
    submitted: float
    ranks: int
    cancel_at: float | None = None
    ended_at: float | None = None
    withdrawn: bool = False
    warned: bool = False


class SlurmTrials:
    """The SLURM launcher, as our loop sees it (`sweeps.launchers.contract.TrialLauncher`)."""

    def __init__(self, settings: SlurmLauncherConf) -> None:
        self._settings = settings
        self._watcher = Watcher(settings.poll_s)
        self._attempts: dict[int, _Attempt] = {}
        self._over: deque[Exit] = deque()
        self._unsure: set[str] = set()
        self._not_before = 0.0
        self._rounds = Rounds()
        self._busy = ""

    def check(self, config: DictConfig) -> None:
        read(config.hydra.launcher, SlurmLauncherConf)

    def open(self) -> None:
        check_commands()

    def has_room(self, ahead: bool = False) -> bool:
        return len(self._attempts) < self._settings.array_parallelism

    def submit(self, job: TrialJob) -> bool:
        if not self.has_room() or time.monotonic() < self._not_before or not self._surely_absent(job):
            return False
        earliest = max(self._not_before, time.monotonic() - _CATCH_UP_S)
        self._not_before = earliest + 60 / self._settings.max_submissions_per_min
        try:
            ticket = slurm_job.submit(job, read(job.config.hydra.launcher, SlurmLauncherConf))
        except slurm_job.RefusedError as error:
            self._over.append(Exit(job.number, State.FAILED, f"SLURM refused the job: {error}"))
            return True
        except slurm_job.BusyError as error:
            self._busy = f"SLURM takes no job now: {error}"
            self._not_before = time.monotonic() + BUSY_PAUSE_S
            if error.unsure:
                self._unsure.add(slurm_job.name_of(job))
            return False
        self._busy = ""
        self._track(job, ticket)
        return True

    def adopt(self, job: TrialJob) -> bool:
        """Take over the trial's newest attempt, which an earlier driver submitted. False if it never did.

        `poll` then reports its Exit as for any other, also if it is over by now.
        """
        job.attempt = job.folder.attempts()[-1]
        ticket = Ticket.read(job.attempt)
        if ticket is None:
            return False
        if ticket.id is None and OwnEnd.read(job.attempt) is None:
            listed = squeue()
            if isinstance(listed, dict):
                if ticket.name not in listed:
                    return False
                ticket = Ticket(ticket.name, listed[ticket.name].id)
        self._track(job, ticket)
        return True

    def poll(self, timeout_s: float) -> list[Exit]:
        deadline = time.monotonic() + timeout_s
        while True:
            if self._rounds.due(len(self._attempts)):
                for attempt in list(self._attempts.values()):
                    self._look_at(attempt)
            if self._over or time.monotonic() >= deadline:
                break
            time.sleep(min(_TICK_S, timeout_s))
        over = list(self._over)
        self._over.clear()
        return over

    def cancel(self, number: int) -> None:
        attempt = self._attempts[number]
        attempt.cancel_at = time.monotonic() + _CANCEL_AGAIN_S
        job_id = self._id_of(attempt)
        problem = cancel([job_id]) if job_id else "its id is not known yet"
        if problem:
            log.warning("trial %d is not cancelled yet: %s", number, problem)

    def withdraw(self) -> None:
        for attempt in self._attempts.values():
            attempt.withdrawn = True
        ids = self._ids()
        problem = cancel(ids, pending_only=True) if ids else ""
        if problem:
            log.warning("jobs that have not begun may still do: %s", problem)

    def close(self, keep: bool = False) -> None:
        ids = [] if keep else self._ids()
        problem = cancel(ids) if ids else ""
        if problem:
            log.warning("these jobs may still run: %s\nTo cancel them: scancel %s", problem, " ".join(ids))
        self._attempts.clear()
        self._watcher.stop()

    def notes(self) -> list[str]:
        """What keeps trials waiting, for the terminal: one line for each reason."""
        infos = [self._watcher.info(attempt.name) for attempt in self._attempts.values()]
        reasons = Counter(info.reason for info in infos if info and info.state == "PENDING")
        lines = [f"{count} pending: {reason}" for reason, count in reasons.most_common()]
        return lines + [note for note in (self._busy, self._watcher.problem) if note]

    def _track(self, job: TrialJob, ticket: Ticket) -> None:
        ranks = job.config.hydra.launcher.nodes * job.config.hydra.launcher.tasks_per_node
        self._attempts[job.number] = _Attempt(job, ticket.name, time.monotonic(), ranks)
        self._watcher.watch(ticket.name, ticket.id)
        if ticket.id:
            slurm_job.finish_submission(job.attempt, ticket.id)

    def _surely_absent(self, job: TrialJob) -> bool:
        """False while an earlier sbatch, whose answer never came, may have submitted the job after all."""
        name = slurm_job.name_of(job)
        if name not in self._unsure:
            return True
        listed = squeue()
        if isinstance(listed, str):
            self._not_before = time.monotonic() + BUSY_PAUSE_S
            return False
        self._unsure.remove(name)
        if name in listed:
            cancel([listed[name].id])  # it lacks what submitit writes after sbatch
        return True

    def _ids(self) -> list[str]:
        return [job_id for attempt in self._attempts.values() if (job_id := self._id_of(attempt))]

    def _id_of(self, attempt: _Attempt) -> str | None:
        ticket = Ticket.read(attempt.job.attempt)
        info = self._watcher.info(attempt.name)
        return (ticket and ticket.id) or (info.id if info else None)

    def _look_at(self, attempt: _Attempt) -> None:
        own = OwnEnd.read(attempt.job.attempt)
        info = self._watcher.info(attempt.name)
        ended = info is not None and info.state in ENDED
        if own and (ended or attempt.ranks == 1):
            self._end(attempt, own.state, own.error)
        elif info and ended:
            self._end_without_word(attempt, info)
        elif info:
            self._look_after(attempt, info)

    def _look_after(self, attempt: _Attempt, info: JobInfo) -> None:
        """A job that lives."""
        ticket = Ticket.read(attempt.job.attempt)
        if ticket and ticket.id is None:
            slurm_job.finish_submission(attempt.job.attempt, info.id)
            self._watcher.watch(attempt.name, info.id)
        now = time.monotonic()
        if attempt.cancel_at and now > attempt.cancel_at:
            self.cancel(attempt.job.number)
        held = info.state == "PENDING" and any(word in info.reason for word in _HELD)
        if held and not attempt.warned and now - attempt.submitted > _HELD_S:
            attempt.warned = True
            log.warning(
                "trial %d waits and will not start by itself (SLURM job %s: %s). "
                "Release it: scontrol release %s, or give it up: scancel %s",
                *(attempt.job.number, info.id, info.reason, info.id, info.id),
            )

    def _end_without_word(self, attempt: _Attempt, info: JobInfo) -> None:
        """A job that is over and left no `exit.json`. After an end of its own the file may only be late."""
        attempt.ended_at = attempt.ended_at or time.monotonic()
        list(attempt.job.attempt.iterdir())  # makes an NFS client look again
        late = time.monotonic() - attempt.ended_at > _FILES_LATE_S
        if info.state not in {"COMPLETED", "FAILED"} or late:
            self._end(attempt, *end_of(info.state, info.id, attempt.job.attempt / "log"))

    def _end(self, attempt: _Attempt, state: State, error: str) -> None:
        number = attempt.job.number
        if attempt.cancel_at or (attempt.withdrawn and state is State.LOST):
            state, error = State.CANCELLED, "it was cancelled"
        elif state is State.FAILED:
            error = _error_of_ranks(attempt.job) or error
        self._watcher.forget(attempt.name)
        del self._attempts[number]
        self._over.append(Exit(number, state, error))


def check_commands() -> None:
    """Raises UserError where SLURM's commands are missing."""
    for command in ("sbatch", "squeue", "scancel"):
        if shutil.which(command) is None:
            raise UserError(
                f"hydra/launcher=slurm: there is no {command} on this machine. "
                "Start the sweep on a login node of the cluster, or run it here: hydra/launcher=local"
            )


def _error_of_ranks(job: TrialJob) -> str:
    """Why another rank than 0 failed, and so the job."""
    for folder in sorted(job.attempt.glob("rank*")):
        result = TrialFolder(folder).read_result()
        if result and result.error:
            return f"{folder.name}: {result.error}"
    return ""
