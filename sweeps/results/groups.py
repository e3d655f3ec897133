"""Trials that differ in their seed alone, as one configuration: means, intervals, the race, pairs of values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean, stdev

from sweeps.results.comparison import LEVEL, Results, Standing, holm, interval, paired_p, race
from sweeps.results.summary import LONGEST, Row, Summary, counted, parameters, short, text
from sweeps.results.tables import Part, Table
from sweeps.trial.job import Point, State, Value

LOST = {State.LOST, State.TIMED_OUT}
"""Ends that say nothing of the configuration."""


@dataclass
class Group:
    """One configuration. The final race's trials count by themselves: the others are what it was chosen by."""

    params: Point  # without the seed
    key: str  # the seed's
    rows: list[Row] = field(default_factory=list)
    raced: list[Row] = field(default_factory=list)
    rivals: int = 1  # among how many the race's winner was chosen, itself included

    @property
    def name(self) -> str:
        return replace((self.rows or self.raced)[0], params=self.params).name if self.params else "all else the same"

    @property
    def values(self) -> list[float]:
        """The first objective of each trial that completed, of the race's alone if there are any."""
        return [row.result[0] for row in self.raced or self.rows if row.result]

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean of `values`, at 95%. Of the race it is wider: the best of several is, more often than not, one
        that was lucky again (Benjamini and Yekutieli, Journal of the American Statistical Association 2005).
        """
        return interval(self.values, 1 - (1 - LEVEL) / self.rivals)

    @property
    def failed(self) -> int:
        """How many of its trials, of those that `values` are of, ended without a result."""
        return sum(row.state.is_over and not row.result for row in self.raced or self.rows)

    def mean(self) -> float:
        """Of the first objective, before the race; nan where nothing completed."""
        return fmean([row.result[0] for row in self.rows if row.result] or [math.nan])

    def results(self) -> Results:
        """The race's, by seed."""
        found: dict[int, float | None] = {}
        for row in self.raced:
            if row.state.is_over:
                lost = math.nan if row.state in LOST else None
                found[seed_of(row, self.key)] = row.result[0] if row.result else lost
        return found


def seed_of(row: Row, key: str) -> int:
    return int(str(row.params.get(key, 0)))


def by_configuration(rows: Sequence[Row], key: str) -> list[Group]:
    """In the order of their first trials."""
    found: dict[str, Group] = {}
    for row in rows:
        params = {name: value for name, value in row.params.items() if name != key}
        group = found.setdefault(repr(sorted(params.items())), Group(params, key))
        (group.raced if row.race else group.rows).append(row)
    return list(found.values())


def candidates(groups: Sequence[Group], count: int, maximize: bool) -> list[Group]:
    """The `count` best of those of which every trial before the race completed, or was lost."""
    sound = [one for one in groups if one.rows and all(row.result or row.state in LOST for row in one.rows)]
    sound = [one for one in sound if not math.isnan(one.mean())]
    return sorted(sound, key=lambda one: -one.mean() if maximize else one.mean())[:count]


def of_study(summary: Summary) -> list[Group]:
    """The study's configurations, best first, those of the race before all others; none if no two trials differ in
    their seed alone, or there are several objectives.
    """
    if len(summary.objective) > 1:
        return []
    keys = [name for name in parameters(summary.rows) if name.lstrip("+") == summary.seed_key.lstrip("+")]
    if not keys or len({row.params.get(keys[0]) for row in summary.rows}) < 2:
        return []
    groups = by_configuration(summary.rows, keys[0])
    if all(len(one.rows) + len(one.raced) < 2 for one in groups):
        return []
    sign = -1 if summary.directions[0] == "maximize" else 1
    alive = _standing(groups, sign < 0).alive
    place = {id(groups[i]): rank for rank, i in enumerate(alive)}
    for one in groups:
        one.rivals = max(1, len(alive)) if one.raced else 1

    def order(one: Group) -> tuple[bool, bool, float, bool, float]:
        mean = fmean(one.values) if one.values else math.inf
        return not one.values, not one.raced, place.get(id(one), math.inf), bool(one.failed), sign * mean

    return sorted(groups, key=order)


def _standing(groups: Sequence[Group], maximize: bool) -> Standing:
    """How the race stands, by places in `groups`."""
    racing = [i for i, one in enumerate(groups) if one.raced]
    results = [groups[i].results() for i in racing]
    seeds = sorted({seed_of(row, one.key) for one in groups for row in one.raced})
    found = race(results, seeds, maximize) if racing else Standing([])
    dropped = {racing[i]: why for i, why in found.dropped.items()}
    return Standing([racing[i] for i in found.alive], dropped, [(racing[i], seed) for i, seed in found.todo])


