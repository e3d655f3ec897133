"""What the two SLURM launchers share: they follow SLURM jobs, in which their trials run, until these are over."""

import logging
import math
import re
import shutil
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from sweeps.errors import Outage, UserError
from sweeps.files import NO_ROOM, CorruptFile, RateLimit
from sweeps.launchers.contract import TrialLauncher
from sweeps.launchers.slurm.queue import ENDED, Followed, JobInfo, SlurmError, Watcher, cancel, name_of, note_id
from sweeps.launchers.slurm.request import request
from sweeps.launchers.slurm.submit import BusyError, UnansweredError, submit
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import Job, Outcome, Request, State

log = logging.getLogger(__name__)

BUSY_PAUSE_S = 10.0
_CATCH_UP_S = 0.3  # the loop asks a few times a second: what it may submit in between is not lost
_CANCEL_AGAIN_S = 20.0
_LATE_S = {"COMPLETED": 5.0, "FAILED": 5.0, "CANCELLED": 15.0}
"""How long a shared folder may hide what another node wrote last, or the accounting who cancelled a job."""
_STUCK_S = 60.0
_STUCK = re.compile(
    "[Hh]eld|BadConstraints|NeverSatisfied|Partition(Down|Inactive|NodeLimit|TimeLimit)|PerJob|PerNode|"
    "Not(Allowed|Satisfied)|Invalid(Account|QOS)"
)
"""The reasons of jobs that will not start by themselves: https://slurm.schedmd.com/job_reason_codes.html

Not AssocMaxJobsLimit and its like, which the end of another job lifts, nor nodes that are down for a while."""


