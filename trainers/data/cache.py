"""A cache of decoded and resized images, shared by all trials of a machine.

An entry is a folder with images.npy and info.json. It is written under another name, fsynced and
renamed, and so is complete or absent.
"""

import errno
import fcntl
import json
import math
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from sweeps.trial import write_whole
from trainers.data.examples import GB
from trainers.data.listing import IMAGES, REFUSED, Undecodable, raise_if_refused
from trainers.data.on_disk import OnDisk

INFO = "info.json"

Write = Callable[[int, np.ndarray], None]
"""Write images (rows, height, width, channels), starting at a row."""


class Plan(NamedTuple):
    """An array to be made."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fill: Callable[[Write], dict[str, Any]]  # writes all rows, returns the content of info.json

    @property
    def size_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def open_entry(
    folder: Path, name: str, limit_gb: float, plan: Callable[[], Plan]
) -> tuple[OnDisk, dict[str, Any]]:
    """Return the array `name` and its info; one process makes a missing entry by `plan` while
    others wait.

    First the least recently used entries are removed, until all together fit in `limit_gb`; entries
    in use stay. Raises ValueError if the limit leaves no room, and Undecodable if making the entry
    ever did.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    entry = _open(path)
    if entry:
        return entry
    with _lock(folder / f"{name}.lock"):
        raise_if_refused(path)
        entry = _open(path)
        if not entry:
            _make(path, limit_gb, plan())
            entry = _open(path)
    if not entry:
        raise OSError(
            f"{path} vanished as soon as it was made.\nIncrease dataset.cache_gb={limit_gb}"
        )
    return entry


def _open(path: Path) -> tuple[OnDisk, dict[str, Any]] | None:
    try:
        images = OnDisk(path / IMAGES)
        info: dict[str, Any] = json.loads((path / INFO).read_bytes())
    except (FileNotFoundError, ValueError):  # absent or damaged: a new entry will be made
        return None
    if os.fstat(images.file).st_size < images.end:
        return None
    with suppress(OSError):  # suppressed, because some disks have no locks or times
        fcntl.flock(images.file, fcntl.LOCK_SH)  # held until this process ends, against removal
        os.utime(path)
    return images, info


def _make(path: Path, limit_gb: float, plan: Plan) -> None:
    unfinished = path.with_name(f".{path.name}.making")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a killed process
    _make_room(path.parent, plan.size_bytes, limit_gb)
    unfinished.mkdir()
    try:
        with (unfinished / IMAGES).open("wb") as file:
            info = _fill(file, plan)
        write_whole(unfinished / INFO, json.dumps(info))
        shutil.rmtree(path, ignore_errors=True)  # a damaged entry
        unfinished.rename(path)
    except Undecodable as error:
        shutil.rmtree(unfinished, ignore_errors=True)  # first, because the disk may be full
        write_whole(path.with_name(path.name + REFUSED), str(error))
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            size_gb = plan.size_bytes / GB
            error.add_note(
                f"{path.parent} has no room for {size_gb:.1f} GB. Use dataset.cache=/other/disk"
            )
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fill(file: IO[bytes], plan: Plan) -> dict[str, Any]:
    """Write the planned array, and return its info."""
    shape, dtype, fill = plan
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_SH)  # against removal by other processes
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, header)
    start = file.tell()
    os.posix_fallocate(file.fileno(), start, plan.size_bytes)
    row_bytes = plan.size_bytes // shape[0]

    def write(row: int, images: np.ndarray) -> None:
        content = np.ascontiguousarray(images, dtype).data
        os.pwrite(file.fileno(), content, start + row * row_bytes)

    info = fill(write)
    os.fsync(file.fileno())
    return info


def _make_room(folder: Path, needed: int, limit_gb: float) -> None:
    sizes = {
        path: (path / IMAGES).stat().st_size
        for path in folder.iterdir()
        if (path / IMAGES).is_file()
    }
    excess = needed + sum(sizes.values()) - limit_gb * GB
    for path in sorted(sizes, key=lambda path: path.stat().st_mtime):
        if excess <= 0:
            return
        if _remove(path):
            excess -= sizes[path]
    if excess > 0:
        raise ValueError(
            f"The decoded images take {needed / GB:.2f} GB, {excess / GB:.2f} GB more than"
            f" dataset.cache_gb={limit_gb} leaves in {folder}\nUse"
            f" dataset.cache_gb={limit_gb + excess / GB + 0.1:.1f}, or a smaller dataset.size"
        )


def _remove(path: Path) -> bool:
    """Remove an entry and return True, unless a process uses it."""
    with suppress(FileNotFoundError):
        file = os.open(path / IMAGES, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed = path.with_name(f".{path.name}.removing")
            shutil.rmtree(removed, ignore_errors=True)
            path.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
            print(f"removed from the cache (least recently used): {path}", flush=True)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
    return True


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock on a file; a process that waits for the lock prints its holder."""
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            print(
                f"waiting for {lock.read() or 'another process'}, which decodes these images",
                flush=True,
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield


class Progress:
    """A progress bar in the log: a line at the start, at the end and every few seconds."""

    def __init__(self, title: str, total: int, every_s: float = 2.0) -> None:
        self._total = total
        self._every_s = every_s
        self._started = self._printed_at = time.monotonic()
        print(f"{title}: {total:,} to decode, once for all trials", flush=True)

    def show(self, done: int) -> None:
        """Print the bar if the interval has passed, or at the end."""
        now = time.monotonic()
        if now - self._printed_at < self._every_s and done < self._total:
            return
        self._printed_at = now
        fraction = done / self._total
        bar = ("#" * round(20 * fraction)).ljust(20, ".")
        rate = done / max(now - self._started, 1e-9)
        left_s = (self._total - done) / max(rate, 1e-9)
        print(
            f"[{bar}] {fraction:4.0%}  {done:,} of {self._total:,}  {rate:,.0f}/s  {left_s:.0f} s"
            " left",
            flush=True,
        )
