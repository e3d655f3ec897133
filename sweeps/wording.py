"""Numbers and words as a person reads them, in the terminal, on pages and in messages."""

import re

from sweeps.secrets import without_password

_STEERS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LONGEST = 100
"""Characters of a value where many stand side by side."""


def printable(words: str) -> str:
    """As a person may see it: without passwords, and without what would steer a terminal."""
    return without_password(_STEERS.sub("", words))


def text(value: object, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def counted(count: int, what: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{count} {what}{'s' * (count != 1)}"


def short(words: str, most: int = 24) -> str:
    return words if len(words) <= most else f"{words[: most // 2]}…{words[-most // 2 + 1 :]}"
