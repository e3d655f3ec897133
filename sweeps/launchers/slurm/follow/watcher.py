"""The jobs that a driver follows, and the thread that asks SLURM for their states."""

import math
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sweeps.launchers.slurm.follow.listing import ENDED, GONE, JobInfo, Listing
from sweeps.launchers.slurm.queue import SlurmError, sacct, squeue

# factors of the time between queries, because sites forbid frequent polling
_SLOWER = 2.0
_SLOWEST = 12.0

_ABSENT_S = 30.0
_RUNAWAY_S = 300.0  # because the accounting may miss the end of a job: sacctmgr(1), RunawayJobs


@dataclass
class FollowedJob:
    """A job that SLURM may have accepted, keyed by our own name of it, which is known before its
    id.

    Times are monotonic.
    """

    folder: Path
    name: str
    id: str | None = None  # None until sbatch or squeue has reported the id
    array: Path | None = None  # folder of its array
    warn_at: float = math.inf  # time to warn that it will not start by itself
    info: JobInfo | None = None  # None until SLURM has listed the job
    was_pending: bool = False  # whether squeue had it pending when it was last listed there
    # time since which squeue does not list it and sacct has no end of it
    absent_since: float | None = None
    accounted: bool = False  # whether sacct has listed it as alive since then
    followed_at: float = -math.inf
    started_at: float | None = None  # time at which squeue first listed it as started
    ended_at: float | None = None
    outcome_at: float | None = None  # time at which the outcome of its trial was first seen
    # time to cancel it again if it is still pending; None if it was not cancelled
    cancel_at: float | None = None

    def find(self, jobs: Listing) -> JobInfo | None:
        """Return the job's description among `jobs`; None if it is not there."""
        info = self.find_alone(jobs)
        if info or self.array is None:
            return info
        # SLURM describes all elements that were cancelled together, before they started, as one job
        # without an index.
        array = jobs.find(self.name.rpartition("_")[0], self._array_id)
        if array and array.state in ENDED:
            return replace(array, id=self.id or array.id)
        return None

    def note(self, info: JobInfo | None, now: float) -> None:
        """Note squeue's description of the job, at the monotonic time `now`; None if there is
        none."""
        if info is None:
            return
        self.info = info
        self.absent_since = None
        self.was_pending = info.state == "PENDING"
        if not self.was_pending:
            self.started_at = self.started_at or now

    def find_alone(self, jobs: Listing) -> JobInfo | None:
        """Return the description of this very job or element; None if it is not there."""
        return jobs.find(self.name, self.id)

    @property
    def _array_id(self) -> str | None:
        return self.id.partition("_")[0] if self.id else None

    def has_siblings(self, jobs: Listing) -> bool:
        """Return whether the job is an element of an array, and `jobs` have other elements."""
        if self.array is None:
            return False
        array = self.name.rpartition("_")[0]
        by_name = any(name.rpartition("_")[0] == array for name in jobs)
        return by_name or any(job_id.rpartition("_")[0] == self._array_id for job_id in jobs.by_id)

    def has_vanished(self, listed: Listing) -> bool:
        """Return whether the queue has lost an element that was pending, and that never made its
        log."""
        return self.was_pending and self.has_siblings(listed) and not (self.folder / "log").exists()

    @property
    def start_at(self) -> float | None:
        """Return a time by which the job had started; None while it may be pending."""
        return self.started_at or self.outcome_at or self.ended_at

    @property
    def state(self) -> str:
        """Return the state at the last query, which may be a minute old; empty before that."""
        return self.info.state if self.info else ""

    @property
    def is_waiting(self) -> bool:
        """Return whether the job is pending, or was not listed yet."""
        return self.state in ("", "PENDING")

    @property
    def failed_ranks(self) -> int:
        """Return how many ranks have written why they failed: the job then ends soon."""
        with suppress(OSError):
            if self.state == "RUNNING":
                return len(list(self.folder.glob("ranks/*.json")))
        return 0

    @property
    def never_was(self) -> bool:
        """Return whether an unanswered sbatch has submitted nothing."""
        return self.id is None and self.state == GONE


class Pace:
    """The times of queries: every `shortest_s` seconds while jobs change, and ever more rarely
    while none does."""

    def __init__(self, shortest_s: float) -> None:
        self._shortest_s = self._interval_s = shortest_s
        self._state: object = None
        self._due = 0.0

    def is_due(self, state: object, now: float) -> bool:
        """Return whether to query now: the jobs' `state` has changed since the last query, or its
        answer is old."""
        return state != self._state or now >= self._due

    def add_query(self, state: object, now: float) -> None:
        """Record a query that was answered by this state of the jobs."""
        slower_s = min(self._interval_s * _SLOWER, self._shortest_s * _SLOWEST)
        self._interval_s = self._shortest_s if state != self._state else slower_s
        self._state = state
        self._due = now + self._interval_s


