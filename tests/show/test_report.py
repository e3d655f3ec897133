"""Tests of a study's report: tables, data of figures, pictures and the live page."""

import csv
import json
import math
import re
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sweeps.analysis import configurations, costs
from sweeps.base.files import append_lines
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show import notes, overview, tables
from sweeps.show.figures import axes, figures, picture
from sweeps.show.figures.drawing import Figure
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.findings import Findings
from sweeps.show.page import report
from sweeps.show.print.print_table import render_table
from sweeps.show.raw_table import raw_table
from sweeps.show.scales import scale_of
from sweeps.show.terminal import live, solutions
from sweeps.show.terminal.lines import View
from sweeps.show.terminal.status import show_status
from sweeps.show.trials import TrialFiles, shown_of
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.metrics import METRICS, SYSTEM_METRICS, MetricsLine
from tests.show import pages
from tests.show.records import ended, with_outcome, with_trials


def study(folder: Path, *points: Point, direction: str = "maximize", **changes: Any) -> StudySnapshot:
    """Return a study of completed trials at these points; trial i has the objective i / 10."""
    rows = []
    for number, point in enumerate(points):
        metrics = {"acc": number / 10, "loss": 1.0}
        end = Outcome(State.COMPLETED, objective=[number / 10], metrics=metrics)
        row = TrialRecord(number, point, State.COMPLETED, folder / str(number), (end,), metrics)
        row.folder.mkdir(parents=True)
        rows.append(row)
    return StudySnapshot("demo", folder, ("acc",), (direction,), rows, **changes)


SVG = "{http://www.w3.org/2000/svg}"
GRID: list[Point] = [{"optimizer": name, "lr": lr} for name in ("adam", "sgd") for lr in (0.001, 0.1)]


def lines_of(summary: StudySnapshot) -> list[str]:
    return report.markdown(summary).replace(tables.GAP, "").splitlines()


def report_twice(trial: TrialRecord, metrics: dict[str, float]) -> None:
    """Append a curve of two points, because a single one makes no figure."""
    for step in (-1, 0):
        TrialFolder(trial.folder).append_metrics(MetricsLine(step, 0.0, metrics))


def test_markdown_lists_trials_and_cost(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    summary = with_trials(summary, ended(summary.rows[3], State.OUT_OF_MEMORY))
    assert lines_of(summary) == [
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
        "**Cost**",
        "",
        "|  | trials | tracking |",
        "| --- | --- | --- |",
        "| completed | 3 | 0:00:00.0 |",
        "| failed | 1 | 0:00:00.0 |",
        "| all | 4 | 0:00:00.0 |",
        "",
        "Idle slots while the last trials ran: 0:00:00.0. The table's times are summed over trials; all are h:min:s.",
    ]


def test_running_trial_has_the_last_value_and_no_seconds(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID[:2])
    running = TrialRecord(1, GRID[1], State.RUNNING, tmp_path / "1", metrics={"acc": 0.25})
    summary = with_trials(summary, running)
    assert "| 1 | adam | 0.1 | 0.25 | running |" in lines_of(summary)
    page = report.write(summary).read_text()
    assert "<td>0.25<td>○ running<td><td>" in page


@pytest.mark.parametrize(("direction", "order"), [("maximize", [3, 2, 1, 0]), ("minimize", [0, 1, 2, 3])])
def test_best_trials_come_first(tmp_path: Path, direction: str, order: list[int]) -> None:
    assert [row.number for row in Findings(study(tmp_path, *GRID, direction=direction)).ranked] == order


def test_markdown_of_many_trials_fits_an_mlflow_note(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"x": i, "a.rather.long.name": i} for i in range(500)))
    text = report.markdown(summary)
    assert "The first 25 of 500 trials; all of them are in trials.csv." in text
    assert len(text) < 5000


def test_csv_has_params_metrics_costs_and_errors(tmp_path: Path) -> None:
    summary = study(tmp_path, {"optimizer": "adam", "optimizer.beta_2": 0.9}, {"optimizer": 'a,"b'})
    killed = {"queued": 1.0, "training": 3.0}
    whole = {"queued": 2.0, "starting": 0.5, "training": 1.5, "idle_slot": 0.1}
    attempts = (
        Outcome(
            State.LOST, seconds=killed, queued_at=0.0, started_at=1.0, ended_at=4.0, gpus=2, energy_kwh=0.5, co2_g=200.0
        ),
        Outcome(
            State.COMPLETED,
            objective=[0.0],
            seconds=whole,
            queued_at=4.0,
            started_at=6.0,
            ended_at=9.0,
            gpus=2,
            energy_kwh=0.25,
            co2_g=100.0,
        ),
    )
    completed = replace(summary.rows[0], attempts=attempts, tracking_s=0.02)
    summary = with_trials(summary, completed, ended(summary.rows[1], State.FAILED, "two\nlines"))
    report.write(summary)
    with (tmp_path / tables.CSV).open(newline="") as file:
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
        "co2_g": "300.0",
        "gpu_use": "",
        "attempts": "2",
        "error": "",
        "folder": str(tmp_path / "0"),
    }
    assert (second["optimizer"], second["optimizer.beta_2"], second["error"]) == ('a,"b', "", "two\nlines")


def test_page_is_complete_without_a_network(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID, *GRID, *GRID, importance={"lr": 0.8, "optimizer": 0.2})
    summary = with_trials(summary, ended(summary.rows[0], State.FAILED, "<script>alert(1)</script>"))
    for row in summary.rows:
        for step in range(3):
            TrialFolder(row.folder).append_metrics(MetricsLine(step, 0.0, {"acc": step / 10}))
    page = report.write(summary).read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == [
        "Status",
        "Best trial",
        "Errors",
        "Reproduce",
        "Parameters and objective",
        "History",
        "Learning curves",
        "Two parameters",
        "Importance",
        "Slices",
        "Trials",
        "Cost",
    ]
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page)
    assert "&lt;script&gt;alert" in page and "<script>alert" not in page


