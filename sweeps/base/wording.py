"""Numbers and words in the terminal, on pages and in messages."""

import math
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile

from sweeps.base.secrets import without_password

_CONTROLS = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
LONGEST = 100
"""Maximum number of characters of a value in a line with other values."""
_LONGEST_LINE = 500  # characters of an error in a summary


def printable(words: str) -> str:
    """Return the words without passwords, and without control characters of a terminal."""
    return without_password(_CONTROLS.sub("", words))


def reason(error: BaseException) -> str:
    """Return the first words of an error, with its type unless the words of such an error say
    all."""
    name = type(error).__name__
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip(" .")]
    if not lines:
        return name
    return lines[0] if isinstance(error, ImportError) else f"{name}: {lines[0]}"


def one_line(words: str) -> str:
    """Return an error of several lines in one line, without its middle if it is long. The whole
    error is in its log."""
    return short(" ".join(words.split()), _LONGEST_LINE)


def text(value: object, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def without_noise(value: object) -> object:
    """Return a number of 32 bits with the fewest digits that mean it: 0.3 for
    0.30000001192092896."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    import numpy as np  # here, because the driver starts without it

    with np.errstate(over="ignore"):
        of_32_bits = np.float32(value)
    return float(str(of_32_bits)) if float(of_32_bits) == value else value


def digits_of(values: Iterable[object]) -> int:
    """Return how many digits of numbers in a column to show: four, or up to six if fewer would make
    two equal."""
    different = {text(value): value for value in values}
    for digits in (4, 5):
        shorter = {text(value, digits) for value in different.values()}
        # because 1.2e+04 is for 12345.7
        is_in_full = not any("e+" in words for words in shorter - different.keys())
        if len(shorter) == len(different) and is_in_full:
            return digits
    return 6


def mean_text(mean: float, ends: tuple[float, float]) -> tuple[str, str]:
    """Return a mean and its interval with as many digits as the interval's width supports: two of
    its half."""
    low, high = ends
    half = (high - low) / 2
    # of large numbers, and of differences that six digits do not show
    form = ".6g"
    if math.isfinite(half) and half > 0:
        digits = 1 - math.floor(math.log10(half))
        form = f".{digits}f" if 0 <= digits <= 6 else form
    return f"{mean:{form}}", f"{low:{form}} to {high:{form}}"


def point_text(point: Mapping[str, object]) -> str:
    """Return the values of a point with their keys: `optimizer=adam lr=0.001`."""
    return " ".join(f"{key.lstrip('+')}={value}" for key, value in point.items())


def duration(seconds: float) -> str:
    """Return a time as h:min:s, with tenths below a minute: `0:00:07.5`, `1:02:05`."""
    if seconds < 60:
        return f"0:00:{seconds:04.1f}"
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"


def size_text(size: float) -> str:
    """Return a number of bytes with its unit: `1.5 GB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 999.5:  # which three digits round to 1000
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def counted(count: int, noun: str) -> str:
    """Return the number with its noun: `1 trial`, `2 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def short_difference(words: str, others: str) -> tuple[str, str]:
    """Return two different texts shortened: their parts from shortly before the difference if they
    look the same."""
    shown = short(words, LONGEST), short(others, LONGEST)
    if shown[0] != shown[1]:
        return shown
    pairs = zip(words, others, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = max(0, same - LONGEST // 4)
    return f"…{short(words[start:], LONGEST)}", f"…{short(others[start:], LONGEST)}"


def short(words: str, limit: int = 24) -> str:
    return words if len(words) <= limit else f"{words[: limit // 2]}…{words[-limit // 2 + 1 :]}"
