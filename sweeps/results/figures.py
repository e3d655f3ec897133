"""The figures of a study: what each parameter did to the objective, and every trial in its place."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.results import axes, groups, ledger, theme
from sweeps.results.axes import Axis
from sweeps.results.drawing import (
    LINES,
    MOST_LINES,
    Figure,
    Figures,
    all_kinds,
    cell_axis,
    counting,
    escaped,
    figure_of,
    label_of,
    marks,
    parameter_axis,
    place_on,
    value_axes,
    value_scale,
)
from sweeps.results.front import hypervolumes, reference
from sweeps.results.seen import Seen, is_wide, value_of
from sweeps.results.summary import ENOUGH, Row, Summary, short, text
from sweeps.results.trials import Curves, Trials
from sweeps.secrets import without_password
from sweeps.trial.job import Point

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Plotted

COST = "What it cost"
_MOST_POINTS = 1500
_MOST_CURVES = 60
_MOST_NAMED = 12  # of curves, in a legend
_MOST_SLICES = 12


def drawn(summary: Summary) -> "dict[str, Plotted]":
    """The figures that this study gives rise to, by their titles, in light colours, for notebooks."""
    from plotly import graph_objects as go

    trials, names, rows = Trials(summary), theme.colors(dark=False), {row.number: row for row in summary.rows}
    trials.look()
    found = {}
    for section, figures in of_study(summary, trials.curves()).items():
        for name, figure in figures.items():
            plotted = go.Figure(theme.painted({key: figure[key] for key in ("data", "layout")}, names))
            for trace in plotted.data:
                numbers = trace.customdata if trace.customdata is not None else [trace.meta]
                if trace.hovertemplate and "%{text}" in trace.hovertemplate:
                    trace.text = [trials.hover(rows[number]) if number in rows else "" for number in numbers]
                    trace.text = trace.text[0] if trace.customdata is None else trace.text
            found[f"{section}: {name}" if name else section] = plotted.update_layout(template="plotly_white")
    return found


def of_study(summary: Summary, curves: Mapping[int, Curves]) -> dict[str, Figures]:
    """The figures that this study gives rise to, by their sections' titles, and there by their own."""
    seen = Seen(summary, curves)
    found: dict[str, Figures] = {}
    for title, draw in {**_FIGURES, "Slices": slices}.items():
        try:
            drawn = draw(seen)
        except Exception as error:  # whatever numbers trials can have: the other figures are drawn
            drawn = figure_of([], 80, f"It cannot be drawn: {type(error).__name__}: {error}")
        if drawn:
            found[title] = {"": drawn} if "layout" in drawn else drawn
    return found


def parallel_coordinates(seen: Seen) -> Figure | None:
    """A line a trial through its parameters to its objectives; those without one end below."""
    rows, note = seen.some(MOST_LINES)
    if not seen.axes or not rows:
        return None
    found = {i: _objective_axis(seen, rows, i) for i in range(len(seen.summary.objective))}
    objectives = {i: axis for i, axis in found.items() if axis}
    columns = [*seen.axes, *objectives.values()]
    if len(columns) < 2:
        return None
    places = {
        row.number: [
            *(axis.place(row.params.get(axis.name)) for axis in seen.axes),
            *(axis.place(_drawn_value(seen, row, i)) for i, axis in objectives.items()),
        ]
        for row in rows
    }
    data: list[dict[str, Any]] = []
    for kind, some in seen.of_kind(rows).items():
        if kind != "completed":
            faint = max(0.25, min(0.7, 12 / len(some)))
            data.append(_threads(some, places, LINES[kind] | {"shape": "linear"}, faint))
            continue
        by_level: dict[int, list[Row]] = {}
        for row in some:
            by_level.setdefault(seen.level(row) if seen.value(row) is not None else theme.LEVELS - 1, []).append(row)
        for level, alike in sorted(by_level.items(), reverse=True):  # the best over all others
            data.append(_threads(alike, places, {"color": f"--scale-{level}", "width": 2 if level == 0 else 1.3}, 0.85))
    count = len(columns)
    for kind, some in seen.of_kind(rows).items():
        x = [i for _ in some for i in range(count)]
        y = [place for row in some for place in places[row.number]]
        numbers = [row.number for row in some for _ in range(count)]
        data.append(marks(seen, kind, x, y, numbers, [seen.value(row) for row in some for _ in range(count)]))
    ticks: list[dict[str, Any]] = []
    for i, axis in enumerate(columns):
        for place, word in axis.ticks().items():
            label = {"x": i, "y": place, "text": escaped(short(word, 14)), "showarrow": False, "xshift": 9}
            ticks.append(label | {"xanchor": "left", "font": {"size": 10.5, "color": "--muted"}, "bgcolor": "--card"})
    rails = [
        {"type": "line", "x0": i, "x1": i, "y0": -0.125 if axis.has_none else 0, "y1": 1, "layer": "below"}
        | {"line": {"color": "--waits", "width": 1}}
        for i, axis in enumerate(columns)
    ]
    names = [label_of(axis, 18) for axis in columns]
    bottom = {
        "range": [-0.2 if any(axis.has_none for axis in columns) else -0.06, 1.06],
        "visible": False,
        "fixedrange": True,
    }
    top = {"side": "top", "tickvals": [*range(count)], "ticktext": names, "range": [-0.15, count - 0.45]}
    turned = {"tickangle": -20} if count > 7 or max(map(len, names)) * count > 110 else {"tickangle": 0}
    return figure_of(
        data,
        420,
        seen.at_edge(note),
        annotations=ticks,
        shapes=rails,
        xaxis={**top, **turned, "showgrid": False, "fixedrange": True},
        yaxis=bottom,
        margin={"l": 20, "r": 16, "t": 40, "b": 8},
        **seen.colors(),
        meta={"least_width": 92 * count + 60},
    )


