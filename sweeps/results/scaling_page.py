"""The scaling page: `Scaling` in words, as tables, and drawn with plotly."""

import math
from collections.abc import Callable
from itertools import chain, product
from typing import Any

from sweeps.results import page, prediction, theme
from sweeps.results.drawing import Figure, Trace, figure_of, scatter
from sweeps.results.page import Section
from sweeps.results.scaling import Count, Scaling, Series
from sweeps.results.tables import Paragraph, Part, Table, parts_as_html

_SILENT: Any = {"showlegend": False, "hoverinfo": "skip"}
Columns = dict[str, Callable[[Count], str]]  # how a count's cell is made; "" if nobody told


def build_parts(scaling: Scaling) -> list[Part]:
    """What the page holds beside its figure, from the top."""
    shown: list[Part] = [*words(scaling), *tables(scaling), *map(Paragraph, scaling.remarks)]
    if ahead := forecasts(scaling):
        shown += [Paragraph("Forecast, with the ends of a 90% interval:"), ahead]
    return [*shown, *map(Paragraph, doubts(scaling))]


def build_section(scaling: Scaling) -> Section:
    """As a part of a study's page."""
    return Section("Scaling", {"": figure(scaling)}, parts_as_html(build_parts(scaling)))


def render_page(scaling: Scaling) -> str:
    """Of a table of numbers: one file."""
    return page.render_page(scaling.title, [build_section(scaling)])


def tables(scaling: Scaling) -> list[Table]:
    """How fast and how costly: a line for each count of each series. What nobody told has no column."""
    found = []
    for columns in _columns(scaling):
        table = [["series", scaling.unit, *columns]]
        for one in scaling.series:
            table += [[one.name, scaling.counted(n, ""), *(of(n) for of in columns.values())] for n in one.counts]
        found += [_told(table)] if any(any(cells[2:]) for cells in table[1:]) else []
    return found


def words(scaling: Scaling) -> list[Paragraph]:
    """How much faster the largest count is, and which one serves a wanted objective best."""
    found = []
    for one in scaling.series:
        first, last = one.counts[0], one.counts[-1]
        times = f"{last.speed_up:.2f} times as fast as {scaling.counted(first, '')}, {last.efficiency:.0%} of"
        said = [f"{scaling.counted(last)}: {times} what is ideal."] if first is not last else []
        if line := " ".join(said + _to_target(scaling, one)):
            found.append(Paragraph(f": {line}", one.name) if one.name else Paragraph(line))
    return found


def forecasts(scaling: Scaling) -> Table:
    """A line for each count that is wanted of each series; empty if none can be told."""
    table = [["series", scaling.unit, f"{scaling.time} (s)", "from", "to", "speed-up", "to stable (s)", "from", "to"]]
    for one, count in product(scaling.series, scaling.wanted):
        if found := prediction.epoch_time(one, count):
            ahead = [found, *([stable] if (stable := prediction.time_to_stable(one, count)) else [])]
            cells = [_cell(value) for each in ahead for value in (each.value, each.low, each.high)]
            cells.insert(3, f"{one.counts[0].epoch_s / found.value:.2f}")
            table.append([one.name, str(count), *cells, *[""] * (7 - len(cells))])
    return _told(table) if len(table) > 1 else []


def doubts(scaling: Scaling) -> list[str]:
    """About the forecasts: of each series, or once, if all have the same."""
    found: dict[str, list[str]] = {}
    for one in scaling.series:
        doubts = dict.fromkeys(chain(*(prediction.doubts(one, count) for count in scaling.wanted)))
        found.setdefault("; ".join(doubts), []).append(one.name)
    whom = [f" ({', '.join(names)})" if len(found) > 1 else "" for names in found.values()]
    return [f"Beware{of}: {said}." for of, said in zip(whom, found, strict=True) if said]


def figure(scaling: Scaling) -> Figure:
    """Speed-up by count as measured, forecast and ideal. Series that begin with larger counts begin on the ideal."""
    counts = {count.count for one in scaling.series for count in one.counts}
    ends = [min(counts), max(*counts, *scaling.wanted)]
    line = {"color": "--muted", "width": 1}
    data = [scatter("lines", ends, [1, ends[1] / ends[0]], name="ideal", line=line, hoverinfo="skip")]
    for i, one in enumerate(scaling.series):
        data += _drawn(scaling, one, i, ends)
    ticks = sorted(counts | {*scaling.wanted})
    xaxis = {"type": "log", "tickvals": ticks, "ticktext": [*map(str, ticks)], "title": {"text": scaling.unit}}
    yaxis = {"type": "log", "dtick": math.log10(2), "title": {"text": "speed-up"}}
    legend = {"y": -0.18, "yanchor": "top"}
    return figure_of(data, 460, xaxis=xaxis, yaxis=yaxis, showlegend=True, legend=legend, margin={"b": 110})


