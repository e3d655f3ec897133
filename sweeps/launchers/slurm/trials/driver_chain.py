"""The chain of jobs in which a study's drivers run one after the other (`driver_job`), from its
files and SLURM.

In the study's folder:

    driver.log                  what all drivers print
    driver/jobs/<n>/job.json    the id of the n-th job
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
from sweeps.launchers.slurm.follow.listing import JobInfo
from sweeps.launchers.slurm.queue import (
    SlurmError,
    cluster_of,
    living_in,
    read_job_id,
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
    jobs = folders(study)
    if not jobs:
        return []
    select_cluster(cluster_of(study))
    return living_in(squeue(), jobs)


def job_of(study: Path, driver: Holder) -> str | None:
    """Return the id of the job in which the study's driver runs; None if it runs in no job."""
    for folder in folders(study):
        begun = _begun(folder)
        if (begun.get("host"), begun.get("pid")) == (driver.host, driver.pid):
            return read_job_id(folder)
    return None


def begin(folder: Path, follows: Path | None, job_id: str, timeout_min: int) -> int:
    """Record that the job has begun. Return how many drivers in a row before it made no
    progress."""
    study = folder.parents[2]
    write_job_id(folder, job_id)  # because the command that submitted the job may have been killed
    idle = 0
    with suppress(OSError):
        lived_until = (study / "driver.lock").stat().st_mtime
        if follows:
            idle = idle_after(follows, timeout_min, lived_until)
    process = {"host": socket.gethostname(), "pid": os.getpid()}  # which becomes the driver
    begun = {"journal": _journal_size(study), "idle": idle, **process}
    write_whole(folder / "begun", json.dumps(begun))
    return idle


def idle_after(folder: Path, timeout_min: int, until: float) -> int:
    """Return how many drivers in a row made no progress, up to the one in `folder`, which lived
    `until` a time (seconds since 1970).

    Progress is a journal that has grown, or a long life.
    """
    begun = _begun(folder)
    if not begun:
        return 1
    lived_s = until - (folder / "begun").stat().st_mtime
    enough_s = min(_PROGRESS_S, timeout_min * 60 / 4)
    if begun.get("journal") != _journal_size(folder.parents[2]) or lived_s >= enough_s:
        return 0
    before = begun.get("idle")
    return before + 1 if isinstance(before, int) else 1


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
    with suppress(SlurmError):
        info = squeue().by_id.get(job_id)
        deadline = time.monotonic() + _ACCOUNTED_S
        while info and info.state == "CANCELLED" and time.monotonic() < deadline:
            users = [account.by for account in sacct([job_id]).values() if account.by]
            if users:
                return users == [str(os.getuid())]
            time.sleep(1)
    return False


def jobs_folder(study: Path) -> Path:
    return study / DRIVER_JOBS


def folders(study: Path) -> list[Path]:
    """Return the folders of all drivers' jobs, oldest first."""
    numbered = [path for path in jobs_folder(study).glob("[0-9]*") if path.name.isdecimal()]
    return sorted(numbered, key=lambda path: int(path.name))
