"""The jobs that SLURM lists, by id and by name, and the states of jobs."""

from dataclasses import dataclass

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
        return f"SLURM job {self.id}, {self.state.lower()}{f' ({self.reason})' if self.state == 'PENDING' else ''}"


class Listing(dict[str, JobInfo]):
    """SLURM's descriptions of jobs by name, of which the newest counts; `by_id` has all."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, JobInfo] = {}

    def add(self, name: str, info: JobInfo) -> None:
        """Add the description of a job, or replace an earlier one of the same job."""
        self.by_id[info.id] = info
        former = self.get(name)
        if former is None or former.id == info.id or former.state in ENDED:
            self[name] = info

    def find(self, name: str, job_id: str | None) -> JobInfo | None:
        """Return the description of a job by its id or, while the id is unknown or not listed, by its name.

        The id comes first, because a plugin of the site may rename jobs.
        """
        by_id = self.by_id.get(job_id) if job_id else None
        return by_id or self.get(name)