@pytest.mark.parametrize("completed", [2, 9, 10])
def test_importance_needs_ten_trials(tmp_path: Path, completed: int) -> None:
    summary = study(tmp_path, *({"x": i, "y": i} for i in range(12)), importance={"x": 0.8, "y": 0.2}, searched=True)
    summary = with_trials(summary, *(ended(row, State.PRUNED) for row in summary.rows[completed:]))
    page = report.write(summary).read_text()
    message = f"is computed from 10 completed trials on; there are {completed}."
    assert (message in page, "share of the variance of acc over 10 trials" in page) == (completed < 10, completed == 10)


@pytest.mark.parametrize("points", [[], [{}], [{"x": 1}]])
def test_small_studies_have_a_report(tmp_path: Path, points: list[Point]) -> None:
    page = report.write(study(tmp_path / "s", *points)).read_text()
    assert ("<h2>Trials</h2>" in page, "No trial has started." in page) == (bool(points), not points)


def test_study_without_results_has_a_report(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    summary = with_trials(summary, *(ended(row, State.FAILED) for row in summary.rows))
    assert "4 failed" in report.write(summary).read_text()


def test_study_without_an_objective_has_a_report(tmp_path: Path) -> None:
    """Write the report of an app whose task returns nothing."""
    summary = study(tmp_path, *GRID)
    summary = with_trials(summary, *(replace(ended(row, State.COMPLETED), metrics={}) for row in summary.rows))
    page = report.write(summary).read_text()
    assert "<b>4</b> completed" in page
    assert "No trial has a result: its trials return nothing. Return a number" in page
    assert "Best" not in report.markdown(summary)
    metrics = Outcome(State.COMPLETED, metrics={"acc": 0.5})
    summary = with_trials(summary, *(replace(row, attempts=(metrics,)) for row in summary.rows))
    assert "No trial has a result: its trials return acc, and not " in report.write(summary).read_text()
    with (tmp_path / tables.CSV).open(newline="") as file:
        assert [line["state"] for line in csv.DictReader(file)] == ["completed"] * 4


def test_table_has_no_control_characters_and_no_formulas(tmp_path: Path) -> None:
    texts = ["\x1b[31mred\x07", "=1+1", "+1", "@x"]
    summary = study(tmp_path, *GRID)
    trials = zip(summary.rows, texts, strict=False)
    summary = with_trials(summary, *(ended(row, State.FAILED, error) for row, error in trials))
    report.write(summary)
    with (tmp_path / tables.CSV).open(newline="") as file:
        assert [line["error"] for line in csv.DictReader(file)] == ["red", "'=1+1", "'+1", "'@x"]


@pytest.mark.parametrize("damage", [b"", b"\xff\x00{\n", b'{"step": 1, "ti{"step": 2}\n', None])
def test_unreadable_metrics_do_not_stop_the_report(tmp_path: Path, damage: bytes | None) -> None:
    summary = study(tmp_path, *GRID)
    for row in summary.rows:
        report_twice(row, {"acc": 1.0})
    file = summary.rows[1].folder / "metrics.jsonl"
    if damage is None:
        file.unlink()
        file.mkdir()  # because reading a folder raises an OSError, as EIO and ESTALE do
    else:
        file.write_bytes(damage)
    assert numbers_of(summary, "Learning curves") == {0, 2, 3}
    assert "<h2>Trials</h2>" in report.write(summary).read_text()


def drawn(summary: StudySnapshot, section: str, name: str = "") -> Figure:
    trials = TrialFiles(summary.objective)
    trials.look(Findings(summary))
    return figures.build_figures(FigureData(Findings(summary), trials.curves()))[section][name]


def numbers_of(summary: StudySnapshot, section: str, name: str = "") -> set[int]:
    """Return the numbers of the trials that have a point or a line in the figure."""
    traces = drawn(summary, section, name)["data"]
    points = {n for trace in traces for n in np.ravel(trace.get("customdata", [])) if n is not None}
    return points | {trace["meta"] for trace in traces if "meta" in trace}


ALL_KINDS = {
    State.COMPLETED: "circle",
    State.PRUNED: "triangle-down",
    State.INFEASIBLE: "triangle-down",
    State.FAILED: "x",
    State.DIVERGED: "x",
    State.RUNNING: "circle-open",
    State.CANCELLED: "square-open",
}


@pytest.mark.parametrize(
    "section", ["Parameters and objective", "History", "Learning curves", "Two parameters", "Slices"]
)
@pytest.mark.parametrize("has_value", [True, False])
def test_every_started_trial_has_a_mark_in_every_figure(tmp_path: Path, section: str, has_value: bool) -> None:
    points: list[Point] = [{"x": i + 1, "y": i * i} for i in range(8)]
    summary = study(tmp_path, *points)
    metrics = {"acc": 0.05} if has_value else {}
    for row, state in zip(summary.rows, ALL_KINDS, strict=False):
        if state is not State.COMPLETED:
            summary = with_trials(summary, replace(ended(row, state), metrics=metrics))
    for row in summary.rows if has_value or section == "Learning curves" else []:
        report_twice(row, {"acc": 0.05})
    name = "x" if section == "Slices" else ""
    assert numbers_of(summary, section, name) == set(range(8))
    marks = {
        number: trace["marker"]["symbol"]
        for trace in drawn(summary, section, name)["data"]
        if "marker" in trace
        for number in np.ravel(trace.get("customdata", []))
    }
    assert [marks[i] for i in range(len(ALL_KINDS))] == [*ALL_KINDS.values()]


def test_seconds_of_a_trial_do_not_count_pauses_between_attempts(tmp_path: Path) -> None:
    files = TrialFolder(tmp_path / "0")
    for began, end in ((1000.0, 1030.0), (90_000.0, 90_030.0), (200_000.0, None)):
        attempt = files.new_attempt(began)
        attempt.begin(began)
        for second in (10, 20):
            files.append_metrics(MetricsLine(second, began + second, {"acc": 0.5}))
            files.append_metrics(MetricsLine(second, began + second, {"system/gpu_0_x": 1.0}), SYSTEM_METRICS)
        if end:
            attempt.close(Outcome(State.LOST, "node failure"), end)
    row = TrialRecord(0, {}, State.RUNNING, files.path, tuple(files.ends()))
    study = StudySnapshot("s", tmp_path, ("acc",), ("maximize",), [row])
    trial_files = TrialFiles(study.objective)
    trial_files.look(Findings(study))
    seconds = trial_files.as_data(Findings(study))["trials"][0]["seconds"]
    assert seconds[1] == [0.0, 10.0, 30.0, 40.0, 60.0, 70.0]
    assert trial_files.usage()[0]["system/gpu_0_x"][0] == [0.0, 10.0, 30.0, 40.0, 60.0, 70.0]


def test_curves_show_the_best_and_newest_trials(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"x": i} for i in range(100)))
    for row in summary.rows:
        report_twice(row, {"acc": 1.0, "loss": 0.5})
    summary = with_trials(summary, *(ended(row, State.PRUNED) for row in summary.rows[:30]))
    assert drawn(summary, "Learning curves")["note"] == ("60 of 100 trials: the best 40, and the newest of the others")
    assert numbers_of(summary, "Learning curves") == {*range(40, 60), *range(60, 100)}


