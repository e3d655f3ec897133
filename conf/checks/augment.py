"""How training images are changed: presets, and ranges of one's own."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLIPS = ("none", "horizontal", "vertical", "both")
# name: (lowest, highest allowed, unit)
RANGES = {
    "rotation": (-360.0, 360.0, "degrees"),
    "zoom": (-0.9, 9.0, "share of the size"),
    "shift": (-1.0, 1.0, "share of height and width"),
    "contrast": (-1.0, 9.0, "share"),
}
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "light": {"zoom": 0.01, "shift": 0.01},
    "strong": {"rotation": 5, "zoom": 0.2, "shift": 0.2, "flip": "horizontal"},
}


@dataclass(frozen=True)
class Augment:
    """Ranges that each training image is changed within, drawn evenly."""

    flip: str = "none"
    rotation: tuple[float, float] = (0, 0)  # degrees
    zoom: tuple[float, float] = (0, 0)  # 0.2: the view is 20% larger
    shift: tuple[float, float] = (0, 0)  # share of height and width
    contrast: tuple[float, float] = (0, 0)  # 0.1: distances from the mean are 10% larger

    @property
    def moves(self) -> bool:
        """Whether it changes more than the contrast."""
        return self != Augment(contrast=self.contrast)


def parse(value: object) -> Augment | None:
    """What `dataset.augment` asks for: None, a preset, or {preset: ..., rotation: 5, zoom: [0, 0.2], ...}.

    A number r means -r to r. None stands for what the preset has. Returns None if nothing is changed.
    Raises ValueError, for the user.
    """
    key = "dataset.augment.preset"
    if value is None or isinstance(value, str):
        key, value = "dataset.augment", {"preset": value}
    if not isinstance(value, Mapping):
        raise ValueError(
            f"dataset.augment={value}: must be {', '.join(PRESETS)}, or ranges such as dataset.augment.rotation=5"
        )
    asked = {str(name): setting for name, setting in value.items() if setting is not None}
    preset = asked.pop("preset", "none")
    if preset not in list(PRESETS):
        raise ValueError(f"{key}={preset}: must be {', '.join(PRESETS)}, or ranges such as dataset.augment.rotation=5")
    settings = PRESETS[preset] | asked
    flip = settings.pop("flip", "none")
    if flip not in FLIPS:
        raise ValueError(f"dataset.augment.flip={flip}: must be {', '.join(FLIPS)}")
    for name in settings:
        if name not in RANGES:
            raise ValueError(f"dataset.augment.{name}: there is flip, {', '.join(RANGES)} and preset")
    augment = Augment(flip, **{name: _limits(name, setting) for name, setting in settings.items()})
    return None if augment == Augment() else augment


def _limits(name: str, value: Any) -> tuple[float, float]:
    lowest, highest, unit = RANGES[name]
    both = isinstance(value, int | float) and not isinstance(value, bool)
    limits = [-value, value] if both else value
    if (
        not isinstance(limits, Sequence)
        or len(limits) != 2
        or not all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in limits)
        or (both and value < 0)
        or not lowest <= limits[0] <= limits[1] <= highest
    ):
        raise ValueError(
            f"dataset.augment.{name}={value}: must be a number >= 0 or [low, high], {unit}, "
            f"within {lowest:g} to {highest:g}"
        )
    return float(limits[0]), float(limits[1])
