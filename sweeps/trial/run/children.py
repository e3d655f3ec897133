"""Child processes of a trial under SLURM, which signals every process of a job before the job must
end.

A trial saves its state after SIGTERM, and needs its children for that. So the children ignore
SIGTERM.
"""

import os
import signal
from contextlib import suppress
from multiprocessing.popen_fork import Popen
from pathlib import Path
from typing import Any

_popen: Any = Popen  # of all ways to start a child


def ignore_sigterm_in_forks() -> None:
    """Let each later fork of this process ignore SIGTERM."""
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))


def kill_where_sigterm_is_ignored() -> None:
    """Let multiprocessing end its children also if they ignore SIGTERM: otherwise a pool would wait
    for ever."""

    def terminate(self: Any) -> None:
        self._send_signal(signal.SIGKILL if _ignores_sigterm(self.pid) else signal.SIGTERM)

    _popen.terminate = terminate


def _ignores_sigterm(pid: int) -> bool:
    """Return whether a process ignores SIGTERM, by proc(5)."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == "SigIgn":
                return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)
    return False