def parts(summary: Summary, most: int = 25) -> list[Part]:
    """What there is to say of configurations: words and tables, for the terminal, the page and the note."""
    groups = of_study(summary)
    if not groups:
        return []
    said: list[Part] = []
    standing = _standing(groups, summary.directions[0] == "maximize")
    if standing.alive:
        said.append(_winner(groups, standing, summary.objective[0]))
    elif standing.dropped:
        said.append("**The final race has no winner**: each configuration in it failed under a fresh seed.")
    said.append(_table(groups[:most], standing, summary.objective[0]))
    if len(groups) > most:
        said.append(f"The first {most} of {len(groups)} configurations.")
    if compared := pairs(summary, groups[0].key):
        said += [f"**Compared pairwise**, in {summary.objective[0]}, where all else is the same:", compared]
    return said


def _winner(groups: Sequence[Group], standing: Standing, objective: str) -> str:
    best, *others = [groups[i] for i in standing.alive]
    if standing.todo:
        left = counted(len(standing.alive), "configuration")
        return f"**The final race goes on**: {left} left, the best now {best.name}."
    line = f"**The final race's winner**: {best.name}: {_mean(best, objective)}"
    if others:
        names = "; ".join(one.name for one in others)
        return f"{line}. It cannot be told from {counted(len(others), 'other')}: {names}."
    return f"{line}. The others in the race were dropped." if standing.dropped else f"{line}."


def _mean(group: Group, objective: str) -> str:
    low, high = group.interval
    count = len(group.values)
    return f"mean {objective} {fmean(group.values):.6g}, {LEVEL:.0%} interval {low:.6g} to {high:.6g}, {count} seeds"


def headline(summary: Summary) -> str:
    """The best configuration in a line, where they were run under several seeds; else empty."""
    groups = of_study(summary)
    standing = _standing(groups, summary.directions[0] == "maximize")
    if standing.alive:
        return _winner(groups, standing, summary.objective[0])
    best = _best(groups)
    return f"**Best mean**: {best.name}: {_mean(best, summary.objective[0])}." if best else ""


def best(summary: Summary) -> Group | None:
    """The configuration that won the race or, without one, has the best mean."""
    return _best(of_study(summary))


def _best(groups: Sequence[Group]) -> Group | None:
    return next((one for one in groups if one.values and not one.failed), None)


def _table(groups: Sequence[Group], standing: Standing, objective: str) -> Table:
    names = list(dict.fromkeys(name for one in groups for name in one.params))
    failed_header = ["no result"] if any(one.failed for one in groups) else []
    race_header = ["final race"] if standing.alive or standing.dropped else []
    header = [*names, f"mean {objective}", f"{LEVEL:.0%} interval", "deviation", "seeds", *failed_header, *race_header]
    table = [header]
    for i, one in enumerate(groups):
        cells = [short(text(one.params.get(name, "")), LONGEST) for name in names]
        values = one.values
        low, high = one.interval
        spread = [f"{low:.6g} to {high:.6g}", f"{stdev(values):.3g}"] if len(values) > 1 else ["", ""]
        cells += [text(fmean(values)) if values else "", *spread, str(len(values))]
        cells += [str(one.failed or "") for _ in failed_header]
        if race_header:
            left = "winner" if standing.alive[:1] == [i] else "not told apart" if i in standing.alive else ""
            left = "goes on" if left and standing.todo else left
            cells.append(standing.dropped.get(i, left))
        table.append(cells)
    return table


def pairs(summary: Summary, key: str) -> Table:
    """The values of the first parameter that is of words compared pairwise, over the trials that are equal in all
    else, the seed included: paired t-tests with Holm's correction. Empty if there are no two to compare.
    """
    rows = [row for row in summary.top() if not row.race]
    swept = [name for name in parameters(summary.rows) if name != key]
    kinds = {name: list(dict.fromkeys(str(row.params[name]) for row in rows if name in row.params)) for name in swept}
    words = [name for name in swept if len(kinds[name]) > 1 and any(_is_word(row.params.get(name)) for row in rows)]
    if not words:
        return []
    cells: dict[str, dict[str, float]] = {}
    for row in sorted(rows, key=lambda one: one.number):
        rest = repr(sorted((name, value) for name, value in row.params.items() if name != words[0]))
        cells.setdefault(str(row.params.get(words[0])), {})[rest] = row.objective[0]
    lines = []
    for one, other in combinations(cells, 2):
        gaps = [cells[one][rest] - cells[other][rest] for rest in cells[one] if rest in cells[other]]
        if len(gaps) > 1:
            lines.append((one, other, gaps))
    if not lines:
        return []
    adjusted = holm([paired_p(gaps) for _, _, gaps in lines])
    table = [[words[0], "and", "difference", f"{LEVEL:.0%} interval", "pairs", "p (Holm)", ""]]
    better = max if summary.directions[0] == "maximize" else min
    for (one, other, gaps), p in zip(lines, adjusted, strict=True):
        mean, (low, high) = fmean(gaps), interval(gaps)
        verdict = f"{better((mean, one), (0.0, other))[1]} is better" if p < 1 - LEVEL else "not told apart"
        cells_ = [one, other, f"{mean:+.4g}", f"{low:+.4g} to {high:+.4g}", str(len(gaps)), f"{p:.2g}", verdict]
        table.append(cells_)
    return table


def _is_word(value: Value) -> bool:
    return isinstance(value, str)
