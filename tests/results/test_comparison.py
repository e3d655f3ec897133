"""Intervals, tests and the decisions of a race, against scipy and by hand."""

import math
import random
from collections.abc import Sequence

import pytest
from scipy import stats

from sweeps.record.comparison import Results, holm, interval, paired_p, race


@pytest.mark.parametrize("count", [2, 3, 5, 20])
def test_an_interval_is_scipys(count: int) -> None:
    values = [random.Random(i).gauss(0.9, 0.01) for i in range(count)]
    expected = stats.t.interval(0.95, count - 1, stats.tmean(values), stats.sem(values))
    assert interval(values) == pytest.approx(expected)
    expected = stats.t.interval(0.99, count - 1, stats.tmean(values), stats.sem(values))
    assert interval(values, 0.99) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [0.5]])
def test_single_value_has_no_spread(values: list[float]) -> None:
    assert interval(values) == (-math.inf, math.inf)


@pytest.mark.parametrize("gaps", [[0.1, 0.2], [0.1, 0.2, 0.3], [-0.3, 0.1, -0.2, -0.5]])
def test_a_paired_test_is_scipys(gaps: list[float]) -> None:
    assert paired_p(gaps) == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue)


@pytest.mark.parametrize(("gaps", "p"), [([], 1), ([0.3], 1), ([0.0, 0.0], 1), ([0.25, 0.25, 0.25], 0)])
def test_a_paired_test_without_spread(gaps: list[float], p: float) -> None:
    assert paired_p(gaps) == p


@pytest.mark.parametrize(
    ("values", "adjusted"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # 3 x 0.01, 2 x 0.03, and not below the one before
        ([0.5, 0.9], [1, 1]),
        ([0.2, 0.001, 0.02, 0.021], [0.2, 0.004, 0.06, 0.06]),
    ],
)
def test_holms_correction(values: list[float], adjusted: list[float]) -> None:
    assert holm(values) == pytest.approx(adjusted)


def runs(*values: float | None) -> Results:
    """Under the seeds 1, 2, ..."""
    return dict(enumerate(values, 1))


NEAR, BEST, FAR = (0.90, 0.93, 0.91, 0.94), (0.92, 0.91, 0.93, 0.92), (0.5, 0.52, 0.49, 0.51)


@pytest.mark.parametrize(
    ("results", "alive", "dropped", "todo"),
    [
        ([], [], [], []),
        # Before the third seed nothing is tested, and all of them may run at a time.
        ([{}, {}], [0, 1], [], [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]),
        ([runs(*NEAR[:2]), runs(*FAR[:2])], [0, 1], [], [(0, 3), (1, 3)]),
        ([runs(*FAR[:3]), runs(*BEST[:3])], [1], [0], []),  # the race ends with one that is left
        ([runs(*NEAR[:3]), runs(*BEST[:3])], [1, 0], [], [(1, 4), (0, 4)]),
        ([runs(*NEAR), runs(*BEST)], [0, 1], [], []),  # no seed is left
        ([runs(*NEAR[:3]), runs(*FAR[:3]), runs(*BEST[:3])], [2, 0], [1], [(2, 4), (0, 4)]),
        # What failed is out at once, whatever else is known; what was lost says nothing.
        ([runs(0.99, None), runs(*BEST[:3]), runs(0.9)], [1, 2], [0], [(2, 2), (2, 3)]),
        ([runs(0.91, math.nan, 0.92, 0.9), runs(*BEST)], [1, 0], [], []),
        ([runs(None), runs(None)], [], [0, 1], []),
        ([runs(*BEST), runs(*BEST)], [0, 1], [], []),  # the same results: the first stands first
        ([runs(0.5), runs(None)], [0], [1], [(0, 2), (0, 3)]),  # for an interval
    ],
)
def test_race_is_described(
    results: Sequence[Results], alive: list[int], dropped: list[int], todo: list[tuple[int, int]]
) -> None:
    standing = race(results, [1, 2, 3, 4], maximize=True)
    assert standing.alive == alive
    assert [*standing.dropped] == dropped
    assert sorted(standing.todo) == sorted(todo)
    mirrored = [{seed: None if value is None else -value for seed, value in one.items()} for one in results]
    assert race(mirrored, [1, 2, 3, 4], maximize=False) == standing


def test_a_race_seldom_drops_the_best() -> None:
    """Ten seeds at most: eight tests, each with its error of 5%; here the best is better by a standard deviation."""
    lost, spent = 0, 0
    for i in range(200):
        draw = random.Random(i)
        results: list[Results] = [{s: draw.gauss(float(c == 2), 1) for s in range(10)} for c in range(5)]
        standing = race(results, range(10), maximize=True)
        lost += 2 in standing.dropped
        spent += 10 * len(standing.alive)
    assert lost <= 10
    assert spent < 200 * 50 * 0.75


def test_more_seeds_than_a_race_needs_change_nothing() -> None:
    results = [runs(*FAR[:3]), runs(*BEST[:3])]
    assert race(results, [1, 2, 3], True) == race(results, [1, 2, 3, 4, 5, 6], True)