class Watcher(threading.Thread):
    """Queries SLURM for `jobs`, by name, in its own thread, because SLURM may be slow or away."""

    def __init__(self, jobs: dict[str, FollowedJob], poll_s: float) -> None:
        super().__init__(daemon=True)
        self._jobs = jobs
        self._poll_s = poll_s
        self._pace = Pace(poll_s)
        self._stopped = threading.Event()
        self.problem = ""  # error of the last query; empty if it succeeded

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.wait(self._poll_s):
            self.update_if_due()

    def update_if_due(self) -> None:
        """Update all jobs if they have changed, or have not been updated for long. Raises
        nothing."""
        if not self._pace.is_due(self._state(), time.monotonic()):
            return
        try:
            self.update()
        except Exception as error:  # because without this thread no job would ever end
            self.problem = f"SLURM cannot be queried: {error}"
        self._pace.add_query(self._state(), time.monotonic())

    def _state(self) -> dict[str, object]:
        """Return what changes when a job is submitted, starts, is cancelled, ends or vanishes, or a
        rank fails."""
        jobs = list(self._jobs.values())
        return {
            job.name: (job.state, job.absent_since, job.cancel_at, job.failed_ranks) for job in jobs
        }

    def update(self) -> None:
        """Update all jobs. A job without an answer is unknown, not over. Raises SlurmError if
        squeue fails."""
        jobs = [job for job in list(self._jobs.values()) if not (job.info and job.info.by)]
        # because a problem ends only when squeue answers
        listed = squeue() if jobs or self.problem else Listing()
        now = time.monotonic()
        unclear = []
        for job in jobs:  # before sacct, because sacct may take long
            info = job.find(listed)
            job.note(info, now)
            # because squeue does not tell who cancelled it
            if info is None or info.state == "CANCELLED":
                unclear.append(job)

        accounts = self._account([job.id for job in unclear if job.id])
        now = time.monotonic()
        for job in unclear:
            judge(job, listed, accounts, now)

    def _account(self, ids: list[str]) -> Listing:
        """Return what sacct lists of these jobs; nothing if it fails, after which a job that squeue
        does not list becomes GONE."""
        accounts = Listing()
        problem = ""
        if ids:
            try:
                accounts = sacct(ids)
            except SlurmError as error:
                problem = str(error)
        self.problem = problem
        return accounts


def judge(job: FollowedJob, listed: Listing, accounts: Listing, now: float) -> None:
    """Update a job that squeue does not list, or that was cancelled, at the monotonic time `now`.

    A job of which neither squeue nor sacct has an end is GONE once it has been absent for long, or
    cancelled if it was an element of an array.
    """
    account = job.find(accounts)
    if account and _counts(account, job, listed, accounts):
        job.info = _with_canceller(account)
    if job.find(listed) or (account and account.state in ENDED):
        job.absent_since = None
        return
    job.absent_since = job.absent_since or now
    job.accounted = job.accounted or account is not None
    # Because SLURM keeps no record of an element that was cancelled alone, before it started.
    has_only_siblings = account is None and job.has_siblings(accounts)
    was_cancelled = has_only_siblings or job.has_vanished(listed)
    _judge_absent(job, was_cancelled, now - job.absent_since)


def _with_canceller(account: JobInfo) -> JobInfo:
    """Return the account of a job; cancelled by SLURM if nobody is named, because the controller
    lost its state."""
    is_nameless = account.state == "CANCELLED" and not account.by
    return replace(account, by="SLURM") if is_nameless else account


def _judge_absent(job: FollowedJob, was_cancelled: bool, absent_s: float) -> None:
    """Update a job of which neither squeue nor sacct has an end."""
    job_id = job.id or ""
    if was_cancelled:
        if absent_s > _ABSENT_S:
            job.info = JobInfo(job_id, "CANCELLED", by=str(os.getuid()))
    elif absent_s > (_RUNAWAY_S if job.accounted else _ABSENT_S):
        job.info = JobInfo(job_id, GONE)


def _counts(account: JobInfo, job: FollowedJob, listed: Listing, accounts: Listing) -> bool:
    """Return whether an account tells more than squeue: who cancelled the job, or of a job that
    squeue does not list."""
    if account.by or job.find(listed) is None:
        return True
    is_own = job.find_alone(accounts) is not None
    return is_own and job.find_alone(listed) is None
