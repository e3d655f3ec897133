"""How training images are changed: presets, and the user's own ranges."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

FLIPS = ("none", "horizontal", "vertical", "both")
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "light": {"zoom": 0.01, "shift": 0.01},
    "strong": {"rotation": 5, "zoom": 0.2, "shift": 0.2, "flip": "horizontal"},
}


def _within(lowest: float, highest: float, unit: str) -> Any:
    return field(default=(0, 0), metadata={"limits": (lowest, highest, unit)})


@dataclass(frozen=True)
class Augment:
    """Ranges from which each training image's changes are drawn uniformly."""

    flip: str = "none"
    rotation: tuple[float, float] = _within(-360, 360, "degrees")
    zoom: tuple[float, float] = _within(-0.9, 9, "share of the size")  # 0.2 = a 20% larger view
    shift: tuple[float, float] = _within(-1, 1, "share of height and width")
    # 0.1 = 10% larger distances from the mean
    contrast: tuple[float, float] = _within(-1, 9, "share")

    @property
    def moves(self) -> bool:
        """Return whether it changes more than the contrast."""
        return self != Augment(contrast=self.contrast)


SETTINGS = ("preset", *(setting.name for setting in fields(Augment)))
_LIMITS = {
    setting.name: setting.metadata["limits"] for setting in fields(Augment) if setting.metadata
}


def parse(value: object) -> Augment | None:
    """Parse `dataset.augment`: None, a preset, or {preset: ..., rotation: 5, zoom: [0, 0.2], ...}.

    A number r means -r to r. A setting that is None has the preset's value. Returns None if images
    are not changed. Raises ValueError with a message for the user.
    """
    allowed = f"must be {', '.join(PRESETS)}, or ranges such as dataset.augment.rotation=5"
    key = "dataset.augment.preset"
    if value is None or isinstance(value, str):
        key = "dataset.augment"
        value = {"preset": value}
    if not isinstance(value, Mapping):
        raise ValueError(f"dataset.augment={value}: {allowed}")
    settings = {str(name): setting for name, setting in value.items() if setting is not None}
    preset = settings.pop("preset", "none")
    if preset not in list(PRESETS):
        raise ValueError(f"{key}={preset}: {allowed}")
    settings = PRESETS[preset] | settings
    flip = settings.pop("flip", "none")
    if flip not in FLIPS:
        raise ValueError(f"dataset.augment.flip={flip}: must be {', '.join(FLIPS)}")
    augment = Augment(flip, **{name: _limits(name, setting) for name, setting in settings.items()})
    return None if augment == Augment() else augment


def _limits(name: str, value: Any) -> tuple[float, float]:
    if name not in _LIMITS:
        raise ValueError(
            f"dataset.augment.{name}: unknown; use flip, {', '.join(_LIMITS)} or preset"
        )
    lowest, highest, unit = _LIMITS[name]
    limits = [-value, value] if _is_number(value) else value
    if (
        not isinstance(limits, Sequence)
        or len(limits) != 2
        or not all(map(_is_number, limits))
        or not lowest <= limits[0] <= limits[1] <= highest
    ):
        raise ValueError(
            f"dataset.augment.{name}={value}: must be a number >= 0 or [low, high], {unit}, "
            f"within {lowest:g} to {highest:g}"
        )
    return float(limits[0]), float(limits[1])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