def _drawn(scaling: Scaling, one: Series, place: int, ends: list[int]) -> list[Trace]:
    """Points for what was measured; dashed the forecast, with a band for its interval."""
    counts, first, color = one.counts, one.counts[0], f"--series-{place % theme.SERIES}"
    scale = first.epoch_s * first.count / ends[0]
    symbols = [(count.nodes - 1).bit_length() for count in counts]  # plotly's: a circle, square, diamond, ...
    measured = scatter(
        "markers",
        [count.count for count in counts],
        [scale / count.epoch_s for count in counts],
        text=[scaling.counted(count) for count in counts],
        marker={"color": color, "size": 9, "symbol": symbols},
        name=one.name or "measured",
        legendgroup=one.name,
        hovertemplate="%{text}: %{y:.3g} times<extra>%{fullData.name}</extra>",
    )
    places = [first.count * (ends[1] / first.count) ** (i / 20) for i in range(21)]
    ahead = [forecast for count in places if (forecast := prediction.epoch_time(one, count))]
    dashed = {"color": color, "dash": ["dash", "dashdot", "dot"][place // theme.SERIES % 3], "width": 1.5}

    def line(values: list[float], **more: Any) -> Trace:
        return scatter("lines", places[: len(ahead)], values, legendgroup=one.name, **more, **_SILENT)

    low = line([scale / forecast.high for forecast in ahead], line={"width": 0})
    band = {"line": {"width": 0}, "fill": "tonexty", "fillcolor": f"{color}-faint"}
    high = line([scale / forecast.low for forecast in ahead], **band)
    return [measured, low, high, line([scale / forecast.value for forecast in ahead], line=dashed)]


def _to_target(scaling: Scaling, one: Series) -> list[str]:
    """The cheapest count for the target, in words, and what each dearer one that is faster would save and cost."""
    told = [(c.target_s * c.devices / 3600, c.target_s, c) for c in one.counts if c.target_s is not None]
    if one.target is None or not told:
        return []
    goal = f"{scaling.objective} {one.target:.4g}"
    there = sorted((each for each in told if math.isfinite(each[1])), key=lambda each: each[:2])
    late = ", ".join(scaling.counted(count, "") for _, seconds, count in told if math.isinf(seconds))
    if not there:
        return [f"No count reached {goal}."]
    (hours, fastest_s, cheap), *dearer = there
    said, cheap_s = [f"{scaling.counted(cheap)} ({duration(fastest_s)}, {hours:.3g} {scaling.hours})"], fastest_s
    for costs, seconds, count in dearer:
        if seconds < fastest_s:
            fastest_s, saved = seconds, duration(cheap_s - seconds)
            said.append(f"{scaling.counted(count, '')} would save {saved} and cost {costs / hours - 1:.0%} more")
    rank = "Cheapest" if len(said) > 1 else "Fastest and cheapest" if dearer else "The only one"
    return [f"{rank} to {goal}: {'; '.join(said)}.", *([f"{late} did not reach it."] if late else [])]


def duration(seconds: float) -> str:
    size, unit = (1, "s") if seconds < 100 else (60, "minutes") if seconds < 6000 else (3600, "hours")
    return f"{seconds / size:.3g} {unit}"


def _columns(scaling: Scaling) -> tuple[Columns, Columns]:
    """Those of each table."""
    use = "GPU use (%)" if scaling.unit == "GPUs" else "CPU use (100% is a core)"
    speed: Columns = {
        "trials": lambda c: str(c.trials),
        f"{scaling.time} (s)": _times,
        "images/s": lambda c: _cell(c.images_s),
        "speed-up": lambda c: f"{c.speed_up:.2f}",
        "efficiency": lambda c: f"{c.efficiency:.0%}",
        use: lambda c: _cell(c.use_percent),
        "power (W)": lambda c: _cell(c.watts),
    }
    cost: Columns = {
        scaling.objective: lambda c: _cell(c.objective, digits=4),
        "epochs to stable": lambda c: _cell(c.epochs_to_stable),
        "time to stable (s)": lambda c: _cell(c.time_to_stable_s),
        f"{scaling.hours} to stable": lambda c: _cell(c.time_to_stable_s, c.devices / 3600),
        "kWh to stable": lambda c: _cell(c.time_to_stable_s, c.watts and c.watts / 3.6e6),
        "time to target (s)": lambda c: "never" if c.target_s == math.inf else _cell(c.target_s),
        f"{scaling.hours} to target": lambda c: "" if c.target_s == math.inf else _cell(c.target_s, c.devices / 3600),
    }
    return speed, cost


def _told(table: Table) -> Table:
    """The columns that hold something below their header."""
    kept = [i for i in range(len(table[0])) if any(line[i] for line in table[1:])]
    return [[cells[i] for i in kept] for cells in table]


def _times(count: Count) -> str:
    span = f" ({_cell(count.shortest_s)} to {_cell(count.longest_s)})"
    return _cell(count.epoch_s) + (span if count.shortest_s < count.longest_s else "")


def _cell(value: float | None, factor: float | None = 1, digits: int = 3) -> str:
    if value is None or factor is None:
        return ""
    return f"{value * factor:.{digits}g}" if abs(value * factor) < 1000 else f"{value * factor:.0f}"
