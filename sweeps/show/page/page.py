"""The page of a study: one HTML file with its data, a style sheet, scripts, and plotly's script,
compressed.

The page works from file:// and in MLflow, which shows the file alone in a frame. Plotly's script is
the bundle of two-dimensional figures, a third of the script in plotly's Python package:
plotly.js-cartesian-dist-min 4.1.1 of npm, by `gzip -9 -n`. The page unpacks it:
https://developer.mozilla.org/docs/Web/API/DecompressionStream
"""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sweeps.show.figures.drawing import Figures
from sweeps.show.markup import fill
from sweeps.show.page import theme

_HERE = Path(__file__).parent
_SCRIPTS = ("figures.js", "trial_panel.js", "table.js", "page.js")  # page.js starts the others


@dataclass(frozen=True)
class Section:
    """A part of the page: figures, and HTML below them."""

    title: str
    figures: Figures = field(default_factory=dict)
    html: str = ""
    wide: bool = True  # whether the section takes a whole row
    kind: str = ""  # class for the style sheet
    before: str = ""  # HTML above the section, outside of its card


def render_page(
    title: str, sections: Sequence[Section], data: Mapping[str, Any] | None = None, top: str = ""
) -> str:
    """Return a whole page as HTML, with `data` for its script, and `top` beside its title."""
    figures = [figure for section in sections for figure in section.figures.values()]
    drawn = {
        f"f{i}": {"data": figure["data"], "layout": figure["layout"]}
        for i, figure in enumerate(figures)
    }
    next_key = iter(drawn).__next__
    body = [fill("section", section, next_key) for section in sections]
    # Six digits make the page small. JSON has null in place of numbers that are not finite.
    six_digits = json.loads(json.dumps(drawn), parse_float=_round, parse_constant=lambda _: None)
    script_data = {"trials": {}, "lines": [], "scales": {}, **(data or {}), "figures": six_digits}
    script_data["themes"] = {"light": theme.colors(dark=False), "dark": theme.colors(dark=True)}
    packed = json.dumps(script_data, separators=(",", ":"), allow_nan=False)
    return _PAGE.format(
        title=html.escape(title),
        style=f"{theme.render_style()}\n{(_HERE / 'page.css').read_text()}",
        top=top,
        body="\n".join(body),
        plotly=_plotly() if figures else "",
        data=packed.replace("<", "\\u003c"),  # because </script> would end the data
        script="\n".join((_HERE / name).read_text() for name in _SCRIPTS),
    )


@cache
def _plotly() -> str:
    return base64.b64encode((_HERE / "plotly-cartesian.min.js.gz").read_bytes()).decode()


def _round(number: str) -> float:
    return float(f"{float(number):.6g}")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title>
<style>
{style}</style></head><body>
<header><h1>{title}</h1>{top}</header>
<noscript><p class="warning">Figures and details of trials need JavaScript.
The tables work without it.</p></noscript>
<main>
{body}
</main>
<aside id="trial" hidden aria-label="trial"></aside>
<script type="application/json" id="data">{data}</script>
<script type="application/gzip" id="plotly">{plotly}</script>
<script>
"use strict";
(() => {{
{script}}})();
</script>
</body></html>
"""
