"""The colours of a study's page, light and dark, for its style sheet and its figures, which refer
to colours by name.

Every kind of trial also has a symbol, because colours alone are not accessible. The scale is
viridis (van der Walt and Smith 2015), which colour-blind readers can read. It begins with the best
level, which contrasts most with the page.
"""

from collections.abc import Sequence
from typing import Any

_VIRIDIS = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"]
LEVELS = 7
_COUNTS = 16  # levels of the scale from 0
_SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1"]
"""The colours of Okabe and Ito (2008) without yellow, because yellow is hard to see on white."""
SERIES = len(_SERIES)
_PLAIN = {  # light, dark
    "--page": ("#f4f5f7", "#0f1317"),
    "--card": ("#ffffff", "#181d23"),
    "--ink": ("#1b222a", "#e4e8ed"),
    "--muted": ("#59636e", "#9aa5b1"),
    "--line": ("#dfe3e8", "#2d353e"),
    "--link": ("#0a5ea8", "#6fb7ff"),
    "--pruned": ("#8a94a0", "#7c8793"),
    "--failed": ("#c2410c", "#ff8f5c"),
    "--done": ("#277f8e", "#4ac1a0"),
    "--waits": ("#aab2bc", "#56606b"),
    "--chosen": ("#d6007a", "#ff5cb8"),
}


def colors(dark: bool) -> dict[str, Any]:
    """Return all colours by name; as `--scale` the levels of the scale, the best first; as
    `--counts` levels from 0."""
    scale = _VIRIDIS[:0:-1] if dark else _VIRIDIS[:LEVELS]
    palette: dict[str, Any] = {name: pair[dark] for name, pair in _PLAIN.items()}
    palette |= {f"--scale-{i}": color for i, color in enumerate(scale)}
    for i, color in enumerate(_SERIES):
        red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
        palette[f"--series-{i}"] = color
        palette[f"--series-{i}-faint"] = f"rgba({red},{green},{blue},0.14)"
    shares = [i / (_COUNTS - 1) for i in range(_COUNTS)]
    counts = [_mix(palette["--card"], palette["--done"], share) for share in shares]
    return palette | {"--scale": _levels(scale), "--counts": _levels(counts)}


def _levels(colors: Sequence[str]) -> list[list[Any]]:
    """Return plotly's scale of these colours."""
    return [[i / (len(colors) - 1), color] for i, color in enumerate(colors)]


def _mix(first: str, second: str, share: float) -> str:
    """Return a colour between two colours; share 1 is the second."""
    pairs = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def render_style() -> str:
    """Return CSS that defines the colours as custom properties, for light and dark pages."""
    light, dark = (_custom_properties(colors(dark)) for dark in (False, True))
    return (
        ":root{color-scheme:light"
        f" dark;{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )


def _custom_properties(palette: dict[str, Any]) -> str:
    gradient = ",".join(color for _, color in palette["--scale"])
    palette = {name: value for name, value in palette.items() if isinstance(value, str)}
    return (
        "".join(f"{name}:{value};" for name, value in palette.items())
        + f"--gradient:linear-gradient(90deg,{gradient});"
    )


def apply_colors(part: Any, palette: dict[str, Any]) -> Any:
    """Return a part of a figure with colours in place of their names, as page.js does, too."""
    if isinstance(part, dict):
        return {key: apply_colors(value, palette) for key, value in part.items()}
    if isinstance(part, list):
        return [apply_colors(value, palette) for value in part]
    return palette.get(part, part) if isinstance(part, str) else part
