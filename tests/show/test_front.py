"""Tests of several objectives: the Pareto front and the hypervolume."""

import itertools
import random
from pathlib import Path

import pytest
from optuna._hypervolume import compute_hypervolume

from sweeps.analysis.pareto_front import hypervolume, hypervolumes, reference
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.figures import figures
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.findings import Findings
from sweeps.show.page import report
from sweeps.trial.job import Outcome, State

MIN, MAX = "minimize", "maximize"


def study(folder: Path, directions: tuple[str, ...], *results: tuple[float, ...] | State) -> StudySnapshot:
    rows = []
    for number, result in enumerate(results):
        row = TrialRecord(number, {"x": number}, State.QUEUED, folder / str(number))
        end = Outcome(result) if isinstance(result, State) else Outcome(State.COMPLETED, objective=[*result])
        rows.append(row.with_end(end))
    names = ("accuracy", "seconds", "size")[: len(directions)]
    return StudySnapshot("demo", folder, names, directions, rows)


@pytest.mark.parametrize(
    ("directions", "results", "front"),
    [
        ((MIN,), [(1,), (2,)], set()),  # a single objective has a best trial, and no front
        ((MAX, MIN), [], set()),
        ((MAX, MIN), [(0.9, 10), (0.8, 5), (0.7, 7), (0.95, 20)], {0, 1, 3}),
        ((MIN, MIN), [(0.9, 10), (0.8, 5), (0.7, 7), (0.95, 20)], {1, 2}),
        ((MAX, MAX), [(1, 1), (1, 1), (0, 0)], {0, 1}),  # equal trials do not dominate each other
        ((MIN, MIN), [(1, 2), (1, 1), (2, 1)], {1}),
        ((MIN, MIN), [State.FAILED, (1, 1), State.PRUNED], {1}),
        ((MIN, MIN, MIN), [(1, 2, 3), (3, 2, 1), (2, 2, 2), (3, 3, 3)], {0, 1, 2}),
    ],
)
def test_front_excludes_dominated_trials(
    tmp_path: Path, directions: tuple[str, ...], results: list[tuple[float, ...] | State], front: set[int]
) -> None:
    assert study(tmp_path, directions, *results).front() == front


@pytest.mark.parametrize("size", [2, 3])
def test_front_of_random_points_equals_the_undominated_points(tmp_path: Path, size: int) -> None:
    draw = random.Random(size)
    points = [tuple(float(draw.randrange(8)) for _ in range(size)) for _ in range(60)]

    def dominated(point: tuple[float, ...]) -> bool:
        return any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points)

    expected = {i for i, point in enumerate(points) if not dominated(point)}
    assert study(tmp_path, (MIN,) * size, *points).front() == expected


@pytest.mark.parametrize(
    ("points", "worst", "volume"),
    [
        ([], [1, 1], 0),
        ([(0, 0)], [2, 3], 6),
        ([(2, 0)], [2, 3], 0),  # on the edge
        ([(3, 3)], [2, 2], 0),
        ([(0, 1), (1, 0)], [2, 2], 3),
        ([(0, 1), (1, 0), (1, 1)], [2, 2], 3),
        ([(0, 0, 1), (1, 1, 0)], [2, 2, 2], 5),
    ],
)
def test_hypervolume_equals_values_by_hand(points: list[tuple[float, ...]], worst: list[float], volume: float) -> None:
    for ordered in itertools.permutations(points):
        assert hypervolume(ordered, worst) == volume


@pytest.mark.parametrize("size", [2, 3, 4])
def test_hypervolume_equals_optuna(size: int) -> None:
    import numpy as np

    draw = random.Random(size)
    points = [tuple(draw.random() for _ in range(size)) for _ in range(12)]
    inside = [point for point in points if max(point) < 0.9]
    expected = compute_hypervolume(np.array(inside), np.full(size, 0.9))
    assert 0 < len(inside) < len(points)
    assert hypervolume(points, [0.9] * size) == pytest.approx(expected)


def test_front_volume_grows_from_the_worst_point(tmp_path: Path) -> None:
    summary = study(tmp_path, (MAX, MIN), (0.5, 10), State.FAILED, (0.75, 6), (0.5, 8), (1.0, 8))
    assert reference(summary, summary.top()) == [0.5, 10]
    assert hypervolumes(summary, summary.top()) == [(0, 0), (2, 1), (3, 1), (4, 1.5)]


def test_pareto_front_is_in_page_note_and_figures(tmp_path: Path) -> None:
    summary = study(tmp_path, (MAX, MIN), (0.9, 10), (0.8, 5), (0.7, 7), (0.95, 20))
    assert [row.number for row in summary.top()] == [3, 0, 1, 2]
    assert [line[-1] for line in Findings(summary).table(summary.top())] == ["on the front", "yes", "yes", "yes", ""]
    description = "Pareto front: trials 3, 0, 1, not dominated in accuracy (maximized), seconds (minimized)."
    page = report.write(summary).read_text()
    assert "Not dominated in accuracy (maximized), seconds (minimized): " in page
    assert "<h2>Pareto front</h2>" in page
    assert description in report.markdown(summary).replace("**", "")
    figure = figures.front(FigureData(Findings(summary), {}))
    assert figure
    assert {trace["name"]: trace["x"] for trace in figure["data"]} == {
        "dominated": [0.7],
        "Pareto front": [0.8, 0.9, 0.95],
    }
    volume = figures.hypervolume(FigureData(Findings(summary), {}))
    assert volume
    assert volume["note"] == "Reference point: accuracy 0.7, seconds 20 (the worst value of each)."


def test_single_objective_has_no_front(tmp_path: Path) -> None:
    summary = study(tmp_path, (MAX,), (0.9,), (0.8,))
    assert figures.front(FigureData(Findings(summary), {})) is None
    assert figures.hypervolume(FigureData(Findings(summary), {})) is None
    assert Findings(summary).table(summary.top())[0] == ["trial", "x", "accuracy"]
