"""How much memory processes have, and what errors are called that say that there is no more."""

from collections.abc import Iterable
from contextlib import suppress

import psutil

OUT_OF_MEMORY = {"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"}
"""Names, not classes: the frameworks that raise them must not be imported here. What C++ calls std::bad_alloc is a
MemoryError in Python, or SIGABRT.
"""


def used_gb(pids: Iterable[int], shared_once: bool = False) -> float:
    """What processes have in memory, as far as they live. To count pages that they share once takes longer."""
    used = 0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            used += process.memory_full_info().pss if shared_once else process.memory_info().rss
    return used / 1e9
