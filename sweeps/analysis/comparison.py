"""Which of several results is better, and how sure that is. Pure statistics: numbers in, numbers
out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean, stdev, variance

LEVEL = 0.95
# seeds, because with two seeds Student's t has one degree of freedom, and no difference is
# significant
FIRST_TEST = 3
Results = Mapping[int, float | None]
"""Results of one configuration by seed: a value, None if it failed, nan if it was lost; without
open trials."""


def _normalize(*samples: Sequence[float]) -> tuple[float, list[list[float]]]:
    """Return the largest magnitude, and the samples divided by it, because squares of large numbers
    overflow."""
    scale = max((abs(value) for values in samples for value in values), default=0.0) or 1.0
    return scale, [[value / scale for value in values] for values in samples]


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return Student's t interval of a mean; (-inf, inf) for fewer than two values."""
    from scipy.special import stdtrit

    if len(values) < 2:
        return -math.inf, math.inf
    scale, (parts,) = _normalize(values)
    mean = fmean(parts)
    half = float(stdtrit(len(parts) - 1, (1 + level) / 2)) * stdev(parts) / math.sqrt(len(parts))
    return scale * (mean - half), scale * (mean + half)


def cut(ends: tuple[float, float], values: Sequence[float]) -> tuple[float, float]:
    """Return an interval of the mean of fractions without its parts below 0 and above 1."""
    if not all(0 <= value <= 1 for value in values):  # because they are percent, say
        return ends
    low, high = ends
    return max(0.0, low), min(1.0, high)


def paired_p(differences: Sequence[float]) -> float:
    """Return the p-value of the two-sided paired t-test; 1 for fewer than two differences."""
    from scipy.special import stdtr

    count = len(differences)
    if count < 2 or not any(differences):
        return 1.0
    _, (parts,) = _normalize(differences)
    if not (spread := stdev(parts)):
        return 0.0
    return 2 * float(stdtr(count - 1, -abs(fmean(parts)) / (spread / math.sqrt(count))))


@dataclass(frozen=True)
class Difference:
    """The difference of two means of independent results, its interval at 95%, and its two-sided
    p-value."""

    mean: float
    low: float
    high: float
    p: float


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare two means by Welch's t-test (Biometrika 1947). Each of them has at least two
    results."""
    from scipy.special import stdtr, stdtrit

    scale, samples = _normalize(first, second)
    mean = fmean(samples[0]) - fmean(samples[1])
    parts = [variance(values) / len(values) for values in samples]
    if not (error := math.sqrt(sum(parts))):
        return Difference(scale * mean, scale * mean, scale * mean, 0.0 if mean else 1.0)
    shares = [part / sum(parts) for part in parts]
    freedom = 1 / sum(
        share**2 / (len(values) - 1) for share, values in zip(shares, samples, strict=True)
    )
    half = error * float(stdtrit(freedom, (1 + LEVEL) / 2))
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Difference(scale * mean, scale * (mean - half), scale * (mean + half), p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values, adjusted for their number (Holm, Scandinavian Journal of Statistics
    1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


@dataclass(frozen=True)
class RaceState:
    """The state of a race. Candidates are named by their indices in the list of all candidates."""

    alive: list[int]  # remaining candidates, best first
    # reasons of the dropped candidates, in words
    dropped: dict[int, str] = field(default_factory=dict)
    todo: list[tuple[int, int]] = field(default_factory=list)
    """Candidates and seeds of the trials that must end before the next test; empty once the race is
    over."""


def race(results: Sequence[Results], seeds: Sequence[int], maximize: bool) -> RaceState:
    """Return the state of a race in which all remaining candidates run under one seed after the
    other.

    After each seed, from the third on, paired t-tests with Holm's correction drop the candidates
    that are worse than the best. A failed candidate is dropped at once. The race ends with the last
    seed, or with one remaining candidate. See Maron and Moore (NIPS 1993) and, with tests,
    Birattari et al. (GECCO 2002). The state depends on the results alone, so that no other state is
    stored.
    """
    sign = -1.0 if maximize else 1.0
    dropped = {
        i: "it failed under a fresh seed"
        for i, result in enumerate(results)
        if None in result.values()
    }
    alive = [i for i in range(len(results)) if i not in dropped]

    def losses(i: int, tested: Sequence[int]) -> dict[int, float]:
        """Return the results of a candidate by seed, lower is better."""
        values = {seed: results[i].get(seed) for seed in tested}
        return {
            seed: sign * value
            for seed, value in values.items()
            if value is not None and not math.isnan(value)
        }

    def best_first(tested: Sequence[int]) -> list[int]:
        return sorted(alive, key=lambda i: (fmean(losses(i, tested).values() or [math.inf]), i))

    for count in range(min(FIRST_TEST, len(seeds)), len(seeds) + 1):
        tested = seeds[:count]
        pairs = product(tested, alive)
        if todo := [(i, seed) for seed, i in pairs if seed not in results[i]]:
            return RaceState(best_first(tested), dropped, todo)
        alive = best_first(tested)
        if not alive:
            break
        best = losses(alive[0], tested)
        gaps = [
            [loss - best[seed] for seed, loss in losses(i, tested).items() if seed in best]
            for i in alive[1:]
        ]
        adjusted = holm([paired_p(gap) if len(gap) >= FIRST_TEST else 1.0 for gap in gaps])
        for i, p, gap in zip(alive[1:], adjusted, gaps, strict=True):
            if p < 1 - LEVEL and fmean(gap) > 0:
                dropped[i] = f"worse after {count} seeds (p={p:.2g})"
        alive = [i for i in alive if i not in dropped]
        if len(alive) == 1:
            break
    return RaceState(alive, dropped)
