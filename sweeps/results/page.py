"""The page of a study: one file of HTML with its data, a style sheet, a script, and plotly's script, packed.

So it is read from file:// and in MLflow, which shows it in a frame of its own without anything beside it. Plotly's
script is its bundle of flat figures, a third of the whole one in plotly's Python package: from npm's
plotly.js-cartesian-dist-min 4.1.1, by `gzip -9 -n`. Pages unpack it: https://developer.mozilla.org/docs/Web/API/DecompressionStream
"""

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sweeps.results import theme
from sweeps.results.drawing import Figures

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """A part of the page: figures above, then HTML."""

    title: str
    figures: Figures = field(default_factory=dict)
    html: str = ""
    wide: bool = True  # else it may stand beside another one
    kind: str = ""  # its class in the style sheet
    before: str = ""  # HTML that stands above it, alone


def render_page(title: str, sections: Sequence[Section], data: Mapping[str, Any] | None = None, top: str = "") -> str:
    """A whole page. `data` is what its script is to know, `top` what stands beside its title."""
    figures: dict[str, Any] = {}
    written = "\n".join(_section(one, figures) for one in sections)
    known = {"trials": {}, "lines": [], **(data or {}), "figures": _plain(figures)}
    known["themes"] = {"light": theme.colors(dark=False), "dark": theme.colors(dark=True)}
    packed = json.dumps(known, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")  # no tag ends it
    return _PAGE.format(
        title=html.escape(title),
        style=f"{theme.style()}\n{(_HERE / 'page.css').read_text()}",
        top=top,
        body=written,
        plotly=_plotly() if figures else "",
        data=packed,
        script=(_HERE / "page.js").read_text(),
    )


@cache
def _plotly() -> str:
    return base64.b64encode((_HERE / "plotly-cartesian.min.js.gz").read_bytes()).decode()


def _section(section: Section, figures: dict[str, Any]) -> str:
    """Its figures are added to `figures`, by the names that the page has for them."""
    parts = []
    for name, figure in section.figures.items():
        key = f"f{len(figures)}"
        figures[key] = {"data": figure["data"], "layout": figure["layout"]}
        label = html.escape(f"{section.title} {name}".strip())
        height = int(figure["layout"]["height"])
        least = int(figure["layout"].get("meta", {}).get("least_width", 0))
        box = f'<div class="figure" id="{key}" role="img" aria-label="{label}" style="height:{height}px'
        box += f';min-width:{least}px"></div>' if least else '"></div>'
        said = f'<p class="note">{html.escape(figure["note"])}</p>' if figure.get("note") else ""
        parts.append(f'<div class="scrolls">{box}</div>{said}')
    several = f'<div class="several">{"".join(f"<div>{part}</div>" for part in parts)}</div>'
    shown = several if len(parts) > 1 else "".join(parts)
    names = " ".join(["wide"] * section.wide + [section.kind] * bool(section.kind))
    return (
        f'{section.before}<section class="{names}"><h2>{html.escape(section.title)}</h2>{shown}{section.html}</section>'
    )


def _plain(part: Any) -> Any:
    """As JSON takes it: what is no finite number is null, and six digits are enough."""
    if isinstance(part, float):
        return float(f"{part:.6g}") if math.isfinite(part) else None
    if isinstance(part, dict):
        return {key: _plain(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_plain(value) for value in part]
    return part


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title>
<style>
{style}</style></head><body>
<header><h1>{title}</h1>{top}</header>
<noscript><p class="warning">Figures and details of trials need JavaScript; the tables do not.</p></noscript>
<main>
{body}
</main>
<aside id="trial" hidden aria-label="trial"></aside>
<script type="application/json" id="data">{data}</script>
<script type="application/gzip" id="plotly">{plotly}</script>
<script>
{script}</script>
</body></html>
"""
