"""Tables, and figures as the data they draw."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from sweeps.results import figures, report
from sweeps.results.summary import Row, Summary
from sweeps.trial.folder import MetricsLine, TrialFolder
from sweeps.trial.job import End, Point, State


def study(folder: Path, *points: Point, direction: str = "maximize", **changes: Any) -> Summary:
    """Completed trials at these points; trial i has the objective i / 10."""
    rows = []
    for number, point in enumerate(points):
        metrics = {"acc": number / 10, "loss": 1.0}
        end = End(State.COMPLETED, objective=[number / 10], metrics=metrics)
        row = Row(number, point, State.COMPLETED, folder / str(number), [end], metrics)
        row.folder.mkdir(parents=True)
        rows.append(row)
    return Summary("demo", folder, ("acc",), (direction,), rows, **changes)


def fail(row: Row, state: State, error: str = "") -> None:
    row.attempts = []
    row.take(End(state, error))


GRID: list[Point] = [{"optimizer": name, "lr": lr} for name in ("adam", "sgd") for lr in (0.001, 0.1)]


def test_markdown(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    fail(summary.rows[3], State.OUT_OF_MEMORY)
    assert report.markdown(summary).splitlines() == [
        "**4 trials**: 3 completed, 1 out of memory.",
        "**Best: trial 2**, optimizer=sgd lr=0.001: acc 0.2 (maximized).",
        "",
        "| trial | optimizer | lr | acc | state |",
        "| --- | --- | --- | --- | --- |",
        "| 2 | sgd | 0.001 | 0.2 | completed |",
        "| 1 | adam | 0.1 | 0.1 | completed |",
        "| 0 | adam | 0.001 | 0 | completed |",
        "| 3 | sgd | 0.1 |  | out of memory |",
        "",
        "**What it cost**",
        "",
        "|  | trials | seconds tracking |",
        "| --- | --- | --- |",
        "| completed | 3 | 0 |",
        "| failed | 1 | 0 |",
        "| all | 4 | 0 |",
        "",
        "Slots that stood empty while the last trials ran: 0.0 s.",
    ]


@pytest.mark.parametrize(("direction", "order"), [("maximize", [3, 2, 1, 0]), ("minimize", [0, 1, 2, 3])])
def test_the_best_come_first(tmp_path: Path, direction: str, order: list[int]) -> None:
    assert [row.number for row in report.ranked(study(tmp_path, *GRID, direction=direction))] == order


def test_markdown_of_many_trials_fits_an_mlflow_note(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"x": i, "a.rather.long.name": i} for i in range(500)))
    text = report.markdown(summary)
    assert "The first 25 of 500 trials; all of them are in trials.csv." in text
    assert len(text) < 5000


def test_csv_has_everything(tmp_path: Path) -> None:
    summary = study(tmp_path, {"optimizer": "adam", "optimizer.beta_2": 0.9}, {"optimizer": 'a,"b'})
    killed = {"queued": 1.0, "training": 3.0}
    whole = {"queued": 2.0, "starting": 0.5, "training": 1.5, "idle_slot": 0.1}
    summary.rows[0].attempts = [
        End(State.LOST, seconds=killed, asked=0.0, began=1.0, ended=4.0, gpus=2, energy_kwh=0.5),
        End(State.COMPLETED, objective=[0.0], seconds=whole, asked=4.0, began=6.0, ended=9.0, gpus=2, energy_kwh=0.25),
    ]
    summary.rows[0].tracking_s = 0.02
    fail(summary.rows[1], State.FAILED, "two\nlines")
    report.write(summary)
    with (tmp_path / report.CSV).open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "trial": "0",
        "state": "completed",
        "optimizer": "adam",
        "optimizer.beta_2": "0.9",
        "acc": "0.0",
        "loss": "1.0",
        "seconds_queued": "3.0",
        "seconds_starting": "0.5",
        "seconds_training": "4.5",
        "seconds_idle_slot": "0.1",
        "seconds_tracking": "0.02",
        "gpu_hours": str(2 * 3 / 3600 + 2 * 3 / 3600),
        "energy_kwh": "0.75",
        "attempts": "2",
        "error": "",
        "folder": str(tmp_path / "0"),
    }
    assert (second["optimizer"], second["optimizer.beta_2"], second["error"]) == ('a,"b', "", "two\nlines")


def test_the_page_is_whole_without_a_network(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID, importance={"lr": 0.8, "optimizer": 0.2})
    fail(summary.rows[0], State.FAILED, "<script>alert(1)</script>")
    for row in summary.rows:
        for step in range(3):
            TrialFolder(row.folder).append_metrics(MetricsLine(step, 0.0, {"acc": step / 10}))
    page = report.write(summary).read_text()
    titles = ["Learning curves", "Parameters and objective", "Importance", "Trials", "What it cost"]
    assert re.findall("<h2>(.*?)</h2>", page) == titles
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page)
    assert "&lt;script&gt;alert" in page and "<script>alert" not in page
    assert page.count("plotly.js v") == 1


@pytest.mark.parametrize("points", [[], [{}], [{"x": 1}]])
def test_small_studies_have_a_report_too(tmp_path: Path, points: list[Point]) -> None:
    assert "<h2>Trials</h2>" in report.write(study(tmp_path / "s", *points)).read_text()


def test_a_study_without_results_has_a_report(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    for row in summary.rows:
        fail(row, State.FAILED)
    assert "4 failed" in report.write(summary).read_text()


def test_a_study_without_an_objective_has_a_report(tmp_path: Path) -> None:
    """A grid over an app whose task returns nothing."""
    summary = study(tmp_path, *GRID)
    for row in summary.rows:
        row.attempts = [End(State.COMPLETED)]
        row.metrics = {}
    page = report.write(summary).read_text()
    assert "4 completed" in page
    assert "Best" not in page
    assert "Best" not in report.markdown(summary)
    with (tmp_path / report.CSV).open(newline="") as file:
        assert [line["state"] for line in csv.DictReader(file)] == ["completed"] * 4


@pytest.mark.parametrize("damage", [b"", b"\xff\x00{\n", b'{"step": 1, "ti{"step": 2}\n', None])
def test_a_trial_whose_metrics_cannot_be_read_takes_no_report_with_it(tmp_path: Path, damage: bytes | None) -> None:
    summary = study(tmp_path, *GRID)
    for row in summary.rows:
        TrialFolder(row.folder).append_metrics(MetricsLine(0, 0.0, {"acc": 1.0}))
    file = summary.rows[1].folder / "metrics.jsonl"
    if damage is None:
        file.unlink()
        file.mkdir()  # as EIO or ESTALE, it is an OSError for whoever reads it
    else:
        file.write_bytes(damage)
    figure = figures.curves(summary)
    assert figure is not None
    assert [trace.name[0] for trace in figure.data] == ["3", "2", "0"]
    assert "<h2>Trials</h2>" in report.write(summary).read_text()


def test_curves_show_the_best_fifty_and_say_so(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"x": i} for i in range(60)))
    for row in summary.rows:
        TrialFolder(row.folder).append_metrics(MetricsLine(0, 0.0, {"acc": 1.0, "loss": 0.5}))
    figure = figures.curves(summary)
    assert figure is not None
    assert [trace.name for trace in figure.data] == [f"{i}: x={i}" for i in range(59, 9, -1)]
    assert figure.layout.title.text.startswith("acc of the best 50 of 60 trials")


def axes(summary: Summary) -> dict[str, tuple[list[float], list[str] | None]]:
    figure = figures.parallel_coordinates(summary)
    assert figure is not None
    return {
        axis.label: (list(axis["values"]), axis.ticktext and list(axis.ticktext)) for axis in figure.data[0].dimensions
    }


@pytest.mark.parametrize(
    ("values", "places", "ticks"),
    [
        (["sgd", "adam"], [1, 0], ["adam", "sgd"]),
        ([True, False], [1, 0], ["False", "True"]),
        ([32, 64], [32, 64], ["32", "64"]),
        ([0.001, 0.1], [-3, -1], ["0.001", "0.1"]),
        ([0, 100], [0, 100], ["0", "100"]),
        ([1, "auto"], [0, 1], ["1", "auto"]),
        ([8, None], [8, 7.875], ["none", "8"]),
    ],
)
def test_axes_of_parallel_coordinates(tmp_path: Path, values: list[Any], places: list[float], ticks: list[str]) -> None:
    points = [{"x": value} if value is not None else {} for value in values]
    summary = study(tmp_path, *points, direction="minimize")  # the first is the best, so the order stays
    assert axes(summary) == {"x": (pytest.approx(places), ticks), "acc": ([0.0, 0.1], None)}


def test_a_parameter_that_is_null_stands_below_the_numbers(tmp_path: Path) -> None:
    summary = study(tmp_path, {"x": 8}, {"x": None}, {"x": 16}, direction="minimize")
    assert axes(summary)["x"] == ([8.0, 7.0, 16.0], ["none", "8", "16"])


def test_what_did_not_vary_has_no_axis(tmp_path: Path) -> None:
    assert set(axes(study(tmp_path, {"x": 1, "same": 2}, {"x": 2, "same": 2}))) == {"x", "acc"}


def test_heat_map_of_a_grid_shows_the_best_of_the_rest(tmp_path: Path) -> None:
    points: list[Point] = [{"lr": lr, "batch": b, "opt": o} for o in "ab" for lr in (0.1, 0.2) for b in (32, 64)]
    figure = figures.heat_map(study(tmp_path, *points))
    assert figure is not None
    (cells,) = figure.data
    assert (cells.type, list(cells.x), list(cells.y)) == ("heatmap", ["0.1", "0.2"], ["32", "64"])
    assert [list(line) for line in cells.z] == [[0.4, 0.6], [0.5, 0.7]]


def test_heat_map_of_a_search_shows_its_places(tmp_path: Path) -> None:
    points: list[Point] = [{"lr": 10.0**-i, "batch": 2**i} for i in range(5)]
    figure = figures.heat_map(study(tmp_path, *points))
    assert figure is not None
    assert (figure.data[0].type, figure.layout.xaxis.type, figure.layout.yaxis.type) == ("scatter", "log", "linear")


@pytest.mark.parametrize("points", [GRID, [{"x": 1}, {"x": 2}], [{"x": i, "y": -i, "z": i * i} for i in range(3)]])
def test_no_heat_map_unless_two_numbers_were_swept(tmp_path: Path, points: list[Point]) -> None:
    assert figures.heat_map(study(tmp_path, *points)) is None


def test_what_trials_noted_is_said_once_and_numbers_stand_beside_their_own(tmp_path: Path) -> None:
    summary = study(tmp_path, {"lr": 0.1}, {"lr": 0.2})
    for row in summary.rows:
        row.metrics |= {"weight": 2.0 + row.number}
        TrialFolder(row.folder).add_note("closed form", {"weight": 1.96154, "r2": 0.5})
        TrialFolder(row.folder).add_note("classes", [f"c{i}" for i in range(30)])
    TrialFolder(summary.rows[1].folder).add_note("data", "<the test set> was looked at")
    lines = report.markdown(summary).splitlines()
    assert "**classes**: " + ", ".join(f"c{i}" for i in range(20)) + ", and 10 more" in lines
    assert "**data (trial 1)**: <the test set> was looked at" in lines
    assert "| trial | lr | acc | weight | r2 | state |" in lines
    assert "| 1 | 0.2 | 0.1 | 3 |  | completed |" in lines
    assert "| closed form |  |  | 1.96154 | 0.5 |  |" in lines
    page = report.write(summary).read_text()
    assert "&lt;the test set&gt; was looked at" in page
    assert "1.96154" in page


@pytest.mark.parametrize("content", ["", "[]", "{", '{"subject": 5}'])
def test_damaged_notes_are_no_notes(tmp_path: Path, content: str) -> None:
    summary = study(tmp_path, {"lr": 0.1})
    before = report.markdown(summary)
    (summary.rows[0].folder / "notes.json").write_text(content)
    assert report.markdown(summary) == before