def test_curves_show_another_metric_without_the_objective(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    for row in summary.rows:
        report_twice(row, {"loss": 1.0})
    assert drawn(summary, "Learning curves")["layout"]["yaxis"]["title"]["text"] == "loss"


def test_page_has_the_scale_of_each_metric(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    for row, loss in zip(summary.rows, (0.0, 1e-3, 5.0, 1e36), strict=True):
        report_twice(row, {"loss": loss, "val_loss": 1.0})
    page = report.write(summary).read_text()
    scales = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["scales"]
    assert [*scales] == ["loss", "val_loss", "loss, val_loss"]
    assert scales["loss, val_loss"]["metrics"] == ["loss", "val_loss"]
    low, floor, edge = (scales["loss"][name] for name in ("low", "floor", "edge"))
    assert (low, floor, edge) == (1e-3, pytest.approx(1e-4), 50.0)
    assert scales["loss"]["axis"]["ticktext"][0] == "0"
    assert scales["val_loss"]["axis"] == {}


def test_parallel_coordinates_label_zeros_and_the_left_axis_outside(tmp_path: Path) -> None:
    summary = replace(study(tmp_path, *GRID), directions=("minimize",))
    losses = zip(summary.rows, (0.0, 1e-3, 0.5, 900.0), strict=True)
    summary = with_trials(summary, *(with_outcome(row, objective=[loss]) for row, loss in losses))
    labels = drawn(summary, "Parameters and objective")["layout"]["annotations"]
    assert [label["text"] for label in labels if label["x"] == 2] == [
        "0",
        "0.001",
        "0.01",
        "0.1",
        "1",
        "10",
        "100",
        "900",
    ]
    assert {label["xanchor"] for label in labels if not label["x"]} == {"right"}


@pytest.mark.parametrize(
    ("values", "typed", "places", "ticks", "log"),
    [
        (["sgd", "adam"], "", [1, 0], ["adam", "sgd"], False),
        (["sgd", "adam"], "sgd,momentum,adam", [0, 1], ["sgd", "adam"], False),
        (["[8,16]", "[4]"], "[8,16],[4]", [0, 1], ["[8,16]", "[4]"], False),
        ([True, False], "", [1, 0], ["False", "True"], False),
        ([32, 64], "", [0, 1], ["32", "64"], False),
        ([32, 64, 128], "", [0, 0.5, 1], ["32", "64", "128"], True),
        ([256, 2048, 16384], "", [0, 0.5, 1], ["256", "2048", "16384"], True),
        ([0.001, 0.1], "", [0, 1], ["0.001", "0.1"], True),
        ([0.001, 0.1], "interval(0, 0.2)", [0.005, 0.5], ["0", "0.05", "0.1", "0.15", "0.2"], False),
        ([0.001, 0.1], "log interval(1e-4, 1)", [0.25, 0.75], ["0.0001", "0.001", "0.01", "0.1", "1"], True),
        ([0, 100], "", [0, 1], ["0", "100"], False),
        ([1, "auto"], "", [0, 1], ["1", "auto"], False),
        ([8, None], "", [0.5, -0.125], ["none", "8"], False),
        ([8, None, 16], "", [0, -0.125, 1], ["none", "8", "16"], False),
        ([float("nan"), 1.0], "", [1, 0], ["1", "nan"], False),
    ],
)
def test_axes_place_values_and_ticks(
    tmp_path: Path, values: list[Any], typed: str, places: list[float], ticks: list[str], log: bool
) -> None:
    points = [{"x": value} if value is not None else {} for value in values]
    summary = study(tmp_path, *points, space={"x": typed})
    (axis,) = axes.find_axes(summary.rows, summary.space)
    assert [axis.position(value) for value in values] == pytest.approx(places)
    assert ([*axis.ticks().values()], axis.log) == (ticks, log)


def test_constant_params_and_seeds_have_no_axis(tmp_path: Path) -> None:
    summary = study(tmp_path, {"x": 1, "same": 2, "+seed": 1}, {"x": 2, "same": 2, "+seed": 2})
    assert [axis.name for axis in axes.find_axes(summary.rows, {}, without="seed")] == ["x"]


def test_heat_map_cell_shows_the_best_over_other_params(tmp_path: Path) -> None:
    points: list[Point] = [{"lr": lr, "batch": b, "opt": o} for o in "ab" for lr in (0.1, 0.2) for b in (32, 64)]
    (cells,) = drawn(study(tmp_path, *points), "Two parameters")["data"]
    assert (cells["type"], cells["x"], cells["y"]) == ("heatmap", ["0.1", "0.2"], ["32", "64"])
    assert (cells["z"], cells["customdata"]) == ([[0.4, 0.6], [0.5, 0.7]], [[4, 6], [5, 7]])


def test_heat_map_of_several_seeds_shows_means(tmp_path: Path) -> None:
    points: list[Point] = [{"lr": lr, "batch": b, "seed": s} for s in (1, 2) for lr in (0.1, 0.2) for b in (32, 64)]
    (cells,) = drawn(study(tmp_path, *points), "Two parameters")["data"]
    assert cells["z"] == [[pytest.approx(0.2), pytest.approx(0.4)], [pytest.approx(0.3), pytest.approx(0.5)]]


def test_heat_map_of_a_search_shows_points_and_contours(tmp_path: Path) -> None:
    points: list[Point] = [{"lr": 10.0**-i, "batch": 2**i + i * i} for i in range(7)]
    figure = drawn(study(tmp_path, *points), "Two parameters")
    assert [trace["type"] for trace in figure["data"]] == ["contour", "scatter"]
    assert figure["layout"]["xaxis"]["type"] == "log"
    values = [value for line in figure["data"][0]["z"] for value in line if not math.isnan(value)]
    assert 0 <= min(values) < max(values) <= 0.6


def test_search_under_several_seeds_is_no_grid(tmp_path: Path) -> None:
    places: list[Point] = [{"lr": 10.0**-i, "batch": 2 ** (i % 3)} for i in range(6)]
    figure = drawn(
        study(tmp_path, *({**point, "seed": seed} for seed in range(5) for point in places)), "Two parameters"
    )
    assert [trace["type"] for trace in figure["data"]] == ["contour", "scatter"]


def test_heat_map_of_words_has_a_cell_per_word(tmp_path: Path) -> None:
    (cells,) = drawn(study(tmp_path, *GRID), "Two parameters")["data"]
    assert (cells["x"], cells["y"]) == (["adam", "sgd"], ["0.001", "0.1"])
    assert cells["z"] == [[0.0, 0.2], [0.1, 0.3]]
    assert cells["customdata"] == [[0, 2], [1, 3]]


def test_failed_trial_is_marked_in_the_cell(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"x": x, "n": n} for x in ("a<b>", "c") for n in (64, 100_000)))
    summary = with_trials(summary, ended(summary.rows[3], State.FAILED))
    cells, failed = drawn(summary, "Two parameters")["data"]
    assert (failed["x"], failed["y"]) == ([cells["x"][1]], [cells["y"][1]]) == (["c"], ["100000"])
    assert cells["x"][0] == "a&lt;b&gt;"


