"""Trials that differ in their seed alone, as one configuration: means, intervals, and how the race stands."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from sweeps.record.comparison import LEVEL, Results, Standing, interval, race
from sweeps.record.study import StudySnapshot, TrialRecord, parameters
from sweeps.trial.job import Point, State

LOST = {State.LOST, State.TIMED_OUT}
"""Ends that say nothing of the configuration."""


@dataclass(frozen=True)
class Configuration:
    """One configuration. The final race's trials count by themselves: the others are what it was chosen by."""

    params: Point  # without the seed
    key: str  # the seed's
    rows: list[TrialRecord] = field(default_factory=list)
    raced: list[TrialRecord] = field(default_factory=list)
    rivals: int = 1  # among how many the race's winner was chosen, itself included
    place: int | None = None  # in the race, among those that are left
    dropped: str = ""  # why it is no longer in the race, in words

    @property
    def name(self) -> str:
        return replace((self.rows or self.raced)[0], params=self.params).name if self.params else "all else the same"

    @cached_property
    def values(self) -> list[float]:
        """The first objective of each trial that completed, of the race's alone if there are any."""
        return [row.result[0] for row in self.raced or self.rows if row.result]

    @cached_property
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
        results: dict[int, float | None] = {}
        for row in self.raced:
            if row.state.is_over:
                lost = math.nan if row.state in LOST else None
                results[_seed_of(row, self.key)] = row.result[0] if row.result else lost
        return results


@dataclass(frozen=True)
class Ranking:
    """The configurations of a study, best first, those of the final race before all others."""

    configurations: Sequence[Configuration] = ()
    race_goes_on: bool = False

    @property
    def alive(self) -> list[Configuration]:
        """Those that are left in the race, the best first."""
        left = [one for one in self.configurations if one.place is not None]
        return sorted(left, key=lambda one: one.place or 0)

    @property
    def best(self) -> Configuration | None:
        """The configuration that won the race or, without one, has the best mean."""
        return next((one for one in self.configurations if one.values and not one.failed), None)


def by_configuration(rows: Sequence[TrialRecord], key: str) -> list[Configuration]:
    """In the order of their first trials."""
    together: dict[str, list[TrialRecord]] = {}
    for row in rows:
        params = {name: value for name, value in row.params.items() if name != key}
        together.setdefault(repr(sorted(params.items())), []).append(row)
    return [_configuration(alike, key) for alike in together.values()]


def _configuration(alike: Sequence[TrialRecord], key: str) -> Configuration:
    params = {name: value for name, value in alike[0].params.items() if name != key}
    rows = [row for row in alike if not row.race]
    raced = [row for row in alike if row.race]
    return Configuration(params, key, rows, raced)


def candidates(groups: Sequence[Configuration], count: int, maximize: bool) -> list[Configuration]:
    """The `count` best of those of which every trial before the race completed, or was lost."""
    sound = [one for one in groups if one.rows and all(row.result or row.state in LOST for row in one.rows)]
    sound = [one for one in sound if not math.isnan(one.mean())]
    return sorted(sound, key=lambda one: -one.mean() if maximize else one.mean())[:count]


def rank(summary: StudySnapshot) -> Ranking:
    """Return the study's configurations; none if no two trials differ in their seed alone, or there are several
    objectives.
    """
    if len(summary.objective) > 1:
        return Ranking()
    keys = [name for name in parameters(summary.rows) if name.lstrip("+") == summary.seed_key.lstrip("+")]
    if not keys or len({row.params.get(keys[0]) for row in summary.rows}) < 2:
        return Ranking()
    groups = by_configuration(summary.rows, keys[0])
    if len(groups) == len(summary.rows):
        return Ranking()
    maximize = summary.directions[0] == "maximize"
    racing = [one for one in groups if one.raced]
    seeds = sorted({_seed_of(row, one.key) for one in racing for row in one.raced})
    standing = race([one.results() for one in racing], seeds, maximize) if racing else Standing([])
    rivals, places = max(1, len(standing.alive)), {i: place for place, i in enumerate(standing.alive)}
    for i, one in enumerate(racing):
        racing[i] = replace(one, rivals=rivals, place=places.get(i), dropped=standing.dropped.get(i, ""))
    groups = [*racing, *(one for one in groups if not one.raced)]
    return Ranking(sorted(groups, key=lambda one: _merit(one, maximize)), bool(standing.todo))


def of_study(summary: StudySnapshot) -> Sequence[Configuration]:
    """The study's configurations, best first."""
    return rank(summary).configurations


def best(summary: StudySnapshot) -> Configuration | None:
    """The configuration that won the race or, without one, has the best mean."""
    return rank(summary).best


def _merit(one: Configuration, maximize: bool) -> tuple[bool, bool, float, bool, float]:
    """What the configurations are sorted by."""
    mean = fmean(one.values) if one.values else math.inf
    place = math.inf if one.place is None else one.place
    return not one.values, not one.raced, place, bool(one.failed), -mean if maximize else mean


def _seed_of(row: TrialRecord, key: str) -> int:
    return int(str(row.params.get(key, 0)))
