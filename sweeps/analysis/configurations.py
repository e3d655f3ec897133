"""Configurations, the trials that differ in their seed alone: means, intervals and the state of the
race."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from sweeps.analysis.comparison import LEVEL, RaceState, Results, cut, interval, race
from sweeps.record.study import StudySnapshot, TrialRecord, parameters
from sweeps.trial.directions import is_fraction
from sweeps.trial.job import Point, State

LOST = {State.LOST, State.TIMED_OUT}
"""States that allow no conclusion about the configuration."""


@dataclass(frozen=True)
class Configuration:
    """One configuration. Trials of the final race are apart, because the other trials chose its
    candidates."""

    params: Point  # params without the seed
    key: str  # key of the seed
    rows: list[TrialRecord] = field(default_factory=list)
    raced: list[TrialRecord] = field(default_factory=list)
    rivals: int = 1  # number of configurations that the race's winner was chosen from
    place: int | None = None  # rank among the remaining configurations of the race
    dropped: str = ""  # why the race dropped the configuration, in words
    is_fraction: bool = False  # whether the objective is from 0 to 1

    @property
    def name(self) -> str:
        if not self.params:
            return "all else the same"
        trial = (self.rows or self.raced)[0]
        return replace(trial, params=self.params).name

    @cached_property
    def values(self) -> list[float]:
        """Return the first objective of each completed trial; only of the race's trials if there
        are any."""
        return [trial.result[0] for trial in self.raced or self.rows if trial.result]

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Return the 95% confidence interval of the mean of `values`.

        After a race the interval is wider, because the best of several configurations often had
        luck (Benjamini and Yekutieli, Journal of the American Statistical Association 2005). It is
        cut where the objective cannot be.
        """
        ends = interval(self.values, 1 - (1 - LEVEL) / self.rivals)
        return cut(ends, self.values) if self.is_fraction else ends

    @property
    def failed(self) -> int:
        """Count the trials that ended without a result; only the race's trials if there are any."""
        return sum(trial.state.is_over and not trial.result for trial in self.raced or self.rows)

    def mean(self) -> float:
        """Return the mean of the first objective before the race; nan if no trial completed."""
        values = [trial.result[0] for trial in self.rows if trial.result]
        return fmean(values) if values else math.nan

    def results(self) -> Results:
        """Return the results of the race by seed."""
        results: dict[int, float | None] = {}
        for trial in self.raced:
            if trial.state.is_over:
                missing = math.nan if trial.state in LOST else None
                results[_seed_of(trial, self.key)] = trial.result[0] if trial.result else missing
        return results


@dataclass(frozen=True)
class Ranking:
    """The configurations of a study, best first, the final race's before all others."""

    configurations: Sequence[Configuration] = ()
    race_is_running: bool = False

    @property
    def alive(self) -> list[Configuration]:
        """Return the remaining configurations of the race, best first."""
        alive = [group for group in self.configurations if group.place is not None]
        return sorted(alive, key=lambda group: group.place or 0)

    @property
    def best(self) -> Configuration | None:
        """Return the winner of the race or, without a race, the configuration with the best
        mean."""
        return next(
            (group for group in self.configurations if group.values and not group.failed), None
        )


def by_configuration(trials: Sequence[TrialRecord], key: str) -> list[Configuration]:
    """Group the trials by configuration, in the order of the first trials. `key` is the key of the
    seed."""
    configurations: dict[str, Configuration] = {}
    for trial in trials:
        params = {name: value for name, value in trial.params.items() if name != key}
        identity = repr(sorted(params.items()))
        if identity not in configurations:
            configurations[identity] = Configuration(params, key)
        group = configurations[identity]
        trials_of_kind = group.raced if trial.race else group.rows
        trials_of_kind.append(trial)
    return [*configurations.values()]


def candidates(groups: Sequence[Configuration], count: int, maximize: bool) -> list[Configuration]:
    """Return the `count` best configurations whose trials before the race all completed, or were
    lost."""
    sound = []
    for group in groups:
        is_sound = all(trial.result or trial.state in LOST for trial in group.rows)
        if is_sound and not math.isnan(group.mean()):
            sound.append(group)
    sign = -1 if maximize else 1
    return sorted(sound, key=lambda group: sign * group.mean())[:count]


def rank(study: StudySnapshot) -> Ranking:
    """Return the study's configurations.

    The ranking is empty if no two trials differ in their seed alone, or if there are several
    objectives.
    """
    if len(study.objective) > 1:
        return Ranking()
    seed = study.seed_key.lstrip("+")
    keys = [name for name in parameters(study.rows) if name.lstrip("+") == seed]
    if not keys or len({trial.params.get(keys[0]) for trial in study.rows}) < 2:
        return Ranking()
    groups = by_configuration(study.rows, keys[0])
    if len(groups) == len(study.rows):
        return Ranking()

    has_fractions = is_fraction(study.objective[0])
    groups = [replace(group, is_fraction=has_fractions) for group in groups]
    maximize = study.directions[0] == "maximize"
    racing = [group for group in groups if group.raced]
    others = [group for group in groups if not group.raced]
    state = _race_of(racing, maximize)
    ranked = [*_with_places(racing, state), *others]
    ranked.sort(key=lambda group: _sort_key(group, maximize))
    return Ranking(ranked, race_is_running=len(state.todo) > 0)


def _race_of(racing: Sequence[Configuration], maximize: bool) -> RaceState:
    """Return the state of the race of these configurations, under the seeds of their trials."""
    seeds = {_seed_of(trial, group.key) for group in racing for trial in group.raced}
    results = [group.results() for group in racing]
    return race(results, sorted(seeds), maximize)


def _with_places(racing: Sequence[Configuration], state: RaceState) -> list[Configuration]:
    rivals = max(1, len(state.alive))
    places = {i: place for place, i in enumerate(state.alive)}
    placed = []
    for i, group in enumerate(racing):
        dropped = state.dropped.get(i, "")
        placed.append(replace(group, rivals=rivals, place=places.get(i), dropped=dropped))
    return placed


def best(study: StudySnapshot) -> Configuration | None:
    """Return the winner of the race or, without a race, the configuration with the best mean."""
    return rank(study).best


def _sort_key(group: Configuration, maximize: bool) -> tuple[bool, bool, float, bool, float]:
    mean = fmean(group.values) if group.values else math.inf
    place = math.inf if group.place is None else group.place
    return not group.values, not group.raced, place, bool(group.failed), -mean if maximize else mean


def _seed_of(trial: TrialRecord, key: str) -> int:
    return int(str(trial.params.get(key, 0)))
