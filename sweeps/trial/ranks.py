"""The processes (ranks) of one attempt: how they find each other, and what those say that cannot go on.

Files in the attempt's folder, each written by the rank <r> that it is named after:

    ranks/<r>.address   where the others reach it: host:port
    ranks/<r>.json      why it ended, if it went wrong and the chief did not say so, see `Outcome`
"""

import json
import random
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sweeps.files import CorruptFile, read_json, write_whole
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import Outcome, State, World

_PORTS = range(20000, 32000)  # below those that Linux gives to outgoing connections
_LOOK_S = 0.05
_OTHERS_FIRST_S = 1.0  # what goes wrong on all ranks, the chief says


class RankLost(RuntimeError):
    """Another rank of the trial is gone, hangs or never came: the attempt is lost, the trial goes on in a new one."""


def meet(attempt: AttemptFolder, world: World) -> World:
    """The world with everybody's address, once all ranks are there. Raises RankLost if one is not in time."""
    folder = attempt.path / "ranks"
    folder.mkdir(exist_ok=True)
    if world.is_chief:
        (attempt.path / "heard").touch()  # before the others look for it
    host = "127.0.0.1" if world.nodes == 1 else socket.gethostname()
    write_whole(folder / f"{world.rank}.address", f"{host}:{_free_port()}")
    addresses: dict[int, str] = {}
    deadline = time.monotonic() + world.timeout_s
    while len(addresses) < world.size:
        if time.monotonic() > deadline:
            missing = [rank for rank in range(world.size) if rank not in addresses]
            names = ", ".join(f"rank {rank} on {world.addresses[rank]}" for rank in missing)
            raise RankLost(f"{names} did not come within rank_timeout_s={world.timeout_s:g}")
        for file in _in(folder):
            if file.suffix == ".address" and file.stem.isdecimal() and int(file.stem) not in addresses:
                with suppress(OSError):
                    addresses[int(file.stem)] = file.read_text()
        time.sleep(_LOOK_S if len(addresses) < world.size else 0)
    return replace(world, addresses=tuple(addresses[rank] for rank in range(world.size)))


def went_wrong(end: Outcome) -> bool:
    """Whether a rank that ended so must not be waited for by the others."""
    return end.state in {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY, State.LOST} and bool(end.error)


def part(attempt: AttemptFolder, world: World, end: Outcome) -> None:
    """Leave the others: once the chief has written the attempt's end, or else with a word of one's own if `end` is a
    bad one. A rank that went early would look to the others as if it had died.
    """
    if end.state is State.LOST and not end.error:  # told to make room: the launcher says how it ended
        return
    if not went_wrong(end):
        while not world.is_chief and attempt.path / "end.json" not in _in(attempt.path):
            time.sleep(_LOOK_S)  # without end: should the chief die, the launcher ends this one
        return
    lost = end.state is State.LOST
    deadline = time.monotonic() + _OTHERS_FIRST_S * (1 + lost)  # who knows least speaks last
    while time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        if attempt.path / "end.json" in _in(attempt.path) or (lost and said(attempt)):
            return
    say(attempt, world.rank, end)


def say(attempt: AttemptFolder, rank: int, end: Outcome) -> None:
    """Leave word of why a rank ended."""
    write_whole(attempt.path / "ranks" / f"{rank}.json", json.dumps(end.as_json()))


def said(attempt: AttemptFolder) -> Outcome | None:
    """Why the ranks of an attempt ended, as the first of them says that knows more than that another one is gone."""
    found = []
    for file in attempt.path.glob("ranks/*.json"):
        with suppress(OSError, CorruptFile, ValueError, KeyError, TypeError):
            end = Outcome.from_json(read_json(file) or {})
            found.append(
                (end.state is State.LOST, file.stat().st_mtime, Outcome(end.state, f"rank {file.stem}: {end.error}"))
            )
    return min(found, default=(None, None, None), key=lambda one: one[:2])[2]


def _in(folder: Path) -> list[Path]:
    """What is there. A name that is looked up too early, NFS would go on to say is not there; a disk may be away."""
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _free_port() -> int:
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - not a secret
        with suppress(OSError), socket.socket() as tried:
            tried.bind(("", port))
            return port
