"""How a study is put away: packed into one file, or deleted."""

import os
import shlex
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from sweeps.base.errors import UserError
from sweeps.base.files import Lock, LockHeld
from sweeps.base.wording import counted
from sweeps.launchers.slurm.queue import SlurmError, living_jobs
from sweeps.launchers.slurm.trials import driver_chain
from sweeps.record.study_file import ARCHIVE, sweeps_line
from sweeps.trial.folder import TrialFolder

_LOCK = "driver.lock"


@contextmanager
def locked(study: Path, root: Path) -> Iterator[None]:
    """Keep every driver out of a study, the content of which is going to be removed from `root`.

    Raises UserError if a driver runs the study, SLURM jobs of it may still run, or its folder is
    not the study's alone.
    """
    _refuse_place(study, root)
    if any(study.glob("*.tar.gz")):  # because older versions allowed the name of the archive
        raise UserError(
            f"{study} holds packed studies (*.tar.gz).\nMove them to another folder first"
        )
    try:
        lock = Lock(study / _LOCK)
    except LockHeld as error:
        raise UserError(
            f"study {study.name} is being run by {error}.\nStop it first:"
            f" {sweeps_line('stop', study)}"
        ) from None
    try:
        _refuse_jobs(study)
        yield
    finally:
        lock.release()


def _refuse_place(study: Path, root: Path) -> None:
    """Raise UserError if the folder is outside of `root`, is a link, or holds another disk or
    another study."""
    folder = Path(os.path.normpath(study.absolute()))
    if folder.parent != Path(os.path.normpath(root.absolute())):
        line = shlex.join([folder.name, "--root", str(folder.parent)])
        raise UserError(
            f"{folder} is not directly in {root}.\nName the study and its folder: {line}"
        )
    if study.is_symlink():
        target = study.resolve()
        raise UserError(
            f"{study} is a symbolic link to {target}.\nName the folder itself: {target.name} --root"
            f" {shlex.quote(str(target.parent))}; then remove the link"
        )
    # bind mounts, too
    mounts = [Path(disk.mountpoint) for disk in psutil.disk_partitions(all=True)]
    if mount := next((mount for mount in mounts if mount.is_relative_to(study.resolve())), None):
        raise UserError(
            f"{mount} is a mount point.\nUnmount it first: {shlex.join(['umount', str(mount)])}"
        )
    if nested := sorted(
        file.parent for file in study.glob("**/study.json") if file.parent != study
    ):
        inner = nested[0]
        raise UserError(
            f"{study} holds another study: {inner}.\nMove it to another folder first: "
            f"{shlex.join(['mv', str(inner), str(study.with_name(inner.name))])}"
        )


def _refuse_jobs(study: Path) -> None:
    trials = (TrialFolder(file.parent) for file in study.rglob("trial.json"))
    unfinished = [
        trial.path for trial in trials if (newest := trial.newest()) and not newest.is_over
    ]
    try:
        jobs = [*living_jobs(study, unfinished), *driver_chain.living(study)]
    except SlurmError as error:
        raise UserError(
            f"SLURM does not report whether study {study.name} has jobs: {error}"
        ) from error
    if jobs:
        count = counted(len(jobs), "SLURM job")
        raise UserError(
            f"study {study.name} still has {count}.\nStop them first: {sweeps_line('stop', study)}"
        )


def free_archive(study: Path) -> Path:
    """Return the file `archive/<name>.tar.gz` beside a study. Raises UserError if it exists."""
    packed = study.parent / ARCHIVE / f"{study.name}.tar.gz"
    if packed.exists():
        raise UserError(f"{packed} exists already.\nRename this file, or the study's folder")
    return packed


def pack(study: Path) -> Path:
    """Pack the study's folder into its archive. A crash leaves the folder, the file, or both.
    Raises UserError if the archive exists."""
    packed = free_archive(study)
    packed.parent.mkdir(exist_ok=True)
    aside = packed.with_name(f".{packed.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as tar:
                tar.add(study, study.name, filter=_without_lock)
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
    """Delete the study's folder: first rename it, so that it disappears at once."""
    gone = study.rename(study.with_name(f".{study.name}.deleted-{time.time_ns()}"))
    # first, because after a crash the rest is no study
    (gone / "study.json").unlink(missing_ok=True)
    shutil.rmtree(gone)
