"""A study's main figure as a picture (SVG) for its description in MLflow, where no script runs."""

import io
import logging
from typing import Any

from sweeps.record.study import StudySnapshot
from sweeps.results import theme
from sweeps.results.drawing import Figure
from sweeps.results.figure_data import FigureData
from sweeps.results.figures import history
from sweeps.results.findings import Findings, findings_of
from sweeps.results.maps import front
from sweeps.secrets import without_password

_MARKERS = {"circle": "o", "triangle-down": "v", "x": "x", "square": "s", "diamond": "D"}  # by plotly's symbols
_LINES = {"dot": ":", "dash": "--"}
_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False}  # text remains text, and $ a dollar sign
_LARGEST = 1e300  # because the margin beyond a larger number would be infinite


def render_picture(study: StudySnapshot | Findings) -> str:
    """Return the Pareto front of several objectives, the history of a single one; empty without values."""
    source = FigureData(findings_of(study), {})
    figure = front(source) or history(source)
    return _render(figure) if figure else ""


def _render(figure: Figure) -> str:
    import matplotlib as mpl  # here, because the import takes most of a second
    from matplotlib.figure import Figure as Canvas

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # because it warns of a read-only home folder
    colored = theme.apply_colors({key: figure[key] for key in ("data", "layout")}, theme.colors(dark=False))
    layout, svg = colored["layout"], io.StringIO()
    with mpl.rc_context(_SETTINGS):
        axes = (canvas := Canvas((8.8, 3.8), layout="constrained")).subplots()
        names = [without_password(layout[axis]["title"]["text"]) for axis in ("xaxis", "yaxis")]
        axes.set(xlabel=names[0], ylabel=names[1])
        axes.set(**{f"{x}scale": "log" for x in "xy" if layout[f"{x}axis"].get("type") == "log"})
        for trace in colored["data"]:
            _add_trace(axes, trace, layout.get("coloraxis", {}))
        labels = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))  # a dict, because labels may repeat
        axes.legend(labels.values(), labels, ncols=6, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
        canvas.savefig(svg, format="svg")
    return svg.getvalue()


def _add_trace(axes: Any, trace: dict[str, Any], scale: dict[str, Any]) -> None:
    """Add the lines and points of a trace; points without a value are on the axis."""
    x, y = ([max(-_LARGEST, min(_LARGEST, number)) for number in trace[name]] for name in "xy")
    on_axis = {"transform": axes.get_xaxis_transform(), "clip_on": False} if trace.get("yaxis") == "y2" else {}
    if "lines" in trace["mode"]:
        line, steps = trace["line"], "steps-post" if trace["line"].get("shape") == "hv" else "default"
        axes.plot(x, y, color=line["color"], linestyle=_LINES.get(line.get("dash"), "-"), drawstyle=steps)
    if "markers" in trace["mode"]:
        marker = trace["marker"]
        symbol = marker["symbol"].removesuffix("-open")
        style = _colors_of(marker["color"], scale) | on_axis
        style |= {"facecolors": "none"} if symbol != marker["symbol"] else {}
        axes.scatter(x, y, 5 * marker["size"], marker=_MARKERS[symbol], label=trace["name"], **style)


def _colors_of(color: Any, scale: dict[str, Any]) -> dict[str, Any]:
    """Return matplotlib's arguments for a colour, or for values on the colour scale."""
    from matplotlib.colors import ListedColormap

    if isinstance(color, str):
        return {"color": color}
    levels = ListedColormap([level for _, level in scale["colorscale"]])
    cmap = levels.reversed() if scale["reversescale"] else levels
    return {"c": color, "cmap": cmap, "vmin": scale["cmin"], "vmax": scale["cmax"]}
