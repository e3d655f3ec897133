"""Scores of the classes of a saved model, from its confusion matrix."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from sweeps.record.study import StudySnapshot
from sweeps.show.figures import classes
from sweeps.show.findings import Findings
from sweeps.show.page import report
from sweeps.show.print.print_table import render_classes
from sweeps.show.tables import HTML
from sweeps.trial import Trial, World
from sweeps.trial.confusion import Confusion, read_confusion
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from tests.show import pages

CAT_AND_DOG = {"subset": "test", "classes": ["cat", "dog"], "matrix": [[3, 1], [0, 4]]}


@pytest.fixture
def study(tmp_path: Path) -> StudySnapshot:
    """Return a study whose second best trial saved a model."""
    rows = [pages.trial(tmp_path / "s", i, {"lr": 0.1 + i}, [0.8 + i / 10], State.COMPLETED) for i in range(2)]
    (rows[0].folder / "confusion.json").write_text(json.dumps(CAT_AND_DOG))
    return StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows, 2)


def test_scores_equal_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    true, predicted = draw.integers(0, 4, 60), draw.integers(0, 3, 60)  # the last class is never predicted
    matrix = confusion_matrix(true, predicted, labels=range(5)).tolist()  # and one has no examples
    scores = classes.score_classes(Confusion("test", [*"abcde"], matrix))
    expected = precision_recall_fscore_support(true, predicted, labels=range(5), zero_division=0)
    assert np.allclose([[s.precision, s.recall, s.f1, s.examples] for s in scores], np.transpose(expected))


def test_page_and_tables_show_the_best_saved_model(study: StudySnapshot) -> None:
    report.write(study)
    page = (study.folder / HTML).read_text()
    assert "The saved model of trial 0, test set of 8 examples" in page
    assert "<td>cat<td>100.0<td>75.0<td>85.7<td>4" in page
    assert render_classes(Findings(study), "csv").splitlines()[1:] == [
        "cat,100.0,75.0,85.7,4",
        "dog,80.0,100.0,88.9,4",
        "mean of classes,90.0,87.5,87.3,8",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        "{",
        json.dumps({**CAT_AND_DOG, "matrix": [[1, 2]]}),
        json.dumps({**CAT_AND_DOG, "matrix": [[1, "x"], [1, 2]]}),
        json.dumps({"subset": "test", "classes": [], "matrix": []}),
    ],
)
def test_a_damaged_file_has_no_classes(study: StudySnapshot, content: str) -> None:
    (study.rows[0].folder / "confusion.json").write_text(content)
    assert read_confusion(study.rows[0].folder) is None
    report.write(replace(study))
    assert "Classes" not in (study.folder / HTML).read_text()


def test_only_the_chief_records(tmp_path: Path) -> None:
    for rank in (1, 0):
        Trial(TrialFolder(tmp_path), 1, world=World(rank, 2)).record_confusion(
            "test", "ab", np.array([[rank, 1], [2, 3]])
        )
    assert read_confusion(tmp_path) == Confusion("test", ["a", "b"], [[0, 1], [2, 3]])
