"""The colours of a study's page, light and dark: one home for its style sheet and its figures.

In figures and style sheet they stand by their names. Colours alone never tell anything: every kind of trial has a shape
of its own. The scale is viridis (van der Walt and Smith 2015), which colour-blind eyes read, from the best on; its best
end is the one that stands out from the page.
"""

from typing import Any

_VIRIDIS = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"]
LEVELS = 7
_SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1"]
"""Of Okabe and Ito (2008), but for their yellow, which white paper swallows."""
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
    """Every colour by its name, and `--scale` and its levels from the best on."""
    scale = _VIRIDIS[:0:-1] if dark else _VIRIDIS[:LEVELS]
    found: dict[str, Any] = {name: pair[dark] for name, pair in _PLAIN.items()}
    found |= {f"--scale-{i}": color for i, color in enumerate(scale)}
    for i, color in enumerate(_SERIES):
        red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
        found |= {f"--series-{i}": color, f"--series-{i}-faint": f"rgba({red},{green},{blue},0.14)"}
    return found | {"--scale": [[i / (LEVELS - 1), color] for i, color in enumerate(scale)]}


def style() -> str:
    """The plain colours as properties of the page."""
    light, dark = (
        "".join(f"{name}:{value};" for name, value in colors(dark=on).items() if isinstance(value, str))
        for on in (False, True)
    )
    light, dark = (
        css + f"--gradient:linear-gradient(90deg,{','.join(color for _, color in colors(dark=on)['--scale'])});"
        for css, on in ((light, False), (dark, True))
    )
    return f":root{{color-scheme:light dark;{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def apply_colors(part: Any, names: dict[str, Any]) -> Any:
    """A part of a figure with colours in place of their names; page.js does the same."""
    if isinstance(part, dict):
        return {key: apply_colors(value, names) for key, value in part.items()}
    if isinstance(part, list):
        return [apply_colors(value, names) for value in part]
    return names.get(part, part) if isinstance(part, str) else part
