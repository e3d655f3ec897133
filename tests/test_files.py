"""Files and locks under killed processes, full disks and simultaneous claims."""

import errno
import json
import math
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.base import files
from sweeps.base.files import (
    CorruptFile,
    Lines,
    Lock,
    LockHeld,
    append_lines,
    holder,
    last_lines,
    make_private,
    quarantine,
    read_json,
    read_lines,
    read_own,
    write_once,
    write_whole,
)

HOST = socket.gethostname()


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Yield a function that runs `act` in a child process, and returns the process id.

    The child exits with 0 if the result of `act` is true.
    """
    children: list[int] = []

    def fork(act: Callable[[], object]) -> int:
        pid = os.fork()
        if pid == 0:
            code = 2
            try:
                code = 0 if act() else 1
            finally:
                os._exit(code)
        children.append(pid)
        return pid

    yield fork
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


Fork = Callable[[Callable[[], object]], int]


# Whole files


@pytest.mark.parametrize("content", ["text", "", "ä\n", "half a pair \udcff", b"\x00\xff"])
def test_write_whole_replaces_the_content(tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    write_whole(file, content)
    assert file.read_bytes() == (content if isinstance(content, bytes) else content.encode(errors="backslashreplace"))
    assert list(tmp_path.iterdir()) == [file]


def test_first_outcome_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for word in ("first", "second", "third"):
        write_once(file, word)
    assert file.read_text() == "first"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("number", range(10))
def test_killed_writer_leaves_old_or_new_content(tmp_path: Path, fork: Fork, number: int) -> None:
    file = tmp_path / "file"
    write_whole(file, "0" * 100_000)

    def write() -> None:
        while True:
            for digit in "123456789":
                write_whole(file, digit * 100_000)

    writer = fork(write)
    wait_until(lambda: file.read_text()[0] != "0")
    for _ in range(random.Random(number).randrange(30)):
        content = file.read_text()
        assert (len(content), len(set(content))) == (100_000, 1)
    os.kill(writer, signal.SIGKILL)
    assert wait(writer) == -signal.SIGKILL
    content = file.read_text()
    assert (len(content), len(set(content))) == (100_000, 1)
    write_whole(file, "anew")
    assert file.read_text() == "anew"


def test_one_racing_writer_writes_the_outcome(tmp_path: Path, fork: Fork) -> None:
    for number in range(10):
        file, start = tmp_path / str(number), tmp_path / f"start{number}"

        def race(word: str, file: Path = file, start: Path = start) -> bool:
            while not start.exists():
                pass
            write_once(file, word * 10_000)
            return file.read_text() == word * 10_000

        writers = [fork(lambda word=word: race(word)) for word in "abcd"]  # type: ignore[misc]
        start.touch()
        first = [word for word, pid in zip("abcd", writers, strict=True) if wait(pid) == 0]
        assert [file.read_text()] == [word * 10_000 for word in first]


@pytest.mark.parametrize("write", [write_whole, write_once])
def test_full_disk_leaves_files_unchanged(tmp_path: Path, fork: Fork, write: Callable[..., Any]) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("before")

    def fill_disk() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for path in (file, other):
            with pytest.raises(OSError, match="File too large") as raised:
                write(path, "x" * 2000)
            assert raised.value.filename == str(path)
        return True

    assert wait(fork(fill_disk)) == 0
    assert file.read_text() == "before"
    assert [*tmp_path.iterdir()] == [file]  # because a partial file would fill the disk further


# Lines


VALUES: list[Any] = [{"step": 0, "metrics": {"loss": 0.5}}, [1, "ä\r\n\u2028"], None, "text", {"x": {}}]


def test_lines_are_appended_whole_and_read_once(tmp_path: Path) -> None:
    file, offset, read = tmp_path / "file", 0, []
    assert read_lines(file) == Lines([], 0)
    for count, value in enumerate(VALUES):
        append_lines(file, [value, count], sync=count % 2 == 0)
        lines = read_lines(file, offset)
        offset, read = lines.offset, read + lines.values
        assert read_lines(file, offset) == Lines([], offset)
    assert read == [entry for count, value in enumerate(VALUES) for entry in (value, count)]


def test_file_cut_at_any_byte_keeps_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "file"
    append_lines(file, VALUES)
    whole = file.read_bytes()
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        count = whole[:cut].count(b"\n")
        ends = whole[:cut].rfind(b"\n") + 1
        assert read_lines(file) == Lines(VALUES[:count], ends)
        append_lines(file, ["more"])  # because an append must not complete a cut line
        assert read_lines(file, ends) == Lines(["more"], file.stat().st_size, int(ends < cut))


@pytest.mark.parametrize(
    ("content", "values", "damaged"),
    [
        (b"", [], 0),
        (b"1\n2", [1], 0),
        (b"1\n{\n2\n", [1, 2], 1),
        (b"1\n\xff\xfe\n2\n", [1, 2], 1),
        (b"1\n\x00\x00\n2\n", [1, 2], 1),
        (b"\n1\n", [1], 1),
        (b'{"a":1}{"b":2}\n3\n', [3], 1),
        (b'"' + b"x" * 100_000 + b"\n4\n", [4], 1),
        (b"[" * 100_000 + b"\n5\n", [5], 1),
    ],
)
def test_damaged_lines_are_counted(tmp_path: Path, content: bytes, values: list[Any], damaged: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert read_lines(file) == Lines(values, content.rfind(b"\n") + 1, damaged)


def test_file_cut_before_offset_is_read_from_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    append_lines(file, [1, 2, 3])
    offset = read_lines(file).offset
    os.truncate(file, 2)
    assert read_lines(file, offset) == Lines([1], 2)


@pytest.mark.parametrize("most", [1, 2, 7])
def test_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:most]))
    file = tmp_path / "file"
    append_lines(file, VALUES)
    assert read_lines(file).values == VALUES


@pytest.mark.parametrize("room", range(0, 40, 3))
def test_failed_write_leaves_the_file_unchanged(tmp_path: Path, fork: Fork, room: int) -> None:
    file = tmp_path / "file"
    append_lines(file, ["before"])
    before = file.read_bytes()

    def fill_disk() -> bool:
        most = len(before) + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        with pytest.raises(OSError, match="File too large"):
            append_lines(file, ["x" * 20, "y" * 20])
        return True

    assert wait(fork(fill_disk)) == 0
    assert file.read_bytes() == before
    append_lines(file, ["after"])
    assert read_lines(file).values == ["before", "after"]


def test_killed_writer_loses_at_most_the_last_line(tmp_path: Path, fork: Fork) -> None:
    file, chance = tmp_path / "file", random.Random(1)
    file.touch()
    for _ in range(10):
        first, size = len(read_lines(file).values), file.stat().st_size

        def write(first: int = first) -> None:
            for number in range(first, 10**9):
                append_lines(file, [{"number": number, "text": "x" * (number % 500)}])

        writer = fork(write)
        wait_until(lambda size=size: file.stat().st_size > size)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.01))
        os.kill(writer, signal.SIGKILL)
        wait(writer)
        os.truncate(file, file.stat().st_size - chance.randrange(2) * chance.randrange(40))
    lines = read_lines(file)
    numbers = [value["number"] for value in lines.values]
    assert numbers == list(range(len(numbers)))
    assert lines.damaged <= 10


# Damaged files


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"1", b'"text"', b'{"a": 1}{"a": 1}', b'{"a": \xff}', b"\x00", b"[" * 99_999]
)
def test_file_without_a_json_object_is_corrupt(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    with pytest.raises(CorruptFile, match=str(file)):
        read_json(file)


def test_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorruptFile, match="pipe cannot be read: not a regular file"):
        read_json(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read_lines(tmp_path / "pipe")
    assert last_lines(tmp_path / "pipe", 3) == []


def test_read_json_returns_the_object(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    assert read_json(file) is None
    file.write_text('{"a": [1, {}]}')
    assert read_json(file) == {"a": [1, {}]}
    with pytest.raises(CorruptFile, match="Is a directory"):
        read_json(tmp_path)


def test_corrupt_file_is_quarantined_under_another_name(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    for content in ("first", "second"):
        file.write_text(content)
        assert quarantine(file).read_text() == content
        assert not file.exists()
    assert len(list(tmp_path.glob("file.json.damaged-*"))) == 2


def test_files_of_another_user_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.pickle"
    file.write_bytes(b"mine")
    assert read_own(file) == b"mine"
    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(CorruptFile, match=rf"{file} .* belongs to user {file.stat().st_uid}"):
        read_own(file)


def test_private_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    make_private(tmp_path / "slurm")
    assert (tmp_path / "slurm").stat().st_mode & 0o777 == 0o700
    (tmp_path / "slurm").chmod(0o770)
    with pytest.raises(PermissionError, match="another user could replace its files"):
        make_private(tmp_path / "slurm")


@pytest.mark.parametrize(
    ("content", "expected"), [(b"", []), (b"a\nb\nc\n", ["b", "c"]), (b"a\n\xff", ["a", "\ufffd"]), (None, [])]
)
def test_last_lines_returns_the_end_of_a_log(tmp_path: Path, content: bytes | None, expected: list[str]) -> None:
    log = tmp_path / "log"
    if content is not None:
        log.write_bytes(content)
    assert last_lines(log, 2) == expected


# Locks


def fork_holder(path: Path, fork: Fork) -> int:
    """Fork a process, wait until the process holds the lock, and return the process id."""
    pid = fork(lambda: Lock(path) and time.sleep(600))
    wait_until(lambda: (by := holder(path)) and by.pid == pid)
    return pid


def test_lock_is_held_until_the_process_is_killed(tmp_path: Path, fork: Fork) -> None:
    path = tmp_path / "lock"
    assert holder(path) is None
    pid = fork_holder(path, fork)
    with pytest.raises(LockHeld, match=f"^process {pid} on {HOST} since 2"):
        Lock(path)
    os.kill(pid, signal.SIGKILL)
    wait(pid)
    assert holder(path) is None
    lock = Lock(path)
    assert str(holder(path)).startswith(f"process {os.getpid()} on {HOST}")
    lock.release()
    assert holder(path) is None
    assert path.read_text() == ""


def test_released_lock_is_free(tmp_path: Path, fork: Fork) -> None:
    Lock(tmp_path / "lock", beats=True).release()
    fork_holder(tmp_path / "lock", fork)


def test_started_program_inherits_no_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    os.close(lock._file)  # as at the end of this process
    wait_until(lambda: holder(tmp_path / "lock") is None)
    child.communicate(b"\n")


def test_reading_the_holder_never_takes_the_lock(tmp_path: Path, fork: Fork) -> None:
    path, done = tmp_path / "lock", tmp_path / "done"
    Lock(path).release()

    def look() -> None:
        while not done.exists():
            holder(path)

    readers = [fork(look), fork(look)]
    for _ in range(3000):
        Lock(path).release()  # because LockHeld is raised if a reader took the lock
    done.touch()
    assert [wait(pid) for pid in readers] == [1, 1]


def test_one_of_six_processes_claims_the_lock(tmp_path: Path, fork: Fork) -> None:
    path, start, ended = tmp_path / "lock", tmp_path / "start", tmp_path / "ended"

    def race() -> bool:
        while not start.exists():
            pass
        try:
            lock = Lock(path)
        except LockHeld:
            return False
        while not ended.exists():
            time.sleep(0.001)
        lock.release()
        return True

    pids = [fork(race) for _ in range(6)]
    start.touch()
    time.sleep(0.2)
    ended.touch()
    assert sum(wait(pid) == 0 for pid in pids) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00\xff", '{"host": 1}', '{"what": "?"}', '{"pid": 7}'])
def test_damaged_lock_file_refuses_claims_only_while_held(tmp_path: Path, fork: Fork, content: str) -> None:
    path = tmp_path / "lock"
    pid = fork_holder(path, fork)
    path.write_text(content)
    assert holder(path) is not None
    with pytest.raises(LockHeld, match=r"another process|process 7 on \?"):
        Lock(path)
    os.kill(pid, signal.SIGKILL)
    wait(pid)
    os.utime(path, (0, 0))
    Lock(path)


# Locks that the kernel does not share between nodes


def write_lock_file(path: Path, host: str, pid: int, silent_s: float) -> None:
    """Write the lock file of a process, with the last heartbeat `silent_s` seconds ago."""
    path.write_text(json.dumps({"host": host, "pid": pid, "since": 1.7e9}))
    os.utime(path, (time.time() - silent_s,) * 2)


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize(
    ("host", "alive", "silent_s", "is_held"),
    [
        ("elsewhere", True, 1, {True: True, False: True}),
        ("elsewhere", True, 50, {True: True, False: True}),
        ("elsewhere", True, 70, {True: False, False: False}),
        (HOST, True, 1, {True: False, False: True}),  # because a kernel that shares locks reports the holder
        (HOST, False, 1, {True: False, False: False}),
        (HOST, True, 70, {True: False, False: False}),
    ],
)
def test_lock_is_held_by_a_live_process_with_heartbeat(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    alive: bool,
    silent_s: float,
    is_held: dict[bool, bool],
    reached: bool,
) -> None:
    path, pid = tmp_path / "lock", os.getppid() if alive else 2**22 + 1
    monkeypatch.setattr(files, "_ask_kernel", lambda file, command: False if reached else None)
    write_lock_file(path, host, pid, silent_s)
    if not is_held[reached]:
        Lock(path)
        return
    before = path.read_text()
    with pytest.raises(LockHeld, match=f"process {pid} on {host} since 2023-11-14"):
        Lock(path)
    assert path.read_text() == before
    assert str(holder(path)).startswith(f"process {pid} on {host}")


@pytest.mark.parametrize(
    "change", [{"since": 1e30}, {"since": "then"}, {"since": math.nan}, {"pid": "one"}, {"host": [1]}, {"other": 1}]
)
def test_damaged_note_names_no_holder(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "lock").write_text(json.dumps({"host": "elsewhere", "pid": 1, "since": 1.7e9, **change}))
    assert holder(tmp_path / "lock") is None


def test_heartbeat_updates_the_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BEAT_S", 0.01)
    lock = Lock(tmp_path / "lock", beats=True)
    for _ in range(3):
        os.utime(lock.path, (0, 0))
        wait_until(lambda: lock.path.stat().st_mtime > time.time() - 60)
    lock.path.unlink()
    time.sleep(0.05)
    lock.path.touch()
    os.utime(lock.path, (0, 0))
    wait_until(lambda: lock.path.stat().st_mtime > time.time() - 60)  # because the heartbeat continues
    lock.release()


def test_last_of_two_simultaneous_claims_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork: Fork
) -> None:
    path = tmp_path / "lock"
    monkeypatch.setattr(files, "_ask_kernel", lambda file, command: None)
    first = Lock(path)
    assert first.taken_over_by() is None
    os.utime(path, (0, 0))  # as if the first process hung for a minute
    second = fork(lambda: Lock(path) and time.sleep(600))
    wait_until(first.taken_over_by)
    assert str(first.taken_over_by()).startswith(f"process {second} on {HOST}")
    first.release()
    assert (by := holder(path)) is None or by.pid == second
    assert json.loads(path.read_text())["pid"] == second


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_lock_works_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.fcntl", refuse)
    path = tmp_path / "lock"
    lock = Lock(path)
    write_lock_file(path, "elsewhere", 1, 1)
    assert str(holder(path)).startswith("process 1 on elsewhere")
    with pytest.raises(LockHeld):
        Lock(path)
    write_lock_file(path, HOST, os.getppid(), 1)
    assert str(holder(path)).startswith(f"process {os.getppid()} on {HOST}")  # because LockHeld names the same holder
    write_lock_file(path, "elsewhere", os.getpid(), 1)  # because another node can have the same process number
    with pytest.raises(LockHeld):
        Lock(path)
    write_lock_file(path, "elsewhere", 1, 100)
    assert holder(path) is None
    lock.release()


def test_other_disk_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("fcntl.fcntl", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        Lock(tmp_path / "lock")
