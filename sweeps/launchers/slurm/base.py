"""The common base of the two SLURM launchers: it follows SLURM jobs until they are over."""

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
from sweeps.launchers.slurm.queue import ENDED, FollowedJob, JobInfo, SlurmError, Watcher, cancel, name_of, write_job_id
from sweeps.launchers.slurm.request import PRIVATE, SETUP, parameters, request
from sweeps.launchers.slurm.submit import BusyError, UnansweredError, submit
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import Job, Outcome, Request, State

log = logging.getLogger(__name__)

BUSY_PAUSE_S = 10.0
_CATCH_UP_S = 0.3  # because the loop submits only a few times a second, and must still reach the rate limit
_CANCEL_AGAIN_S = 20.0
# By state: the delay with which another node's files, or the accounting's cancellations, become visible.
_LATE_S = {"COMPLETED": 5.0, "FAILED": 5.0, "CANCELLED": 15.0}
_STUCK_S = 60.0
# Reasons that do not pass by themselves, unlike AssocMaxJobsLimit: https://slurm.schedmd.com/job_reason_codes.html
_STUCK = re.compile(
    "[Hh]eld|BadConstraints|NeverSatisfied|Partition(Down|Inactive|NodeLimit|TimeLimit)|PerJob|PerNode|"
    "Not(Allowed|Satisfied)|Invalid(Account|QOS)"
)


