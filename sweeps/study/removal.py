"""Putting a study away: packed into one file, or deleted."""

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
def taken(study: Path) -> Iterator[None]:
    """Keep every driver out. Raises UserError if one runs the study, it has jobs that may still run, or its folder
    holds packed studies.
    """
    if any(study.glob("*.tar.gz")):  # it was named so before that was refused
        raise UserError(f"{study} holds packed studies too (*.tar.gz)\nMove them elsewhere first")
    try:
        lock = Lock(study / _LOCK)
    except LockHeld as error:
        said = f"study {study.name} is being run by {error}"
        raise UserError(f"{said}. End it first: {sweeps_line('stop', study)}") from None
    try:
        _refuse_jobs(study)
        yield
    finally:
        lock.release()


def _refuse_jobs(study: Path) -> None:
    trials = (TrialFolder(file.parent) for file in study.rglob("trial.json"))
    unfinished = [one.path for one in trials if (newest := one.newest()) and not newest.is_over]
    try:
        jobs = living_jobs(study, unfinished)
    except SlurmError as error:
        raise UserError(f"SLURM does not tell whether study {study.name} still runs there: {error}") from error
    if jobs:
        said = f"{len(jobs)} SLURM jobs of study {study.name} are left"
        raise UserError(f"{said}. End them first: {sweeps_line('stop', study)}")


def pack(study: Path) -> Path:
    """Put the study's folder into `archive/<name>.tar.gz` beside it. A crash leaves the folder, the file, or both."""
    packed = study.parent / ARCHIVE / f"{study.name}.tar.gz"
    if packed.exists():
        raise UserError(f"{packed} is there already\nRename it, or this study's folder")
    packed.parent.mkdir(exist_ok=True)
    aside = packed.with_name(f".{packed.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as tar:
                tar.add(study.resolve(), study.name, filter=lambda one: None if one.name.endswith(f"/{_LOCK}") else one)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(packed)
    finally:
        aside.unlink(missing_ok=True)
    delete(study)
    return packed


def delete(study: Path) -> None:
    """Delete the folder, also one that is a link's: at once for all who look, then file by file."""
    folder = study.resolve()
    gone = folder.rename(folder.with_name(f".{folder.name}.deleted-{time.time_ns()}"))
    if study.is_symlink():
        study.unlink()
    (gone / "study.json").unlink(missing_ok=True)  # a crash leaves something that is no study
    shutil.rmtree(gone)
