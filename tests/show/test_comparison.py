"""Tests of intervals, paired tests and race decisions, against scipy and values by hand."""

import math
import random
from collections.abc import Sequence

import pytest
from scipy import stats

from sweeps.analysis.comparison import Results, holm, interval, paired_p, race


@pytest.mark.parametrize("count", [2, 3, 5, 20])
def test_interval_equals_scipy(count: int) -> None:
    values = [random.Random(i).gauss(0.9, 0.01) for i in range(count)]
    expected = stats.t.interval(0.95, count - 1, stats.tmean(values), stats.sem(values))
    assert interval(values) == pytest.approx(expected)
    expected = stats.t.interval(0.99, count - 1, stats.tmean(values), stats.sem(values))
    assert interval(values, 0.99) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [0.5]])
def test_interval_of_fewer_than_two_values_is_infinite(values: list[float]) -> None:
    assert interval(values) == (-math.inf, math.inf)


@pytest.mark.parametrize("gaps", [[0.1, 0.2], [0.1, 0.2, 0.3], [-0.3, 0.1, -0.2, -0.5]])
def test_paired_p_value_equals_scipy(gaps: list[float]) -> None:
    assert paired_p(gaps) == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue)


@pytest.mark.parametrize(("gaps", "p"), [([], 1), ([0.3], 1), ([0.0, 0.0], 1), ([0.25, 0.25, 0.25], 0)])
def test_paired_p_value_without_spread_is_zero_or_one(gaps: list[float], p: float) -> None:
    assert paired_p(gaps) == p


@pytest.mark.parametrize(
    ("values", "adjusted"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # 3 x 0.01, 2 x 0.03, and not below the value before
        ([0.5, 0.9], [1, 1]),
        ([0.2, 0.001, 0.02, 0.021], [0.2, 0.004, 0.06, 0.06]),
    ],
)
def test_holm_correction_adjusts_p_values(values: list[float], adjusted: list[float]) -> None:
    assert holm(values) == pytest.approx(adjusted)


def runs(*values: float | None) -> Results:
    """Return the results under the seeds 1, 2, ..."""
    return dict(enumerate(values, 1))


NEAR, BEST, FAR = (0.90, 0.93, 0.91, 0.94), (0.92, 0.91, 0.93, 0.92), (0.5, 0.52, 0.49, 0.51)


@pytest.mark.parametrize(
    ("results", "alive", "dropped", "todo"),
    [
        ([], [], [], []),
        # Before the third seed there is no test, and all runs may start at once.
        ([{}, {}], [0, 1], [], [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]),
        ([runs(*NEAR[:2]), runs(*FAR[:2])], [0, 1], [], [(0, 3), (1, 3)]),
        ([runs(*FAR[:3]), runs(*BEST[:3])], [1], [0], []),  # the race ends with a single configuration
        ([runs(*NEAR[:3]), runs(*BEST[:3])], [1, 0], [], [(1, 4), (0, 4)]),
        ([runs(*NEAR), runs(*BEST)], [0, 1], [], []),  # no seed is left
        ([runs(*NEAR[:3]), runs(*FAR[:3]), runs(*BEST[:3])], [2, 0], [1], [(2, 4), (0, 4)]),
        # A failed run drops the configuration at once; a lost run is ignored.
        ([runs(0.99, None), runs(*BEST[:3]), runs(0.9)], [1, 2], [0], [(2, 2), (2, 3)]),
        ([runs(0.91, math.nan, 0.92, 0.9), runs(*BEST)], [1, 0], [], []),
        ([runs(None), runs(None)], [], [0, 1], []),
        ([runs(*BEST), runs(*BEST)], [0, 1], [], []),  # equal results keep their order
        ([runs(0.5), runs(None)], [0], [1], [(0, 2), (0, 3)]),  # because an interval needs more than one seed
    ],
)
def test_race_drops_worse_configurations_and_plans_runs(
    results: Sequence[Results], alive: list[int], dropped: list[int], todo: list[tuple[int, int]]
) -> None:
    decision = race(results, [1, 2, 3, 4], maximize=True)
    assert decision.alive == alive
    assert [*decision.dropped] == dropped
    assert sorted(decision.todo) == sorted(todo)
    mirrored = [{seed: None if value is None else -value for seed, value in by_seed.items()} for by_seed in results]
    assert race(mirrored, [1, 2, 3, 4], maximize=False) == decision


def test_race_rarely_drops_the_best() -> None:
    """Draw races of at most eight tests at the 5% level; the best is better by a standard deviation."""
    lost, spent = 0, 0
    for i in range(200):
        draw = random.Random(i)
        results: list[Results] = [{s: draw.gauss(float(c == 2), 1) for s in range(10)} for c in range(5)]
        decision = race(results, range(10), maximize=True)
        lost += 2 in decision.dropped
        spent += 10 * len(decision.alive)
    assert lost <= 10
    assert spent < 200 * 50 * 0.75


def test_unneeded_seeds_do_not_change_a_race() -> None:
    results = [runs(*FAR[:3]), runs(*BEST[:3])]
    assert race(results, [1, 2, 3], True) == race(results, [1, 2, 3, 4, 5, 6], True)
