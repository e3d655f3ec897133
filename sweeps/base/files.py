"""Files that several processes share, any of which may be killed: locks, atomic writes, appends,
tolerant reads.

No other module does these. A damaged file raises `CorruptFile`; an OSError (a full disk, ESTALE)
passes unchanged.
"""

import errno
import fcntl
import json
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

_BEAT_S = 10.0
_DEAD_S = 60.0
_TAIL = 65536  # bytes at the end of a log
_FLOCK = "hhqqi4x"  # struct flock of fcntl(2) on 64-bit Linux
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
"""The errors of a disk that accepts no files."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class CorruptFile(Exception):
    """A file exists, but its content is invalid. The text has the file's name."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(f"{path} cannot be read: {why}")


def write_whole(
    path: Path, content: str | bytes, sync: bool = True, mode: int | None = None
) -> None:
    """Replace the file `path` at once: a reader sees the old content or the new, never a part.

    With `sync`, this holds also after a crash of the node. A lone surrogate is written as its
    escape. The file has the permissions `mode`, by default those of the user's umask.
    """
    aside = _aside(path)
    try:
        with _naming(path), aside.open("wb") as file:
            file.write(
                content.encode(errors="backslashreplace") if isinstance(content, str) else content
            )
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)  # because on a full disk it would use the remaining room
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Set the file name of an OSError, because an error of a write has none, or that of the
    temporary file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_once(path: Path, content: str | bytes) -> None:
    """Write the file `path` at once. If the file exists, the first writer's content remains."""
    aside = _aside(path)
    with _naming(path):
        write_whole(aside, content)
    try:
        os.link(aside, path)
    except OSError:
        # because some file systems have no hard links; the rename raises any other error
        if not path.exists():
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def as_lines(values: Iterable[Any]) -> str:
    """Return a line of JSON for each value."""
    return "".join(f"{json.dumps(value, separators=(',', ':'))}\n" for value in values)


def append_lines(path: Path, lines: Sequence[Any], sync: bool = False) -> None:
    """Append values as lines of JSON, by one writer. If a write fails, restore the file and raise
    OSError."""
    data = as_lines(lines).encode()
    with _naming(path), path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            # so that the rest of a killed writer stays a damaged line of its own
            data = b" (cut)\n" + data
        try:
            while data:
                data = data[os.write(file.fileno(), data) :]
        except OSError:
            file.truncate(size)
            raise
        if sync:
            os.fsync(file.fileno())


@dataclass(frozen=True)
class Lines:
    """The values of a file of JSON lines, from an offset."""

    values: list[Any]
    offset: int  # bytes to the end of the last whole line, where the next read starts
    damaged: int = 0  # number of lines without a value


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read. Raises OSError for a pipe or a device, because these wait for a writer,
    or have no end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb")  # which raises IsADirectoryError for a folder


def read_text(path: Path) -> str:
    """Return the text of a file. Raises ValueError if the file is a pipe, or no UTF-8."""
    if path.is_fifo():
        raise ValueError(f"{path} is a pipe")
    return path.read_text("utf-8")


def read_lines(path: Path, offset: int = 0, parse: Callable[[bytes], Any] = json.loads) -> Lines:
    """Read the whole lines from byte `offset`, or all lines if the file is shorter. No lines
    without a file."""
    values = []
    damaged = 0
    with suppress(FileNotFoundError), open_regular(path) as file:
        if file.seek(0, os.SEEK_END) < offset:
            offset = 0
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            try:
                values.append(parse(line))
            except MALFORMED:
                damaged += 1
    return Lines(values, offset, damaged)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the file's JSON object, or None without a file. Raises CorruptFile if the content is
    anything else."""
    try:
        with open_regular(path) as file:
            return {**json.loads(file.read())}  # raises TypeError unless the content is an object
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EISDIR):
            raise
        raise CorruptFile(path, error.strerror) from error
    except MALFORMED as error:
        raise CorruptFile(path, error) from error


def read_own(path: Path) -> bytes:
    """Read a file to unpickle. Raises CorruptFile if the file does not belong to the user of this
    process."""
    with open_regular(path) as file:
        if (owner := os.fstat(file.fileno()).st_uid) != os.getuid():
            raise CorruptFile(path, f"it belongs to user {owner}")
        return file.read()


def is_private(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to the user of this process, and nobody else can
    write to it."""
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def make_private(folder: Path) -> None:
    """Make a folder of mode 0700 for files that are executed. Raises PermissionError if it belongs
    to another user."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder.stat()):
        raise PermissionError(errno.EACCES, "another user could replace its files", str(folder))


def last_lines(log: Path, count: int, tail: int = _TAIL) -> list[str]:
    """Return the last lines of a log, from its last `tail` bytes; empty if the log does not exist
    or is unreadable."""
    with suppress(OSError), open_regular(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - tail))
        return file.read().decode(errors="replace").splitlines()[-count:]
    return []


def quarantine(path: Path) -> Path:
    """Rename a damaged file, so that its name is free. Return the new path."""
    return path.rename(path.with_name(f"{path.name}.damaged-{time.time_ns()}"))


@dataclass(frozen=True)
class Holder:
    """The process that has a lock, from its note in the lock's file."""

    host: str = "?"
    pid: int = 0
    since: float = field(default_factory=time.time)

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {since}" if self.pid else "another process"


