"""The ranks (processes) of one attempt: how they find each other, and how they report failures.

Files in the attempt's folder, each written by rank <r>:

    ranks/<r>.address   the address of the rank: host:port
    ranks/<r>.json      the `Outcome` of a rank that failed without an outcome from the chief
"""

import json
import random
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sweeps.base.files import CorruptFile, read_json, write_whole
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import Outcome, State, World

_PORTS = range(20000, 32000)  # below the ports that Linux assigns to outgoing connections
_POLL_S = 0.05
_GRACE_S = 1.0  # because the chief reports a failure that all ranks share


class RankLost(RuntimeError):
    """Another rank is gone, hangs or never started: the attempt is lost, and the trial resumes in a
    new attempt."""


def exchange_addresses(attempt: AttemptFolder, world: World) -> World:
    """Return the world with the address of each rank. Raises RankLost if a rank does not start in
    time."""
    folder = attempt.path / "ranks"
    folder.mkdir(exist_ok=True)
    if world.is_chief:
        (attempt.path / "heard").touch()  # because the other ranks read the file
    host = "127.0.0.1" if world.nodes == 1 else socket.gethostname()
    write_whole(folder / f"{world.rank}.address", f"{host}:{_free_port()}")
    deadline = time.monotonic() + world.timeout_s
    while True:
        addresses = _read_addresses(folder)
        missing = [rank for rank in range(world.size) if rank not in addresses]
        if not missing:
            return replace(world, addresses=tuple(addresses[rank] for rank in range(world.size)))
        if time.monotonic() > deadline:
            names = ", ".join(f"rank {rank} on {world.addresses[rank]}" for rank in missing)
            raise RankLost(f"{names} did not start within rank_timeout_s={world.timeout_s:g}")
        time.sleep(_POLL_S)


def _read_addresses(folder: Path) -> dict[int, str]:
    """Return the addresses that are written so far, by rank."""
    addresses = {}
    for file in _list_files(folder):
        if file.suffix == ".address" and file.stem.isdecimal():
            with suppress(OSError):
                addresses[int(file.stem)] = file.read_text()
    return addresses


def is_failure(end: Outcome) -> bool:
    """Return whether the other ranks must not wait for a rank with this outcome."""
    return end.state in {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY, State.LOST} and bool(
        end.error
    )


def leave(attempt: AttemptFolder, world: World, end: Outcome) -> Outcome:
    """Wait until the chief has written the attempt's outcome, or report a failure of this rank;
    return its outcome.

    A rank that left early would look dead to the other ranks.
    """
    # because the launcher reports a preemption
    if world.size == 1 or (end.state is State.LOST and not end.error):
        return end
    if not is_failure(end):
        if not world.is_chief:
            _await_end(attempt)
        return end
    is_lost = end.state is State.LOST
    # A lost rank waits longer, because a rank that failed itself knows the cause.
    deadline = time.monotonic() + _GRACE_S * (1 + is_lost)
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        if _has_ended(attempt) or (is_lost and first_failure(attempt)):
            return end
    report_failure(attempt, world.rank, end)
    return end


def _await_end(attempt: AttemptFolder) -> None:
    # without a deadline, because the launcher kills this rank if the chief dies
    while not _has_ended(attempt):
        time.sleep(_POLL_S)


def _has_ended(attempt: AttemptFolder) -> bool:
    return attempt.path / "end.json" in _list_files(attempt.path)


def report_failure(attempt: AttemptFolder, rank: int, end: Outcome) -> None:
    """Write why a rank ended."""
    # because the rank may have failed before it looked for the others
    (attempt.path / "ranks").mkdir(exist_ok=True)
    write_whole(attempt.path / "ranks" / f"{rank}.json", json.dumps(end.as_json()))


def first_failure(attempt: AttemptFolder) -> Outcome | None:
    """Return the first failure that a rank reported. A rank that only lost another rank comes
    last."""
    failures = []
    for file in attempt.path.glob("ranks/*.json"):
        with suppress(OSError, CorruptFile, ValueError, KeyError, TypeError):
            end = Outcome.from_json(read_json(file) or {})
            end = Outcome(end.state, f"rank {file.stem}: {end.error}")
            failures.append((end.state is State.LOST, file.stat().st_mtime, end))
    if not failures:
        return None
    return min(failures, key=lambda failure: failure[:2])[2]


def _list_files(folder: Path) -> list[Path]:
    """Return the files of a folder, because NFS caches that a single name is missing; none while
    the disk is away."""
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _free_port() -> int:
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - not a secret
        with suppress(OSError), socket.socket() as server:
            server.bind(("", port))
            return port
