"""A study's main figure as a picture (SVG), for MLflow's description of a study, where no script runs.

Drawn by hand: to import a library that does so would take each driver half a second at its end.
"""

import html
from collections.abc import Sequence
from typing import Any

from sweeps.results import figures, theme
from sweeps.results.axes import Axis
from sweeps.results.drawing import Figure
from sweeps.results.seen import Seen
from sweeps.results.summary import Summary, text
from sweeps.secrets import without_password

_WIDTH, _HEIGHT = 880, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 40, 56  # of the plot
_SHAPES = {  # of plotly's symbols, 2 wide and high
    "circle": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "triangle-down": "M-1.1-.9h2.2L0 1.1z",
    "x": "M-.9-.9L.9 .9M-.9 .9L.9-.9",
    "square": "M-1-1h2v2h-2z",
    "diamond": "M0-1.2L1.2 0L0 1.2L-1.2 0z",
}
_STRIP = "y2"  # the axis of trials without a value
_DASHES = {"dot": "2 4", "dash": "7 5"}


def of_study(summary: Summary) -> str:
    """Of one objective its history, of several the front. Empty where there is nothing to be seen."""
    seen = Seen(summary, {})
    figure = figures.front(seen) or figures.history(seen)
    return _printed(figure) if figure else ""


def _printed(figure: Figure) -> str:
    figure = theme.painted({key: figure[key] for key in ("data", "layout")}, theme.colors(dark=False))
    traces, layout = figure["data"], figure["layout"]
    valued = [trace for trace in traces if trace.get("yaxis") != _STRIP]
    across = _axis(layout["xaxis"], [x for trace in traces for x in trace["x"]])
    up = _axis(layout["yaxis"], [y for trace in valued for y in trace["y"]])
    parts, at = _frame(across, up), _LEFT + 8.0
    for trace in traces:
        is_strip = trace.get("yaxis") == _STRIP  # those without a value stand on the axis
        ys = [_HEIGHT - _BOTTOM if is_strip else _y(up, y) for y in trace["y"]]
        places = [(_x(across, x), y) for x, y in zip(trace["x"], ys, strict=True)]
        if "lines" in trace["mode"]:
            parts.append(_line(places, trace["line"]))
        if "markers" in trace["mode"]:
            marker = trace["marker"]
            colors = marker["color"] if isinstance(marker["color"], list) else [marker["color"]] * len(places)
            shades = [_shade(color, layout.get("coloraxis", {})) for color in colors]
            parts += [_mark(x, y, marker, shade) for (x, y), shade in zip(places, shades, strict=True)]
            if not any(trace["name"] == other["name"] for other in traces[: traces.index(trace)] if "name" in other):
                parts += [_mark(at, 20, marker, shades[0]), _text(at + 12, 24, trace["name"], "start")]
                at += 40 + 8 * len(trace["name"])
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    font = f'font-family="system-ui, sans-serif" font-size="13" fill="{layout["font"]["color"]}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>\n<rect {size} fill="#fff"/>\n{body}\n</svg>\n'


def _axis(layout: dict[str, Any], values: Sequence[float | None]) -> Axis:
    known = [value for value in values if value is not None]
    few = tuple(sorted({*known})) if all(isinstance(value, int) for value in known) else ()  # trials, without fractions
    return Axis(layout["title"]["text"], [], min(known), max(known), layout.get("type") == "log", numbers=few)


def _x(axis: Axis, value: float | None) -> float:
    return _LEFT + (0.02 + 0.96 * axis.place(value)) * (_WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float | None) -> float:
    return _HEIGHT - _BOTTOM - (0.06 + 0.9 * axis.place(value)) * (_HEIGHT - _TOP - _BOTTOM)


def _frame(across: Axis, up: Axis) -> list[str]:
    """The axes with what is written beside them, and lines across."""
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [_text(_x(across, one), bottom + 18, text(one, digits=4), "middle") for one in across.round_numbers()]
    for number in up.round_numbers():
        y = _y(up, number)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#dfe3e8"/>')
        parts.append(_text(_LEFT - 8, y + 4, text(number, digits=4), "end"))
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#59636e"/>')
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 14, across.name, "middle"))
    turned = f'transform="translate(18 {(_TOP + bottom) / 2}) rotate(-90)"'
    return [*parts, f"<g {turned}>{_text(0, 0, up.name, 'middle')}</g>"]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(without_password(words))}</text>'


def _line(places: Sequence[tuple[float, float]], line: dict[str, Any]) -> str:
    step = "H{:.1f}V{:.1f}" if line.get("shape") == "hv" else "L{:.1f} {:.1f}"
    (x, y), *rest = places
    path = f"M{x:.1f} {y:.1f}" + "".join(step.format(*place) for place in rest)
    dash = f' stroke-dasharray="{_DASHES[line["dash"]]}"' if "dash" in line else ""
    return f'<path d="{path}" fill="none" stroke="{line["color"]}" stroke-width="2"{dash}/>'


def _shade(color: float | str | None, scale: dict[str, Any]) -> str:
    """Of a value the colour that the scale has for it."""
    if isinstance(color, str) or color is None:
        return color or theme.colors(dark=False)["--done"]
    low, high, levels = scale["cmin"], scale["cmax"], [level for _, level in scale["colorscale"]]
    share = min(1.0, max(0.0, (color - low) / (high - low)))
    return str(levels[round((len(levels) - 1) * (1 - share if scale["reversescale"] else share))])


def _mark(x: float, y: float, marker: dict[str, Any], color: str) -> str:
    symbol = marker["symbol"].removesuffix("-open")
    filled = symbol == marker["symbol"] and symbol != "x"
    paint = f'fill="{color}"' if filled else f'fill="none" stroke="{color}" stroke-width=".5"'
    where = f"translate({x:.1f} {y:.1f}) scale({marker['size'] / 2:g})"
    return f'<path d="{_SHAPES[symbol]}" transform="{where}" {paint}/>'
