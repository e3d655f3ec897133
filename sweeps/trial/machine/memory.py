"""Memory of processes, and the names of errors that mean out of memory."""

from collections.abc import Iterable
from contextlib import suppress

import psutil

# Names, not classes, because the frameworks that raise them must not be imported here.
OUT_OF_MEMORY = {"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"}


def used_gb(pids: Iterable[int], shared_once: bool = False) -> float:
    """Return the memory of the processes that are alive, in GB. To count shared pages once takes
    longer."""
    used_bytes = 0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if shared_once:
                used_bytes += process.memory_full_info().pss
            else:
                used_bytes += process.memory_info().rss
    return used_bytes / 1e9
