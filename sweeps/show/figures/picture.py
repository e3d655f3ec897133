"""A study's figures as pictures without a script: for its description in MLflow, and for print."""

import io
import logging
import math
import re
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from sweeps.base.errors import UserError
from sweeps.record.study import StudySnapshot
from sweeps.show.figures import drawing
from sweeps.show.figures.curves import CURVES, EVERY_TRIAL, Choice
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.figures.figures import build_figures, history
from sweeps.show.figures.maps import front
from sweeps.show.figures.picture_axes import (
    BOTH_COLUMNS_IN,
    SMALLEST,
    add_legend,
    add_notes,
    is_parallel,
    part_labels,
    plain,
    set_axis,
)
from sweeps.show.findings import Findings, findings_of
from sweeps.show.scales import Layout
from sweeps.show.trials import TrialFiles

FORMATS = ("pdf", "svg", "png")
# by plotly's symbols
_MARKERS = {
    "circle": "o",
    "triangle-up": "^",
    "triangle-down": "v",
    "x": "x",
    "square": "s",
    "diamond": "D",
}
_LINES: Layout = {
    "solid": "-",
    "dash": "--",
    "dot": ":",
    "dashdot": "-.",
    "longdash": (0, (9, 2)),
    "dashdotdot": (0, (5, 1.5, 1, 1.5, 1, 1.5)),
    "sparse": (0, (1, 4)),
    "short": (0, (2.5, 1)),
    "dashdash": (0, (9, 1.5, 3, 1.5)),
    "longdashdot": (0, (9, 1.5, 1, 1.5)),
}
# text remains text, and $ a dollar sign
_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False}
_COLUMN_IN = 3.4  # width of a column of a paper
_MOST_IN_COLUMN = 6  # parallel axes
_PRINT: Any = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
}
# width of a grid in points, divided by the width of a character in its font's size
_WIDTH_OF_CELLS = 220
_ONE_COLOR = {"colorscale": [[0, "#277f8e"]], "reversescale": False}
_DECIMAL = re.compile(r"-?\d+\.[\de+-]+")
_LARGEST = 1e300  # because the margin beyond a larger number would be infinite
_NUMBER = re.compile(r"[\d.]+")


def write_figures(
    findings: Findings, folder: Path, file_format: str, choice: Choice = EVERY_TRIAL
) -> tuple[list[Path], list[str]]:
    """Write every figure of the study, in the width of a paper's column. `choice` is that of the
    learning curves.

    Returns the paths of the files, and a line for each figure that cannot be drawn.
    Raises UserError if the folder cannot be made, or the study lacks what was chosen.
    """
    source = _read(findings)
    choice.check(source)
    _make_folder(folder)
    sections = build_figures(source, choice)
    paths = list[Path]()
    problems = list[str]()
    if choice != EVERY_TRIAL and CURVES not in sections:
        problems.append(f"{CURVES}: no chosen trial reported the metric at two steps")
    for section, figures in sections.items():
        for name, figure in figures.items():
            content, problem = _print(figure, file_format)
            if not content:
                problems.append(f"{section}: {problem}")
                continue
            stem = _stem([findings.study.name, section, name.lstrip("+")])
            path = _free_path(folder / f"{stem}.{file_format}", paths)
            path.write_bytes(content)
            paths.append(path)
    return paths, problems


def _read(findings: Findings) -> FigureData:
    files = TrialFiles(findings.study.objective)
    files.look(findings)
    return FigureData(findings, files.curves(), files.usage(), files.seconds())


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--figures {folder}: {error.strerror}.\nChoose another folder: --figures figures"
        ) from error


def _print(figure: Figure, file_format: str) -> tuple[bytes, str]:
    """Return the figure as a file for print, and why it cannot be drawn; "" if it can."""
    import matplotlib as mpl

    if not figure["data"]:
        return b"", figure["note"]
    _set_dashes(figure)
    try:
        with mpl.rc_context(_PRINT):
            return _render(figure, _printed_size(figure), file_format), ""
    except Exception as error:
        # because trials may have any numbers, and the other figures must be drawn
        return b"", f"This figure cannot be drawn: {type(error).__name__}: {error}"


def _free_path(path: Path, taken: Sequence[Path]) -> Path:
    """Return the path, with a number if it is taken."""
    number = 1
    free = path
    while free in taken:
        number += 1
        free = path.with_stem(f"{path.stem}_{number}")
    return free


def _set_dashes(figure: Figure) -> None:
    """Set a dash for each line, because a colour is lost on grey paper, unless dashes are of
    metrics."""
    if figure["layout"].get("meta", {}).get("curves", {}).get("dashed"):
        return
    named = [t for t in figure["data"] if "name" in t and "lines" in t.get("mode", "")]
    for trace, dash in zip(named, cycle(_LINES)):
        trace["line"]["dash"] = dash


