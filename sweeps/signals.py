"""Ctrl-C, SIGTERM and SIGHUP, which all end a sweep in the same way, also where the code of others never returns."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LOOK_S = 0.25
_WAKE = signal.SIGURG  # because by default a process ignores it, and no library uses it


class Interrupted(BaseException):
    """The code was abandoned, because there is a reason to stop. No Exception, because others catch those."""


@contextmanager
def on_signals(handle: Callable[[int, Any], None]) -> Iterator[None]:
    """Call `handle` for SIGINT, SIGTERM and SIGHUP, but not for a SIGHUP that is ignored, as under nohup."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def interruptible(reason: Callable[[], object]) -> Iterator[None]:
    """Raise Interrupted in the code within, once `reason` returns something. Only for code that writes no file.

    Another thread calls `reason`, so that no signal is lost that arrives just before the code, or just after it.
    """
    over, thread = threading.Event(), threading.get_ident()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            try:
                is_due = bool(reason())
            except Exception:  # because the loop's own call raises it where it is explained
                is_due = True
            if is_due:
                signal.pthread_kill(thread, _WAKE)
                return

    def interrupt(*_: Any) -> None:
        if not over.is_set():
            over.set()
            raise Interrupted

    previous = signal.signal(_WAKE, interrupt)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        signal.signal(_WAKE, previous)
