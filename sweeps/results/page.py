"""The page of a study: HTML with its data, one style sheet and one script, and plotly's script in a file beside it.

It is read from file://, where a page may load a script that lies beside it, and no data. In MLflow, which shows it in a
frame of its own without anything beside it, it holds plotly's script itself (`standalone`).
"""

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweeps.files import write_whole
from sweeps.results import theme
from sweeps.results.drawing import Figures

PLOTLY = "plotly.min.js"
_BESIDE = f'<script src="{PLOTLY}"></script>'
_HERE = Path(__file__).parent


@dataclass
class Section:
    """A part of the page: figures above, then HTML."""

    title: str
    figures: Figures = field(default_factory=dict)
    html: str = ""
    wide: bool = True  # else it may stand beside another one
    kind: str = ""  # its class in the style sheet
    before: str = ""  # HTML that stands above it, alone


def page(title: str, sections: Sequence[Section], data: Mapping[str, Any] | None = None, top: str = "") -> str:
    """A whole page, which needs plotly's script beside it. `data` is what its script is to know, `top` what stands
    beside its title.
    """
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
        plotly=_BESIDE,
        data=packed,
        script=(_HERE / "page.js").read_text(),
    )


def write_plotly(folder: Path) -> None:
    """Put plotly's script into the folder, unless it is there."""
    source, target = _plotly(), folder / PLOTLY
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        write_whole(target, source.read_bytes(), sync=False)


def standalone(page: str) -> str:
    """The same page with plotly's script in it."""
    return page.replace(_BESIDE, f"<script>{_plotly().read_text()}</script>", 1)


def _plotly() -> Path:
    spec = find_spec("plotly")  # finds it without importing it
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"plotly {version('plotly')} has no file")
    return Path(spec.origin).parent / "package_data" / PLOTLY


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
{plotly}
<script>
{script}</script>
</body></html>
"""