@pytest.mark.parametrize(
    "points",
    [
        [{"x": 1}, {"x": 2}],
        [{"x": i, "y": -i, "z": i * i} for i in range(3)],
        [{"x": f"word {i}", "y": i} for i in range(5)],
        [{"x": "a", "y": 1, "z": "a"}, {"x": "b", "y": 2, "z": "b"}],
    ],
)
def test_heat_map_needs_two_numbers_or_a_grid(tmp_path: Path, points: list[Point]) -> None:
    summary = study(tmp_path, *points)
    assert "Two parameters" not in figures.build_figures(FigureData(Findings(summary), {}))


def test_heat_map_shows_the_two_most_important_parameters(tmp_path: Path) -> None:
    points: list[Point] = [{"a": i, "b": i * i, "c": -i} for i in range(12)]
    summary = study(tmp_path, *points, importance={"a": 0.2, "b": 0.1, "c": 0.7})
    layout = drawn(summary, "Two parameters")["layout"]
    assert [layout[axis]["title"]["text"] for axis in ("xaxis", "yaxis")] == ["a", "c"]


def test_distant_value_does_not_stretch_the_colors(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"x": i} for i in range(20)))
    summary = with_trials(summary, with_outcome(summary.rows[0], objective=[-1e6]))
    shades = FigureData(Findings(summary), {}).color_layout()["coloraxis"]
    assert (shades["cmin"], shades["cmax"]) == (pytest.approx(0.2), 1.9)


@pytest.mark.parametrize(("direction", "side", "edge"), [("maximize", "below", -1.7), ("minimize", "above", 3.6)])
def test_distant_values_are_at_the_edge(tmp_path: Path, direction: str, side: str, edge: float) -> None:
    summary = study(tmp_path, *({"x": i} for i in range(20)), direction=direction)
    far = -50.0 if direction == "maximize" else 50.0
    summary = with_trials(summary, with_outcome(summary.rows[7], objective=[far]))
    for section, name in (("Parameters and objective", ""), ("History", ""), ("Slices", "x")):
        figure = drawn(summary, section, name)
        assert figure["note"].endswith(f"Values {side} {edge} are drawn at the edge."), figure["note"]
        places = {n: y for t in figure["data"] for n, y in zip(t.get("customdata", []), t["y"], strict=False)}
        assert places[7] == pytest.approx(edge if name or section == "History" else float(side == "above"))
    assert "-50" in TrialFiles(summary.objective).hover(summary.rows[7]) or "50" in TrialFiles(summary.objective).hover(
        summary.rows[7]
    )


@pytest.mark.parametrize(("seconds", "scale"), [([30.0, 40.0, 0.0, 50.0], None), ([0.5, 2000.0, 3.0, 4.0], "log")])
def test_cost_figure_shows_seconds_of_trials(tmp_path: Path, seconds: list[float], scale: str | None) -> None:
    summary = study(tmp_path, *GRID)
    summary = with_trials(summary, ended(summary.rows[3], State.FAILED))
    for row, spent in zip(summary.rows, seconds, strict=True):
        summary = with_trials(summary, with_outcome(row, seconds={"training": spent}))
    figure = drawn(summary, "Cost")
    assert figure["layout"]["xaxis"].get("type") == scale
    seconds_by_trial = {n: x for trace in figure["data"] for n, x in zip(trace["customdata"], trace["x"], strict=True)}
    assert seconds_by_trial == {n: spent for n, spent in enumerate(seconds) if spent}
    page = report.write(summary).read_text()
    assert page.count("<h2>Cost</h2>") == 1 and 'aria-label="Cost"' in page


@pytest.mark.parametrize(
    ("values", "tick"),
    [
        ([1.0, 10.0], None),
        ([0.0, 1e6], None),
        ([0.01, 10.0], 1),
        ([0.1, 1e8], 2),
        ([*(10.0**n for n in range(-9, 7))], 2),
    ],
)
def test_log_axis_has_readable_ticks(values: list[float], tick: int | None) -> None:
    assert scale_of(values).ticks.get("dtick") == tick


def test_picture_of_a_search_has_every_kind_of_trial(tmp_path: Path) -> None:
    drawn = ElementTree.fromstring(picture.render_picture(pages.search(tmp_path)))  # noqa: S314 - it is ours
    words = [element.text for element in drawn.iter(f"{SVG}text")]
    assert {"failed", "pruned", "running", "completed", "trial", "accuracy", "0.9"} <= {*words}
    groups = [element for element in drawn.iter(f"{SVG}g") if element.get("id", "").startswith("PathCollection")]
    definitions = {path for group in groups for defs in group.iter(f"{SVG}defs") for path in defs}
    marks = {mark for group in groups for name in ("use", "path") for mark in group.iter(f"{SVG}{name}")} - definitions
    assert len(marks) == 20 + 4  # and the marks of the legend
    assert all("nan" not in str(element.attrib) for element in drawn.iter())


