"""The search for the largest batch that fits, as a function of the tries so far: by their memory,
else by bisection."""

import math
from collections.abc import Sequence
from typing import NamedTuple

MOST_TRIES = 16
"""After so many tries the search ends with the largest batch that fitted, because each try is a
training."""


class Try(NamedTuple):
    """The result of one batch size. Tries are ordered by batch size."""

    batch_size: int
    fits: bool
    memory_gb: float = 0.0  # peak of the fullest GPU, or of the process; 0 = unknown
    seconds: float = 0.0
    words: str = ""  # evidence that the batch does not fit


class Estimate(NamedTuple):
    """What is known of a training before its first try, in GB of its fullest GPU, or of its
    process."""

    rows: int  # training examples
    room_gb: float | None = None  # memory that it may use; None = unknown
    fixed_gb: float = 0.0  # memory of data, weights, gradients and optimizer, whatever the batch
    example_gb: float = 0.0  # memory of each further example of a batch; 0 = unknown

    @property
    def batch_size(self) -> int | None:
        """Return the batch size that fills the room; None if it cannot be estimated."""
        if self.room_gb is None or not self.example_gb:
            return None
        return max(1, int((self.room_gb - self.fixed_gb) / self.example_gb))

    def __str__(self) -> str:
        if self.batch_size is None:
            return "no estimate of the largest"
        return (
            f"estimated largest: {self.batch_size}, of {self.example_gb * 1000:.3g} MB each "
            f"beside {self.fixed_gb:.3g} GB, in {self.room_gb:.3g} GB"
        )


def first_size(estimate: Estimate, default: int) -> int:
    """Return the first batch size to try: half of the estimated one, because a try that fits is
    measured."""
    return default if estimate.batch_size is None else max(1, estimate.batch_size // 2)


def next_size(
    tries: Sequence[Try], start: int, unit: int, maximum: int, precision: float, estimate: Estimate
) -> int | None:
    """Return the next batch size to try, a multiple of `unit`; None once the largest is known to
    `precision`."""
    low = max((tried.batch_size for tried in tries if tried.fits), default=0)
    high = min((tried.batch_size for tried in tries if not tried.fits), default=math.inf)
    step = max(unit, precision * low)
    is_precise = low >= maximum or high - low <= step
    if is_precise or (low and len(tries) >= MOST_TRIES):
        return None
    size = _between(tries, low, high, step, estimate) if tries else start
    return max(unit, min(int(size), maximum) // unit * unit)


def _between(tries: Sequence[Try], low: int, high: float, step: float, estimate: Estimate) -> float:
    """Return the batch size that fills the room, at least a `step` above `low`; without an
    estimate the double, or the middle of `low` and `high`."""
    filling = _filling(tries, estimate)
    is_open = high == math.inf  # and so all tries fitted
    if filling is None or filling >= high or (_repeats(tries) and not is_open):
        return 2 * low if is_open else (low + high) // 2
    return min(max(filling - step / 2, low + step), 8 * low if is_open else high - 1)


def _filling(tries: Sequence[Try], estimate: Estimate) -> float | None:
    """Return the batch size that fills the room, by a line through the memory of the two largest
    that fitted."""
    points = [(0, estimate.fixed_gb)] if estimate.fixed_gb else []
    points += sorted(
        (tried.batch_size, tried.memory_gb) for tried in tries if tried.fits and tried.memory_gb
    )
    if estimate.room_gb is None or len(points) < 2:
        return None
    (size, memory_gb), (larger, larger_gb) = points[-2:]
    slope = (larger_gb - memory_gb) / (larger - size)
    return larger + (estimate.room_gb - larger_gb) / slope if slope > 0 else None


def _repeats(tries: Sequence[Try]) -> bool:
    """Return whether the last two tries ended alike, after which a bisection is faster than the
    memory's line."""
    return len(tries) > 1 and tries[-1].fits == tries[-2].fits
