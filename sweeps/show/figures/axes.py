"""The axis of a swept parameter: the positions of its values between 0 and 1, and its tick
labels."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from sweeps.base.secrets import without_password
from sweeps.base.wording import text
from sweeps.record.study import TrialRecord
from sweeps.trial.job import Value

MOST_TICKS = 12
NONE = "none"  # label where a trial lacks the parameter
_NONE_POSITION = -1 / 8
_GAP = 0.045  # smallest distance of two labels
_LARGEST = 1e300  # because larger numbers differ by inf
_SMALLEST = 1e-300  # because fractions of smaller numbers are 0
_INTERVAL = re.compile(r"(log )?interval\((\S+), (\S+)\)")


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis of numbers, or an axis of ordered categories."""

    name: str
    categories: list[str] = field(default_factory=list)  # empty on an axis of numbers
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    has_none: bool = False
    numbers: tuple[float, ...] = ()  # numbers that were tried
    none: str = NONE  # label of a missing value
    floor: float | None = None  # where zeros are drawn on a logarithmic axis

    def position(self, value: Value) -> float:
        """Return the position of a value, from 0 (lower end) to 1 (upper end), or below 0 for
        None."""
        if value is None:
            return _NONE_POSITION
        if self.categories:
            return self.categories.index(self.label(value)) / max(1, len(self.categories) - 1)
        low, high, scaled = (self._scale(number) for number in (self.low, self.high, float(value)))
        return (scaled - low) / (high - low) if high > low else 0.5

    @property
    def labels(self) -> list[str]:
        """Return the labels of the values on an axis with a cell for each value."""
        return [self.label(value) for value in self.categories or self.numbers]

    def label(self, value: Value) -> str:
        if value is None:
            return NONE
        return _category(value) if self.categories else self.number_label(float(value))

    def number_at(self, position: float) -> float:
        low = self._scale(self.low)
        high = self._scale(self.high)
        scaled = low + position * (high - low)
        return 10**scaled if self.log else scaled

    def ticks(self) -> dict[float, str]:
        """Return the tick labels by position."""
        ticks = {_NONE_POSITION: self.none} if self.has_none else {}
        if self.categories:
            step = math.ceil(len(self.categories) / (2 * MOST_TICKS))
            return ticks | {
                self.position(category): category for category in self.categories[::step]
            }
        for number in self.round_numbers():
            position = self.position(number)
            # because labels that are closer would overlap
            if not ticks or position - max(ticks) >= _GAP:
                ticks[position] = self.number_label(number)
        return ticks

    def number_label(self, number: float) -> str:
        """Return the label of one of the `round_numbers`."""
        return "0" if number == self.floor else text(number, digits=6 if number.is_integer() else 4)

    def round_numbers(self) -> list[float]:
        """Return the numbers to label: a few tried numbers, powers of ten and the ends, or even
        steps."""
        # because samplers use more digits
        are_typed = all(float(f"{number:.5g}") == number for number in self.numbers)
        are_few = len(self.numbers) <= MOST_TICKS
        if are_typed and are_few and {self.low, self.high} <= {*self.numbers}:
            return [*self.numbers]
        if self.log:
            return self._powers()
        width = self.high - self.low
        if width < _SMALLEST:
            return [self.low]
        size = 10.0 ** math.floor(math.log10(width / 4))
        step = next(size * times for times in (1, 2, 5, 10) if width / (size * times) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]

    def _powers(self) -> list[float]:
        """Return powers of ten, and the ends that are not close to one."""
        first = math.ceil(math.log10(self.low))
        last = math.floor(math.log10(self.high))
        step = math.ceil((last - first + 1) / MOST_TICKS) or 1
        gap = max(0.3, math.log10(self.high / self.low) / 20)  # decades between two labels
        powers = [10.0**power for power in range(first, last + 1, step)]
        if self.floor is not None:
            powers = [power for power in powers if math.log10(power / self.floor) > gap]
        ends = [
            end
            for end in (self.low, self.high)
            if all(abs(math.log10(end / power)) > gap for power in powers)
        ]
        return sorted({*powers, *ends})

    def _scale(self, number: float) -> float:
        return math.log10(number) if self.log else number


def find_axes(
    trials: Sequence[TrialRecord], space: Mapping[str, str], without: str = ""
) -> list[Axis]:
    """Return an axis for each differing parameter, except `without`. `space` maps parameters to
    domains, as typed."""
    names: dict[str, None] = {}
    for trial in trials:
        names |= dict.fromkeys(trial.params)
    names = {name: None for name in names if name.lstrip("+") != without.lstrip("+")}
    axes = (_axis(name, [trial.params.get(name) for trial in trials], space) for name in names)
    return [axis for axis in axes if axis]


def _axis(name: str, values: Sequence[Value], space: Mapping[str, str]) -> Axis | None:
    if len({repr(value) for value in values}) < 2:
        return None
    domains = [domain for key, domain in space.items() if key.partition(" under ")[0] == name]
    present = [value for value in values if value is not None]
    has_none = len(present) < len(values)
    if not all(map(is_number, present)):
        categories = sorted({_category(value) for value in present})
        categories.sort(key=partial(_place_in, ",".join(domains)))
        return Axis(name, categories, has_none=has_none)
    numbers = tuple(sorted({float(value) for value in present}))
    low, high, log = _range(numbers, domains)
    return Axis(name, [], low, high, log, has_none, numbers)


def _range(numbers: Sequence[float], domains: Iterable[str]) -> tuple[float, float, bool]:
    """Return the ends of an axis, and whether it is logarithmic."""
    intervals = [match for domain in domains if (match := _INTERVAL.fullmatch(domain))]
    low = min([numbers[0], *(float(interval[2]) for interval in intervals)])
    high = max([numbers[-1], *(float(interval[3]) for interval in intervals)])
    if low <= 0:
        return low, high, False
    if intervals:
        return low, high, bool(intervals[-1][1])
    return low, high, high / low >= 20 or _are_multiples(numbers)


def _category(value: Value) -> str:
    return without_password(text(value, digits=4))


def _place_in(typed: str, category: str) -> float:
    """Return the place of a category among the typed ones; infinity if it was not typed."""
    match = re.search(rf"(^|,){re.escape(category)}(,|$)", typed, re.IGNORECASE)
    return match.start() if match else math.inf


def _are_multiples(numbers: Sequence[float]) -> bool:
    """Return whether each number is about the same multiple of the number before, as in 16, 32,
    64."""
    ratios = [b / a for a, b in pairwise(numbers)]
    return len(ratios) > 1 and min(ratios) > 1.5 and max(ratios) < 1.25 * min(ratios)


def is_number(value: Value) -> bool:
    """Return whether the value fits on an axis of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