def test_picture_of_two_objectives_is_the_front(tmp_path: Path) -> None:
    drawn = picture.render_picture(pages.two_objectives(tmp_path))
    assert ">accuracy (maximized)<" in drawn and ">Pareto front<" in drawn


@pytest.mark.parametrize("objective", ["<b>&", "http://me:sesame@host/acc"])
def test_picture_escapes_names_and_hides_passwords(tmp_path: Path, objective: str) -> None:
    summary = replace(study(tmp_path, *GRID), objective=(objective,))
    drawn = picture.render_picture(summary)
    assert ElementTree.fromstring(drawn) is not None  # noqa: S314 - it is ours
    assert "sesame" not in drawn


def test_study_without_results_has_no_picture(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    summary = with_trials(summary, *(replace(ended(row, State.FAILED), metrics={}) for row in summary.rows))
    assert picture.render_picture(summary) == ""


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_drawn_without_a_value(tmp_path: Path, value: float) -> None:
    summary = study(tmp_path, *GRID)
    summary = with_trials(summary, with_outcome(summary.rows[1], objective=[value]))
    for row in summary.rows:
        report_twice(row, {"acc": value})
    page = report.write(summary).read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0], parse_constant=pytest.fail)
    assert data["trials"]["1"]["curves"]["acc"] == [[-1, 0], [None, None]]
    assert numbers_of(summary, "History") == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "values",
    [
        [-1.7e308, 1.7e308, 0.0, 1.0, 2.0, 3.0],
        [0, 10**400, 1, 2, 3, 4],
        [0.0, 5e-324, 1e-323, 0.0, 5e-324, 1e-323],
        [1 + i * 2.3e-16 for i in range(6)],
    ],
)
def test_extreme_and_nearly_equal_numbers_have_a_page(tmp_path: Path, values: list[float]) -> None:
    summary = study(tmp_path, *({"x": value, "y": i} for i, value in enumerate(values)))
    for row, value in zip(summary.rows, values, strict=True):
        summary = with_trials(summary, with_outcome(row, objective=[float(min(value, 1.7e308))]))
    report.write(summary)
    assert picture.render_picture(summary)
    assert numbers_of(summary, "Parameters and objective") == set(range(6))


@pytest.mark.parametrize(
    "number",
    [
        lambda i: (-1) ** i * 1.7e308,
        lambda i: 10.0 ** (-300 + 150 * i),
        lambda i: 10 ** (200 * i),
        lambda i: (i + 1) * 5e-324,
    ],
    ids=["both ends", "log", "no float", "the least"],
)
@pytest.mark.parametrize("place", ["parameter", "objective"])
def test_largest_and_smallest_numbers_have_figures(tmp_path: Path, place: str, number: Any) -> None:
    summary = study(tmp_path, *({"lr": number(i) if place == "parameter" else i / 10, "x": i} for i in range(5)))
    for i, row in enumerate(summary.rows if place == "objective" else ()):
        summary = with_trials(summary, with_outcome(row, objective=[float(min(number(i), 1.7e308))]))
    assert "figure cannot be drawn" not in report.write(summary).read_text()
    assert "nan" not in picture.render_picture(summary)


def test_failed_figure_is_replaced_by_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: FigureData) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(figures._FIGURES, "History", fail)
    page = report.write(study(tmp_path, *GRID)).read_text()
    assert (
        "This figure cannot be drawn: ZeroDivisionError: a bug" in page and "<h2>Parameters and objective</h2>" in page
    )


def test_page_limits_metrics_and_shows_the_objective(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    metrics = {f"m{i}": 1.0 for i in range(1000)} | {"acc": 0.5}
    summary = with_trials(summary, *(replace(row, metrics=metrics) for row in summary.rows))
    for row in summary.rows:
        report_twice(row, metrics)
    trials = TrialFiles(summary.objective)
    trials.look(Findings(summary))
    trial = trials.as_data(Findings(summary))["trials"][0]
    assert len(trial["metrics"]) == len(trial["curves"]) == 200
    assert "acc" in trial["metrics"] and "acc" in trial["curves"]
    assert trial["facts"]["metrics"] == "1001; 200 are shown"


@pytest.mark.parametrize("room", [*range(135, 145), *range(575, 585), *range(1475, 1485)])
def test_truncated_password_is_not_shown(tmp_path: Path, room: int) -> None:
    """Write texts that the page cuts at different lengths."""
    error = "." * room + " postgresql://me:qxqxqx@host/db"
    for text in (error, f"first\n{error}"):
        failed = ended(TrialRecord(0, {"x": 1}, State.QUEUED, tmp_path / "0"), State.FAILED, text)
        summary = StudySnapshot("s", tmp_path, ("acc",), ("maximize",), [failed])
        parts = [part.html for part in overview.build_sections(Findings(summary), TrialFiles(summary.objective))]
        assert "qxq" not in json.dumps([*parts, TrialFiles(summary.objective).as_data(Findings(summary))])


def test_page_data_are_small_without_tags_and_passwords(tmp_path: Path) -> None:
    text = "</script><!--<script> http://me:sesame@host/db \x1b[31mred"
    summary = study(tmp_path, *({"lr": 0.1 * i, "n</script>": text} for i in range(50)))
    for row in summary.rows:
        folder = TrialFolder(row.folder)
        attempt = folder.new_attempt()
        attempt.log.write_text(f"{text}\n" * 300)
        steps = ({"acc": math.sin(step), "loss": 1 / (step + 1), "t": 0.1} for step in range(1000))
        append_lines(
            row.folder / METRICS, [{"step": i, "time": 0, "metrics": metrics} for i, metrics in enumerate(steps)]
        )
        (row.folder / ".hydra").mkdir()
        (row.folder / ".hydra" / "config.yaml").write_text(f"a: {row.number}\nb: '{text}'\n" + "c: 1\n" * 100)
        failed = ended(row, State.FAILED, f"{text} at {row.number}", objective=[0.5])
        summary = with_trials(summary, failed)
    page = report.write(summary).read_text()
    assert len(page) < 1_500_000
    assert "sesame" not in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    trial = data["trials"]["7"]
    assert trial["log"].count("host/db red") == 20
    assert data["lines"][trial["config"][0]] == "a: 7"
    assert trial["curves"]["acc"][0][-1] == 999
    assert '50 failed</b>: <span class="reason">&lt;/script&gt;' in page
    assert "sesame" not in (tmp_path / "trials.csv").read_text()


@pytest.mark.parametrize("count", [3, 13])
def test_few_curves_have_a_legend_without_passwords(tmp_path: Path, count: int) -> None:
    summary = study(tmp_path, *({"db": f"http://me:sesame@host/{i}"} for i in range(count)))
    for row in summary.rows:
        report_twice(row, {"acc": 1.0})
    trials = TrialFiles(summary.objective)
    trials.look(Findings(summary))
    figure = figures.build_figures(FigureData(Findings(summary), trials.curves()))["Learning curves"][""]
    assert figure["layout"]["showlegend"] is (count == 3)
    names = [trace.get("name") for trace in figure["data"] if trace["mode"] == "lines"]
    assert names == [f"db=http://me:***@host/{i}" if count == 3 else None for i in range(count)]
    assert figure["data"][-1]["showlegend"] is False
    assert "sesame" not in report.write(summary).read_text()


def test_notebook_gets_all_figures(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"lr": 10.0**-i, "batch": 2**i + i * i} for i in range(7)))
    for row in summary.rows:
        report_twice(row, {"acc": 1.0})
    plotly_figures = figures.build_plotly_figures(summary)
    assert {*plotly_figures} == {
        "Parameters and objective", "History", "Learning curves", "Two parameters", "Slices: lr", "Slices: batch",
    }  # fmt: skip
    assert plotly_figures["History"].data[-1].text[3].startswith("<b>trial 3</b> completed<br>acc 0.3")
    assert "--" not in plotly_figures["History"].to_json()


