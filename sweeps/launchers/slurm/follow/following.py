"""What the driver follows in SLURM: its jobs, the rate of its submissions, and the errors that may
pass."""

import logging
import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sweeps.base.errors import Outage
from sweeps.base.files import NO_ROOM, CorruptFile
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.follow.lengths import Lengths
from sweeps.launchers.slurm.follow.listing import ENDED, JobInfo, Listing
from sweeps.launchers.slurm.follow.nodes import AvoidedNodes
from sweeps.launchers.slurm.follow.watcher import FollowedJob, Watcher
from sweeps.launchers.slurm.queue import (
    SlurmError,
    Ticket,
    by_array,
    cancel,
    name_of,
    squeue,
    write_job_id,
)
from sweeps.launchers.slurm.script.request import PRIVATE, parameters
from sweeps.launchers.slurm.script.script import SETUP
from sweeps.launchers.slurm.script.submit import BusyError, UnansweredError, submit, write_setup
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job

log = logging.getLogger(__name__)

BUSY_PAUSE_S = 10.0
STARTS_PER_MIN = 10  # of jobs, because sites accept no more: docs/how_to/short_trials.md
# because the loop submits only a few times a second, and must still reach the rate limit
_CATCH_UP_S = 0.3
_CANCEL_AGAIN_S = 20.0
# By state: the delay with which another node's files, or the accounting's cancellations, become
# visible.
_LATE_S = {"COMPLETED": 5.0, "FAILED": 5.0, "CANCELLED": 15.0}
_STUCK_S = 60.0
_LISTING_S = 10.0
# Reasons that do not pass by themselves, unlike AssocMaxJobsLimit:
# https://slurm.schedmd.com/job_reason_codes.html
_STUCK = re.compile(
    "[Hh]eld|BadConstraints|NeverSatisfied|PerJob|PerNode|"
    "Partition(Down|Inactive|NodeLimit|TimeLimit)|"
    "Not(Allowed|Satisfied)|Invalid(Account|QOS)"
)


def refusal_of_disk(error: OSError) -> Outcome:
    """Return the outcome of a trial whose files the disk does not accept. Raises an error that may
    pass."""
    if error.errno not in NO_ROOM:
        raise error
    return Outcome(State.REFUSED, f"its files cannot be written: {error}")


