"""What a study found: its front, the winner of its race, its best mean or its best trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from sweeps.record.comparison import LEVEL, holm, interval, paired_p
from sweeps.record.configurations import Configuration, Ranking
from sweeps.record.study import StudySnapshot, TrialRecord, parameters


@dataclass(frozen=True)
class Answer:
    """What a study found."""

    front: Sequence[TrialRecord] = ()  # of several objectives, best first by the first one
    winner: Configuration | None = None  # of the final race, or the best in it so far
    equals: Sequence[Configuration] = ()  # what no test of the race tells from the winner
    race_goes_on: bool = False
    configuration: Configuration | None = None  # the best of those without failures, with the race or without
    trial: TrialRecord | None = None  # the best; of several seeds the luckiest


def answer_of(top: Sequence[TrialRecord], on_front: int, ranking: Ranking) -> Answer:
    """Return what these trials, of which so many are on the front, and configurations, all best first, make of it."""
    trial = top[0] if top else None
    alive = ranking.alive
    return Answer(top[:on_front], alive[0] if alive else None, alive[1:], ranking.race_goes_on, ranking.best, trial)


@dataclass(frozen=True)
class Pair:
    """Two values of one parameter, over the trials that are equal in all else."""

    name: str
    value: str
    other: str
    gaps: Sequence[float]  # of the first objective, value less other
    p: float  # two-sided, adjusted for the number of pairs
    better: str  # value or other; empty where no test tells them apart

    @property
    def gap(self) -> float:
        return fmean(self.gaps)

    @property
    def interval(self) -> tuple[float, float]:
        """Return Student's t interval of the gap, at 95%."""
        return interval(self.gaps)


def pairs(summary: StudySnapshot, top: Sequence[TrialRecord], key: str) -> list[Pair]:
    """Return the values of the first parameter that is of words, compared pairwise over the trials that are equal in
    all else, the seed (`key`) included: paired t-tests with Holm's correction. Empty if there are no two to compare.
    """
    rows = sorted((row for row in top if not row.race), key=lambda row: row.number)
    name = _first_of_words(rows, [name for name in parameters(summary.rows) if name != key])
    results: dict[str, dict[str, float]] = {}
    for row in rows if name else ():
        rest = repr(sorted((other, value) for other, value in row.params.items() if other != name))
        results.setdefault(str(row.params.get(name)), {})[rest] = row.objective[0]
    gaps = {two: _gaps(results[two[0]], results[two[1]]) for two in combinations(results, 2)}
    several = {two: differences for two, differences in gaps.items() if len(differences) > 1}
    adjusted = holm([paired_p(differences) for differences in several.values()])
    better = max if summary.directions[0] == "maximize" else min
    compared = []
    for ((value, other), differences), p in zip(several.items(), adjusted, strict=True):
        _, winner = better((fmean(differences), value), (0.0, other))
        compared.append(Pair(name, value, other, differences, p, winner if p < 1 - LEVEL else ""))
    return compared


def _first_of_words(rows: Sequence[TrialRecord], names: Sequence[str]) -> str:
    """The first parameter that has two values, one of them a word; empty without one."""
    for name in names:
        values = {str(row.params[name]) for row in rows if name in row.params}
        if len(values) > 1 and any(isinstance(row.params.get(name), str) for row in rows):
            return name
    return ""


def _gaps(results: Mapping[str, float], others: Mapping[str, float]) -> list[float]:
    return [results[rest] - others[rest] for rest in results if rest in others]