class SlurmBase(TrialLauncher):
    """Polling, submission rate, unanswered submissions, and outcomes."""

    survives = True
    _TICK_S = 0.2

    def __init__(self, settings: SlurmLauncherConf) -> None:
        self.detach = settings.detach
        self.keep_on_interrupt = settings.keep_on_interrupt
        self.max_timeouts = settings.max_num_timeout
        self._settings = settings
        self._jobs: dict[str, FollowedJob] = {}  # by name
        self._watcher = Watcher(self._jobs, settings.poll_s)
        self._over: list[tuple[int, Outcome]] = []
        self._not_before = 0.0  # time of the next submission
        self._looks = RateLimit()  # of the files of trials and workers
        self._busy = ""  # why SLURM accepts no jobs now
        self._troubles: dict[str, str] = {}  # errors of files that are retried, by subject

    @abstractmethod
    def _observe(self) -> None:
        """Update all trials and workers. Raises nothing."""

    def request(self, config: DictConfig) -> Request:
        return request(read(config.hydra.launcher, SlurmLauncherConf))

    def open(self) -> None:
        """Start the watcher. Raises UserError if SLURM's commands are missing."""
        for command in ("sbatch", "squeue", "scancel"):
            if shutil.which(command) is None:
                problem = f"hydra/launcher=slurm: this machine has no {command} command."
                raise UserError(f"{problem}\nRun the command on a login node, or use hydra/launcher=local")
        self._watcher.start()

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        deadline = time.monotonic() + timeout_s
        self._observe()
        while not self._over and time.monotonic() < deadline:
            time.sleep(min(self._TICK_S, timeout_s))
            self._observe()
        over, self._over = self._over, []
        return over

    def notes(self) -> list[str]:
        """Return why trials wait, one line for each reason."""
        reasons = Counter(job.info.reason for job in self._jobs.values() if job.info and job.info.state == "PENDING")
        lines = [f"{count} pending: {reason}" for reason, count in reasons.most_common()]
        troubles = list(self._troubles.values())
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        outages = [
            self._busy,  # not an outage, because a full queue comes and goes with each job
            Outage(self._watcher.problem, "SLURM answers again"),
            Outage("".join(troubles[:1]) + more, "the files of all trials are readable again"),
        ]
        return lines + [outage for outage in outages if outage]

    def _report(self, number: int, end: Outcome) -> None:
        self._over.append((number, end))
        self._troubles.pop(f"trial {number}", None)

    @contextmanager
    def _retrying(self, subject: str) -> Iterator[None]:
        """Note a file error under its subject, because it must not affect other trials and may pass."""
        try:
            yield
        except (OSError, CorruptFile) as error:
            self._troubles[subject] = f"{subject}: {error}; retrying"
        else:
            self._troubles.pop(subject, None)

    def _try_submit(self, job: Job, submit: Callable[[], bool]) -> bool:
        """Return the result of `submit`. If the disk accepts no files, refuse the job; retry other file errors."""
        with self._retrying(f"trial {job.number}"):
            try:
                return submit()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._report(job.number, Outcome(State.REFUSED, f"its files cannot be written: {error}"))
                return True
        return False

    def _may_send(self) -> bool:
        return time.monotonic() >= self._not_before

    def _pause(self, reason: str) -> None:
        self._busy = reason
        self._not_before = time.monotonic() + BUSY_PAUSE_S

    def _send(
        self, folder: Path, settings: SlurmLauncherConf, function: Any, *arguments: Any, trials: int = 1
    ) -> FollowedJob | None:
        """Submit and follow a job for `trials` at a time; return None if SLURM accepts no jobs now.

        Raises RefusedError.
        """
        earliest = max(self._not_before, time.monotonic() - _CATCH_UP_S)
        self._not_before = earliest + 60 / self._settings.max_submissions_per_min
        job_id = None
        try:
            job_id = submit(folder, parameters(folder, settings, trials), function, *arguments, setup=settings.setup)
            self._busy = ""
        except BusyError as error:
            self._pause(f"SLURM accepts no jobs now: {error}")
            if not isinstance(error, UnansweredError):
                return None
        return self._follow(folder, job_id)

    def _follow(self, folder: Path, job_id: str | None) -> FollowedJob:
        job = FollowedJob(folder, name_of(folder), job_id, time.monotonic() + _STUCK_S)
        self._jobs[job.name] = job  # replaces an earlier submission of the job
        return job

    def _final_info(self, job: FollowedJob) -> JobInfo | None:
        """Return SLURM's description of a job that is over; None while it is alive, or while its files may be late."""
        info, now = job.info, time.monotonic()
        if info is None:
            return None
        if info.state in ENDED:
            job.ended_at = job.ended_at or now
            with suppress(OSError):
                (job.folder / PRIVATE / SETUP).unlink(missing_ok=True)  # because a cancelled job has not read it
                list(job.folder.iterdir())  # because listing refreshes the cache of an NFS client
            canceller_known = info.state == "CANCELLED" and (info.by is not None or job.cancel_at is not None)
            is_complete = canceller_known or any(job.folder.glob("ranks/*.json"))
            return info if is_complete or now - job.ended_at >= _LATE_S.get(info.state, 0.0) else None
        if job.id != info.id:  # because sbatch's answer was lost
            write_job_id(job.folder, info.id)
            job.id = info.id
        if info.state == "PENDING":
            self._handle_pending(job, info, now)
        return None

    def _handle_pending(self, job: FollowedJob, info: JobInfo, now: float) -> None:
        """Cancel a pending job again if its first cancellation had no effect, and warn once if it is stuck."""
        is_due = job.cancel_at is not None and now > job.cancel_at
        if is_due and not self._watcher.problem:  # because without an answer each scancel would take seconds
            self._cancel([job], only_pending=True)
        if now <= job.warn_at or not _STUCK.search(info.reason):
            return
        job.warn_at = math.inf
        advice = f"Cancel it and change its request: scancel {job.id}"
        if "eld" in info.reason:
            release = "Ask your admins to release it" if "Admin" in info.reason else "Release it"
            advice = f"{release}: scontrol release {job.id}, or cancel it: scancel {job.id}"
        log.warning("SLURM job %s will not start by itself (%s: %s).\n%s", job.id, job.name, info.reason, advice)

    def _cancel(self, jobs: Sequence[FollowedJob], only_pending: bool = False) -> None:
        for job in jobs:
            job.cancel_at = time.monotonic() + _CANCEL_AGAIN_S
        ids = [job.id for job in jobs if job.id]
        batches = [ids[i : i + 500] for i in range(0, len(ids), 500)]  # because a longer list exceeds the timeout
        for batch in batches + [[f"--name={job.name}"] for job in jobs if not job.id]:
            try:
                cancel(batch, only_pending)
            except SlurmError as error:
                command = " ".join(["scancel", *(["--state=PENDING"] * only_pending), *batch])
                log.warning("these jobs may still be running: %s\nCancel them: %s", error, command)