class FollowedJobs:
    """The driver's SLURM jobs, of trials and of workers: one watcher and one rate of submissions
    for all."""

    def __init__(self, settings: SlurmLauncherConf) -> None:
        self.jobs: dict[str, FollowedJob] = {}  # by name
        self.watcher = Watcher(self.jobs, settings.poll_s)
        self.over: list[tuple[int, Outcome]] = []  # trials that ended since the last poll
        self.lengths = Lengths()
        self._nodes = AvoidedNodes(settings.exclude)
        self.busy = ""  # why SLURM accepts no jobs now
        self._interval_s = 60 / settings.max_submissions_per_min
        self._not_before = 0.0  # time of the next submission
        self._starting: deque[FollowedJob] = deque()  # those that count as starts, and later ones
        self._troubles: dict[str, str] = {}  # errors of files that are retried, by subject
        self._listing: tuple[float, Listing] = (-math.inf, Listing())  # of an earlier driver's jobs

    def close(self) -> None:
        self.jobs.clear()
        self.watcher.stop()

    def listing(self) -> Listing:
        """Return this user's jobs, at most 10 s old. Raises SlurmError."""
        if time.monotonic() - self._listing[0] > _LISTING_S:
            self._listing = time.monotonic(), squeue()
        return self._listing[1]

    def avoid(self, nodes: Mapping[str, str]) -> None:
        """Let further jobs and pending ones exclude these nodes, which failed for these reasons."""
        self._nodes.update(nodes, by_array(job.id for job in self._pending() if job.id))

    def _pending(self) -> list[FollowedJob]:
        """Return the jobs that were pending at the last query."""
        jobs = list(self.jobs.values())
        return [job for job in jobs if job.state == "PENDING"]

    def notes(self) -> list[str]:
        """Return why trials wait, one line for each reason."""
        reasons = Counter(job.info.reason for job in self._pending() if job.info)
        lines = []
        for reason, count in reasons.most_common():
            # SLURM's reason is None until it has looked at a new job.
            why = "" if reason == "None" else f": {reason}"
            lines.append(f"{count} pending{why}")
        troubles = list(self._troubles.values())
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        lines += [
            self._nodes.note,
            self.busy,  # not an outage, because a full queue comes and goes with each job
            Outage(self.watcher.problem, "SLURM answers again"),
            Outage("".join(troubles[:1]) + more, "the files of all trials are readable again"),
        ]
        return [line for line in lines if line]

    def report(self, number: int, end: Outcome) -> None:
        self.over.append((number, end))
        self.lengths.add(end)
        self._troubles.pop(f"trial {number}", None)

    @contextmanager
    def retrying(self, subject: str) -> Iterator[None]:
        """Note a file error under its subject, because it must not affect other trials and may
        pass."""
        try:
            yield
        except (OSError, CorruptFile) as error:
            self._troubles[subject] = f"{subject}: {error}; retrying"
        else:
            self._troubles.pop(subject, None)

    def try_submit(self, job: Job, submit: Callable[[], bool]) -> bool:
        """Return the result of `submit`. If the disk accepts no files, refuse the job; retry other
        file errors."""
        with self.retrying(f"trial {job.number}"):
            try:
                return submit()
            except OSError as error:
                self.report(job.number, refusal_of_disk(error))
                return True
        return False

    def may_send(self) -> bool:
        return time.monotonic() >= self._not_before

    def delay(self, jobs: int) -> None:
        """Move the next submission back, as if so many jobs had been submitted alone, too."""
        self._not_before += jobs * self._interval_s

    @property
    def recent(self) -> int:
        """Return how many jobs were submitted, adopted or seen to start within the last minute."""
        return sum(map(self._is_recent, self._starting))

    @property
    def starts(self) -> int:
        """Return how many jobs are recent or pending, because all of these may start within a
        minute."""
        return sum(map(self._may_start, self._starting))

    def _may_start(self, job: FollowedJob) -> bool:
        is_pending = job.start_at is None and self.jobs.get(job.name) is job
        return is_pending or self._is_recent(job)

    def _is_recent(self, job: FollowedJob) -> bool:
        return time.monotonic() - (job.start_at or job.followed_at) < 60

    def pause(self, reason: str) -> None:
        self.busy = reason
        self._not_before = time.monotonic() + BUSY_PAUSE_S

    def send(
        self, folder: Path, settings: SlurmLauncherConf, trials: int = 1
    ) -> FollowedJob | None:
        """Submit and follow a job for the call in `folder`, of `trials` at a time.

        Return None if SLURM accepts no jobs now. Raises RefusedError.
        """
        write_setup(folder, settings.setup)
        is_sent, job_id = self.sbatch(folder, parameters(folder, settings, trials))
        return self.follow(folder, Ticket(name_of(folder), job_id)) if is_sent else None

    def sbatch(self, folder: Path, requested: Mapping[str, Any]) -> tuple[bool, str | None]:
        """Submit a job or an array. Return whether SLURM may have accepted it, and its id if sbatch
        has answered.

        Raises RefusedError.
        """
        # because sites count the submissions of a second
        catch_up_s = _CATCH_UP_S if self._interval_s < 1 else 0.0
        self._not_before = max(self._not_before, time.monotonic() - catch_up_s) + self._interval_s
        try:
            job_id = submit(folder, self._nodes.exclude(requested))
            self.busy = ""
        except BusyError as error:
            self.pause(f"SLURM accepts no jobs now: {error}")
            return isinstance(error, UnansweredError), None
        return True, job_id

    def follow(self, folder: Path, ticket: Ticket) -> FollowedJob:
        now = time.monotonic()
        warn_at = now + _STUCK_S
        job = FollowedJob(folder, ticket.name, ticket.id, ticket.array, warn_at, followed_at=now)
        while self._starting and not self._may_start(self._starting[0]):
            self._starting.popleft()
        self._starting.append(job)
        self.jobs[job.name] = job  # replaces an earlier submission of the job
        return job

    def final_info(self, job: FollowedJob) -> JobInfo | None:
        """Return SLURM's description of a job that is over; None while it is alive, or while its
        files may be late."""
        info = job.info
        now = time.monotonic()
        if info is None:
            return None
        if info.state in ENDED:
            job.ended_at = job.ended_at or now
            is_late = now - job.ended_at < _LATE_S.get(info.state, 0.0)
            return info if self._is_complete(job, info) or not is_late else None

        if job.id != info.id:  # because sbatch's answer was lost
            write_job_id(job.array or job.folder, info.id.partition("_")[0])
            job.id = info.id
        if info.state == "PENDING":
            self._handle_pending(job, info, now)
        return None

    def _is_complete(self, job: FollowedJob, info: JobInfo) -> bool:
        """Return whether no file and no account of a job that has ended is late."""
        with suppress(OSError):
            # because a cancelled job has not read it
            (job.folder / PRIVATE / SETUP).unlink(missing_ok=True)
            list(job.folder.iterdir())  # because listing refreshes the cache of an NFS client
        if info.state == "CANCELLED" and (info.by is not None or job.cancel_at is not None):
            return True
        return any(job.folder.glob("ranks/*.json"))

    def _handle_pending(self, job: FollowedJob, info: JobInfo, now: float) -> None:
        """Cancel a pending job again if its first cancellation had no effect, and warn once if it
        is stuck."""
        is_due = job.cancel_at is not None and now > job.cancel_at
        # because without an answer each scancel would take seconds
        if is_due and not self.watcher.problem:
            self.cancel([job], only_pending=True)
        if now > job.warn_at and _STUCK.search(info.reason):
            self._warn(job, info)

    def _warn(self, job: FollowedJob, info: JobInfo) -> None:
        """Log that the job, and the elements of its array with the same reason, will not start."""
        elements = [job]
        if job.array:
            elements = [other for other in self.jobs.values() if other.array == job.array]
        stuck = [other for other in elements if other.info and other.info.reason == info.reason]
        for other in stuck:  # because one warning is enough for elements with the same reason
            other.warn_at = math.inf

        job_id = info.id.partition("_")[0]
        if len(stuck) < len(elements):
            job_id = by_array(other.info.id for other in stuck if other.info)[0]
        advice = f"Cancel it and change its request: scancel {job_id}"
        if "eld" in info.reason:
            release = "Ask your admins to release it" if "Admin" in info.reason else "Release it"
            advice = f"{release}: scontrol release {job_id}, or cancel it: scancel {job_id}"
        problem = f"SLURM job {job_id} will not start by itself ({job.name}: {info.reason})"
        log.warning("%s.\n%s", problem, advice)

    def cancel(self, jobs: Sequence[FollowedJob], only_pending: bool = False) -> None:
        """Cancel the jobs, or only those that are still pending. Warn about jobs that may still
        run."""
        for job in jobs:
            job.cancel_at = time.monotonic() + _CANCEL_AGAIN_S
        ids = by_array(job.id for job in jobs if job.id)
        # because a longer list exceeds the timeout
        batches = [ids[i : i + 500] for i in range(0, len(ids), 500)]
        chosen = {job.name for job in jobs}
        # because elements without an id share the name of their array with these, until squeue
        # lists their ids
        shared = {job.array for job in self.jobs.values() if job.array and job.name not in chosen}
        unnamed = [job for job in jobs if not job.id and job.array not in shared]
        names = dict.fromkeys(name_of(job.array or job.folder) for job in unnamed)
        batches += [[f"--name={name}"] for name in names]
        for batch in batches:
            try:
                cancel(batch, only_pending)
            except SlurmError as error:
                command = " ".join(["scancel", *(["--state=PENDING"] * only_pending), *batch])
                log.warning("these jobs may still be running: %s\nCancel them: %s", error, command)
