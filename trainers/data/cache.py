"""Images that were decoded and resized once, in files that all trials of a machine share.

An entry is a folder with images.npy and info.json, made under another name, fsynced and renamed: it is whole, or it is
not there.
"""

import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from sweeps.trial import write_whole
from trainers.data.examples import GB
from trainers.data.listing import IMAGES, REFUSED, Undecodable, refuse_again
from trainers.data.on_disk import OnDisk

INFO = "info.json"

Write = Callable[[int, np.ndarray], None]
"""Put the images (rows, height, width, channels) at a row and after it."""


class Plan(NamedTuple):
    """An array that is to be made."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fill: Callable[[Write], dict[str, Any]]  # writes all rows; returns what is to be known about them, as JSON


def entry(folder: Path, name: str, limit_gb: float, plan: Callable[[], Plan]) -> tuple[OnDisk, dict[str, Any]]:
    """The array `name`, and what is known about it.

    If it is not there, one process makes it to `plan`, and the others wait. What was not used for longest is removed
    first, so that all entries together stay within `limit_gb`. An entry in use is left alone.

    Raises ValueError if there is no room within the limit, and Undecodable if making it did so once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = _open(folder / name)
    if found is None:
        with _alone(folder / f"{name}.lock"):
            refuse_again(folder / name)
            found = _open(folder / name)
            if found is None:
                try:
                    _make(folder, name, limit_gb, plan())
                except Undecodable as error:
                    write_whole(folder / f"{name}{REFUSED}", str(error))
                    raise
                found = _open(folder / name)
    if found is None:
        raise OSError(f"{folder / name} vanished as soon as it was made; is dataset.cache_gb={limit_gb} too small?")
    return found


def _open(path: Path) -> tuple[OnDisk, dict[str, Any]] | None:
    try:
        images = OnDisk(path / IMAGES)
        info: dict[str, Any] = json.loads((path / INFO).read_bytes())
    except (FileNotFoundError, ValueError):  # not there, or damaged: it is made anew
        return None
    if os.fstat(images.file).st_size < images.end:
        return None
    with suppress(OSError):  # a disk without locks or set times keeps it a little less well
        fcntl.flock(images.file, fcntl.LOCK_SH)  # until this process ends
        os.utime(path)
    return images, info


def _make(folder: Path, name: str, limit_gb: float, plan: Plan) -> None:
    shape, dtype, fill = plan
    aside = folder / f".{name}.making"
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
    row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
    needed = shape[0] * row_bytes
    _make_room(folder, needed, limit_gb)
    aside.mkdir()
    try:
        with (aside / IMAGES).open("wb") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_SH)  # nobody makes room here
            header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(file, header)
            start = file.tell()
            os.posix_fallocate(file.fileno(), start, needed)

            def write(row: int, images: np.ndarray) -> None:
                os.pwrite(file.fileno(), np.ascontiguousarray(images, dtype).data, start + row * row_bytes)

            info = fill(write)
            os.fsync(file.fileno())
        write_whole(aside / INFO, json.dumps(info))
        shutil.rmtree(folder / name, ignore_errors=True)  # a damaged one
        aside.rename(folder / name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.add_note(f"{folder} has no room for {needed / GB:.1f} GB; try dataset.cache=/other/disk")
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _make_room(folder: Path, needed: int, limit_gb: float) -> None:
    sizes = {path: (path / IMAGES).stat().st_size for path in folder.iterdir() if (path / IMAGES).is_file()}
    excess = needed + sum(sizes.values()) - limit_gb * GB
    for path in sorted(sizes, key=lambda path: path.stat().st_mtime):
        if excess <= 0:
            return
        if _remove(path):
            excess -= sizes[path]
    if excess > 0:
        raise ValueError(
            f"The decoded images take {needed / GB:.2f} GB, {excess / GB:.2f} GB more than dataset.cache_gb={limit_gb} "
            f"leaves in {folder}\nTry dataset.cache_gb={limit_gb + excess / GB + 0.1:.1f}, or a smaller dataset.size"
        )


def _remove(path: Path) -> bool:
    """Remove an entry unless a process uses it."""
    with suppress(FileNotFoundError):
        file = os.open(path / IMAGES, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside = path.with_name(f".{path.name}.removing")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
            print(f"removed from the cache, unused for longest: {path}", flush=True)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
    return True


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; the others say whom they wait for."""
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            print(f"waiting for {lock.read() or 'another process'}, which decodes these images", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield


class Progress:
    """A bar in the log: a line at the beginning, at the end and every few seconds."""

    def __init__(self, what: str, total: int, every_s: float = 2.0) -> None:
        self._what, self._total, self._every_s = what, total, every_s
        self._started = self._told = time.monotonic()
        print(f"{what}: {total:,} to decode, once for all trials", flush=True)

    def at(self, done: int) -> None:
        """Say how far it is, if it is time or the end."""
        now = time.monotonic()
        if now - self._told < self._every_s and done < self._total:
            return
        self._told = now
        share = done / self._total
        bar = ("#" * round(20 * share)).ljust(20, ".")
        rate = done / max(now - self._started, 1e-9)
        left_s = (self._total - done) / max(rate, 1e-9)
        print(f"[{bar}] {share:4.0%}  {done:,} of {self._total:,}  {rate:,.0f}/s  {left_s:.0f} s left", flush=True)