def _drawn_value(seen: Seen, row: Row, i: int) -> float | None:
    found = value_of(row, seen.summary, i)
    return found if i else seen.shown(found)


def _threads(rows: Sequence[Row], places: Mapping[int, Sequence[float]], line: Any, opacity: float) -> dict[str, Any]:
    """Lines of several trials in one trace."""
    x: list[int | None] = []
    y: list[float | None] = []
    for row in rows:
        x += [*range(len(places[row.number])), None]
        y += [*places[row.number], None]
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "opacity": opacity, "hoverinfo": "skip"}


def _objective_axis(seen: Seen, rows: Sequence[Row], i: int) -> Axis | None:
    """None if no trial has a value of this objective."""
    values = [_drawn_value(seen, row, i) for row in rows]
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    name, log = seen.summary.objective[i], is_wide(known)
    lacks = len(known) < len(values)
    return Axis(name, [], known[0], known[-1], log, lacks, none="no value")


def history(seen: Seen) -> Figure | None:
    """The first objective by trial, with the best so far. Trials without a value stand in a strip below."""
    rows, some = seen.some(_MOST_POINTS)
    if len(rows) < 2 or not any(seen.value(row) is not None for row in rows):
        return None
    data: list[dict[str, Any]] = []
    x: list[int] = []
    y: list[float] = []
    sign = -1 if seen.summary.directions[0] == "maximize" else 1
    note = some
    if seen.completed and not groups.of_study(seen.summary):
        note = f"The line is the best so far. {some}".strip()
        best = math.inf
        for row in seen.completed:
            best = min(best, sign * (seen.value(row) or 0.0))
            x.append(row.number)
            y.append(sign * best)
        x.append(rows[-1].number)
        y.append(sign * best)
        line = {"color": "--done", "width": 2, "shape": "hv"}
        data.append({"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"})
    data += all_kinds(seen, rows, lambda row: row.number)
    return figure_of(
        data, 380, seen.at_edge(note), xaxis=counting("trial", [row.number for row in rows]), **value_axes(seen, rows)
    )


