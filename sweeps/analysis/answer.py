"""The results of a study: its Pareto front, the winner of its race, its best mean or its best
trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from sweeps.analysis.comparison import LEVEL, holm, interval, paired_p
from sweeps.analysis.configurations import Configuration, Ranking
from sweeps.record.study import StudySnapshot, TrialRecord, Trials, parameters


@dataclass(frozen=True)
class Answer:
    """The results of a study."""

    # Pareto front of several objectives, best first by the first objective
    front: Trials = ()
    # winner of the final race, or the best configuration in the race so far
    winner: Configuration | None = None
    # configurations that are not significantly different from the winner
    not_different: Sequence[Configuration] = ()
    race_is_running: bool = False
    # best configuration without failures, with or without a race
    best_configuration: Configuration | None = None
    best_trial: TrialRecord | None = None  # with several seeds the luckiest trial


def answer_of(top: Trials, on_front: int, ranking: Ranking) -> Answer:
    """Return the results. `top` holds the completed trials, best first; the first `on_front` are
    the Pareto front."""
    trial = top[0] if top else None
    alive = ranking.alive
    return Answer(
        top[:on_front],
        alive[0] if alive else None,
        alive[1:],
        ranking.race_is_running,
        ranking.best,
        trial,
    )


@dataclass(frozen=True)
class Pair:
    """Two values of one parameter, compared over the trials that are equal in all other params."""

    name: str
    value: str
    other: str
    gaps: Sequence[float]  # differences of the first objective: value minus other
    p: float  # two-sided p-value, adjusted for the number of pairs
    better: str  # value or other; empty if they are not significantly different

    @property
    def gap(self) -> float:
        return fmean(self.gaps)

    @property
    def interval(self) -> tuple[float, float]:
        """Return Student's t interval of the gap, at 95%."""
        return interval(self.gaps)


def pairs(study: StudySnapshot, top: Trials, key: str) -> list[Pair]:
    """Compare the values of the first categorical parameter by paired t-tests with Holm's
    correction.

    A pair compares trials that are equal in all other params, the seed (`key`) included. Empty
    without two values.
    """
    trials = sorted((trial for trial in top if not trial.race), key=lambda trial: trial.number)
    name = _first_categorical(trials, [name for name in parameters(study.rows) if name != key])
    if not name:
        return []
    results = _results_by_value(trials, name)
    gaps = {pair: _gaps(results[pair[0]], results[pair[1]]) for pair in combinations(results, 2)}
    gaps = {pair: differences for pair, differences in gaps.items() if len(differences) > 1}
    adjusted = holm([paired_p(differences) for differences in gaps.values()])

    maximize = study.directions[0] == "maximize"
    compared = []
    for ((value, other), differences), p in zip(gaps.items(), adjusted, strict=True):
        is_better = (fmean(differences) > 0) == maximize
        winner = value if is_better else other
        compared.append(Pair(name, value, other, differences, p, winner if p < 1 - LEVEL else ""))
    return compared


def _first_categorical(trials: Trials, names: Sequence[str]) -> str:
    """Return the first parameter that has two values, one of them a text; empty without such a
    parameter."""
    for name in names:
        values = [trial.params[name] for trial in trials if name in trial.params]
        if len({*map(str, values)}) > 1 and any(isinstance(value, str) for value in values):
            return name
    return ""


def _gaps(results: Mapping[str, float], others: Mapping[str, float]) -> list[float]:
    return [results[rest] - others[rest] for rest in results if rest in others]


def _results_by_value(trials: Trials, name: str) -> dict[str, dict[str, float]]:
    """Return the first objective by the value of a parameter, and by the text of all others."""
    results: dict[str, dict[str, float]] = {}
    for trial in trials:
        rest = [(other, value) for other, value in trial.params.items() if other != name]
        of_value = results.setdefault(str(trial.params.get(name)), {})
        of_value[repr(sorted(rest))] = trial.objective[0]
    return results
