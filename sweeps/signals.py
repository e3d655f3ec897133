"""Ctrl-C, SIGTERM and SIGHUP, which all end a sweep in the same way."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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