def curves(seen: Seen) -> Figure | None:
    """The first objective by step, a line a trial, with a mark for how it ended; without one, what was reported."""
    metric = curve_metric(seen.summary, seen.curves)
    told = [row for row in seen.rows if metric in seen.curves.get(row.number, {})]
    if not told:
        return None
    rows, note = Seen(_with(seen.summary, told), seen.curves).some(_MOST_CURVES)
    few = len(rows) <= _MOST_NAMED
    data: list[dict[str, Any]] = []
    ends = []
    for kind, some in seen.of_kind(rows).items():
        ordered = sorted(some, key=lambda row: -seen.level(row)) if seen.completed and kind == "completed" else some
        for row in ordered:
            at, values = seen.curves[row.number][metric]
            shade = seen.level(row) if seen.value(row) is not None and seen.completed else theme.LEVELS // 2
            line = LINES.get(kind, {"color": f"--scale-{shade}", "width": 2 if shade == 0 else 1.4})
            trace = {"type": "scatter", "mode": "lines", "x": at, "y": values, "line": line, "meta": row.number}
            trace["hovertemplate"] = "step %{x}: %{y:.5g}<br>%{text}<extra></extra>"
            trace |= {"name": _named(row)} if few else {}
            data.append({**trace, "opacity": 1 if kind in ("completed", "running") else 0.7})
        x, y = zip(*(_end(*seen.curves[row.number][metric]) for row in ordered), strict=True)
        ended = marks(seen, kind, x, y, [row.number for row in ordered], [seen.value(row) for row in ordered])
        ends.append(ended | {"showlegend": False})
    known = [value for trace in data for value in trace["y"] if value is not None]
    steps = [step for trace in data for step in (trace["x"][0], trace["x"][-1])]
    yaxis = {"title": {"text": short(metric, 40)}, **value_scale(known)}
    below = {"orientation": "v", "y": -60 / 320, "yanchor": "top", "traceorder": "reversed"}  # the best first
    named: dict[str, Any] = {"showlegend": True, "legend": below} if few else {}
    height = 380 + 20 * len(rows) * few
    return figure_of([*data, *ends], height, note, xaxis=counting("step", steps), yaxis=yaxis, **named, **seen.colors())


def _named(row: Row) -> str:
    """For a legend: its values with the last word of their names."""
    pairs = (f"{name.rpartition('.')[2].lstrip('+')}={text(value, digits=4)}" for name, value in row.params.items())
    return escaped(short(without_password(" ".join(pairs) or row.name), 46))


def _end(steps: Sequence[int], values: Sequence[float | None]) -> tuple[int, float | None]:
    """The last point that is a number."""
    points = [point for point in zip(steps, values, strict=True) if point[1] is not None]
    return points[-1] if points else (steps[-1], None)


def curve_metric(summary: Summary, curves: Mapping[int, Curves]) -> str:
    """What the learning curves show: the first objective or, if no trial reports it, what most of them do."""
    counts: dict[str, int] = {}
    for found in curves.values():
        for name in found:
            counts[name] = counts.get(name, 0) + 1
    first = summary.objective[0]
    return first if first in counts or not counts else max(counts, key=lambda name: counts[name])


def cost(seen: Seen) -> Figure | None:
    """The first objective by what each trial took: the seconds in training of all its attempts."""
    some, note = seen.some(_MOST_POINTS)
    spent = {row.number: ledger.of_trial(row).get("seconds/training", 0.0) for row in some}
    rows = [row for row in some if spent[row.number] > 0]
    if len(rows) < 2 or not any(seen.value(row) is not None for row in rows):
        return None
    xaxis = {"title": {"text": "training (s)"}, **value_scale([spent[row.number] for row in rows])}
    data = all_kinds(seen, rows, lambda row: spent[row.number])
    return figure_of(data, 320, seen.at_edge(note), xaxis=xaxis, **value_axes(seen, rows))


def importance(seen: Seen) -> Figure | None:
    """The share of each parameter in the variance of the first objective, once there are enough trials to tell."""
    shares = dict(sorted(seen.summary.importance.items(), key=lambda item: item[1]))
    if not shares or len(seen.completed) < ENOUGH:
        return None
    labels = [escaped(short(name.lstrip("+"), 24)) for name in shares]
    bars: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "x": [*shares.values()],
        "y": labels,
        "texttemplate": "%{x:.0%}",
    }
    bars |= {"marker": {"color": "--done"}, "textposition": "auto", "hovertemplate": "%{y}: %{x:.1%}<extra></extra>"}
    said = f"share in the variance of {short(seen.summary.objective[0], 40)}, over {len(seen.completed)} trials"
    xaxis = {"tickformat": ".0%", "title": {"text": said}, "rangemode": "tozero"}
    return figure_of([bars], 110 + 34 * len(shares), xaxis=xaxis, yaxis={"showgrid": False, "type": "category"})


