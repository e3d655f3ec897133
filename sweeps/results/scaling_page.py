"""The scaling page: `Scaling` as a table, in words, and drawn with plotly."""

import math
from collections.abc import Callable, Sequence
from itertools import chain, cycle, product

from plotly import graph_objects as go
from plotly.colors import hex_to_rgb, qualitative
from plotly.subplots import make_subplots

from sweeps.results import prediction
from sweeps.results.figures import drawing
from sweeps.results.prediction import Forecast
from sweeps.results.scaling import Count, Scaling, Series
from sweeps.results.tables import Table, as_html, as_markdown, paragraphs

Columns = dict[str, Callable[[Count], str]]  # how a count's cell is made; "" if nobody told

_MOST_BANDS = 4
_MOST_REMARKS = 5  # in a note


def section(scaling: Scaling, wanted: Sequence[int] = (), script: bool = True) -> str:
    """As a part of an HTML page, with plotly's script or for a page that has it."""
    parts = ["<h2>Scaling</h2>", paragraphs(words(scaling))]
    if scaling.series:
        parts += [drawing(figure(scaling, wanted), script), *map(as_html, tables(scaling))]
    parts += [paragraphs(scaling.remarks + missing(scaling))]
    if told := forecasts(scaling, wanted):
        parts += ["<h3>Forecast, with the ends of a 90% interval</h3>", as_html(told)]
    return "\n".join([*parts, paragraphs(doubts(scaling, wanted))])


def markdown(scaling: Scaling) -> str:
    """In short, for a note."""
    said = "\n".join(f"- {line}" for line in words(scaling) + scaling.remarks[:_MOST_REMARKS])
    return "\n\n".join(part for part in ("**Scaling**", said, *map(as_markdown, tables(scaling))) if part)


def tables(scaling: Scaling) -> list[Table]:
    """How fast and how costly: a line for each count of each series. What nobody told has no column."""
    found = []
    for columns in _columns(scaling):
        told = {name: of for name, of in columns.items() if any(map(of, _counts(scaling)))}
        table = [["series"] * (len(scaling.series) > 1) + [scaling.unit, *told]]
        for one in scaling.series:
            names = [one.name] * (len(scaling.series) > 1)
            table += [[*names, str(count.count), *(of(count) for of in told.values())] for count in one.counts]
        found += [table] if told else []
    return found


def missing(scaling: Scaling) -> list[str]:
    every = [*chain.from_iterable(columns.items() for columns in _columns(scaling))]
    names = [name for name, of in every if not any(map(of, _counts(scaling)))]
    return [f"Nobody told, and so not shown: {', '.join(names)}."] if names and scaling.series else []


def words(scaling: Scaling) -> list[str]:
    """How much faster the largest count is, and which one serves a wanted objective best."""
    found = []
    for one in scaling.series:
        first, last = one.counts[0], one.counts[-1]
        times = f"{last.speed_up:.2f} times as fast as {first.count}, {last.efficiency:.0%} of what is ideal"
        said = [f"{scaling.counted(last.count)}: {times}."] if first is not last else []
        if said := said + _to_target(scaling, one):
            found.append(" ".join([f"**{one.name}**:"] * bool(one.name) + said))
    return found


def forecasts(scaling: Scaling, wanted: Sequence[int] = ()) -> Table:
    """A line for each count that is wanted (by default twice the largest) of each series; empty if none can be told."""
    table = [["series", scaling.unit, f"{scaling.time} (s)", "from", "to", "speed-up", "to stable (s)", "from", "to"]]
    for one, count in product(scaling.series, _wanted(scaling, wanted)):
        if found := prediction.epoch_time(one, count):
            speed_up = f"{one.counts[0].epoch_s / found.value:.2f}"
            stable = prediction.time_to_stable(one, count)
            name = one.name if len(scaling.series) > 1 else ""
            table.append([name, str(count), *_three(found), speed_up, *_three(stable)])
    kept = [i for i in range(len(table[0])) if any(line[i] for line in table[1:])]
    return [[cells[i] for i in kept] for cells in table] if kept else []


