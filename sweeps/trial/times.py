"""Times in files, in seconds since 1970: made by a clock that never jumps, and checked where they
are read."""

import math
import time
from contextlib import suppress
from pathlib import Path

from sweeps.base.files import read_text

_LATEST = 2**37  # seconds, because a date has a year of four digits
# the boot time counts also while a laptop sleeps
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_OFFSET = time.time() - time.clock_gettime(_CLOCK)


def now() -> float:
    """Return the time by the clock at the start of this process and the seconds since then.

    If someone sets the clock meanwhile, no duration becomes negative or hours too long.
    """
    return _OFFSET + time.clock_gettime(_CLOCK)


def is_time(value: object) -> bool:
    """Return whether a value is a time that a calendar has."""
    return isinstance(value, int | float) and 0 <= value < _LATEST


def read_time(file: Path) -> float:
    """Return the time in a file; of a damaged file the time of its last change, which is about the
    same."""
    with suppress(ValueError):
        at = float(read_text(file))
        if is_time(at):
            return at
    return file.stat().st_mtime


def parse_time(value: object, per_second: float = 1.0) -> float:
    """Return a time from a file, of a unit with so many `per_second`; 0.0, an unknown time, if a
    calendar lacks it."""
    try:
        at = float(value) / per_second if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return 0.0
    return at if is_time(at) else 0.0