def slices(seen: Seen) -> Figures:
    """The first objective by each parameter, the most important first."""
    shares = seen.summary.importance
    ordered = sorted(seen.axes, key=lambda axis: -shares.get(axis.name, 0.0))[:_MOST_SLICES]
    rows, note = seen.some(MOST_LINES)
    note = seen.at_edge(note)
    found = {}
    for axis in ordered if any(seen.value(row) is not None for row in rows) else []:
        some = [row for row in rows if not axis.is_of_numbers or row.params.get(axis.name) is not None]
        if some:
            data = all_kinds(seen, some, lambda row, axis=axis: place_on(axis, row.params.get(axis.name)))  # type: ignore[misc]
            layout = value_axes(seen, some)
            for trace in data:
                trace["marker"] = {**trace["marker"], "size": 7}
            margin = {"l": 48, "r": 10, "t": 8, "b": 40}
            found[axis.name] = figure_of(data, 260, note, xaxis=parameter_axis(axis), margin=margin, **layout)
    return found


def heat_map(seen: Seen) -> Figure | None:
    """The first objective over the only two parameters, or over two numbers: the only two, or the two most important
    ones. A grid shows its cells, of what else was swept the best; a search its trials, and contours of what they say.
    """
    pair = [axis for axis in seen.axes if axis.is_of_numbers or len(seen.axes) == 2]
    if len(pair) > 2 and len(seen.completed) >= ENOUGH:
        shares = seen.summary.importance
        known = sorted((axis for axis in pair if axis.name in shares), key=lambda axis: -shares[axis.name])[:2]
        pair = [axis for axis in pair if axis in known]
    if len(pair) != 2 or not seen.completed:
        return None
    across, up = pair
    some, _ = seen.some(_MOST_POINTS)
    placed = [row for row in some if row.params.get(across.name) is not None and row.params.get(up.name) is not None]
    numbered = {row.number for row in placed}
    done = [row for row in seen.summary.top()[::-1] if row.number in numbered and seen.value(row) is not None]
    if not done:
        return None
    places = {(row.params[across.name], row.params[up.name]) for row in done}  # several seeds are at one
    is_grid = len(across.cells) * len(up.cells) <= 2 * len(places)
    if not is_grid and (across.words or up.words):
        return None
    data = [_cells(seen, done, across, up)] if is_grid else _contours(seen, done, across, up)
    axis_of = cell_axis if is_grid else parameter_axis
    for kind, alike in seen.of_kind(placed).items():
        if is_grid and kind == "completed":
            continue
        x, y = ([place_on(axis, row.params.get(axis.name), is_grid) for row in alike] for axis in (across, up))
        mark = marks(seen, kind, x, y, [row.number for row in alike], [seen.value(row) for row in alike])
        if kind == "completed":
            mark["marker"] |= {"size": 10, "line": {"color": "--card", "width": 1.5}}
        data.append(mark)
    return figure_of(data, 420, xaxis=axis_of(across), yaxis=axis_of(up), **seen.colors(bar=True))


def _cells(seen: Seen, done: Sequence[Row], across: Axis, up: Axis) -> dict[str, Any]:
    """Of trials at one place the last one counts, which is the best; of several seeds their mean."""

    def cell(params: Point) -> tuple[str, str]:
        return across.cell(params.get(across.name)), up.cell(params.get(up.name))

    known = {cell(row.params): (seen.value(row), row.number) for row in done}
    means = [one for one in reversed(groups.of_study(seen.summary)) if one.values]
    for one in means:
        number = (one.rows or one.raced)[0].number
        known[cell(one.params)] = sum(one.values) / len(one.values), number
    grid = [[known.get((a, b), (None, None)) for a in across.cells] for b in up.cells]
    cells = {
        "z": [[value for value, _ in line] for line in grid],
        "customdata": [[n for _, n in line] for line in grid],
    }
    names = {"x": [*map(escaped, across.cells)], "y": [*map(escaped, up.cells)]}
    hover = f"{escaped(across.name)} %{{x}}, {escaped(up.name)} %{{y}}: %{{z:.5g}}<extra></extra>"
    shown = {"texttemplate": "%{z:.4g}"} if len(across.cells) <= axes.MOST_TICKS else {}
    return (
        {"type": "heatmap", "coloraxis": "coloraxis", "hovertemplate": hover, "xgap": 2, "ygap": 2}
        | names
        | cells
        | shown
    )


