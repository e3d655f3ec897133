"""Numbers and words in the terminal, on pages and in messages."""

import re
from collections.abc import Mapping
from itertools import takewhile

from sweeps.secrets import without_password

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LONGEST = 100
"""Maximum number of characters of a value in a line with other values."""
_LONGEST_LINE = 500  # characters of an error in a summary


def printable(words: str) -> str:
    """Return the words without passwords, and without control characters of a terminal."""
    return without_password(_CONTROLS.sub("", words))


def reason(error: BaseException) -> str:
    """Return the first words of an error, with its type unless the words of such an error say all."""
    name = type(error).__name__
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip(" .")]
    if not lines:
        return name
    return lines[0] if isinstance(error, ImportError) else f"{name}: {lines[0]}"


def one_line(words: str) -> str:
    """Return an error of several lines in one line, without its middle if it is long. The whole error is in its log."""
    return short(" ".join(words.split()), _LONGEST_LINE)


def text(value: object, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def point_text(point: Mapping[str, object]) -> str:
    """Return the values of a point with their keys: `optimizer=adam lr=0.001`."""
    return " ".join(f"{key.lstrip('+')}={value}" for key, value in point.items())


def duration(seconds: float) -> str:
    """Return a time as h:min:s, with tenths below a minute: `0:00:07.5`, `1:02:05`."""
    if seconds < 60:
        return f"0:00:{seconds:04.1f}"
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"


def counted(count: int, noun: str) -> str:
    """Return the number with its noun: `1 trial`, `2 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def short_difference(words: str, others: str, limit: int = LONGEST) -> tuple[str, str]:
    """Return two different texts shortened: their parts from shortly before the difference if they look the same."""
    if short(words, limit) != short(others, limit):
        return short(words, limit), short(others, limit)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))
    start = max(0, same - limit // 4)
    return f"…{short(words[start:], limit)}", f"…{short(others[start:], limit)}"


def short(words: str, limit: int = 24) -> str:
    return words if len(words) <= limit else f"{words[: limit // 2]}…{words[-limit // 2 + 1 :]}"
