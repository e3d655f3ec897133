"""Points that are spread evenly over a cube: the R-sequence of Roberts, Quasirandom sequences,
2018."""

from collections.abc import Iterator
from itertools import count


def spread(dimensions: int) -> Iterator[list[float]]:
    """Yield points of a cube without end, with coordinates from 0 to 1; in one dimension by the
    golden ratio."""
    ratio = 1.0
    for _ in range(50):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    for i in count(1):
        yield [(i * ratio**-axis) % 1 for axis in range(1, dimensions + 1)]