class SlurmBase(TrialLauncher):
    """Polling, pacing, submissions without an answer, and ends."""

    survives = True
    _TICK_S = 0.2

    def __init__(self, settings: SlurmLauncherConf) -> None:
        self.detach = settings.detach
        self.keep_on_interrupt = settings.keep_on_interrupt
        self.max_timeouts = settings.max_num_timeout
        self._settings = settings
        self._jobs: dict[str, Followed] = {}  # those that are followed, by name
        self._watcher = Watcher(self._jobs, settings.poll_s)
        self._over: list[tuple[int, Outcome]] = []
        self._not_before = 0.0
        self._rounds = RateLimit()
        self._busy = ""
        self._troubles: dict[str, str] = {}

    @abstractmethod
    def _look(self) -> None:
        """Look at all that may have changed. Raises nothing."""

    def request(self, config: DictConfig) -> Request:
        return request(read(config.hydra.launcher, SlurmLauncherConf))

    def open(self) -> None:
        """Raises UserError where SLURM's commands are missing."""
        for command in ("sbatch", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise UserError(f"there is no {command} here: start on a login node, or with hydra/launcher=local")
        self._watcher.start()

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        deadline = time.monotonic() + timeout_s
        self._look()
        while not self._over and time.monotonic() < deadline:
            time.sleep(min(self._TICK_S, timeout_s))
            self._look()
        over, self._over = self._over, []
        return over

    def notes(self) -> list[str]:
        """What keeps trials waiting, for the terminal: one line for each reason."""
        reasons = Counter(job.info.reason for job in self._jobs.values() if job.info and job.info.state == "PENDING")
        lines = [f"{count} pending: {reason}" for reason, count in reasons.most_common()]
        troubles = list(self._troubles.values())
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        outages = [
            self._busy,  # of a full queue, which comes and goes with each job
            Outage(self._watcher.problem, "SLURM answers again"),
            Outage("".join(troubles[:1]) + more, "the files of all trials can be reached again"),
        ]
        return lines + [outage for outage in outages if outage]

    def _report(self, number: int, end: Outcome) -> None:
        self._over.append((number, end))
        self._troubles.pop(f"trial {number}", None)

    @contextmanager
    def _concerning(self, whom: str) -> Iterator[None]:
        """What cannot be read, or not now, concerns one trial for one look: the others go on."""
        try:
            yield
        except (OSError, CorruptFile) as error:
            self._troubles[whom] = f"{whom}: {error}; it is tried again"
        else:
            self._troubles.pop(whom, None)

    def _written(self, job: Job, write: Callable[[], bool]) -> bool:
        """What `write` returns, which submits the job. A disk that takes no files refuses it; other troubles pass."""
        with self._concerning(f"trial {job.number}"):
            try:
                return write()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._report(job.number, Outcome(State.REFUSED, f"its files cannot be written: {error}"))
                return True
        return False

    def _may_send(self) -> bool:
        return time.monotonic() >= self._not_before

    def _wait(self, why: str) -> None:
        self._busy = why
        self._not_before = time.monotonic() + BUSY_PAUSE_S

    def _send(self, folder: Path, asked: dict[str, Any], function: Any, *arguments: Any) -> Followed | None:
        """Submit a job, and follow it if there may be one; None if SLURM takes none now. Raises RefusedError."""
        earliest = max(self._not_before, time.monotonic() - _CATCH_UP_S)
        self._not_before = earliest + 60 / self._settings.max_submissions_per_min
        job_id = None
        try:
            job_id = submit(folder, asked, function, *arguments)
            self._busy = ""
        except BusyError as error:
            self._wait(f"SLURM takes no job now: {error}")
            if not isinstance(error, UnansweredError):
                return None
        return self._follow(folder, job_id)

    def _follow(self, folder: Path, job_id: str | None) -> Followed:
        job = Followed(folder, name_of(folder), job_id, time.monotonic() + _STUCK_S)
        self._jobs[job.name] = job  # in place of an earlier submission of it
        return job

    def _look_after(self, job: Followed) -> JobInfo | None:
        """SLURM's last word for a job that is over, once all is known of it. One that lives is looked after."""
        info, now = job.info, time.monotonic()
        if info is None:
            return None
        if info.state in ENDED:
            job.ended_at = job.ended_at or now
            with suppress(OSError):
                list(job.folder.iterdir())  # makes an NFS client look again
            who = info.state == "CANCELLED" and (info.by is not None or job.cancel_at is not None)
            told = any(job.folder.glob("ranks/*.json"))  # a rank has said why: nothing else is to come
            return info if who or told or now - job.ended_at >= _LATE_S.get(info.state, 0.0) else None
        if job.id != info.id:  # sbatch's answer never came, or came to an earlier driver
            note_id(job.folder, info.id)
            job.id = info.id
        late = job.cancel_at is not None and now > job.cancel_at
        if info.state == "PENDING" and late and not self._watcher.problem:  # a silent SLURM would take seconds for each
            self._cancel([job], only_pending=True)
        if info.state == "PENDING" and now > job.warn_at and _STUCK.search(info.reason):
            job.warn_at = math.inf
            what = f"{job.id} waits and will not start by itself ({job.name}: {info.reason})"
            do = "Change what it asks for, and give"
            if "eld" in info.reason:
                by_admin = "Admin" in info.reason  # whom alone SLURM lets release it
                do = f"{'Ask your admins to release' if by_admin else 'Release'} it: scontrol release {job.id}, or give"
            log.warning("SLURM job %s. %s it up: scancel %s", what, do, job.id)
        return None

    def _cancel(self, jobs: Sequence[Followed], only_pending: bool = False) -> None:
        for job in jobs:
            job.cancel_at = time.monotonic() + _CANCEL_AGAIN_S
        ids = [job.id for job in jobs if job.id]
        some_ids = [ids[i : i + 500] for i in range(0, len(ids), 500)]  # a long list takes longer than is waited for
        for some in some_ids + [[f"--name={job.name}"] for job in jobs if not job.id]:
            try:
                cancel(some, only_pending)
            except SlurmError as error:
                typed = " ".join(["scancel", *(["--state=PENDING"] * only_pending), *some])
                log.warning("these jobs may still run: %s\nTo cancel them: %s", error, typed)
