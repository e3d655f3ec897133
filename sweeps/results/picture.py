"""A study's main figure as a picture (SVG), for MLflow's description of a study, where no script runs."""

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

_MARKERS = {"circle": "o", "triangle-down": "v", "x": "x", "square": "s", "diamond": "D"}  # of plotly's symbols
_STYLES = {"dot": ":", "dash": "--"}
_WORDS: Any = {"svg.fonttype": "none", "text.parse_math": False}  # words stay words, a dollar is one
_LARGEST = 1e300  # a margin beyond larger numbers would be infinite


def render_picture(study: StudySnapshot | Findings) -> str:
    """Of one objective its history, of several the front. Empty where there is nothing to be seen."""
    source = FigureData(findings_of(study), {})
    figure = front(source) or history(source)
    return _drawn(figure) if figure else ""


def _drawn(figure: Figure) -> str:
    import matplotlib as mpl  # most of a second, which only a study that MLflow shows waits for, at its end
    from matplotlib.figure import Figure as Canvas

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of a home that takes no files
    painted = theme.apply_colors({key: figure[key] for key in ("data", "layout")}, theme.colors(dark=False))
    layout, written = painted["layout"], io.StringIO()
    with mpl.rc_context(_WORDS):
        axes = (canvas := Canvas((8.8, 3.8), layout="constrained")).subplots()
        names = [without_password(layout[axis]["title"]["text"]) for axis in ("xaxis", "yaxis")]
        axes.set(xlabel=names[0], ylabel=names[1])
        axes.set(**{f"{x}scale": "log" for x in "xy" if layout[f"{x}axis"].get("type") == "log"})
        for trace in painted["data"]:
            _add(axes, trace, layout.get("coloraxis", {}))
        labels = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))  # of two alike one
        axes.legend(labels.values(), labels, ncols=6, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
        canvas.savefig(written, format="svg")
    return written.getvalue()


def _add(axes: Any, trace: dict[str, Any], scale: dict[str, Any]) -> None:
    """Add the lines and the points of a trace; those without a value stand on the axis."""
    x, y = ([max(-_LARGEST, min(_LARGEST, number)) for number in trace[name]] for name in "xy")
    placed = {"transform": axes.get_xaxis_transform(), "clip_on": False} if trace.get("yaxis") == "y2" else {}
    if "lines" in trace["mode"]:
        line, steps = trace["line"], "steps-post" if trace["line"].get("shape") == "hv" else "default"
        axes.plot(x, y, color=line["color"], linestyle=_STYLES.get(line.get("dash"), "-"), drawstyle=steps)
    if "markers" in trace["mode"]:
        marker, shades = trace["marker"], _shades(trace["marker"]["color"], scale)
        symbol = marker["symbol"].removesuffix("-open")
        hollow = {"facecolors": "none"} if symbol != marker["symbol"] else {}
        axes.scatter(
            x, y, 5 * marker["size"], marker=_MARKERS[symbol], label=trace["name"], **shades, **hollow, **placed
        )


def _shades(color: Any, scale: dict[str, Any]) -> dict[str, Any]:
    """Of one colour that, of values those that the scale has for them."""
    from matplotlib.colors import ListedColormap

    if isinstance(color, str):
        return {"color": color}
    levels = ListedColormap([level for _, level in scale["colorscale"]])
    cmap = levels.reversed() if scale["reversescale"] else levels
    return {"c": color, "cmap": cmap, "vmin": scale["cmin"], "vmax": scale["cmax"]}