def _printed_size(figure: Figure) -> tuple[float, float]:
    """Return the width and the height (inches): a column's, or for many parallel axes those of both
    columns."""
    layout = figure["layout"]
    axes = len(layout["xaxis"].get("tickvals", [])) if is_parallel(layout) else 0
    width = _COLUMN_IN if axes <= _MOST_IN_COLUMN else BOTH_COLUMNS_IN
    return width, max(2.1, min(6.0, layout["height"] / 160))


def _stem(titles: Sequence[str]) -> str:
    """Return a file's name of letters, digits and single underscores."""
    return re.sub(r"([^\w.-]|_)+", "_", "_".join(titles)).strip("_").lower()


def render_picture(study: StudySnapshot | Findings) -> str:
    """Return the Pareto front of several objectives, the history of a single one; empty without
    values."""
    source = FigureData(findings_of(study), {})
    figure = front(source) or history(source)
    return _render(figure, (8.8, 3.8), "svg").decode() if figure else ""


def _render(figure: Figure, size_in: tuple[float, float], file_format: str) -> bytes:
    """Return a figure as a file of this format. Its width and height are in inches."""
    import matplotlib as mpl  # here, because the import takes most of a second
    from matplotlib.figure import Figure as Canvas

    # because it warns of a read-only home folder
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    content = io.BytesIO()
    with mpl.rc_context(_SETTINGS):
        canvas = Canvas(size_in, layout="constrained")
        _draw(canvas.subplots(), drawing.colored(figure), size_in[0])
        canvas.savefig(content, format=file_format)
    return content.getvalue()


def _draw(axes: Any, figure: Figure, width_in: float) -> None:
    """Draw a coloured figure."""
    data = figure["data"]
    layout = figure["layout"]
    for name in "xy":
        set_axis(axes, name, layout[f"{name}axis"])
    for i, trace in enumerate(data):
        _TRACES[trace["type"]](axes, trace, layout)
        if trace.get("fill") == "tonexty":
            _fill_between(axes, data[i - 1], trace)
    for shape in layout.get("shapes", []):
        ends = [[shape[f"{axis}0"], shape[f"{axis}1"]] for axis in "xy"]
        axes.plot(*ends, color=shape["line"]["color"], linewidth=0.6, zorder=0)
    add_notes(axes, layout)
    add_legend(axes, layout, width_in)
    _start_at_zero(axes, layout)
    part_labels(axes, layout)


def _start_at_zero(axes: Any, layout: Layout) -> None:
    if layout["xaxis"].get("rangemode") == "tozero":
        axes.set_xlim(0, 1.05 * axes.get_xlim()[1])
    if layout["yaxis"].get("rangemode") == "tozero":
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _fill_between(axes: Any, first: Trace, second: Trace) -> None:
    """Fill the band between two lines over the same x."""
    red, green, blue, alpha = (float(part) for part in _NUMBER.findall(second["fillcolor"]))
    color = (red / 255, green / 255, blue / 255, alpha)
    axes.fill_between(second["x"], first["y"], second["y"], color=color, linewidth=0)


def _add_scatter(axes: Any, trace: Trace, layout: Layout) -> None:
    """Add the lines and points of a trace; points without a value are on the axis."""
    x = [_drawable(value) for value in trace["x"]]
    y = [_drawable(value) for value in trace["y"]]
    has_name = "name" in trace and trace.get("showlegend", True)
    label = plain(trace["name"]) if has_name else None
    has_line = "lines" in trace["mode"]
    if has_line and trace["line"].get("width") != 0:
        line = trace["line"]
        axes.plot(
            x,
            y,
            color=line["color"],
            linestyle=_LINES[line.get("dash", "solid")],
            drawstyle="steps-post" if line.get("shape") == "hv" else "default",
            alpha=trace.get("opacity"),
            label=label,
        )
    if "markers" in trace["mode"]:
        _add_points(axes, (x, y), trace, layout, None if has_line else label)


def _add_points(
    axes: Any,
    points: tuple[Sequence[Any], Sequence[Any]],
    trace: Trace,
    layout: Layout,
    label: str | None,
) -> None:
    """Add the points of a trace, each with the mark of its symbol."""
    style = _point_style(axes, trace, layout)
    symbols = trace["marker"].get("symbol", "circle")
    if isinstance(symbols, str):
        symbols = [symbols] * len(points[0])
    for symbol in dict.fromkeys(symbols):
        closed = symbol.removesuffix("-open")
        if closed != symbol:
            style["facecolors"] = "none"
        x, y = (
            [value for value, other in zip(values, symbols, strict=True) if other == symbol]
            for values in points
        )
        axes.scatter(x, y, marker=_MARKERS[closed], label=label, **style)


