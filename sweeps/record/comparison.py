"""Which of several results is better, and how sure that is. Pure statistics: numbers in, numbers out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

LEVEL = 0.95
FIRST_TEST = 3  # seeds: with two, Student's t has one degree of freedom and tells nothing apart
Results = Mapping[int, float | None]
"""Of one configuration by seed: a value, None if it failed, nan if nothing is known. What did not end is not there."""


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Student's t interval of a mean; all of the axis if there are fewer than two values."""
    from scipy.special import stdtrit

    if len(values) < 2:
        return -math.inf, math.inf
    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def paired_p(differences: Sequence[float]) -> float:
    """How likely such a mean difference is where there is none: the two-sided paired t-test. 1 of fewer than two."""
    from scipy.special import stdtr

    count = len(differences)
    if count < 2 or not any(differences):
        return 1.0
    if not (spread := stdev(differences)):
        return 0.0
    return 2 * float(stdtr(count - 1, -abs(fmean(differences)) / (spread / math.sqrt(count))))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, adjusted for their number (Holm, Scandinavian Journal of Statistics 1979)."""
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        most = max(most, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = most
    return adjusted


@dataclass(frozen=True)
class Standing:
    """How a race stands."""

    alive: list[int]
    """The candidates that are left, the best first, by their places in the list of all."""
    dropped: dict[int, str] = field(default_factory=dict)  # the others, and why, in words
    todo: list[tuple[int, int]] = field(default_factory=list)
    """What has to end before it goes on, as candidates and seeds; empty once the race is over."""


def race(results: Sequence[Results], seeds: Sequence[int], maximize: bool) -> Standing:
    """How far the results decide a race, in which all that are left run under one seed after the other.

    After each seed, from the third on, those are dropped that paired t-tests with Holm's correction tell from the
    best so far; what failed is dropped at once. It ends with the last seed, or when one is left. That is a race as
    in Maron and Moore (NIPS 1993) and, with tests, in Birattari et al. (GECCO 2002). The same results make the same
    standing: nothing else needs to be remembered.
    """
    sign = -1.0 if maximize else 1.0
    dropped = {i: "it failed under a fresh seed" for i, of in enumerate(results) if None in of.values()}
    alive = [i for i in range(len(results)) if i not in dropped]

    def values(i: int, upto: Sequence[int]) -> dict[int, float]:
        """Lower is better."""
        found = {seed: results[i].get(seed) for seed in upto}
        return {seed: sign * value for seed, value in found.items() if value is not None and not math.isnan(value)}

    def best_first(upto: Sequence[int]) -> list[int]:
        return sorted(alive, key=lambda i: (fmean(values(i, upto).values() or [math.inf]), i))

    for count in range(min(FIRST_TEST, len(seeds)), len(seeds) + 1):
        upto = seeds[:count]
        if todo := [(i, seed) for seed in upto for i in alive if seed not in results[i]]:
            return Standing(best_first(upto), dropped, todo)
        alive = best_first(upto)
        if not alive:
            break
        best = values(alive[0], upto)
        gaps = []
        for i in alive[1:]:
            other = values(i, upto)
            gaps.append([other[seed] - best[seed] for seed in upto if seed in other and seed in best])
        adjusted = holm([paired_p(gap) if len(gap) >= FIRST_TEST else 1.0 for gap in gaps])
        for i, p, gap in zip(alive[1:], adjusted, gaps, strict=True):
            if p < 1 - LEVEL and fmean(gap) > 0:
                dropped[i] = f"worse after {count} seeds (p={p:.2g})"
        alive = [i for i in alive if i not in dropped]
        if len(alive) == 1:
            break
    return Standing(alive, dropped)
