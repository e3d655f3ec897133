"""Checkpoints of a training: the newest and the previous one, each a file that is complete or
absent."""

import logging
import os
import time
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_UNREADABLE = (OSError, EOFError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def newest_checkpoint(folder: Path, suffix: str) -> Path | None:
    """Return the newest undamaged zip file (.npz, .ckpt) of `put_checkpoint`; None if there is no
    file.

    Raises ValueError if no file is readable.
    """
    problems = []
    for path in (folder / f"newest{suffix}", folder / f"previous{suffix}"):
        if not path.exists():
            continue
        try:
            with zipfile.ZipFile(path) as file:
                damaged = file.testzip()
            if damaged:
                raise zipfile.BadZipFile(f"{damaged} is damaged")
            return path
        except _UNREADABLE as error:
            problems.append(f"{path} cannot be read ({type(error).__name__}: {error})")
            log.warning("%s; trying the previous checkpoint", problems[-1])
    if problems:
        raise ValueError("; ".join(problems) + f"\nTo restart this trial, delete {folder}")
    return None


def put_checkpoint(aside: Path) -> None:
    """Rename a file that was written aside to the newest checkpoint; the newest becomes the
    previous one."""
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    now = time.time()  # the clock of reports, because that of a file server may differ
    os.utime(aside, (now, now))
    newest = aside.with_name(f"newest{aside.suffix}")
    if newest.exists():
        newest.replace(aside.with_name(f"previous{aside.suffix}"))
    aside.replace(newest)


def assign_arrays(path: Path, arrays: Sequence[Any], variables: Sequence[Any]) -> None:
    """Assign the arrays of a checkpoint to a model's variables. Raises ValueError if their shapes
    differ."""
    saved_shapes = [tuple(array.shape) for array in arrays]
    shapes = [tuple(variable.shape) for variable in variables]
    if saved_shapes != shapes:
        raise ValueError(
            f"{path} belongs to another model or optimizer: its shapes are {saved_shapes}, not"
            f" {shapes}\nTo restart this trial, delete {path.parent}"
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
