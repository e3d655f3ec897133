"""How a study is put away: packed into one file, or deleted."""

import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeps.errors import UserError
from sweeps.files import Lock, LockHeld
from sweeps.launchers.slurm.queue import SlurmError, living_jobs
from sweeps.record.definition import ARCHIVE, sweeps_line
from sweeps.trial.folder import TrialFolder

_LOCK = "driver.lock"


@contextmanager
def locked(study: Path) -> Iterator[None]:
    """Keep every driver out of the study.

    Raises UserError if a driver runs it, SLURM jobs of it may still run, or its folder holds packed studies.
    """
    if any(study.glob("*.tar.gz")):  # because older versions allowed the name of the archive
        raise UserError(f"{study} holds packed studies (*.tar.gz).\nMove them to another folder first")
    try:
        lock = Lock(study / _LOCK)
    except LockHeld as error:
        raise UserError(
            f"study {study.name} is being run by {error}.\nStop it first: {sweeps_line('stop', study)}"
        ) from None
    try:
        _refuse_jobs(study)
        yield
    finally:
        lock.release()


def _refuse_jobs(study: Path) -> None:
    trials = (TrialFolder(file.parent) for file in study.rglob("trial.json"))
    unfinished = [trial.path for trial in trials if (newest := trial.newest()) and not newest.is_over]
    try:
        jobs = living_jobs(study, unfinished)
    except SlurmError as error:
        raise UserError(f"SLURM does not report whether study {study.name} has jobs: {error}") from error
    if jobs:
        raise UserError(
            f"study {study.name} still has {len(jobs)} SLURM jobs.\nStop them first: {sweeps_line('stop', study)}"
        )


def pack(study: Path) -> Path:
    """Pack the study's folder into `archive/<name>.tar.gz` beside it. A crash leaves the folder, the file, or both."""
    packed = study.parent / ARCHIVE / f"{study.name}.tar.gz"
    if packed.exists():
        raise UserError(f"{packed} exists already.\nRename this file, or the study's folder")
    packed.parent.mkdir(exist_ok=True)
    aside = packed.with_name(f".{packed.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as tar:
                tar.add(study.resolve(), study.name, filter=_without_lock)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(packed)
    finally:
        aside.unlink(missing_ok=True)
    delete(study)
    return packed


def _without_lock(file: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if file.name.endswith(f"/{_LOCK}") else file


def delete(study: Path) -> None:
    """Delete the study's folder, also if it is a link: first rename it, so that it disappears at once."""
    folder = study.resolve()
    gone = folder.rename(folder.with_name(f".{folder.name}.deleted-{time.time_ns()}"))
    if study.is_symlink():
        study.unlink()
    (gone / "study.json").unlink(missing_ok=True)  # first, because after a crash the rest is no study
    shutil.rmtree(gone)
