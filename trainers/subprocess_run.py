"""Calls of a function in a forked process, which detect whether the process ran out of memory,
however it died.

The caller may have imported TensorFlow but must not have run it, because a started runtime survives
no fork.
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

from sweeps.trial.machine import memory

Result = TypeVar("Result")

USABLE_FRACTION = 0.95
"""Fraction of the memory limit at which the process is killed: before the launcher, which polls
less often, ends the trial.
"""
POLL_S = 0.02
EXIT_TIMEOUT_S = 10.0
CRASHES = (signal.SIGSEGV, signal.SIGABRT)
"""Signals that end a process whose failed allocation was not checked (ResNet50V2 under RLIMIT_AS
and RLIMIT_DATA)."""

_FORK = multiprocessing.get_context("fork")


class OutOfMemory(MemoryError):
    """The process ran out of memory. The text gives the evidence."""


def run_in_subprocess(
    work: Callable[[], Result],
    limit_gb: float | None = None,
    timeout_s: float = math.inf,
    log: Path | None = None,
) -> Result:
    """Call `work` in a fork of this process and return its result.

    limit_gb: memory that this process and the fork may use together; shared pages count once. log:
    file to which stdout and stderr of the fork are appended; None: the fork inherits those of this
    process.

    Raises OutOfMemory; TimeoutError after `timeout_s` seconds; RuntimeError with the text of any
    other exception, or with the signal or exit code of the fork.
    """
    kill_count = _count_oom_kills()
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send_result, args=(work, sender, log), daemon=True)
    process.start()
    sender.close()
    deadline = time.monotonic() + timeout_s
    too_long = TimeoutError(f"it took longer than {timeout_s:g} s")
    try:
        while not receiver.poll(POLL_S):
            if limit_gb:
                _check_memory(process.pid, limit_gb)
            if time.monotonic() > deadline:
                raise too_long
        result, error = receiver.recv()
    except EOFError:
        # The wait is long because a large core dump takes long to write.
        process.join(min(max(EXIT_TIMEOUT_S, deadline - time.monotonic()), 1e6))
        if process.exitcode is None:
            raise too_long from None
        raise _explain_exit(process.exitcode, kill_count) from None
    finally:
        process.kill()  # not an orderly exit, because its cleanup takes time and is not needed
        process.join(EXIT_TIMEOUT_S)
        receiver.close()
    if error:
        raise error
    return cast(Result, result)


def _check_memory(pid: int | None, limit_gb: float) -> None:
    """Raise OutOfMemory if this process and the fork together use almost all of their limit."""
    pids = (os.getpid(), pid or 0)
    usable_gb = USABLE_FRACTION * limit_gb
    # first with shared pages counted by each, which is faster
    if memory.used_gb(pids) <= usable_gb:
        return
    if memory.used_gb(pids, shared_once=True) > usable_gb:
        raise OutOfMemory(f"it reached {USABLE_FRACTION:.0%} of hydra.launcher.mem_gb={limit_gb:g}")


def peak_gb() -> float:
    """Return the peak memory of this process in GB; of a page shared by n processes it counts
    1/n."""
    usage = psutil.Process().memory_full_info()
    return (
        float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - usage.rss + usage.pss)
        / 1e9
    )


def cap_data(limit_gb: float) -> None:
    """Set RLIMIT_DATA to `limit_gb` above present use, because one large allocation could outrun
    the polling."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (psutil.Process().memory_info().data + int(limit_gb * 1e9), hard)
    )


def _send_result(work: Callable[[], Any], sender: Connection, log: Path | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        if log:
            with log.open("ab") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
        sender.send((work(), None))
    except Exception as error:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        # because the report needs memory too
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        traceback.print_exc()
        is_memory_error = memory.OUT_OF_MEMORY & {kind.__name__ for kind in type(error).__mro__}
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
        sender.send((None, OutOfMemory(text) if is_memory_error else RuntimeError(text)))


def _explain_exit(code: int, kill_count: int | None) -> Exception:
    """Return the error for a process without a result; `code` is its exit code, or minus the signal
    that killed it."""
    signal_name = signal.strsignal(-code) if code < 0 else ""
    if -code in CRASHES:
        return OutOfMemory(f"its process crashed ({signal_name})")
    if -code == signal.SIGKILL and (kill_count is None or _count_oom_kills() != kill_count):
        return OutOfMemory("the kernel killed its process for memory")
    if code < 0:
        return RuntimeError(f"its process was killed from outside ({signal_name})")
    return RuntimeError(f"its process ended with exit code {code} and no result")


def _count_oom_kills() -> int | None:
    """Return how many processes the kernel has killed for memory since boot; None if the kernel
    does not report it."""
    try:
        match = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None
