"""Files as several processes see them, on shared disks, some of them killed: the only module that locks, writes whole,
appends, or reads what may be cut.

What cannot be read raises `CorruptFile`, which concerns one file. An OSError (a full disk, ESTALE) passes as it is.
"""

import errno
import fcntl
import json
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOOKS_PER_S = 1000.0  # at most, at the files of all trials together: a shared file system has other users
_BEAT_S = 10.0
_DEAD_S = 60.0
_TAIL = 65536  # bytes of a log
_FLOCK = "hhqqi4x"  # struct flock of fcntl(2) on 64-bit Linux
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
"""The errors of a disk that takes no files."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class CorruptFile(Exception):
    """A file is there and does not hold what it should. The text names it."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(f"{path} cannot be read: {why}")


class RateLimit:
    """When to look at the files of all trials once more, within LOOKS_PER_S."""

    _not_before = 0.0

    def due(self, trials: int) -> bool:
        """Whether a round of looks at so many trials may begin now. If so, it is taken to begin."""
        if time.monotonic() < self._not_before:
            return False
        self._not_before = time.monotonic() + trials / LOOKS_PER_S
        return True


def write_whole(path: Path, content: str | bytes, sync: bool = True) -> None:
    """Replace `path`: a reader, also after a crash, sees the old content or the new, never a part; after a crash of
    the whole node only with `sync`, which notes that are needed only while it is up do without. Half a surrogate pair,
    as a file's name may hold, is written as its escape.
    """
    aside = _aside(path)
    try:
        with _naming(path), aside.open("wb") as file:
            file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)  # on a full disk it would take the room that is left
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an OSError say which file could not be written: that of a write, as on a full disk, names none, and others
    name the one aside.
    """
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_once(path: Path, content: str | bytes) -> None:
    """Make `path`, whole. If it is there already nothing is changed: the first writer's word stands."""
    aside = _aside(path)
    with _naming(path):
        write_whole(aside, content)
    try:
        os.link(aside, path)
    except OSError:
        if not path.exists():  # a file system without hard links; whatever else is wrong, renaming meets too
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def append_lines(path: Path, lines: Sequence[Any], sync: bool = False) -> None:
    """Append values as JSON, a line each: all of them, or an OSError and the file as it was. One writer at a time."""
    data = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()
    with _naming(path), path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            data = b" (cut)\n" + data  # what a writer that was killed left stays a line of its own, and a bad one
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
    """What a file of JSON lines holds from an offset on."""

    values: list[Any]
    offset: int  # from where to read on, in bytes: a last line without its end waits
    damaged: int = 0  # lines that hold no value


def read_lines(path: Path, offset: int = 0, parse: Callable[[bytes], Any] = json.loads) -> Lines:
    """The whole lines from byte `offset` on, or all of them where the file was cut before it. None without a file."""
    values, damaged = [], 0
    with suppress(FileNotFoundError), path.open("rb") as file:
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
    """The object that the file holds; None if there is no file. Raises CorruptFile if it holds something else."""
    try:
        return {**json.loads(path.read_bytes())}  # what is no object raises TypeError
    except FileNotFoundError:
        return None
    except MALFORMED as error:
        raise CorruptFile(path, error) from error


def read_own(path: Path) -> bytes:
    """A file that may be unpickled: it belongs to the user of this process. Raises CorruptFile if it does not."""
    with path.open("rb") as file:
        if (owner := os.fstat(file.fileno()).st_uid) != os.getuid():
            raise CorruptFile(path, f"it belongs to user {owner}")
        return file.read()


def last_lines(log: Path, count: int) -> list[str]:
    """The end of a log, which need not exist and may hold anything. Of a long one the last 64 KiB are looked at."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace").splitlines()[-count:]
    return []


def quarantine(path: Path) -> Path:
    """Rename a damaged file, so that its content is kept and its name is free."""
    return path.rename(path.with_name(f"{path.name}.damaged-{time.time_ns()}"))


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, as it noted itself."""

    host: str = "?"
    pid: int = 0
    since: float = field(default_factory=time.time)

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {since}" if self.pid else "another process"


class LockHeld(Exception):
    """Another process holds the lock: says who."""


class Lock:
    """A lock that this process holds until it ends, however it ends. Raises LockHeld if another process holds it.

    The kernel keeps it among the processes that it reaches: those of this node, and on most shared disks those of the
    others (https://lwn.net/Articles/586904/: open file description locks). For those that it does not reach, the
    holder notes itself in the file and, if it `beats`, touches it every few seconds.
    """

    def __init__(self, path: Path, beats: bool = False) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # a number: nobody need keep this object
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
        """Who holds it by now, if two processes that no kernel tells apart took it in the same moment."""
        other = _note(self.path)
        return other if other.pid and other != self._own else None

    def release(self) -> None:
        self._released.set()
        if not self.taken_over_by():
            os.truncate(self._file, 0)
        os.close(self._file)

    def _beat(self) -> None:
        while not self._released.wait(_BEAT_S):
            with suppress(OSError):  # a disk that is away for a moment: the next beat tells again
                os.utime(self.path)


def holder(path: Path) -> Holder | None:
    """Who holds the lock, or None. Looking never takes it."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        if _is_held(path, file.fileno(), fcntl.F_OFD_GETLK):
            return _note(path)
    return None


def _is_held(path: Path, file: int, command: int) -> bool:
    """Whether another process holds the lock. If not, the command F_OFD_SETLK has taken it."""
    locked = _ask_kernel(file, command)
    note = _note(path)
    if locked or not note.pid:
        return bool(locked)
    here = note.host == socket.gethostname()  # its kernel knows, where it has locks
    if here and (locked is False or note.pid == os.getpid() or not Path(f"/proc/{note.pid}").exists()):
        return False
    with tempfile.TemporaryFile(dir=path.parent) as now:  # by the clock of the file system, not of this node
        return os.fstat(now.fileno()).st_mtime - path.stat().st_mtime < _DEAD_S


def _ask_kernel(file: int, command: int) -> bool | None:
    """Whether the kernel knows that another process has locked the file; None where the file system has no locks."""
    try:
        answer = fcntl.fcntl(file, command, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return command == fcntl.F_OFD_GETLK and struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK


def _note(path: Path) -> Holder:
    with suppress(CorruptFile, OSError, TypeError):
        return Holder(**(read_json(path) or {}))
    return Holder()


def _aside(path: Path) -> Path:
    """A name of this thread's own, also among those of other nodes."""
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{threading.get_native_id()}")
