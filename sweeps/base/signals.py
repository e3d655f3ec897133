"""Ctrl-C, SIGTERM and SIGHUP, which all end a sweep in the same way, also where the code of others
never returns."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LOOK_S = 0.25
_WAKE = signal.SIGURG  # because by default a process ignores it


class Interrupted(BaseException):
    """The code was abandoned, for a reason in words, or for an error. No Exception, because others
    catch those."""

    def __init__(self, reason: str | Exception = "") -> None:
        super().__init__(reason)
        self._reason = reason

    def words(self) -> str:
        """Return the reason. Raises the error, if the reason is one."""
        if isinstance(self._reason, Exception):
            raise self._reason
        return self._reason


@contextmanager
def on_signals(handle: Callable[[int, Any], None]) -> Iterator[None]:
    """Call `handle` for SIGINT, SIGTERM and SIGHUP, but not for a SIGHUP that is ignored, as under
    nohup."""
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
def interruptible(reason: Callable[[], str]) -> Iterator[None]:
    """Raise Interrupted in the code within, once `reason` returns words. Only for code that writes
    no file.

    Another thread calls `reason`, so that no signal is lost that arrives just before the code, or
    just after it. What the code has in memory may be incomplete then.
    """
    watch = _Watch(reason)
    previous = signal.signal(_WAKE, watch.interrupt)
    watcher = threading.Thread(target=watch.run, daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            watch.over.set()
    except Interrupted:
        pass  # because it is raised below, with its reason
    finally:
        watch.over.set()  # again, because the first call may have been interrupted
        watcher.join()
        signal.signal(_WAKE, previous)
    if watch.reasons:
        raise Interrupted(watch.reasons[0])


class _Watch:
    """Wakes the thread that made it, again and again, once `reason` returns words or raises."""

    def __init__(self, reason: Callable[[], str]) -> None:
        self.over = threading.Event()
        self.reasons: list[str | Exception] = []
        self._reason = reason
        self._thread = threading.get_ident()

    def run(self) -> None:
        while not self.over.wait(_LOOK_S):
            if not self.reasons:
                self._look()
            if self.reasons:
                # each time, because the code may swallow an exception
                signal.pthread_kill(self._thread, _WAKE)

    def _look(self) -> None:
        try:
            if words := self._reason():
                self.reasons.append(words)
        except OSError:
            pass  # because a shared disk may be unreachable for a moment
        except Exception as error:
            self.reasons.append(error)

    def interrupt(self, *_: Any) -> None:
        if self.reasons and not self.over.is_set():
            raise Interrupted
