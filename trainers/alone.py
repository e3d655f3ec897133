"""A function in a process of its own, and whether that ran out of memory, whatever it died of.

TensorFlow may have been imported by whoever calls, but must not have run: a runtime that was started survives no fork.
"""

import math
import multiprocessing
import os
import re
import resource
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil

from sweeps.trial import memory

Result = TypeVar("Result")

USED = 0.95
"""The share of a limit at which a process is ended: before the launcher, which looks less often, ends the trial."""
LOOK_S = 0.02
PATIENCE_S = 10.0
CRASHES = (signal.SIGSEGV, signal.SIGABRT)
"""How a process ends that got no memory and did not look (ResNet50V2 under RLIMIT_AS, and under RLIMIT_DATA)."""

_FORK = multiprocessing.get_context("fork")


class OutOfMemory(MemoryError):
    """The process ran out of memory. The text says how it is known."""


def alone(
    work: Callable[[], Result], limit_gb: float | None = None, timeout_s: float = math.inf, log: Path | None = None
) -> Result:
    """What `work` returns, called in a fork of this process.

    limit_gb: memory that this process and the fork may use together, pages that they share counted once.
    log: where stdout and stderr of the fork go, after what is there; None = where those of this process do.

    Raises OutOfMemory; TimeoutError after `timeout_s` seconds; RuntimeError with the words of whatever else it raised,
    or how else it died.
    """
    room_gb = math.inf if limit_gb is None else USED * limit_gb
    kills = _kills_for_memory()
    hears, says = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_live, args=(work, says, log), daemon=True)
    process.start()
    says.close()
    both, deadline = (os.getpid(), process.pid or 0), time.monotonic() + timeout_s
    try:
        while not hears.poll(LOOK_S):
            if memory.used_gb(both) > room_gb and memory.used_gb(both, shared_once=True) > room_gb:
                raise OutOfMemory(f"it came to {USED:.0%} of hydra.launcher.mem_gb={limit_gb:g}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"it took longer than {timeout_s:g} s")
        result, error = hears.recv()
    except EOFError:
        process.join(min(max(PATIENCE_S, deadline - time.monotonic()), 1e6))  # a large core takes long to write
        if process.exitcode is None:
            raise TimeoutError(f"it took longer than {timeout_s:g} s") from None
        raise _death(process.exitcode, kills) from None
    finally:
        process.kill()  # what it takes apart as it ends, nobody needs
        process.join(PATIENCE_S)
        hears.close()
    if error:
        raise error
    return cast(Result, result)


def peak_gb() -> float:
    """The most memory that this process had, in GB, pages that it shares with others counted once among them."""
    now = psutil.Process().memory_full_info()
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - now.rss + now.pss) / 1e9


def cap_data(limit_gb: float) -> None:
    """Let this process ask for so much more than it has: no single step goes far beyond what is looked at."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (psutil.Process().memory_info().data + int(limit_gb * 1e9), hard))


def _live(work: Callable[[], Any], says: Connection, log: Path | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        if log:
            with log.open("ab") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
        says.send((work(), None))
    except Exception as error:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # to say so takes memory too
        traceback.print_exc()
        of_memory = memory.OUT_OF_MEMORY & {kind.__name__ for kind in type(error).__mro__}
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
        says.send((None, OutOfMemory(words) if of_memory else RuntimeError(words)))


def _death(code: int, kills: int | None) -> Exception:
    """Why a process died that said nothing, by its exit code, or minus the signal that killed it."""
    said = signal.strsignal(-code) if code < 0 else ""
    if -code in CRASHES:
        return OutOfMemory(f"its process crashed ({said})")
    if -code == signal.SIGKILL and (kills is None or _kills_for_memory() != kills):
        return OutOfMemory("the kernel killed its process for memory")
    if code < 0:
        return RuntimeError(f"its process was killed from outside ({said})")
    return RuntimeError(f"its process ended with exit code {code} and no result")


def _kills_for_memory() -> int | None:
    """How many processes of this machine the kernel has killed for memory; None where it does not tell."""
    try:
        counted = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(counted[1]) if counted else None
