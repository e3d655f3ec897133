"""Numbers that were typed with a unit, such as mem_gb=8G, or as a range, such as lr=0.1..0.5, as
their keys take them."""

import math
import re
import shlex

UNITS = {"gb": "GB", "min": "minutes", "hours": "hours", "s": "seconds"}
"""What a key's last word says of its unit."""
_SECONDS = {"s": 1, "min": 60, "hours": 3600}
_PER_LETTER = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_TIME_WORD = r"(\d+(?:\.\d+)?) ?(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?)(?:i?b)?")
_GIGABYTES = {"": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1, "t": 2**10}
_COUNT = re.compile(r"(\d+(?:\.\d+)?) ?([kKMB])")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?(%)")
_END = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_RANGE = re.compile(rf"({_END})(?:-|:|\.\.+)({_END})(?::({_END}))?")
_MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "%": 1 / 100}


def unit_of(key: str) -> str:
    """Return the unit that the name of a key ends with; empty if it has none."""
    last = key.rpartition(".")[2].rpartition("_")
    return last[2] if last[0] and last[2] in UNITS else ""


def advise_number(key: str, text: str, whole: bool) -> str:
    """Return what to type for a number with a unit; empty if the text is no such number."""
    unit = unit_of(key)
    if unit == "min" and (match := re.fullmatch(r"(\d+):([0-5]?\d)", text)):
        first, second = map(int, match.groups())
        return (
            f"Type {key}={60 * first + second} for {first} h {second} min, or "
            f"{key}={_written((60 * first + second) / 60, whole)} for {first} min {second} s"
        )
    number = _number(unit, text.strip(), whole)
    return "" if number is None else f"Type: {shlex.quote(f'{key}={_written(number, whole)}')}"


def range_of(text: str) -> str:
    """Return the function of Hydra's grammar for a range such as 1-5, 0.1..0.5 or 8:64:8; empty if
    the text is none."""
    match = _RANGE.fullmatch(text.strip("[] "))
    if match is None or not float(match[1]) < float(match[2]):
        return ""
    first, last, step = match.groups()
    if step:
        return f"range({first},{last},{step})" if float(step) else ""
    if first.isdecimal() and last.isdecimal():
        return f"range({first},{int(last) + 1})"
    return f"interval({first},{last})"


def in_unit_of(key: str, text: str) -> str:
    """Return the text of a value in the unit that the name of its key has, if the value has another
    one."""
    number = _number(unit_of(key), text, whole=False) if unit_of(key) else None
    return text if number is None else _written(number, whole=False)


def _number(unit: str, text: str, whole: bool) -> float | None:
    """Return the number in the unit of its key; None if the text is no number, or has another kind
    of unit.

    Examples are 8G, 8192MB and 8 of memory, 8h and 1:30:00 of time, 3k, 2M and 1e3 of whole
    numbers, 20% and 1/5 of others.
    """
    if unit == "gb":
        return _gigabytes(text.lower())
    if unit:
        seconds = _seconds(text.lower(), unit)
        return None if seconds is None else seconds / _SECONDS[unit]
    if match := _COUNT.fullmatch(text) if whole else _PERCENT.fullmatch(text):
        return float(match[1]) * _MULTIPLES[match[2]]
    if whole:
        is_number = re.fullmatch(r"\d+(\.\d*)?(e\+?\d+)?", text.lower())
        return float(text) if is_number and float(text).is_integer() else None
    match = re.fullmatch(r"(\d+)/([1-9]\d*)", text)
    return int(match[1]) / int(match[2]) if match else None


def _gigabytes(text: str) -> float | None:
    """Return an amount of memory such as 8G, 8192MB or, as the key has it, 8."""
    memory = _MEMORY.fullmatch(text)
    if memory is None:
        return None
    factor = _GIGABYTES[memory[2]] if text[-1].isalpha() else 1
    return float(memory[1]) * factor


def _seconds(text: str, unit: str) -> float | None:
    """Return a time such as 8h, 1h30m, 1:30:00 or 2-00:00:00, as SLURM writes it, in seconds."""
    if re.fullmatch(f"(?:{_TIME_WORD} ?)+", text):
        words = re.findall(_TIME_WORD, text)
        return sum(float(count) * _PER_LETTER[word[0]] for count, word in words)
    if text.replace(".", "", 1).isdecimal():
        return float(text) * _SECONDS[unit]
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return None
    days = int(clock[1] or 0)
    parts = [int(part) for part in clock.groups()[1:] if part is not None]
    starts_with_hours = clock[1] is not None or len(parts) == 3 or unit == "hours"
    units = [3600, 60, 1] if starts_with_hours else [60, 1]
    return 86400 * days + sum(part * size for part, size in zip(parts, units, strict=False))


def _written(number: float, whole: bool) -> str:
    rounded = round(number, 6)
    return str(math.ceil(rounded)) if whole else f"{rounded:.12g}"
