"""What the two SLURM launchers share: they follow SLURM jobs, in which their trials run, until these are over."""

import errno
import logging
import shutil
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.files import Rounds, Unreadable
from sweeps.launchers.contract import TrialLauncher
from sweeps.launchers.slurm.queue import ENDED, GONE, JobInfo, Watcher, cancel, squeue
from sweeps.launchers.slurm.request import request
from sweeps.launchers.slurm.submit import BusyError, submit
from sweeps.launchers.slurm.ticket import name_of, note_id, noted_id
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import End, Job, Request, State

log = logging.getLogger(__name__)

BUSY_PAUSE_S = 10.0
_CATCH_UP_S = 0.3  # the loop asks a few times a second: what it may submit in between is not lost
_CANCEL_AGAIN_S = 20.0
_FILES_LATE_S = 5.0  # how long a file of another node may take to show on a shared folder
_WHO_S = 15.0  # how long the accounting may take to tell who cancelled a job
_STUCK_S = 60.0
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


@dataclass
class Followed:
    """A SLURM job of ours that is queued, or runs, or may."""

    folder: Path
    name: str
    id: str | None = None
    """As sbatch or squeue said it."""
    sure: bool = True
    """False if sbatch never answered: SLURM may not have it."""
    since: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    cancel_at: float | None = None
    """When to cancel it once more; None if it is not to be cancelled."""
    only_pending: bool = False
    """Whether it may go on if it has begun."""
    warned: bool = False