@pytest.mark.parametrize(
    ("total", "texts"),
    [(4, "<b>2</b> completed|<b>1</b> failed|<b>1</b> running"), (9, "<b>5</b> queued"), (None, "of 4 trials")],
)
def test_status_counts_sum_to_the_total(tmp_path: Path, total: int | None, texts: str) -> None:
    summary = study(tmp_path, *GRID, planned=total)
    failed, running = ended(summary.rows[0], State.FAILED, "x"), ended(summary.rows[1], State.RUNNING)
    summary = with_trials(summary, failed, running)
    page = report.write(summary).read_text()
    assert all(part in page for part in texts.split("|"))
    assert sum(sum(counts.values()) for counts in overview.count_kinds(summary).values()) == (total or 4)


def test_infeasible_trial_has_the_mark_of_pruned_trials(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    infeasible = ended(summary.rows[0], State.INFEASIBLE, "a batch of 64 does not fit")
    summary = with_trials(summary, infeasible, ended(summary.rows[1], State.PRUNED))
    assert lines_of(summary)[0] == "**4 trials**: 2 completed, 1 pruned, 1 infeasible."
    assert overview.count_kinds(summary) == {"completed": {"completed": 2}, "pruned": {"pruned": 1, "infeasible": 1}}
    page = report.write(summary).read_text()
    assert "<b>2</b> pruned (1 pruned, 1 infeasible)" in page
    assert '<b>1 infeasible</b>: <span class="reason">a batch of 64 does not fit' in page
    assert "▼ infeasible" in page
    with (tmp_path / tables.CSV).open(newline="") as file:
        assert [line["state"] for line in csv.DictReader(file)] == ["infeasible", "pruned", "completed", "completed"]


def test_study_with_reached_target_is_finished(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID, planned=9)
    assert '<b class="stopped">stopped</b>' in report.write(summary).read_text()
    page = report.write(replace(summary, done="trial 3 reached target=0.3")).read_text()
    assert '<b class="finished">finished</b>' in page
    assert "<b>5</b> not started" in page and "Done: trial 3 reached target=0.3." in page


def test_equal_errors_are_printed_once_with_their_trials(tmp_path: Path) -> None:
    summary = study(tmp_path, *({"x": i} for i in range(5)))
    for row in summary.rows[:4]:
        error = f"port {row.number} is <taken>" if row.number < 3 else "other"
        summary = with_trials(summary, ended(row, State.FAILED, error))
    page = report.write(summary).read_text()
    assert page.count("<b>3 failed</b>") == 1
    assert "port 0 is &lt;taken&gt;" in page.partition("<h2>Parameters")[0]
    assert "Errors" in page
    summary = with_trials(summary, ended(summary.rows[4], State.FAILED, "other"))
    assert "Every trial failed" in report.write(summary).read_text()


class Now:
    """A clock that the test advances, also while the page is written."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes = 0.0

    def __call__(self) -> float:
        return self.now


def test_running_study_writes_the_page_periodically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary, clock = study(tmp_path, *GRID, planned=9), Now()
    summary = with_trials(summary, ended(summary.rows[0], State.RUNNING))
    page = live.LivePage(summary, clock=clock)
    write, written = report.write_live, list[float]()

    def counted(*arguments: Any) -> None:
        written.append(clock.now)
        write(*arguments)
        clock.now += clock.takes

    monkeypatch.setattr(report, "write_live", counted)
    for takes, until in ((0.025, 25.0), (0.5, 250.0)):
        clock.takes = takes
        while clock.now < until:
            page.tick()
            clock.now += 0.25
    assert written == pytest.approx([3, 13, 23, 33, 133.5, 234], abs=0.5)
    text = (tmp_path / tables.HTML).read_text()
    assert '"again_s":100.0' in text
    assert '<b class="running">running</b>' in text
    report.write(summary)
    assert '"again_s":0.0' in (tmp_path / tables.HTML).read_text()


def test_running_search_reports_importances_periodically(tmp_path: Path) -> None:
    summary, clock, counts = study(tmp_path, *({"x": i, "y": i} for i in range(210)), searched=True), Now(), list[int]()
    rows, started = summary.rows, list[TrialRecord]()

    def importance() -> dict[str, float]:
        counts.append(len(started))
        if len(counts) == 2:
            raise RuntimeError("it cannot be told")
        return {"x": 0.8, "y": 0.2}

    page = live.LivePage(replace(summary, rows=started), importance, clock)
    for now, trials in ((5, 9), (45, 12), (100, 12), (130, 17), (160, 18), (190, 27), (220, 40), (300, 41), (400, 201)):
        clock.now, started[:] = now, rows[:trials]
        page.tick()
        assert bool(page.problem) == (now == 160)
    assert counts == [12, 18, 27, 41]
    assert "<h2>Importance</h2>" in (tmp_path / tables.HTML).read_text()


def test_unwritable_page_is_retried(tmp_path: Path) -> None:
    summary, clock = study(tmp_path, *GRID), Now()
    page = live.LivePage(summary, clock=clock)
    (tmp_path / tables.HTML).mkdir()
    clock.now = 5
    page.tick()
    assert page.problem.startswith("report.html was not written, and will be retried: IsADirectoryError")
    (tmp_path / tables.HTML).rmdir()
    clock.now = 20
    page.tick()
    assert page.problem == ""
    assert (tmp_path / tables.HTML).exists()


def test_metrics_of_ended_trials_are_read_once(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    summary = with_trials(summary, ended(summary.rows[0], State.RUNNING))
    trials = TrialFiles(summary.objective)
    for row in summary.rows:
        TrialFolder(row.folder).append_metrics(MetricsLine(0, 0.0, {"acc": 0.1}))
    trials.look(Findings(summary))
    for row in summary.rows:
        TrialFolder(row.folder).append_metrics(MetricsLine(1, 0.0, {"acc": 0.2}))
    trials.look(Findings(summary))
    assert [len(trials.curves()[number]["acc"][0]) for number in range(4)] == [2, 1, 1, 1]
    (summary.rows[0].folder / "metrics.jsonl").write_bytes(b"")  # as a new attempt without a checkpoint does
    TrialFolder(summary.rows[0].folder).append_metrics(MetricsLine(0, 0.0, {"acc": 0.3}))
    trials.look(Findings(summary))
    assert trials.curves()[0]["acc"] == ([0], [0.3])


def test_slow_reading_of_metrics_does_not_block_the_driver(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    for row in summary.rows:
        TrialFolder(row.folder).append_metrics(MetricsLine(0, 0.0, {"acc": 0.1}))
    trials = TrialFiles(summary.objective)
    trials.look(Findings(summary), patience_s=-1)
    assert trials.curves() == {}
    assert [*trials.as_data(Findings(summary))["trials"]] == [0, 1, 2, 3]


def test_page_shows_best_and_newest_of_many_trials(tmp_path: Path) -> None:
    queued = (TrialRecord(i, {"x": i}, State.QUEUED, tmp_path) for i in range(2500))
    rows = [ended(row, State.COMPLETED, objective=[float(row.number)]) for row in queued]
    summary = StudySnapshot("s", tmp_path, ("acc",), ("minimize",), rows)
    selection = shown_of(Findings(summary))
    assert [row.number for row in selection] == [*range(1000), *range(1500, 2500)]
    shown = {
        n
        for trace in figures.build_figures(FigureData(Findings(summary), {}))["History"][""]["data"]
        for n in trace.get("customdata", [])
    }
    assert shown <= {row.number for row in selection} and len(shown) == 1500


def test_table_has_what_trials_reported_last_and_best(tmp_path: Path) -> None:
    """Keep the returned value of a metric, and add metrics that were reported alone, also of a pruned trial."""
    row = TrialRecord(0, {"lr": 0.1}, State.QUEUED, tmp_path / "0")
    for number in (0, 1):
        for step, (accuracy, loss) in enumerate([(0.5, 2.0), (0.9, 1.0), (0.7, math.nan)]):
            line = MetricsLine(step, 1.7e9 + step, {"acc": accuracy, "val_loss": loss, "rate": step / 10})
            (tmp_path / str(number)).mkdir(exist_ok=True)
            TrialFolder(tmp_path / str(number)).append_metrics(line)
    completed = ended(row, State.COMPLETED, objective=[0.9], metrics={"acc": 0.9, "size": 3.0})
    pruned = ended(replace(row, number=1, folder=tmp_path / "1"), State.PRUNED)
    silent = replace(row, number=2, folder=tmp_path / "2")
    summary = StudySnapshot("s", tmp_path, ("acc",), ("maximize",), [completed, pruned, silent])
    header, *rows = raw_table(summary)
    expected = ["lr", "acc", "size", "val_loss", "rate", "final acc", "best acc", "best val_loss"]
    assert header[2:10] == expected
    assert [str(cell) for cell in rows[0][2:10]] == ["0.1", "0.9", "3.0", "nan", "0.2", "0.7", "0.9", "1.0"]
    assert [str(cell) for cell in rows[1][2:10]] == ["0.1", "None", "None", "nan", "0.2", "0.7", "0.9", "1.0"]
    assert rows[2][2:10] == [0.1, *[None] * 7]


def test_constants_are_rows_of_the_csv_file_and_of_printed_tables(tmp_path: Path) -> None:
    summary = study(tmp_path, {"lr": 0.1}, {"lr": 0.2})
    for row in summary.rows:
        TrialFolder(row.folder).add_note("closed form", {"weight": 1.96154, "acc": 0.5})
    report.write(summary)
    *_, last = csv.DictReader((tmp_path / "trials.csv").read_text().splitlines())
    assert (last["trial"], last["state"], last["weight"], last["acc"]) == ("closed form", "", "1.96154", "0.5")
    findings = Findings(summary)
    assert render_table(findings, [], "csv").splitlines()[-1] == "closed form,0.5,1.96154"
    assert render_table(findings, ["acc", "lr"], "markdown").splitlines()[-1] == "| 0.5 | closed form |"
    assert render_table(findings, ["acc", "trial"], "csv").splitlines()[-1] == "0.5,closed form"
    assert "closed form" not in render_table(findings, ["lr"], "latex")
    assert render_table(findings, [], "latex").splitlines()[0] == r"\begin{tabular}{lrr}"


def test_notes_of_trials_are_printed_once(tmp_path: Path) -> None:
    summary = study(tmp_path, {"lr": 0.1}, {"lr": 0.2})
    for row in summary.rows:
        summary = with_trials(summary, replace(row, metrics={**row.metrics, "weight": 2.0 + row.number}))
        TrialFolder(row.folder).add_note("closed form", {"weight": 1.96154, "r2": 0.5, "state": 7.0})
        TrialFolder(row.folder).add_note("classes", [f"c{i}" for i in range(30)])
    TrialFolder(summary.rows[1].folder).add_note("data", "<the test set> was looked at")
    lines = lines_of(summary)
    assert "**classes**: " + ", ".join(f"c{i}" for i in range(20)) + ", and 10 more" in lines
    assert "**data (trial 1)**: <the test set> was looked at" in lines
    assert "| trial | lr | acc | weight | r2 | metric.state | state |" in lines
    assert "| 1 | 0.2 | 0.1 | 3 |  |  | completed |" in lines
    assert "| closed form |  |  | 1.96154 | 0.5 | 7 |  |" in lines
    page = report.write(summary).read_text()
    assert "&lt;the test set&gt; was looked at" in page
    assert "1.96154" in page


@pytest.mark.parametrize("content", ["", "[]", "{", '{"subject": 5}'])
def test_damaged_notes_are_ignored(tmp_path: Path, content: str) -> None:
    summary = study(tmp_path, {"lr": 0.1})
    before = report.markdown(summary)
    (summary.rows[0].folder / "notes.json").write_text(content)
    assert report.markdown(summary) == before


def test_labels_leave_room_for_a_figure(tmp_path: Path) -> None:
    """Draw labels of long words, and of values over many powers of ten."""
    summary = study(tmp_path, *({"x": 10.0**power, "path": "/a" * 100 + str(power % 2)} for power in range(-30, 31)))
    for power, row in enumerate(summary.rows, start=-30):
        summary = with_trials(summary, with_outcome(row, objective=[10.0**power]))
    drawn = figures.build_plotly_figures(summary)
    assert len(drawn["History"].layout.yaxis.tickvals) <= 10
    words = drawn["Slices: path"].layout.xaxis
    assert [len(word) for word in words.ticktext] == [40, 40] and max(map(len, words.tickvals)) == 201
    x = next(axis for axis in axes.find_axes(summary.rows, {}) if axis.name == "x")
    assert len(x.round_numbers()) <= 2 + axes.MOST_TICKS
    assert x.round_numbers()[0] == 1e-30


def test_report_computes_each_result_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Counter[str]()

    def count(owner: Any, name: str) -> None:
        derive = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            calls[name] += 1
            return derive(*arguments)

        monkeypatch.setattr(owner, name, counted)

    count(configurations, "rank")
    count(costs, "of_study")
    count(notes, "collect_notes")
    count(StudySnapshot, "top")
    count(StudySnapshot, "front")
    summary = study(tmp_path, *({"x": i // 2, "seed": i % 2, "name": "ab"[i % 4 // 2]} for i in range(20)))
    findings = Findings(summary)
    report.write(findings)
    report.markdown(findings)
    solutions.write(findings)
    View().closing(findings)
    assert picture.render_picture(findings)
    assert calls == {
        "rank": 1,
        "of_study": 1,
        "collect_notes": 1,
        "top": 1,
        "front": 2,
    }  # because the order of the trials uses the front, too


@pytest.mark.parametrize("name", pages.STUDIES)
def test_reading_commands_do_not_change_a_study(tmp_path: Path, name: str) -> None:
    summary = pages.STUDIES[name](tmp_path)
    summary = with_trials(summary, *(replace(row, metrics={}) for row in summary.rows))  # as under another driver
    before = deepcopy(summary)
    page = report.write(summary).read_text()
    report.markdown(summary)
    picture.render_picture(summary)
    solutions.write(summary)
    show_status(summary, "", "", "", "")
    assert summary == before
    assert ("<td>○ running" in page) == (name == "search")


def test_last_metrics_of_another_driver_are_shown(tmp_path: Path) -> None:
    summary = pages.search(tmp_path)
    last = summary.rows[-1].metrics["accuracy"]
    summary = with_trials(summary, replace(summary.rows[-1], metrics={}))
    trials = TrialFiles(summary.objective)
    trials.look(Findings(summary))
    filled = trials.filled(summary)
    assert filled.rows[-1].metrics["accuracy"] == pytest.approx(last, abs=1e-6)
    assert filled.rows[:-1] == summary.rows[:-1]
    assert summary.rows[-1].metrics == {}


def test_paragraph_renders_as_text_markdown_and_html() -> None:
    paragraph = tables.Paragraph(": it took <1 s at http://me:sesame@host", lead="a & b")
    assert paragraph.plain == "a & b: it took <1 s at http://me:sesame@host"
    assert paragraph.markdown == "**a & b**: it took <1 s at http://me:sesame@host"
    assert paragraph.html == "<p><b>a &amp; b</b>: it took &lt;1 s at http://me:***@host</p>"
    assert tables.Paragraph("*x* **y**").html == "<p>*x* **y**</p>"


def test_last_page_reads_only_new_trials(tmp_path: Path) -> None:
    summary = study(tmp_path, *GRID)
    for row in summary.rows:
        report_twice(row, {"acc": 0.5})
    page = live.LivePage(summary, clock=(clock := Now()))
    clock.now = 5
    page.tick()
    for row in summary.rows:
        (row.folder / METRICS).unlink()
    assert '"curves":{"acc":[[-1,0],[0.5,0.5]]}' in report.write(summary, page.files).read_text()


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (None, ""),
        ("", "in MLflow: <code"),
        ('{"run_id": "1"}', "in MLflow: <code"),
        ('{"page": "http://mlflow:5000/#/experiments/1"}', 'in MLflow: <a href="http://mlflow:5000/#/experiments/1"'),
        ('{"page": "javascript:alert(1)"}', "in MLflow: <code"),
    ],
)
def test_page_links_to_a_server_of_mlflow(tmp_path: Path, content: str | None, shown: str) -> None:
    summary = study(tmp_path, {"x": 1})
    summary.folder.mkdir(exist_ok=True)
    if content is not None:
        (summary.folder / "tracking.json").write_text(content)
    page = report.write(summary).read_text()
    assert shown in page if shown else "in MLflow: " not in page
