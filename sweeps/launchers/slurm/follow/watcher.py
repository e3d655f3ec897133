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
    def is_waiting(self) -> bool:
        """Return whether the job was pending at the last query, which may be a minute old."""
        return self.info is None or self.info.state == "PENDING"

    @property
    def failed_ranks(self) -> int:
        """Return how many ranks have written why they failed: the job then ends soon."""
        with suppress(OSError):
            return (
                len(list(self.folder.glob("ranks/*.json")))
                if self.info and self.info.state == "RUNNING"
                else 0
            )
        return 0

    @property
    def never_was(self) -> bool:
        """Return whether an unanswered sbatch has submitted nothing."""
        return self.id is None and self.info is not None and self.info.state == GONE


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
            j.name: (j.info and j.info.state, j.absent_since, j.cancel_at, j.failed_ranks)
            for j in jobs
        }

    def update(self) -> None:
        """Update all jobs. A job without an answer is unknown, not over. Raises SlurmError if
        squeue fails."""
        jobs = [job for job in list(self._jobs.values()) if not (job.info and job.info.by)]
        # because a problem ends only when squeue answers
        listed = squeue() if jobs or self.problem else Listing()
        for job in jobs:  # before sacct, because sacct may take long
            if info := job.find(listed):
                if info.state != "PENDING":
                    job.started_at = job.started_at or time.monotonic()
                job.info = info
                job.absent_since = None
                job.was_pending = info.state == "PENDING"
        unclear = [
            job for job in jobs if not (info := job.find(listed)) or info.state == "CANCELLED"
        ]
        accounts = Listing()
        problem = ""
        if ids := [job.id for job in unclear if job.id]:
            try:
                accounts = sacct(ids)
            except SlurmError as error:  # after which a job that squeue does not list becomes GONE
                problem = str(error)
        self.problem = problem
        now = time.monotonic()
        for job in unclear:
            is_listed = job.find(listed) is not None
            is_newest = not is_listed or (job.find_alone(accounts) and not job.find_alone(listed))
            if (info := job.find(accounts)) and (info.by or is_newest):
                # because the controller lost its state
                if info.state == "CANCELLED" and not info.by:
                    info = replace(info, by="SLURM")
                job.info = info
            if is_listed or (info and info.state in ENDED):
                job.absent_since = None
                continue
            job.absent_since = job.absent_since or now
            job.accounted = job.accounted or info is not None
            # Because SLURM keeps no record of an element that was cancelled alone, before it
            # started.
            is_cancelled = (info is None and job.has_siblings(accounts)) or job.has_vanished(listed)
            if now - job.absent_since > (
                _RUNAWAY_S if job.accounted and not is_cancelled else _ABSENT_S
            ):
                own = JobInfo(job.id or "", "CANCELLED", by=str(os.getuid()))
                job.info = own if is_cancelled else JobInfo(job.id or "", GONE)
