"""The axes of a picture: their scales, titles and labels, the labels beside parallel axes, and the
legend."""

import html
import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from sweeps.base.secrets import without_password
from sweeps.base.wording import short
from sweeps.show.scales import Layout

BOTH_COLUMNS_IN = 7.0  # width of both columns of a paper, and the gap between them
SMALLEST = 3.5  # points, of a font that can be read
_LABEL = 44  # characters in a line of an axis' title
_NOTE = 5.5  # points, of the labels beside parallel axes
_CHARACTER_IN = 0.065  # mean width of a character of a title
_LEFT = 80  # points, of the labels beside an axis and of the lines in its legend
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def set_axis(axes: Any, name: str, axis: Layout) -> None:
    """Set the title, the scale, the range and the ticks of the axis `x` or `y`."""
    drawn = getattr(axes, f"{name}axis")
    if labels := [*map(plain, axis.get("categoryarray", []))]:
        drawn.update_units(labels)
        if name == "x" and len("  ".join(labels)) > _LABEL:
            axes.tick_params("x", rotation=90)
    if title := axis.get("title", {}).get("text"):
        axes.set(**{f"{name}label": textwrap.fill(plain(title), _LABEL)})

    _set_scale(axes, name, axis)
    _set_ticks(axes, name, axis)

    if axis.get("side") == "top":
        _label_on_top(axes, axis["ticktext"])
    if axis.get("visible") is False:
        drawn.set_visible(False)
        axes.spines[:].set_visible(False)


def _set_scale(axes: Any, name: str, axis: Layout) -> None:
    """Set whether an axis is logarithmic, and its range."""
    is_log = axis.get("type") == "log"
    limits = axis.get("range")
    if is_log:
        axes.set(**{f"{name}scale": "log"})
    if limits:
        axes.set(**{f"{name}lim": [10**end for end in limits] if is_log else limits})
    if is_log:
        drawn = getattr(axes, f"{name}axis")
        drawn.set_major_formatter(lambda value, _: f"{value:g}")
        drawn.set_minor_formatter(lambda *_: "")


def _set_ticks(axes: Any, name: str, axis: Layout) -> None:
    """Set the places of the ticks of an axis, and their labels."""
    from matplotlib.ticker import LogLocator, MultipleLocator

    drawn = getattr(axes, f"{name}axis")
    step = axis.get("dtick")
    if step is not None and step <= 1:  # because matplotlib's own ticks are good for larger steps
        is_log = axis.get("type") == "log"
        drawn.set_major_locator(LogLocator(10**step) if is_log else MultipleLocator(step))
    if "ticktext" in axis and axis.get("type") != "category":
        getattr(axes, f"set_{name}ticks")(axis["tickvals"], [*map(plain, axis["ticktext"])])
    if axis.get("tickformat") == ".0%":
        drawn.set_major_formatter(lambda value, _: f"{value:.0%}")


def _label_on_top(axes: Any, names: Sequence[str]) -> None:
    """Set the names of parallel axes above them, tilted to the right if they are longer than the
    gap between axes."""
    gap_in = axes.figure.get_size_inches()[0] / len(names)
    is_tilted = _CHARACTER_IN * max(map(len, names)) > gap_in
    axes.xaxis.tick_top()
    if is_tilted:
        axes.tick_params("x", rotation=40)
        for label in axes.get_xticklabels():
            label.set(ha="left", rotation_mode="anchor")


def add_notes(axes: Any, layout: Layout) -> None:
    """Add the labels beside the axes of a figure, as large as the space between two axes allows."""
    notes = layout.get("annotations", [])
    longest = max((len(plain(note["text"])) for note in notes), default=1)
    points = (
        72 * axes.figure.get_size_inches()[0] / max(1, len(layout["xaxis"].get("tickvals", [])))
    )
    size = max(SMALLEST, min(_NOTE, points / (0.6 * longest)))
    most = max(4, int(points / (0.6 * size)))  # characters that fit between two axes
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
    for note in notes:
        side = note["xanchor"]
        style = {
            "ha": side,
            "va": "center",
            "fontsize": size,
            "textcoords": "offset points",
            "bbox": box,
        }
        place = (note["x"], note["y"])
        axes.annotate(
            short(plain(note["text"]), most), place, (3 if side == "left" else -3, 0), **style
        )


def add_legend(axes: Any, layout: Layout, width_in: float) -> None:
    """Add the names of the lines above the axes, and over them the figure's title."""
    from matplotlib import rcParams

    handles, names = axes.get_legend_handles_labels()
    labels = dict(zip(names, handles, strict=True))  # because labels may repeat
    title = plain(layout.get("title", {}).get("text", ""))
    if len(labels) < 2 or is_parallel(layout):
        axes.set_title(title, loc="left", fontsize="medium")
        return
    if layout["legend"].get("traceorder") == "reversed":
        labels = dict(reversed(labels.items()))
    longest = max(map(len, labels))
    if width_in > BOTH_COLUMNS_IN:
        columns = 6
        characters = longest
    else:
        columns = 1 if longest > 14 else 2
        characters = longest * columns
    # because a legend that is too wide leaves the axes no room
    points = (72 * width_in - _LEFT) / (0.6 * characters)
    axes.legend(
        labels.values(),
        labels,
        ncols=columns,
        title=title or None,
        alignment="left" if title else "center",
        loc="lower left",
        bbox_to_anchor=(0, 1),
        frameon=False,
        fontsize=max(SMALLEST, min(rcParams["font.size"], points)),
    )


def part_labels(axes: Any, layout: Layout) -> None:
    """Turn the labels below the x axis if they overlap, and omit those that overlap even so, on
    both axes."""
    if is_parallel(layout):
        return
    figure = axes.figure
    figure.draw_without_rendering()
    if _overlapping(axes.get_xticklabels(), "x"):
        axes.tick_params("x", rotation=90)
        figure.draw_without_rendering()
    for name, labels in (("x", axes.get_xticklabels()), ("y", axes.get_yticklabels())):
        for label in _overlapping(labels, name):
            label.set_visible(False)


def _overlapping(labels: Sequence[Any], name: str) -> list[Any]:
    """Return the labels of an axis that overlap one before."""
    boxes = [
        (label, label.get_window_extent())
        for label in labels
        if label.get_visible() and label.get_text()
    ]
    low = f"{name}0"
    high = f"{name}1"
    overlapping: list[Any] = []
    end = -math.inf
    for label, box in sorted(boxes, key=lambda pair: getattr(pair[1], low)):
        if getattr(box, low) < end:
            overlapping.append(label)
        else:
            end = getattr(box, high)
    return overlapping


def is_parallel(layout: Layout) -> bool:
    return bool(layout["xaxis"].get("side") == "top")


def plain(label: str) -> str:
    """Return a label of the page, which is HTML, as text: `10<sup>-3</sup>` as 10⁻³."""
    raised = re.sub("<sup>(.*?)</sup>", lambda match: match[1].translate(_RAISED), label)
    return without_password(html.unescape(re.sub(r"<\w[^<>]*>", " ", raised)))
