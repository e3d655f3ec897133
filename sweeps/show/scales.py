"""The scale of an axis of values: linear or logarithmic, with a place for zeros and for values that
are far off."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_WIDE = 1e3  # smallest ratio of two values that needs a logarithmic axis
_FAR = 1e6  # multiple of the median from which a value would hide the differences of all others
_TINY = 1e-12  # fraction of the median below which a value is as good as zero
_FEWEST = 5  # values, of which one can be far off
_MOST_TICKS = 8

Layout = dict[str, Any]
"""Plotly's settings of a figure, an axis, a line or a marker."""


@dataclass(frozen=True)
class Scale:
    """A scale. Only a logarithmic scale has a floor, where zeros are drawn, and an edge, where far
    values are drawn.

    Attributes:
        low, high: range of the values that are drawn at their place.
    """

    log: bool = False
    low: float = 0.0
    high: float = 0.0
    floor: float | None = None
    edge: float | None = None

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        if self.floor is not None and value < self.low:
            return self.floor
        return value if self.edge is None else min(value, self.edge)

    def color(self, value: float) -> float:
        """Return a number that is proportional to the place of a value on the axis."""
        return math.log10(self.place(value)) if self.log else value

    @property
    def note(self) -> str:
        """Return which values are not drawn at their place, in words."""
        zeros = (
            f"Values below {self.low:.4g} are drawn at the bottom."
            if self.floor is not None
            else ""
        )
        far = (
            f"Values above {self.high:.4g} are drawn at the edge." if self.edge is not None else ""
        )
        return f"{zeros} {far}".strip()

    @property
    def data(self) -> Layout:
        """Return the scale for the page's script, which draws metrics that the reader chooses."""
        return {
            "low": self.low,
            "floor": self.floor,
            "edge": self.edge,
            "axis": self.ticks,
            "note": self.note,
        }

    @property
    def ticks(self) -> Layout:
        """Return plotly's settings of the ticks of an axis."""
        if not self.log:
            return {}
        low = math.floor(math.log10(self.low))
        high = math.ceil(math.log10(self.high))
        step = max(1, math.ceil((high - low) / _MOST_TICKS))
        if self.floor is None:
            return {"type": "log", "exponentformat": "power", "dtick": step}
        powers = [
            power
            for power in range(high, low - 1, -step)
            if power > math.log10(self.floor) + step / 2
        ]
        labels = ["0", *(f"10<sup>{power}</sup>" for power in powers)]
        return {
            "type": "log",
            "tickvals": [self.floor, *(10.0**power for power in powers)],
            "ticktext": labels,
        }


def scale_of(values: Iterable[float], clips: bool = True) -> Scale:
    """Return the scale for these values. If `clips`, values a million times above the median are
    drawn at the edge."""
    finite = sorted(filter(math.isfinite, values))
    positive = [value for value in finite if value > 0]
    if not positive or finite[0] < 0 or positive[-1] < _WIDE * positive[0]:
        return Scale()
    near = _near(finite, positive, clips)
    floor = near[0] / 10 if finite[0] < near[0] else None
    edge = 10 * near[-1] if near[-1] < positive[-1] else None
    return Scale(True, near[0], near[-1], floor, edge)


def _near(finite: Sequence[float], positive: Sequence[float], clips: bool) -> Sequence[float]:
    """Return the values above 0 that are drawn at their place."""
    if len(finite) < _FEWEST:
        return positive
    median = finite[(len(finite) - 1) // 2] or positive[0]
    most = _FAR * median if clips else math.inf
    return [value for value in positive if _TINY * median <= value <= most]
