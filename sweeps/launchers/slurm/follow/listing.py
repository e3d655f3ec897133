"""The jobs that SLURM lists, by id and by name, and the states of jobs."""

import re
from dataclasses import dataclass

_OURS = re.compile(r".+\.\d+-[0-9a-f]{8}(_\d+)?")  # the form of `queue.name_of`
GONE = "GONE"  # our own state for a job without a record in SLURM

ENDED = {
    "BOOT_FAIL": "its node failed to boot",
    "CANCELLED": "it was cancelled with scancel",
    "COMPLETED": "its process ended",
    "DEADLINE": "it reached its deadline",
    "FAILED": "its process failed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it used more memory than it requested",
    "PREEMPTED": "it was preempted",
    "REVOKED": "SLURM revoked it",
    "TIMEOUT": "it reached its time limit",
    GONE: "SLURM has no record of it",
}
"""The final states of a job: https://slurm.schedmd.com/squeue.html (job state codes)."""


@dataclass(frozen=True)
class JobInfo:
    """The last description of a job by SLURM."""

    id: str
    state: str  # SLURM's name of the state
    reason: str = ""  # why it is pending
    by: str | None = None  # who cancelled it, from sacct: a user's number, or "SLURM"

    def __str__(self) -> str:
        """Return the job in words, such as SLURM job 7, pending (Priority)."""
        return (
            f"SLURM job {self.id},"
            f" {self.state.lower()}{f' ({self.reason})' if self.state == 'PENDING' else ''}"
        )


class Listing(dict[str, JobInfo]):
    """SLURM's descriptions of jobs by name, of which the newest counts; `by_id` has all."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, JobInfo] = {}
        self._names: dict[str, str] = {}

    def add(self, name: str, info: JobInfo) -> None:
        """Add the description of a job, or replace an earlier one of the same job."""
        self.by_id[info.id] = info
        self._names[info.id] = name
        former = self.get(name)
        if former is None or former.id == info.id or former.state in ENDED:
            self[name] = info

    def find(self, name: str, job_id: str | None) -> JobInfo | None:
        """Return the description of a job by its id or, while the id is unknown or not listed, by
        its name.

        The id comes first, because a plugin of the site may rename jobs. An id with the name of
        another job of ours was given twice, as by a controller that lost its state.
        """
        if job_id is None or job_id not in self.by_id:
            return self.get(name)

        listed_name = self._names[job_id]
        if listed_name != name and _OURS.fullmatch(listed_name):
            return self.get(name)
        return self.by_id[job_id]
