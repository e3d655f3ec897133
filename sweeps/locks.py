"""Locks on files, held by a process as long as it lives: the kernel gives them back however it ends."""

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from sweeps.definition import sweeps_line
from sweeps.errors import UserError


def hold(path: Path) -> int:
    """Lock `path` until this process ends, and note in it who holds it. Returns the open file.

    Raises:
        BlockingIOError: another process holds it.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise
    os.truncate(file, 0)
    os.write(
        file, json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}).encode()
    )
    return file


def hold_study(folder: Path) -> int:
    """Be the only driver of the study in `folder`.

    Raises:
        UserError: another driver is; says who.
    """
    try:
        return hold(folder / "driver.lock")
    except BlockingIOError:
        raise UserError(
            f"study {folder.name} is being run by {holder(folder / 'driver.lock')}.\n"
            f"Watch it with: {sweeps_line('status', folder)}, or end it with: {sweeps_line('stop', folder)}"
        ) from None


def is_held(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def holder(path: Path) -> str:
    """Who holds or held the lock, in words."""
    try:
        note = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return "another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(note["since"]))
    return f"process {note['pid']} on {note['host']} since {since}"


def wait_until_gone(path: Path, timeout_s: float = 30.0) -> None:
    """Return when nobody holds the lock.

    Raises:
        UserError: somebody still does after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while is_held(path):
        if time.monotonic() > deadline:
            raise UserError(f"{path.parent} still runs in {holder(path)}; end that process, then start again")
        time.sleep(0.05)
