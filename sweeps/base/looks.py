"""How often the files of attempts are read: rarely where there are many, because a shared disk has
other users."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

LOOKS_PER_S = 100.0  # maximum for the files of all trials, unless that would exceed _LONGEST_S
_LONGEST_S = 4.0  # because an end has to be noticed within 5 s
_RARER = 5

T = TypeVar("T")


class RateLimit:
    """A limit on the rate of rounds of reads."""

    def __init__(self) -> None:
        self._not_before = 0.0

    @property
    def is_due(self) -> bool:
        """Return whether the next round may begin."""
        return time.monotonic() >= self._not_before

    def begin(self, attempts: int, rarer: int = 1) -> None:
        """Note a round of reads of this many attempts, `rarer` times as rare as others."""
        self._not_before = time.monotonic() + rarer * min(attempts / LOOKS_PER_S, _LONGEST_S)


class Looks:
    """The rates for running attempts and for queued ones, whose files are read five times as
    rarely."""

    def __init__(self) -> None:
        self._limits = RateLimit(), RateLimit()

    def due(self, attempts: Collection[T], is_running: Callable[[T], bool]) -> list[T]:
        """Return the attempts to read now."""
        due: list[T] = []
        for limit, rarer in zip(self._limits, (1, _RARER), strict=True):
            if limit.is_due:
                group = [attempt for attempt in attempts if is_running(attempt) is (rarer == 1)]
                limit.begin(len(group), rarer)
                due += group
        return due