class LockHeld(Exception):
    """Another process has the lock. The text names the process."""


class Lock:
    """A lock that this process has until the process ends. Raises LockHeld if another process has
    the lock.

    The kernel excludes the processes of this node and, on most shared disks, of other nodes: open
    file description locks, https://lwn.net/Articles/586904/. For all other processes the holder
    writes a note into the file and, with `beats`, touches the file every few seconds.
    """

    def __init__(self, path: Path, beats: bool = False) -> None:
        self.path = path
        # an int, so that the lock outlives this object
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._own = Holder(socket.gethostname(), os.getpid())
        self._released = threading.Event()
        if _is_held(path, self._file, fcntl.F_OFD_SETLK):
            os.close(self._file)
            raise LockHeld(str(_note(path)))
        with _naming(path):
            os.truncate(self._file, 0)
            os.pwrite(self._file, json.dumps(vars(self._own)).encode(), 0)
        if beats:
            threading.Thread(target=self._beat, name="lock", daemon=True).start()

    def taken_over_by(self) -> Holder | None:
        """Return another process that has the lock now, or None. Without a common kernel, two can
        take it at once."""
        other = _note(self.path)
        return other if other.pid and other != self._own else None

    def release(self) -> None:
        self._released.set()
        if not self.taken_over_by():
            os.truncate(self._file, 0)
        os.close(self._file)

    def _beat(self) -> None:
        while not self._released.wait(_BEAT_S):
            # because the next beat follows if the disk is away for a moment
            with suppress(OSError):
                os.utime(self.path)


def holder(path: Path) -> Holder | None:
    """Return the holder of the lock, or None. Does not take the lock."""
    if path.is_fifo():
        return None
    with suppress(FileNotFoundError), path.open("rb") as file:
        if _is_held(path, file.fileno(), fcntl.F_OFD_GETLK):
            return _note(path)
    return None


def _is_held(path: Path, file: int, command: int) -> bool:
    """Return whether another process has the lock. If not, and the command is F_OFD_SETLK, take the
    lock."""
    locked = _ask_kernel(file, command)
    note = _note(path)
    if locked or not note.pid:
        return bool(locked)
    # because a kernel with locks decides about its own node
    here = note.host == socket.gethostname()
    if here and (
        locked is False or note.pid == os.getpid() or not Path(f"/proc/{note.pid}").exists()
    ):
        return False
    # because the file system's clock may differ from the node's
    with tempfile.TemporaryFile(dir=path.parent) as now:
        return os.fstat(now.fileno()).st_mtime - path.stat().st_mtime < _DEAD_S


def _ask_kernel(file: int, command: int) -> bool | None:
    """Return whether the kernel has a lock of another process; None if the file system has no
    locks."""
    try:
        answer = fcntl.fcntl(
            file, command, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        )
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return command == fcntl.F_OFD_GETLK and struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK


def _note(path: Path) -> Holder:
    """Return the holder that the lock's file names; a holder without a pid if the file is
    damaged."""
    with suppress(CorruptFile, OSError, *MALFORMED):
        note = Holder(**(read_json(path) or {}))
        str(note)  # raises OverflowError or another error for a time in no calendar
        if isinstance(note.host, str) and isinstance(note.pid, int) and note.pid > 0:
            return note
    return Holder()


def _aside(path: Path) -> Path:
    """Return a temporary name that no other thread uses, on this node or another."""
    return path.with_name(
        f".{path.name}.{socket.gethostname()}.{os.getpid()}.{threading.get_native_id()}"
    )
