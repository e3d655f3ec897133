"""The types of what the files of a study contain, because any JSON may be in a file that a person
or a disk changed."""

import json
import math
from typing import Any


def check_letters(content: object) -> None:
    """Raise ValueError if a text has half a letter (a lone surrogate), which no file and no
    terminal takes.

    The bytes of a name that is no UTF-8 are letters here, because a command line may have them.
    """
    json.dumps(content, ensure_ascii=False).encode(errors="surrogateescape")


def check_point(point: object) -> dict[str, Any]:
    """Return the values of a point. Raises TypeError unless each is a number, a text, a truth value
    or None."""
    if not isinstance(point, dict):
        raise TypeError("a point is no mapping of keys to values")
    for key, value in point.items():
        if not isinstance(value, str | int | float | None):
            raise TypeError(f"{key} has a {type(value).__name__} as its value")
    return point


def check_texts(content: object) -> None:
    """Raise TypeError unless the content is a mapping of texts to texts."""
    if not isinstance(content, dict) or not all(isinstance(text, str) for text in content.values()):
        raise TypeError("a mapping of texts is expected")


def check_section(content: object) -> None:
    """Raise TypeError unless the content is None, or a mapping with a text as its `_target_`."""
    if content is None:
        return
    if not isinstance(content, dict) or not isinstance(content.get("_target_", ""), str):
        raise TypeError("the settings of a class are expected")


def check_list(content: object, fewest: int = 0) -> None:
    """Raise TypeError unless the content is a list of at least so many texts."""
    if (
        not isinstance(content, list)
        or len(content) < fewest
        or not all(isinstance(text, str) for text in content)
    ):
        raise TypeError("a list of texts is expected")


def check_text(content: object) -> None:
    """Raise TypeError unless the content is a text without zero bytes, which no command line
    has."""
    if not isinstance(content, str) or "\0" in content:
        raise TypeError("a text is expected")


def check_count(content: object) -> None:
    """Raise TypeError unless the content is a whole number that a study may have of trials."""
    if not isinstance(content, int) or isinstance(content, bool) or not 0 <= content < 2**63:
        raise TypeError("a number of trials is expected")


def check_amounts(by_name: object) -> None:
    """Raise TypeError or OverflowError unless the content is a mapping of names to numbers."""
    if not isinstance(by_name, dict):
        raise TypeError("a mapping of names to numbers is expected")
    check_numbers([*by_name.values()])


def check_numbers(values: object) -> None:
    """Raise TypeError or OverflowError unless the values are a list of numbers."""
    if not isinstance(values, list):
        raise TypeError("a list of numbers is expected")
    for number in values:
        if not isinstance(number, int | float):
            raise TypeError("a number is expected")
        math.isfinite(number)  # raises OverflowError for a whole number of hundreds of digits
