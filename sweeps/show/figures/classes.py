"""The classes of the best saved model: its confusion matrix, and precision, recall and F1 of each
class."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sweeps.base.wording import counted, short
from sweeps.show.figures import drawing
from sweeps.show.figures.drawing import Figure, Trace
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.tables import Table
from sweeps.trial.confusion import Confusion

CLASSES = "Classes"


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class, 0..1; 0 where a ratio has no examples."""

    name: str
    precision: float  # fraction of the examples predicted as this class that are of this class
    recall: float  # fraction of the examples of this class that are predicted as this class
    f1: float  # harmonic mean of precision and recall
    examples: int


def score_classes(confusion: Confusion) -> list[ClassScores]:
    """Return the scores of each class, as sklearn.metrics.precision_recall_fscore_support with
    zero_division=0."""
    scores = []
    for i, name in enumerate(confusion.classes):
        right = confusion.matrix[i][i]
        examples = sum(confusion.matrix[i])
        predicted = sum(row[i] for row in confusion.matrix)
        precision, recall, f1 = (
            right / (count or 1) for count in (predicted, examples, (predicted + examples) / 2)
        )
        scores.append(ClassScores(name, precision, recall, f1, examples))
    return scores


def build_columns(confusion: Confusion) -> dict[str, list[Any]]:
    """Return the scores (%) of each class, and last their means, which weigh all classes
    equally."""
    scores = score_classes(confusion)
    columns: dict[str, list[Any]] = {
        "class": [*(score.name for score in scores), "mean of classes"]
    }
    for title, name in {
        "precision (%)": "precision",
        "recall (%)": "recall",
        "F1 (%)": "f1",
    }.items():
        ratios = [getattr(score, name) for score in scores]
        columns[title] = [round(100 * ratio, 1) for ratio in [*ratios, fmean(ratios)]]
    examples = [score.examples for score in scores]
    return columns | {"examples": [*examples, sum(examples)]}


def build_table(confusion: Confusion) -> Table:
    """Return a header, and a row of `build_columns` for each class."""
    columns = build_columns(confusion)
    return [
        [*columns],
        *([str(cell) for cell in row] for row in zip(*columns.values(), strict=True)),
    ]


def confusion_matrix(source: FigureData) -> Figure | None:
    """Return the confusion matrix of the best saved model, coloured by the fraction of each true
    class."""
    if not (best := source.findings.saved_model):
        return None
    trial, confusion = best
    bar = {"title": {"text": "fraction of<br>the true class"}, "thickness": 12, "outlinewidth": 0}
    scale = {"colorscale": "--counts", "reversescale": False, "cmin": 0, "cmax": 1, "colorbar": bar}
    axis = {"type": "category", "showgrid": False}
    examples = f"{confusion.subset} set of {counted(sum(map(sum, confusion.matrix)), 'example')}"
    return drawing.make_figure(
        [_cells(confusion)],
        height=460,
        note=(
            f"The saved model of trial {trial.number}, {examples}: counts by true and predicted"
            " class."
        ),
        coloraxis=scale,
        xaxis={**axis, "title": {"text": "predicted"}},
        yaxis={**axis, "title": {"text": "true"}},
    )


def _cells(confusion: Confusion) -> Trace:
    names = [drawing.escape(short(name)) for name in confusion.classes]
    if len(set(names)) < len(names):  # because plotly would merge equal categories
        names = [f"{i} {name}" for i, name in enumerate(names)]
    rows = confusion.matrix[::-1]  # because the first true class is at the top
    return drawing.heat_map(
        names,
        names[::-1],
        z=[[count / max(1, sum(row)) for count in row] for row in rows],
        text=[[str(count) for count in row] for row in rows],
        hovertemplate=(
            "true %{y}, predicted %{x}: %{text} examples, %{z:.1%} of %{y}<extra></extra>"
        ),
    )