def _contours(seen: Seen, done: Sequence[Row], across: Axis, up: Axis) -> list[dict[str, Any]]:
    """What trials nearby have, on average, by a Gaussian kernel (Nadaraya 1964, Watson 1964); nothing far from all."""
    if len(done) < 6:
        return []
    import numpy as np

    trials = done[-200:]
    places = np.array([[axis.place(row.params[axis.name]) for axis in (across, up)] for row in trials])
    values = np.array([seen.value(row) for row in trials])
    side = np.linspace(0, 1, 30)
    width = max(0.07, 0.35 * len(trials) ** -0.5)
    gaps = (side[None, :, None] - places[:, 0]) ** 2 + (side[:, None, None] - places[:, 1]) ** 2  # up, across, trial
    weights = np.exp(-(gaps - gaps.min(axis=-1, keepdims=True)) / (2 * width**2))
    smooth = (weights @ values) / weights.sum(axis=-1)
    near = gaps.min(axis=-1) < (2.5 * width) ** 2
    z = [[float(v) if ok else None for v, ok in zip(*line, strict=True)] for line in zip(smooth, near, strict=True)]
    x, y = ([axis.number_at(float(place)) for place in side] for axis in (across, up))
    lines = {"coloring": "heatmap", "showlabels": True, "labelfont": {"size": 10, "color": "--ink"}}
    contour = {"type": "contour", "x": x, "y": y, "z": z, "contours": lines, "line": {"width": 0.6, "color": "--muted"}}
    return [contour | {"coloraxis": "coloraxis", "opacity": 0.4, "hoverinfo": "skip", "ncontours": 12}]


def front(seen: Seen) -> Figure | None:
    """Of several objectives the first two: the trials that no other dominates, and all others that have both."""
    summary = seen.summary
    if len(summary.objective) < 2:
        return None
    best = summary.front()
    both = {row.number: [value_of(row, summary, i) for i in (0, 1)] for row in seen.rows}
    placed = [row for row in seen.rows if None not in both[row.number]]
    if not placed:
        return None
    data: list[dict[str, Any]] = []
    for kind, some in seen.of_kind(row for row in placed if row.number not in best).items():
        dim = {"symbol": "circle-open", "color": "--muted"} if kind == "completed" else {}
        x, y = ([both[row.number][i] for row in some] for i in (0, 1))
        made = marks(seen, kind, x, y, [row.number for row in some], [None] * len(some))
        data.append(made | {"marker": made["marker"] | dim} | ({"name": "dominated"} if dim else {}))
    on_it = sorted((row for row in placed if row.number in best), key=lambda row: both[row.number])
    x, y = ([both[row.number][i] for row in on_it] for i in (0, 1))
    marker = {"symbol": "diamond", "size": 11, "color": "--done", "line": {"width": 1, "color": "--card"}}
    line = {"color": "--done", "width": 1, "dash": "dot"}
    made = marks(seen, "completed", x, y, [row.number for row in on_it], [None] * len(on_it))
    data.append(made | {"name": "on the front", "mode": "lines+markers", "marker": marker, "line": line})
    titles = [f"{short(n)} ({d}d)" for n, d in zip(summary.objective, summary.directions, strict=True)]
    scales = [value_scale([v for v in (both[row.number][i] for row in placed) if v is not None]) for i in (0, 1)]
    xaxis, yaxis = ({"title": {"text": title}, **scale} for title, scale in zip(titles, scales, strict=False))
    return figure_of(data, xaxis=xaxis, yaxis=yaxis)


def hypervolume(seen: Seen) -> Figure | None:
    """Of several objectives, the volume that the trials dominate, as they came."""
    summary = seen.summary
    if not summary.front():
        return None
    numbers, volumes = zip(*hypervolumes(summary), strict=True)
    line = {"color": "--done", "width": 2, "shape": "hv"}
    steps = {"type": "scatter", "mode": "lines+markers", "x": [*numbers], "y": [*volumes], "line": line}
    steps |= {"marker": {"size": 5}, "hovertemplate": "after trial %{x}: %{y:.5g}<extra></extra>"}
    worst = zip(summary.objective, reference(summary), strict=True)
    note = f"from {', '.join(f'{name} {value:.6g}' for name, value in worst)}, the worst of all trials"
    return figure_of([steps], 380, note, xaxis={"title": {"text": "trial"}}, yaxis={"title": {"text": "hypervolume"}})


_FIGURES: dict[str, Callable[[Seen], Figure | None]] = {
    "The front": front,
    "Hypervolume": hypervolume,
    "Parameters and objective": parallel_coordinates,
    "History": history,
    "Learning curves": curves,
    "Two parameters": heat_map,
    "Importance": importance,
    COST: cost,
}


def _with(summary: Summary, rows: list[Row]) -> Summary:
    """The same study, of these trials alone."""
    return Summary(summary.name, summary.folder, summary.objective, summary.directions, rows, seed_key=summary.seed_key)
