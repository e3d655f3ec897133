"""A study's jobs in SLURM, for somebody who is not its driver."""

from collections.abc import Iterable
from pathlib import Path

from sweeps.launchers.slurm.queue import ENDED, JobInfo, cancel, squeue
from sweeps.launchers.slurm.ticket import name_of


def living_jobs(study: Path, unfinished: Iterable[Path]) -> list[JobInfo] | str:
    """The jobs of the study's `unfinished` trials that are queued or run; or why SLURM does not tell."""
    folders = [folder for trial in unfinished for folder in trial.glob("attempts/[0-9]*/slurm")]
    folders += study.glob("workers/*/[0-9]*/slurm")
    names = {name_of(folder.parent) for folder in folders}
    if not names:
        return []
    listed = squeue()
    if isinstance(listed, str):
        return listed
    return [info for name, info in listed.items() if name in names and info.state not in ENDED]


def take_back(study: Path, jobs: list[JobInfo]) -> str:
    """Cancel those of the study's jobs that are still pending, and empty the queues of its workers.

    Returns what went wrong, or an empty text.
    """
    for queued in study.glob("workers/*/queue/*.job"):
        queued.unlink(missing_ok=True)  # a worker may be quicker
    pending = [job.id for job in jobs if job.state == "PENDING"]
    return cancel(pending, pending_only=True) if pending else ""