def doubts(scaling: Scaling, wanted: Sequence[int] = ()) -> list[str]:
    """Each doubt about the forecasts once, with the series that it is of, if it is not of all."""
    found: dict[str, dict[str, None]] = {}
    for count, one in product(_wanted(scaling, wanted), scaling.series):
        for doubt in prediction.doubts(scaling, one, count):
            found.setdefault(doubt, {})[one.name] = None
    whom = {doubt: "" if len(of) == len(scaling.series) else f" ({'; '.join(of)})" for doubt, of in found.items()}
    return [f"Beware{whom[doubt]}: {doubt}." for doubt in found]


def figure(scaling: Scaling, wanted: Sequence[int] = ()) -> go.Figure:
    """Speed-up by count, with what is ideal and what is forecast; and time against cost, if somebody told them."""
    wanted = _wanted(scaling, wanted)
    prices = {one.name: _prices(one) for one in scaling.series}
    size, unit = _unit(max((seconds for price in prices.values() for _, seconds, _ in price), default=0.0))
    titles = ["Speed-up", f"Time and cost {_until(scaling)}"][: 1 + any(prices.values())]
    shown = make_subplots(cols=len(titles), horizontal_spacing=0.12, subplot_titles=titles)
    smallest = min(count.count for count in _counts(scaling))
    ends = [smallest, max([scaling.largest, *wanted])]
    grey = {"color": "#999", "width": 1}
    shown.add_scatter(x=ends, y=[end / smallest for end in ends], name="ideal", mode="lines", line=grey, row=1, col=1)
    for one, color in zip(scaling.series, cycle(qualitative.D3), strict=False):
        _draw_speed_up(shown, one, color, ends[1], len(scaling.series) <= _MOST_BANDS)
        if price := prices[one.name]:
            hours, seconds, texts = zip(*price, strict=True)
            how = {"mode": "lines+markers+text", "textposition": "top right", "marker_size": 8, "line_color": color}
            times = [second / size for second in seconds]
            shown.add_scatter(x=hours, y=times, text=texts, name=one.name, showlegend=False, row=1, col=2, **how)
    ticks = sorted({count.count for count in _counts(scaling)} | {*wanted})
    shown.update_xaxes(type="log", tickvals=ticks, ticktext=[*map(str, ticks)], title=scaling.unit, row=1, col=1)
    doubled = [2.0**power for power in range(-3, 13)]
    shown.update_yaxes(
        type="log",
        tickvals=doubled,
        ticktext=[f"{tick:g}" for tick in doubled],
        title=f"times as fast as {scaling.counted(smallest)}",
        row=1,
        col=1,
    )
    if any(prices.values()):
        shown.update_xaxes(title=scaling.hours, rangemode="tozero", row=1, col=2)
        shown.update_yaxes(title=unit, rangemode="tozero", row=1, col=2)
    return shown.update_layout(height=460, legend={"orientation": "h", "y": -0.18})


def _draw_speed_up(shown: go.Figure, one: Series, color: str, last: int, with_band: bool) -> None:
    """What was measured, each point with the range of its epochs; dashed the forecast, with a band."""
    counts, first = one.counts, one.counts[0]
    x, y = [count.count for count in counts], [count.speed_up for count in counts]
    above = [first.epoch_s / count.shortest_s - count.speed_up for count in counts]
    below = [count.speed_up - first.epoch_s / count.longest_s for count in counts]
    bars = {"array": above, "arrayminus": below, "symmetric": False, "thickness": 1}
    name = {"name": one.name or "measured", "legendgroup": one.name}
    shown.add_scatter(x=x, y=y, error_y=bars, mode="markers", marker={"color": color, "size": 8}, **name, row=1, col=1)
    places = [first.count * (last / first.count) ** (i / 20) for i in range(21)]
    told = [(place, found) for place in places if (found := prediction.epoch_time(one, place))]
    line = {"x": [place for place, _ in told], "mode": "lines", "legendgroup": one.name, "showlegend": False}
    line |= {"row": 1, "col": 1, "hoverinfo": "skip"}
    if with_band:
        shown.add_scatter(y=[first.epoch_s / found.high for _, found in told], line_width=0, **line)
        filled = f"rgba{(*hex_to_rgb(color), 0.15)}"
        upper = [first.epoch_s / found.low for _, found in told]
        shown.add_scatter(y=upper, line_width=0, fill="tonexty", fillcolor=filled, **line)
    middle = [first.epoch_s / found.value for _, found in told]
    shown.add_scatter(y=middle, line={"color": color, "dash": "dash", "width": 1.5}, **line)


