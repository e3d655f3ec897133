"""The chain of jobs in which a study's drivers run one after the other (`driver_job`), from its
files and SLURM.

In the study's folder:

    driver.log                  what all drivers print
    driver/jobs/<n>/job.json    the id of the n-th job
    driver/jobs/<n>/follows     the id of the job before, written before sbatch; missing if a
                                person submitted the job
    driver/jobs/<n>/begun       its process, the size of the journal at its start, and how many
                                idle drivers preceded it
"""

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweeps.base.files import CorruptFile, Holder, read_json, write_whole
from sweeps.launchers.contract import DRIVER_JOBS
from sweeps.launchers.slurm.follow.listing import ENDED, JobInfo
from sweeps.launchers.slurm.queue import (
    SlurmError,
    cluster_of,
    read_job_id,
    read_ticket,
    sacct,
    select_cluster,
    squeue,
    write_job_id,
)

_PROGRESS_S = 600.0  # life of a driver that counts as progress, because its trials may be long
_ACCOUNTED_S = 15.0


def living(study: Path) -> list[JobInfo]:
    """Return the jobs of the study's drivers that are queued or running, oldest first. Raises
    SlurmError."""
    tickets = [read_ticket(folder) for folder in folders(study)]
    if not tickets:
        return []
    select_cluster(cluster_of(study))
    jobs = squeue()
    matches = [jobs.find(ticket.name, ticket.id) for ticket in tickets]
    return [info for info in matches if info and info.state not in ENDED]


def job_of(study: Path, driver: Holder) -> str | None:
    """Return the id of the job in which the study's driver runs; None if it runs in no job."""
    for folder in folders(study):
        begun = _begun(folder)
        if (begun.get("host"), begun.get("pid")) == (driver.host, driver.pid):
            return read_job_id(folder)
    return None


def begin(folder: Path, job_id: str, timeout_min: int) -> int:
    """Record that the job has begun. Return how many drivers in a row before it made no
    progress."""
    study = folder.parents[2]
    follows = follows_of(folder)
    idle = 0
    write_job_id(folder, job_id)  # because the command that submitted the job may have been killed
    before = next(
        (other for other in folders(study) if follows and read_job_id(other) == follows), None
    )
    with suppress(OSError):
        lived_until = (study / "driver.lock").stat().st_mtime
        if before and not made_progress(before, timeout_min, lived_until):
            idle = idle_count(before) + 1
    process = {"host": socket.gethostname(), "pid": os.getpid()}  # which becomes the driver
    write_whole(
        folder / "begun", json.dumps({"journal": _journal_size(study), "idle": idle, **process})
    )
    return idle


def made_progress(folder: Path, timeout_min: int, now: float) -> bool:
    """Return whether the journal has grown since a driver's job began, or the driver has lived
    long. `now` in s."""
    if not (begun := _begun(folder)):
        return False
    lived_s = now - (folder / "begun").stat().st_mtime
    enough_s = min(_PROGRESS_S, timeout_min * 60 / 4)
    return begun.get("journal") != _journal_size(folder.parents[2]) or lived_s >= enough_s


def idle_count(folder: Path) -> int:
    """Return how many drivers in a row made no progress before the job in `folder`."""
    count = _begun(folder).get("idle")
    return count if isinstance(count, int) else 0


def _begun(folder: Path) -> dict[str, Any]:
    with suppress(OSError, CorruptFile):
        return read_json(folder / "begun") or {}
    return {}


def _journal_size(study: Path) -> int:
    with suppress(OSError):
        return (study / "journal.jsonl").stat().st_size
    return 0


def was_cancelled(job_id: str) -> bool:
    """Return whether this user ended the job with scancel; if the accounting does not tell, he has
    not."""
    deadline = time.monotonic() + _ACCOUNTED_S
    with suppress(SlurmError):
        while (info := squeue().by_id.get(job_id)) and info.state == "CANCELLED":
            if by := [info.by for info in sacct([job_id]).values() if info.by]:
                return by == [str(os.getuid())]
            if time.monotonic() > deadline:
                break
            time.sleep(1)
    return False


def jobs_folder(study: Path) -> Path:
    return study / DRIVER_JOBS


def folders(study: Path) -> list[Path]:
    """Return the folders of all drivers' jobs, oldest first."""
    numbers = sorted(
        int(path.name) for path in jobs_folder(study).glob("[0-9]*") if path.name.isdecimal()
    )
    return [jobs_folder(study) / str(number) for number in numbers]


def follows_of(folder: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return (folder / "follows").read_text()
    return None
