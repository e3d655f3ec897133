"""The axis of a swept parameter: its values as places between 0 and 1, and which of them are written beside it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sweeps.record.study import TrialRecord
from sweeps.secrets import without_password
from sweeps.trial.job import Value
from sweeps.wording import text

MOST_TICKS = 12
NONE = "none"  # the value of a parameter that does not exist in a trial
_NOWHERE = -1 / 8  # its place, below all others
_LARGEST, _SMALLEST = 1e300, 1e-300  # of larger numbers even a difference may be infinite, of smaller ones a share is 0
_INTERVAL = re.compile(r"(log )?interval\((\S+), (\S+)\)")


@dataclass(frozen=True)
class Axis:
    """Of numbers, linear or logarithmic; or of anything else, in order."""

    name: str
    words: list[str] = field(default_factory=list)  # where it is of no numbers
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    has_none: bool = False
    numbers: tuple[float, ...] = ()  # those that were tried
    none: str = NONE  # how what it has not is called

    @property
    def is_of_numbers(self) -> bool:
        return not self.words

    def place(self, value: Value) -> float:
        """Where on the axis a value stands: 0 is its lower end, 1 its upper one."""
        if value is None:
            return _NOWHERE
        if self.words:
            return self.words.index(self.cell(value)) / max(1, len(self.words) - 1)
        low, high, at = (self._scaled(number) for number in (self.low, self.high, float(value)))
        return (at - low) / (high - low) if high > low else 0.5

    @property
    def cells(self) -> list[str]:
        """Its values as they are written where each has a cell of its own."""
        return [self.cell(value) for value in self.words or self.numbers]

    def cell(self, value: Value) -> str:
        if value is None:
            return NONE
        return text(float(value), digits=4) if self.is_of_numbers else _word(value)

    def number_at(self, place: float) -> float:
        """The number that stands there."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        at = low + place * (high - low)
        return 10**at if self.log else at

    def ticks(self) -> dict[float, str]:
        """What is written beside the axis, by place."""
        found = {_NOWHERE: self.none} if self.has_none else {}
        if self.words:
            every = math.ceil(len(self.words) / (2 * MOST_TICKS))
            return found | {self.place(word): word for word in self.words[::every]}
        return found | {self.place(number): text(float(f"{number:.4g}")) for number in self.round_numbers()}

    def round_numbers(self) -> list[float]:
        """The numbers themselves if they are few, else powers of ten, with the ends where those are far from them, or
        even steps of 1, 2 or 5 times one.
        """
        typed = all(float(f"{number:.3g}") == number for number in self.numbers)  # not by a sampler, out of an interval
        if typed and len(self.numbers) <= MOST_TICKS and {self.low, self.high} <= {*self.numbers}:
            return [*self.numbers]
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            powers = [10.0**power for power in range(first, last + 1, math.ceil((last - first + 1) / MOST_TICKS) or 1)]
            far = [end for end in (self.low, self.high) if all(abs(math.log10(end / one)) > 0.3 for one in powers)]
            return sorted({*powers, *far})
        if self.high - self.low < _SMALLEST:
            return [self.low]
        size = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step = next(size * times for times in (1, 2, 5, 10) if (self.high - self.low) / (size * times) <= 6)
        return [i * step for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]

    def _scaled(self, number: float) -> float:
        return math.log10(number) if self.log else number


def find_axes(rows: Sequence[TrialRecord], space: Mapping[str, str], without: str = "") -> list[Axis]:
    """An axis for each parameter that differs between these trials, in the order of the search space, which is text
    as a study's definition has it; but for the one named `without`, the seed.
    """
    names = dict.fromkeys(name for row in rows for name in row.params if name.lstrip("+") != without.lstrip("+"))
    found = [_axis(name, [row.params.get(name) for row in rows], space) for name in names]
    return [axis for axis in found if axis]


def _axis(name: str, values: Sequence[Value], space: Mapping[str, str]) -> Axis | None:
    known = [value for value in values if value is not None]
    if len({repr(value) for value in values}) < 2:
        return None
    numbers = tuple(sorted({float(value) for value in known if is_number(value)}))
    if not all(map(is_number, known)):
        words = {_word(value) for value in known}
        typed = ",".join(said for key, said in space.items() if key.partition(" under ")[0] == name)
        return Axis(
            name, sorted(words, key=lambda word: (_place_in(typed, word), word)), has_none=len(known) < len(values)
        )
    low, high, declared = numbers[0], numbers[-1], False
    for key, said in space.items():
        if key.partition(" under ")[0] == name and (ends := _INTERVAL.fullmatch(said)):
            low, high, declared = min(low, float(ends[2])), max(high, float(ends[3])), True
            log = bool(ends[1])
    log = low > 0 and (log if declared else high / low >= 20 or _are_multiples(numbers))
    return Axis(name, [], low, high, log, len(known) < len(values), numbers)


def _word(value: Value) -> str:
    return without_password(text(value, digits=4))


def _place_in(typed: str, word: str) -> float:
    """Where a value stands among the typed ones; after all of them if it does not."""
    found = re.search(rf"(^|,){re.escape(word)}(,|$)", typed, re.IGNORECASE)
    return found.start() if found else math.inf


def _are_multiples(numbers: Sequence[float]) -> bool:
    """Whether each is about as many times the one before it, as of 16, 32, 64."""
    times = [b / a for a, b in pairwise(numbers)]
    return len(times) > 1 and min(times) > 1.5 and max(times) < 1.25 * min(times)


def is_number(value: Value) -> bool:
    """Whether it has a place on an axis of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