def _point_style(axes: Any, trace: Trace, layout: Layout) -> Layout:
    """Return matplotlib's arguments for the colours, the size and the place of points."""
    import matplotlib as mpl

    marker = trace["marker"]
    color = marker.get("color", trace.get("line", {}).get("color", "C0"))
    style = _colors_of(color, layout.get("coloraxis", {}))
    style["s"] = mpl.rcParams["lines.markersize"] ** 2 * marker["size"] / 8
    if trace.get("yaxis") == "y2":
        style |= {"transform": axes.get_xaxis_transform(), "clip_on": False}
    return style


def _add_bars(axes: Any, trace: Trace, _: Layout) -> None:
    style = {"color": trace["marker"]["color"], "label": trace.get("name")}
    y = [_drawable(value) for value in trace["y"]]
    axes.barh(y, trace["x"], left=trace.get("base"), **style)


def _add_cells(axes: Any, trace: Trace, layout: Layout) -> None:
    """Add the cells of a grid, with their values and a colour bar."""
    style = _colors_of([], layout.get("coloraxis", _ONE_COLOR))
    del style["c"]
    values = [[math.nan if value is None else value for value in line] for line in trace["z"]]
    axes.xaxis.update_units([*map(plain, trace["x"])])
    axes.yaxis.update_units([*map(plain, trace["y"])])
    image = axes.pcolormesh(range(len(trace["x"])), range(len(trace["y"])), values, **style)
    axes.tick_params("x", rotation=90 if len(trace["x"]) > 6 else 0)
    if "texttemplate" in trace:
        _add_texts(axes, trace, image.to_rgba(values))
    _add_color_bar(axes, image, layout)


def _add_texts(axes: Any, trace: Trace, colors: Any) -> None:
    """Add the values of cells that have these colours."""
    texts, size = _fit_texts(trace["text"], len(trace["x"]))
    for up, line in enumerate(texts):
        for across, words in enumerate(line):
            red, green, blue, _ = colors[up][across]
            is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
            ink = "black" if is_light else "white"
            axes.text(across, up, words, color=ink, ha="center", va="center", fontsize=size)


def _fit_texts(
    texts: Sequence[Sequence[str]], columns: int
) -> tuple[Sequence[Sequence[str]], float]:
    """Return the texts of cells and their font's size (points): with fewer digits where four have
    no room.

    No texts if even two digits have none.
    """
    for digits in (4, 3, 2):
        fitted = [[_shorten(words, digits) for words in row] for row in texts]
        longest = max((len(words) for row in fitted for words in row), default=0)
        size = min(6.0, _WIDTH_OF_CELLS / columns / max(longest, 1))
        if size >= SMALLEST:
            return fitted, size
    return [], 0.0


def _shorten(words: str, digits: int) -> str:
    """Return the words with so many digits of each decimal number."""
    return _DECIMAL.sub(lambda match: f"{float(match[0]):.{digits}g}", words)


def _add_contours(axes: Any, trace: Trace, layout: Layout) -> None:
    style = _colors_of([], layout["coloraxis"])
    levels = axes.contourf(trace["x"], trace["y"], trace["z"], 12, cmap=style["cmap"], alpha=0.6)
    _add_color_bar(axes, levels, layout)


def _add_color_bar(axes: Any, colors: Any, layout: Layout) -> None:
    """Add a colour bar with the title and the ticks of the page's."""
    bar = layout.get("coloraxis", {}).get("colorbar", {})
    drawn = axes.figure.colorbar(colors, label=plain(bar.get("title", {}).get("text", "")).strip())
    if "tickvals" in bar:
        labels = dict(zip(bar["tickvals"], map(plain, bar["ticktext"]), strict=True))
        ticks = [place for place in labels if drawn.vmin <= place <= drawn.vmax]
        drawn.set_ticks(ticks, labels=[labels[place] for place in ticks])


_TRACES = {
    "scatter": _add_scatter,
    "bar": _add_bars,
    "heatmap": _add_cells,
    "contour": _add_contours,
}


def _drawable(value: float | str | None) -> float | str:
    """Return a label as text, or a number that matplotlib can draw."""
    if isinstance(value, str):
        return plain(value)
    return math.nan if value is None else max(-_LARGEST, min(_LARGEST, value))


def _colors_of(color: Any, scale: Layout) -> Layout:
    """Return matplotlib's arguments for a colour or a list of colours, or for values on the colour
    scale."""
    from matplotlib.colors import ListedColormap

    if isinstance(color, str) or (color and isinstance(color[0], str)):
        return {"color": color}
    cmap = ListedColormap([level for _, level in scale["colorscale"]])
    if scale["reversescale"]:
        cmap = cmap.reversed()
    return {"c": color, "cmap": cmap, "vmin": scale.get("cmin"), "vmax": scale.get("cmax")}
