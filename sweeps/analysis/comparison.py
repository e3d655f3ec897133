"""Which of several results is better, and how sure that is. Pure statistics: numbers in, numbers
out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
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
    magnitudes = [abs(value) for value in chain.from_iterable(samples)]
    scale = max(magnitudes, default=0.0) or 1.0
    return scale, [[value / scale for value in values] for values in samples]


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return Student's t interval of a mean; (-inf, inf) for fewer than two values."""
    from scipy.special import stdtrit

    if len(values) < 2:
        return -math.inf, math.inf
    scale, (parts,) = _normalize(values)
    mean = fmean(parts)
    error = stdev(parts) / math.sqrt(len(parts))
    half = float(stdtrit(len(parts) - 1, (1 + level) / 2)) * error
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
    spread = stdev(parts)
    if not spread:
        return 0.0
    statistic = abs(fmean(parts)) / (spread / math.sqrt(count))
    return 2 * float(stdtr(count - 1, -statistic))


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
    error = math.sqrt(sum(parts))
    if not error:
        return Difference(scale * mean, scale * mean, scale * mean, 0.0 if mean else 1.0)

    inverse_freedom = 0.0
    for part, values in zip(parts, samples, strict=True):
        share = part / sum(parts)
        inverse_freedom += share**2 / (len(values) - 1)
    freedom = 1 / inverse_freedom
    half = error * float(stdtrit(freedom, (1 + LEVEL) / 2))
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Difference(scale * mean, scale * (mean - half), scale * (mean + half), p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values, adjusted for their number (Holm, Scandinavian Journal of Statistics
    1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    ranked = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, i in enumerate(ranked):
        p = min(1.0, (len(p_values) - rank) * p_values[i])
        largest = max(largest, p)
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
    losses = [_losses(result, maximize) for result in results]
    failed = [i for i, result in enumerate(results) if None in result.values()]
    dropped = dict.fromkeys(failed, "it failed under a fresh seed")
    alive = [i for i in range(len(results)) if i not in dropped]

    for count in range(min(FIRST_TEST, len(seeds)), len(seeds) + 1):
        tested = seeds[:count]
        todo = [(i, seed) for seed, i in product(tested, alive) if seed not in results[i]]
        alive = _best_first(alive, losses, tested)
        if todo:
            return RaceState(alive, dropped, todo)
        worse = _worse(alive, losses, tested)
        dropped |= {i: f"worse after {count} seeds (p={p:.2g})" for i, p in worse.items()}
        alive = [i for i in alive if i not in dropped]
        if len(alive) < 2:
            break
    return RaceState(alive, dropped)


def _losses(result: Results, maximize: bool) -> dict[int, float]:
    """Return the values of a candidate by seed, lower is better; without lost trials."""
    losses = {}
    for seed, value in result.items():
        if value is not None and not math.isnan(value):
            losses[seed] = -value if maximize else value
    return losses


def _best_first(
    alive: Sequence[int], losses: Sequence[Mapping[int, float]], tested: Sequence[int]
) -> list[int]:
    """Return the candidates by their mean under the tested seeds; equal ones by their index."""

    def mean(i: int) -> float:
        values = [losses[i][seed] for seed in tested if seed in losses[i]]
        return fmean(values) if values else math.inf

    return sorted(alive, key=lambda i: (mean(i), i))


def _worse(
    alive: Sequence[int], losses: Sequence[Mapping[int, float]], tested: Sequence[int]
) -> dict[int, float]:
    """Return the p-values of the candidates that are significantly worse than the first one."""
    others = alive[1:]
    gaps = []
    for i in others:
        best = losses[alive[0]]
        shared = [seed for seed in tested if seed in losses[i] and seed in best]
        gaps.append([losses[i][seed] - best[seed] for seed in shared])
    adjusted = holm([paired_p(gap) if len(gap) >= FIRST_TEST else 1.0 for gap in gaps])

    worse = {}
    for i, p, gap in zip(others, adjusted, gaps, strict=True):
        if p < 1 - LEVEL and fmean(gap) > 0:
            worse[i] = p
    return worse
