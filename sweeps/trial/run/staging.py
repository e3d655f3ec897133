"""Copies of a trial's data on its node's own disk, shared by all processes of a job on the node.

Files in the folder of a job, on the node's disk:

    <n>            the copy of the n-th path
    copying        the lock of the process that copies
    alive.<pid>    the lock of each process that may read the copies
"""

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.base.files import Lock, LockHeld, holder, make_private

STAGED = "SWEEPYARD_STAGED"
"""Variable of the environment: a JSON object with the copy of each staged path."""
_NEW_S = 60.0  # because a process may be about to lock the folder that it has made


def staged(path: str | Path) -> Path:
    """Return the copy of a path on the node's own disk; the path itself if it was not staged."""
    absolute = Path(path).expanduser().absolute()
    for source, copy in json.loads(os.environ.get(STAGED, "{}")).items():
        if absolute.is_relative_to(source):
            return Path(copy) / absolute.relative_to(source)
    return Path(path)


@contextmanager
def staging(paths: Sequence[str]) -> Iterator[None]:
    """Copy the paths to the node's disk, once for all processes of the SLURM job, and name the
    copies in `STAGED`.

    The first process copies, and the others wait. The last process removes the copies; those of
    killed jobs are removed by the next job. Raises UserError if a path cannot be copied.
    """
    if not paths:
        yield
        return
    disks = [os.environ.get(name, "") for name in ("SLURM_TMPDIR", "TMPDIR")]
    disk = next(filter(os.path.isdir, disks), "/tmp")  # noqa: S108
    folder = Path(disk) / f"sweepyard-{os.getuid()}-{os.environ['SLURM_JOB_ID']}"
    try:
        make_private(folder)
        own = Lock(folder / f"alive.{os.getpid()}")
        _remove_unused(folder, new_s=_NEW_S)
        copies = _copy_once([Path(path).expanduser().absolute() for path in paths], folder)
    except OSError as error:
        raise UserError(
            f"hydra.launcher.stage: {error}.\nStage less on this disk, or remove stage"
        ) from error
    os.environ[STAGED] = json.dumps(copies)
    try:
        yield
    finally:
        own.release()
        _remove_unused(folder, new_s=0.0)


def _copy_once(paths: Sequence[Path], folder: Path) -> dict[str, str]:
    """Return the copy of each path, made by this process or by another process of the job."""
    while True:
        with suppress(LockHeld):
            lock = Lock(folder / "copying")
            break
        time.sleep(0.1)
    copies = {str(path): str(folder / str(number)) for number, path in enumerate(paths)}
    try:
        for path, copy in zip(paths, map(Path, copies.values()), strict=True):
            if copy.exists():
                continue
            aside = copy.with_suffix(".part")
            if path.is_dir():
                # because a killed process may have left a part
                shutil.rmtree(aside, ignore_errors=True)
                shutil.copytree(path, aside)
            else:
                shutil.copy2(path, aside)
            aside.rename(copy)
    finally:
        lock.release()
    return copies


def _remove_unused(own: Path, new_s: float) -> None:
    """Remove this user's folders that no living process reads; `own` only if nothing can be about
    to read it."""
    for folder in own.parent.glob(f"{own.name.rpartition('-')[0]}-*"):
        with suppress(OSError):
            is_new = time.time() - folder.stat().st_mtime < (new_s if folder == own else _NEW_S)
            if not is_new and not any(map(holder, folder.glob("alive.*"))):
                shutil.rmtree(folder)