class SlurmBase(TrialLauncher):
    """Polling, pacing, submissions without an answer, and ends."""

    survives = True
    _TICK_S = 0.2
    _WAITS = "pending"

    def __init__(self, settings: SlurmLauncherConf) -> None:
        self.detach = settings.detach
        self.keep_on_interrupt = settings.keep_on_interrupt
        self.max_timeouts = settings.max_num_timeout
        self._settings = settings
        self._watcher = Watcher(settings.poll_s)
        self._over: list[tuple[int, End]] = []
        self._not_before = 0.0
        self._rounds = Rounds()
        self._busy = ""
        self._troubles: dict[str, str] = {}

    @abstractmethod
    def _jobs(self) -> list[Followed]:
        """Those that are followed."""

    @abstractmethod
    def _look(self) -> None:
        """Look at all that may have changed. Raises nothing."""

    def request(self, config: DictConfig) -> Request:
        return request(read(config.hydra.launcher, SlurmLauncherConf))

    def open(self) -> None:
        """Raises UserError where SLURM's commands are missing."""
        for command in ("sbatch", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise UserError(
                    f"hydra/launcher=slurm: there is no {command} on this machine. "
                    "Start the sweep on a login node of the cluster, or run it here: hydra/launcher=local"
                )

    def poll(self, timeout_s: float) -> list[tuple[int, End]]:
        deadline = time.monotonic() + timeout_s
        self._look()
        while not self._over and time.monotonic() < deadline:
            time.sleep(min(self._TICK_S, timeout_s))
            self._look()
        over, self._over = self._over, []
        return over

    def notes(self) -> list[str]:
        """What keeps trials waiting, for the terminal: one line for each reason."""
        infos = [self._watcher.info(job.name) for job in self._jobs()]
        reasons = Counter(info.reason for info in infos if info and info.state == "PENDING")
        lines = [f"{count} {self._WAITS}: {reason}" for reason, count in reasons.most_common()]
        troubles = list(self._troubles.values())
        if len(troubles) > 1:
            troubles = [f"{troubles[0]} (and {len(troubles) - 1} more)"]
        return lines + [note for note in (self._busy, self._watcher.problem, *troubles) if note]

    def _report(self, number: int, end: End) -> None:
        self._over.append((number, end))
        self._troubles.pop(f"trial {number}", None)

    @contextmanager
    def _concerning(self, whom: str) -> Iterator[None]:
        """What cannot be read, or not now, concerns one trial for one look: the others go on."""
        try:
            yield
        except (OSError, Unreadable) as error:
            self._troubles[whom] = f"{whom}: {error}; it is tried again"
        else:
            self._troubles.pop(whom, None)

    def _written(self, job: Job, write: Callable[[], bool]) -> bool:
        """What `write` returns, which submits the job. A disk that takes no files refuses it; other troubles pass."""
        with self._concerning(f"trial {job.number}"):
            try:
                return write()
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._report(job.number, End(State.REFUSED, f"its files cannot be written: {error}"))
                return True
        return False

    def _may_send(self) -> bool:
        return time.monotonic() >= self._not_before

    def _wait(self, why: str) -> None:
        self._busy = why
        self._not_before = time.monotonic() + BUSY_PAUSE_S

    def _send(self, folder: Path, asked: dict[str, Any], function: Any, *arguments: Any) -> Followed | None:
        """Submit a job, and follow it if there may be one; None if SLURM takes none now.

        Raises:
            RefusedError: what is asked for can never be had.
            OSError: its files cannot be written.
        """
        earliest = max(self._not_before, time.monotonic() - _CATCH_UP_S)
        self._not_before = earliest + 60 / self._settings.max_submissions_per_min
        try:
            job_id = submit(folder, asked, function, *arguments)
        except BusyError as error:
            self._wait(f"SLURM takes no job now: {error}")
            return self._follow(folder, sure=False) if error.unsure else None
        self._busy = ""
        return self._follow(folder, job_id)

    def _follow(self, folder: Path, job_id: str | None = None, sure: bool = True) -> Followed:
        job = Followed(folder, name_of(folder), job_id, sure)
        self._watcher.forget(job.name)  # an earlier submission of it
        self._watcher.watch(job.name, job_id or noted_id(folder))
        return job

    def _info(self, job: Followed) -> JobInfo | None:
        """SLURM's word for a job, which is looked after if it lives."""
        info, now = self._watcher.info(job.name), time.monotonic()
        if info and info.state in ENDED:
            job.ended_at = job.ended_at or now
        elif info:
            if job.id is None:  # sbatch's answer never came, or came to an earlier driver
                note_id(job.folder, info.id)
            job.id, job.sure, pending = info.id, True, info.state == "PENDING"
            if job.cancel_at is not None and now > job.cancel_at and (pending or not job.only_pending):
                self._cancel([job], job.only_pending)
            if info.stuck and not job.warned and now - job.since > _STUCK_S:
                job.warned = True
                what = f"{job.id} waits and will not start by itself ({job.name}: {info.reason})"
                held = f"Release it: scontrol release {job.id}, or give"
                do = held if "eld" in info.reason else "Change what it asks for, and give"
                log.warning("SLURM job %s. %s it up: scancel %s", what, do, job.id)
        return info

    def _is_final(self, job: Followed, info: JobInfo) -> bool:
        """Whether all is known of a job that is over: what it wrote last may be late, or who cancelled it."""
        with suppress(OSError):
            list(job.folder.iterdir())  # makes an NFS client look again
        waited_s = time.monotonic() - (job.ended_at or time.monotonic())
        if info.state == "CANCELLED" and info.by is None and job.cancel_at is None:
            return waited_s > _WHO_S
        return info.state not in {"COMPLETED", "FAILED"} or waited_s > _FILES_LATE_S

    def _never_was(self, job: Followed, info: JobInfo) -> bool:
        """Whether sbatch, which did not answer, has submitted nothing."""
        return info.state == GONE and not job.sure

    def _cancel(self, jobs: Iterable[Followed], only_pending: bool = False) -> None:
        """What is not known by its id yet is cancelled once it is."""
        ids = []
        for job in jobs:
            job.cancel_at, job.only_pending = time.monotonic() + _CANCEL_AGAIN_S * bool(job.id), only_pending
            ids += [job.id] if job.id else []
        if problem := cancel(ids, only_pending) if ids else "":
            log.warning("these jobs may still run: %s\nTo cancel them: scancel %s", problem, " ".join(ids))

    def _cancel_all(self, only_pending: bool = False) -> None:
        """Also those whose ids are not known yet."""
        nameless = [job for job in self._jobs() if not job.id]
        listed = squeue() if nameless else {}
        if isinstance(listed, str):
            names = " ".join(job.name for job in nameless)
            log.warning("these jobs may still run, for SLURM does not answer (%s): %s", listed, names)
            listed = {}
        for job in nameless:
            job.id = listed[job.name].id if job.name in listed else None
        self._cancel(self._jobs(), only_pending)