def _prices(one: Series) -> list[tuple[float, float, str]]:
    """Hours, seconds and count, of the counts that reached the target; without one, until stable."""
    if one.target is not None:
        told = [(c.target_hours, c.target_s, str(c.count)) for c in one.counts]
    else:
        told = [(c.stable_hours, c.time_to_stable_s, str(c.count)) for c in one.counts]
    return [(hours, seconds, name) for hours, seconds, name in told if hours and seconds and math.isfinite(seconds)]


def _until(scaling: Scaling) -> str:
    targets = {one.target for one in scaling.series}
    if targets == {None}:
        return "until stable"
    (target, *others) = targets
    return f"to {scaling.objective}" + ("" if others else f" {target:.4g}")


def _to_target(scaling: Scaling, one: Series) -> list[str]:
    """The cheapest count for the target, in words, and what each dearer one that is faster would save and cost."""
    told = [count for count in one.counts if count.target_s is not None]
    if one.target is None or not told:
        return []
    goal = f"{scaling.objective} {one.target:.4g}"
    there = [count for count in told if math.isfinite(count.target_s or math.inf)]
    late = ", ".join(str(count.count) for count in told if count not in there)
    missed = [f"{late} did not reach it."] if late else []
    if not there:
        return [f"No count reached {goal}."]
    cheap, *dearer = sorted(there, key=lambda count: (_hours(count), _seconds(count)))
    said, fastest_s = [f"{scaling.counted(cheap.count)} ({_price(cheap, scaling.hours)})"], _seconds(cheap)
    for count in dearer:
        if _seconds(count) < fastest_s:
            fastest_s, more = _seconds(count), _hours(count) / _hours(cheap) - 1
            saved = duration(_seconds(cheap) - fastest_s)
            said.append(f"{count.count} would save {saved} and cost {more:.0%} more")
    rank = "Cheapest" if len(said) > 1 else "Fastest and cheapest" if dearer else "The only one"
    return [f"{rank} to {goal}: {'; '.join(said)}.", *missed]


def _price(count: Count, hours: str) -> str:
    return f"{duration(_seconds(count))}, {_hours(count):.3g} {hours}"


def duration(seconds: float) -> str:
    size, unit = _unit(seconds)
    return f"{seconds / size:.3g} {unit}"


def _unit(seconds: float) -> tuple[int, str]:
    """The unit that one would say it in, and its size in seconds."""
    return (1, "s") if seconds < 100 else (60, "minutes") if seconds < 6000 else (3600, "hours")


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
        scaling.objective: lambda c: _cell(c.objective, 4),
        "epochs to stable": lambda c: _cell(c.epochs_to_stable),
        "time to stable (s)": lambda c: _cell(c.time_to_stable_s),
        f"{scaling.hours} to stable": lambda c: _cell(c.stable_hours),
        "kWh to stable": lambda c: _cell(c.stable_kwh),
        "time to target (s)": lambda c: "never" if c.target_s == math.inf else _cell(c.target_s),
        f"{scaling.hours} to target": lambda c: "" if c.target_s == math.inf else _cell(c.target_hours),
    }
    return speed, cost


def _wanted(scaling: Scaling, wanted: Sequence[int]) -> Sequence[int]:
    return wanted or ([2 * scaling.largest] if scaling.series else [])


def _counts(scaling: Scaling) -> list[Count]:
    return [count for one in scaling.series for count in one.counts]


def _times(count: Count) -> str:
    span = f" ({_cell(count.shortest_s)} to {_cell(count.longest_s)})"
    return _cell(count.epoch_s) + (span if count.shortest_s < count.longest_s else "")


def _seconds(count: Count) -> float:
    return count.target_s or 0.0


def _hours(count: Count) -> float:
    return count.target_hours or 0.0


def _cell(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def _three(found: Forecast | None) -> list[str]:
    return [_cell(found.value), _cell(found.low), _cell(found.high)] if found else [""] * 3
