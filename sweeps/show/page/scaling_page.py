"""The scaling page: `Scaling` as sentences, tables and a figure."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise, product
from typing import Any

from sweeps.show.figures import drawing
from sweeps.show.figures.drawing import Figure, Figures, Trace, make_figure, scatter
from sweeps.show.figures.prediction import (
    Forecast,
    find_doubts,
    predict_epoch_time,
    predict_time_to_stable,
)
from sweeps.show.page import page, theme
from sweeps.show.page.page import Section
from sweeps.show.scales import Layout
from sweeps.show.scaling import Count, Scaling, Series
from sweeps.show.tables import Paragraph, Part, Table, parts_as_html, without_empty_columns

# a function per column that returns a count's cell, "" without a value
Columns = dict[str, Callable[[Count], str]]


def build_parts(scaling: Scaling) -> list[Part]:
    """Return the sentences and tables of the page, from the top."""
    shown: list[Part] = [
        *words(scaling),
        *tables(scaling),
        *map(Paragraph, [*contradictions(scaling), *scaling.remarks]),
    ]
    if table := forecasts(scaling):
        shown += [Paragraph("Forecast with its 90% interval:"), table]
    return [*shown, *map(Paragraph, doubts(scaling))]


def build_figures(scaling: Scaling) -> Figures:
    """Return the speed-up and each measured quantity by count."""
    return {"speed-up": figure(scaling), **measured(scaling)}


def build_section(scaling: Scaling, figures: Figures) -> Section:
    return Section("Scaling", figures, parts_as_html(build_parts(scaling)))


def render_page(scaling: Scaling) -> str:
    """Return a page with the scaling alone, as HTML."""
    return page.render_page(scaling.title, [build_section(scaling, build_figures(scaling))])


def tables(scaling: Scaling) -> list[Table]:
    """Return tables of speed and cost with a line per count of each series, without empty
    columns."""
    shown = []
    for columns in (_speed_columns(scaling), _cost_columns(scaling)):
        table = [["series", scaling.unit, *columns]]
        for series in scaling.series:
            for count in series.counts:
                cells = [make_cell(count) for make_cell in columns.values()]
                table.append([series.name, scaling.label(count, with_unit=False), *cells])
        if any(any(cells[2:]) for cells in table[1:]):
            shown.append(without_empty_columns(table))
    return shown


def words(scaling: Scaling) -> list[Paragraph]:
    """Return sentences about the speed-up of the largest count, and the best count for the
    target."""
    paragraphs = []
    for series in scaling.series:
        line = " ".join([*_speed_up(scaling, series), *_to_target(scaling, series)])
        if line:
            rest = f": {line}" if series.name else line
            paragraphs.append(Paragraph(rest, series.name))
    return paragraphs


def _speed_up(scaling: Scaling, series: Series) -> list[str]:
    """Return sentences on the speed-up, the second by images/s if that is another one, because an
    epoch may include validation."""
    first = series.counts[0]
    last = series.counts[-1]
    if first is last:
        return []
    times = f"{last.speed_up:.2f} times as fast as {scaling.label(first, with_unit=False)}"
    sentences = [f"{scaling.label(last)}: {times}, {last.efficiency:.0%} of ideal."]
    if first.images_s and last.images_s:
        by_images = last.images_s / first.images_s
        if abs(by_images / last.speed_up - 1) > _TOLERANCE:
            sentences.append(
                f"This is by {scaling.time}, with any validation; by images/s of the training"
                f" alone, {by_images:.2f} times."
            )
    return sentences


def contradictions(scaling: Scaling) -> list[str]:
    """Return sentences about efficiencies that cannot be, larger counts that are slower, and two
    laws; with causes."""
    sentences = []
    for series in scaling.series:
        name = f" ({series.name})" if series.name else ""
        above = [count for count in series.counts if count.efficiency > 1 + _TOLERANCE]
        if above:
            cells = ", ".join(f"{scaling.label(c)} {c.efficiency:.0%}" for c in above)
            causes = _ABOVE_IDEAL.format(first=scaling.label(series.counts[0]))
            sentences.append(f"More than 100% of ideal{name}: {cells}. {causes}")
        sentences += _slower(scaling, series, name)
    if any(" across nodes of " in f" {series.name}" for series in scaling.series):
        sentences.append(_TWO_LAWS)
    return sentences


def _slower(scaling: Scaling, series: Series, name: str) -> list[str]:
    sentences = []
    for fewer, more in pairwise(series.counts):
        if more.epoch_s > (1 + _TOLERANCE) * fewer.epoch_s:
            label = scaling.label(fewer, with_unit=False)
            times = f"{_cell(more.epoch_s)} s against {_cell(fewer.epoch_s)} s"
            sentences.append(f"{scaling.label(more)} slower than {label}{name}: {times}. {_SLOWER}")
    return sentences


_TOLERANCE = 0.05  # relative
_ABOVE_IDEAL = (
    "Usual causes: a slow start of the smallest count ({first}: cold cache, other jobs on the"
    " node), data or activations that fit into memory only when divided, or another batch per"
    " device."
)
_TWO_LAWS = (
    "Equal counts on one and on several nodes differ: each is a series with a law of its own."
)
_SLOWER = (
    "Usual causes: batches too small to share, gradients over a slow network, or an input pipeline"
    " at its limit."
)


def forecasts(scaling: Scaling) -> Table:
    """Return a table with a line per forecast count of each series; empty if nothing can be
    forecast."""
    table = [
        [
            "series",
            scaling.unit,
            f"{scaling.time} (s)",
            "from",
            "to",
            "speed-up",
            "to stable (s)",
            "from",
            "to",
        ]
    ]
    for series, count in product(scaling.series, scaling.forecast_counts):
        epoch_time = predict_epoch_time(series, count)
        if epoch_time:
            speed_up = f"{series.counts[0].epoch_s / epoch_time.value:.2f}"
            stable = _interval_cells(predict_time_to_stable(series, count))
            cells = [series.name, str(count), *_interval_cells(epoch_time), speed_up, *stable]
            table.append(cells)
    return without_empty_columns(table) if len(table) > 1 else []


def _interval_cells(forecast: Forecast | None) -> list[str]:
    if forecast is None:
        return [""] * 3
    return [_cell(forecast.value), _cell(forecast.low), _cell(forecast.high)]


def doubts(scaling: Scaling) -> list[str]:
    """Return sentences about unreliable forecasts; series with equal doubts share a sentence."""
    by_doubt: dict[str, list[str]] = {}
    for series in scaling.series:
        lists = [find_doubts(series, count) for count in scaling.forecast_counts]
        by_doubt.setdefault("; ".join(dict.fromkeys(chain(*lists))), []).append(series.name)
    sentences = []
    for doubt, names in by_doubt.items():
        of_series = f" ({', '.join(names)})" if len(by_doubt) > 1 else ""
        if doubt:
            sentences.append(f"Unreliable forecast{of_series}: {doubt}.")
    return sentences


def figure(scaling: Scaling) -> Figure:
    """Return the speed-up by count: measured, forecast and ideal. Each series begins on the ideal
    line."""
    counts = {count.count for series in scaling.series for count in series.counts}
    ends = [min(counts), max(*counts, *scaling.forecast_counts)]
    line = {"color": "--muted", "width": 1}
    data = [
        scatter("lines", ends, [1, ends[1] / ends[0]], name="ideal", line=line, hoverinfo="skip")
    ]
    for i, series in enumerate(scaling.series):
        data += _traces(scaling, series, i, ends)
    xaxis = _count_axis(scaling, counts.union(scaling.forecast_counts))
    yaxis = {"type": "log", "dtick": math.log10(2), "title": {"text": "speed-up"}}
    legend = {"y": -0.18, "yanchor": "top"}
    return make_figure(
        data, 460, xaxis=xaxis, yaxis=yaxis, showlegend=True, legend=legend, margin={"b": 110}
    )


def measured(scaling: Scaling) -> Figures:
    """Return a figure of each measured quantity by count, of which two counts at least have
    values."""
    values: dict[str, Callable[[Count], float | None]] = {
        f"{scaling.time} (s)": lambda count: count.epoch_s,
        "images/s": lambda count: count.images_s,
        "epochs to stable": lambda count: count.epochs_to_stable,
    }
    figures = {title: _by_count(scaling, title, value) for title, value in values.items()}
    return {title: figure for title, figure in figures.items() if figure}


def _by_count(
    scaling: Scaling, title: str, value: Callable[[Count], float | None]
) -> Figure | None:
    data: list[Trace] = []
    for i, series in enumerate(scaling.series):
        points = {count: value(count) for count in series.counts}
        shown = {count: y for count, y in points.items() if y is not None}
        trace = scatter("lines+markers", [count.count for count in shown], shown.values())
        trace |= {"name": series.name or title, "line": drawing.series_line(i)}
        trace |= {"marker": {"size": 7}, "hovertemplate": _HOVER}
        data.append(trace | {"text": [scaling.label(count) for count in shown]})
    ticks = {x for trace in data for x in trace["x"]}
    if len(ticks) < 2:
        return None
    yaxis = {"title": {"text": title}, "rangemode": "tozero"}
    return make_figure(data, 300, xaxis=_count_axis(scaling, ticks), yaxis=yaxis)


def _count_axis(scaling: Scaling, counts: Iterable[int]) -> Layout:
    ticks = sorted(counts)
    labels = [str(tick) for tick in ticks]
    title = {"text": scaling.unit}
    return {"type": "log", "tickvals": ticks, "ticktext": labels, "title": title}


# for 1, 2, up to 4, up to 8, and more nodes
_SYMBOLS = ("circle", "square", "diamond", "triangle-down", "x")
_DASHES = ("dash", "dashdot", "dot")
_HOVER = "%{text}: %{y:.4g}<extra>%{fullData.name}</extra>"


def _traces(scaling: Scaling, series: Series, i: int, ends: list[int]) -> list[Trace]:
    """Return points for the measured counts, a dashed line for the forecast, and a band for its
    interval."""
    first = series.counts[0]
    color = f"--series-{i % theme.SERIES}"
    scale = first.epoch_s * first.count / ends[0]
    marks = scatter(
        "markers",
        [count.count for count in series.counts],
        [scale / count.epoch_s for count in series.counts],
        text=[scaling.label(count) for count in series.counts],
        marker={"color": color, "size": 9, "symbol": [*map(_symbol, series.counts)]},
        name=series.name or "measured",
        legendgroup=series.name,
        hovertemplate="%{text}: %{y:.3g} times<extra>%{fullData.name}</extra>",
    )
    return [marks, *_forecast_traces(series, color, scale, ends[1], _DASHES[i // theme.SERIES % 3])]


def _forecast_traces(
    series: Series, color: str, scale: float, last: float, dash: str
) -> list[Trace]:
    """Return the edges of the band up to the last count, and the line in it."""
    start = series.counts[0].count
    x = [start * (last / start) ** (i / 20) for i in range(21)]
    ahead = [forecast for count in x if (forecast := predict_epoch_time(series, count))]

    def line(values: Iterable[float], **style: Any) -> Trace:
        y = [scale / value for value in values]
        hidden: Any = {"legendgroup": series.name, "showlegend": False, "hoverinfo": "skip"}
        return scatter("lines", x[: len(ahead)], y, **style, **hidden)

    edge = {"width": 0}
    return [
        line((f.high for f in ahead), line=edge),
        line((f.low for f in ahead), line=edge, fill="tonexty", fillcolor=f"{color}-faint"),
        line((f.value for f in ahead), line={"color": color, "dash": dash, "width": 1.5}),
    ]


def _symbol(count: Count) -> str:
    return _SYMBOLS[min((count.nodes - 1).bit_length(), len(_SYMBOLS) - 1)]


def _to_target(scaling: Scaling, series: Series) -> list[str]:
    """Return sentences about the cheapest count for the target, and the savings and costs of faster
    counts."""
    timed = [(c.target_s, c) for c in series.counts if c.target_s is not None]
    if series.target is None or not timed:
        return []
    goal = f"{scaling.objective} {series.target:.4g}"
    reached = [
        (c.devices * target_s / 3600, target_s, c) for target_s, c in timed if target_s < math.inf
    ]
    if not reached:
        return [f"No count reached {goal}."]
    reached.sort(key=lambda item: item[:2])
    choices = _choices(scaling, reached)
    rank = "The only count" if len(reached) == 1 else "Fastest and cheapest"
    if len(choices) > 1:
        rank = "Cheapest"
    sentences = [f"{rank} to {goal}: {'; '.join(choices)}."]
    late = [scaling.label(c, with_unit=False) for target_s, c in timed if math.isinf(target_s)]
    if late:
        sentences.append(f"{', '.join(late)} did not reach the target.")
    return sentences


def _choices(scaling: Scaling, reached: Sequence[tuple[float, float, Count]]) -> list[str]:
    """Return the cheapest count, and each faster one by its price: of hours, seconds and counts."""
    (hours, cheapest_s, cheapest), *dearer = reached
    choices = [f"{scaling.label(cheapest)} ({duration(cheapest_s)}, {hours:.3g} {scaling.hours})"]
    fastest_s = cheapest_s
    for more_hours, seconds, count in dearer:
        if seconds < fastest_s:
            fastest_s = seconds
            saved = duration(cheapest_s - seconds)
            label = scaling.label(count, with_unit=False)
            choices.append(f"{label} would save {saved} and cost {more_hours / hours - 1:.0%} more")
    return choices


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.3g} minutes"
    return f"{seconds / 3600:.3g} hours"


def _speed_columns(scaling: Scaling) -> Columns:
    use = "GPU use (%)" if scaling.unit == "GPUs" else "CPU use (100% is a core)"
    return {
        "trials": lambda c: str(c.trials),
        f"{scaling.time} (s)": _epoch_cell,
        "images/s": lambda c: _cell(c.images_s),
        "speed-up": lambda c: f"{c.speed_up:.2f}",
        "efficiency": lambda c: f"{c.efficiency:.0%}",
        use: lambda c: _cell(c.use_percent),
        "power (W)": lambda c: _cell(c.watts),
    }


def _cost_columns(scaling: Scaling) -> Columns:
    return {
        scaling.objective: lambda c: _cell(c.objective, digits=4),
        "tracing (s)": lambda c: _cell(c.tracing_s) if c.tracing_s else "",
        "epochs to stable": lambda c: _cell(c.epochs_to_stable),
        "time to stable (s)": lambda c: _cell(c.time_to_stable_s),
        f"{scaling.hours} to stable": lambda c: _cell(c.time_to_stable_s, c.devices / 3600),
        "kWh to stable": lambda c: _cell(c.time_to_stable_s, c.watts and c.watts / 3.6e6),
        "time to target (s)": lambda c: "never" if c.target_s == math.inf else _cell(c.target_s),
        f"{scaling.hours} to target": lambda c: (
            "" if c.target_s == math.inf else _cell(c.target_s, c.devices / 3600)
        ),
    }


def _epoch_cell(count: Count) -> str:
    span = f" ({_cell(count.shortest_s)} to {_cell(count.longest_s)})"
    return _cell(count.epoch_s) + (span if count.shortest_s < count.longest_s else "")


def _cell(value: float | None, factor: float | None = 1, digits: int = 3) -> str:
    if value is None or factor is None:
        return ""
    return f"{value * factor:.{digits}g}" if abs(value * factor) < 1000 else f"{value * factor:.0f}"
