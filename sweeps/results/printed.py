"""A study's main figure as a picture, for MLflow's description of a study, where no script runs."""

from typing import TYPE_CHECKING, Any

from sweeps.results import figures, theme
from sweeps.results.drawing import Figure
from sweeps.results.seen import Seen
from sweeps.results.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Printed

_SYMBOLS = {"circle": "o", "circle-open": "o", "square-open": "s", "triangle-down": "v", "x": "X", "diamond": "D"}
_STYLES = {"dot": ":", "dash": "--"}
_OPEN = "-open"  # such symbols are not filled


def of_study(summary: Summary) -> "Printed | None":
    """Of one objective its history, of several the front. None where there is none to be seen."""
    seen = Seen(summary, {})
    figure = figures.front(seen) or figures.history(seen)
    return printed(figure) if figure else None


def printed(figure: Figure) -> "Printed":
    """As matplotlib draws it, in light colours."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure as Printed

    figure = theme.painted({key: figure[key] for key in ("data", "layout")}, theme.colors(dark=False))
    layout = figure["layout"]
    made = Printed(figsize=(8, 3.6), dpi=110, layout="constrained")
    axes = made.subplots()
    axes.grid(color=layout["xaxis"]["gridcolor"])
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for name in "xy":
        axis = layout[f"{name}axis"]
        axes.set(**{f"{name}label": axis["title"]["text"], f"{name}scale": axis.get("type", "linear")})
    if all(isinstance(x, int) for trace in figure["data"] for x in trace["x"]):
        axes.locator_params(axis="x", integer=True)
    scale = layout.get("coloraxis", {})
    colors = LinearSegmentedColormap.from_list("", scale["colorscale"]) if scale else None
    limits = {"cmap": colors and (colors.reversed() if scale["reversescale"] else colors)}
    limits |= {"vmin": scale.get("cmin"), "vmax": scale.get("cmax")}
    for trace in figure["data"]:
        if "lines" in trace["mode"]:
            line = trace["line"]
            style = _STYLES.get(line.get("dash", ""), "-")
            draws = "steps-post" if line.get("shape") == "hv" else "default"
            axes.plot(trace["x"], trace["y"], style, color=line["color"], drawstyle=draws, zorder=1.5)
        if "markers" in trace["mode"]:
            _mark(axes, trace, limits)
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(frameon=False, fontsize="small", ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    return made


def _mark(axes: "Axes", trace: dict[str, Any], limits: dict[str, Any]) -> None:
    """The points of trials; those without a value on the axis below."""
    marker = trace["marker"]
    x, y, color = trace["x"], trace["y"], marker["color"]
    look: dict[str, Any] = {"marker": _SYMBOLS[marker["symbol"]], "s": 4.0 * marker["size"], "label": trace["name"]}
    if trace.get("yaxis") == "y2":
        y = [0.0] * len(x)
        look |= {"transform": axes.get_xaxis_transform(), "label": f"{trace['name']}, no value", "clip_on": False}
    if marker["symbol"].endswith(_OPEN):
        look |= {"facecolors": "none", "edgecolors": color}
    else:
        look |= {"c": color, **limits} if isinstance(color, list) else {"color": color}
    axes.scatter(x, y, **look)
