"""The view's content; test_dashboard.py opens the view in MLflow's page."""

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from sweeps.show.findings import Findings
from sweeps.show.page.studies import ComparedStudy
from sweeps.tracking import comparison_view, pages
from sweeps.tracking.comparison_view import StudyView
from sweeps.tracking.run_data import logarithms
from sweeps.tracking.tracker import Tracker
from tests.command_lines import some
from tests.tracking import studies as studies_on_disk


def view(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "study": "s",
        "params": ["optimizer", "lr"],
        "objective": ["val_accuracy"],
        "maximize": True,
        "curves": ["loss", "val_loss", "val_accuracy", "epoch_time"],
    }
    arguments |= changes
    key, value = comparison_view.View(**arguments).tag
    assert key.startswith("mlflow.sharedViewState.")
    return unpacked(value)


def unpacked(tag: str) -> dict[str, Any]:
    packed = json.loads(tag)["state"].removeprefix("deflate;")
    content: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return content


def test_view_shows_trials_of_the_study_best_first() -> None:
    content = view()
    assert content["searchFilter"] == "tags.study = 's' AND tags.role = 'trial'"
    assert (content["orderByKey"], content["orderByAsc"]) == ("metrics.`best/val_accuracy`", False)
    columns = ["tags.`state`", "metrics.`best/val_accuracy`", "params.`optimizer`", "params.`lr`", "tags.`error`"]
    assert content["selectedColumns"] == content["columnOrder"] == columns
    parallel = content["compareRunCharts"][0]
    assert (parallel["type"], parallel["selectedParams"]) == ("PARALLEL", ["optimizer", "lr"])
    assert parallel["selectedMetrics"] == ["best/val_accuracy"]


def test_view_of_several_studies_shows_all_but_the_others() -> None:
    content = view(study="a, b", where=pages._leave_out(["c", "it's"]))
    assert content["searchFilter"] == "tags.study != 'c' AND tags.study != \"it's\" AND tags.role = 'trial'"
    assert content["selectedColumns"][0] == "tags.`study`"
    assert pages._leave_out([]) == "tags.role = 'trial'"


def test_parallel_coordinates_show_columns_of_all_trials() -> None:
    """Drop columns that a trial lacks, because a trial before the final race has no seed and would have no line."""
    content = view(params=["lr", "seed"], lacking={"seed"})
    assert content["compareRunCharts"][0]["selectedParams"] == ["lr"]
    assert "params.`seed`" in content["selectedColumns"]
    assert view(params=["a", "b"], lacking={"a", "b"})["compareRunCharts"][0]["selectedParams"] == ["a", "b"]


def test_first_charts_of_a_conditional_space_show_params_of_all_trials() -> None:
    """Draw no contour of two params that no trial has together, and the scatter of a shared param first."""
    own = ["adam.beta", "sgd.momentum"]
    content = view(params=[*own, "optimizer", "lr"], lacking=own, numbers=[*own, "lr"])
    parallel, *others = content["compareRunCharts"]
    assert parallel["selectedParams"] == ["optimizer", "lr"]
    assert not [chart for chart in others if chart["type"] == "CONTOUR"]
    scattered = [chart["xaxis"]["key"] for chart in others if chart["type"] == "SCATTER"]
    assert scattered == ["optimizer", "lr", "adam.beta"]
    (contour,) = (
        chart
        for chart in view(params=[*own, "lr", "batch"], lacking=own, numbers=[*own, "lr", "batch"])["compareRunCharts"]
        if chart["type"] == "CONTOUR"
    )
    assert (contour["xaxis"]["key"], contour["yaxis"]["key"]) == ("lr", "batch")


@pytest.mark.parametrize(
    "trials, shown",
    [
        ([["optimizer", "beta"], ["optimizer", "momentum"]], ["optimizer"]),
        ([["optimizer", "beta"], ["optimizer"], []], ["optimizer"]),  # the params of the third are lost
        ([["a", "b"], ["c"]], ["a", "b"]),
        ([["lr"], ["lr"]], ["lr"]),
    ],
)
def test_view_of_a_running_study_follows_its_trials(tmp_path: Path, trials: list[list[str]], shown: list[str]) -> None:
    """Choose the params of the first chart by the trials so far, though the study had none when the view was opened."""
    summary = studies_on_disk.summary_of(tmp_path)
    study_view = StudyView()
    study_view.derive(summary)
    for params in trials:
        study_view.add(params, [])
    assert not study_view.add(trials[0], [])
    content = unpacked(study_view.tag(summary)[1])
    assert content["compareRunCharts"][0]["selectedParams"] == shown


def test_charts_show_logarithms_and_the_table_values() -> None:
    content = view(params=["optimizer", "lr", "batch"], numbers=["lr", "batch"], logarithms=["log10 lr"])
    parallel, contour, _, scatter, *_ = content["compareRunCharts"]
    assert parallel["selectedParams"] == ["optimizer", "log10 lr", "batch"]
    assert (contour["xaxis"]["key"], scatter["xaxis"]["key"]) == ("log10 lr", "log10 lr")
    assert "params.`lr`" in content["selectedColumns"]
    assert "params.`log10 lr`" not in content["selectedColumns"]


def test_logarithms_of_params_that_are_searched_by_logarithm() -> None:
    space = {
        "lr": "log interval(0.0001, 1)",
        "+opt.decay under opt=adam": "log interval(1e-6, 1)",
        "x": "interval(0, 1)",
    }
    params = {"lr": 0.01, "+opt.decay": 0, "x": 0.5}
    assert logarithms(params, space) == {"log10 lr": "-2"}  # a person may add 0
    assert logarithms({"+opt.decay": 1e-3}, space) == {"log10 opt.decay": "-3"}


@pytest.mark.parametrize(
    ("objective", "curves", "shown"),
    [
        (["val_accuracy"], ["loss", "val_loss", "epoch_time", "val_accuracy"], ["val_accuracy", "val_loss", "loss"]),
        (["f1"], ["val_loss", "f1"], ["f1", "val_loss"]),
        (["score"], ["b", "a"], ["a", "b"]),
        (["score"], [], []),
    ],
)
def test_curves_that_have_a_chart(objective: list[str], curves: list[str], shown: list[str]) -> None:
    charts = view(objective=objective, curves=curves)["compareRunCharts"]
    assert [chart["metricKey"] for chart in charts if chart["type"] == "LINE"] == shown


def test_two_numbers_have_a_contour() -> None:
    charts = view(params=["optimizer", "lr", "size"], numbers=["size", "lr"])["compareRunCharts"]
    (contour,) = (chart for chart in charts if chart["type"] == "CONTOUR")
    assert [contour[axis]["key"] for axis in ("xaxis", "yaxis", "zaxis")] == ["size", "lr", "best/val_accuracy"]
    assert not [chart for chart in view(numbers=["lr"])["compareRunCharts"] if chart["type"] == "CONTOUR"]


def test_the_use_of_each_gpu_has_a_chart() -> None:
    used = ["system/gpu_0_utilization_percentage", "system/gpu_1_utilization_percentage"]
    content = view(curves=["loss", *reversed(used), "system/gpu_0_power_usage_watts", "system/cpu_percentage"])
    charts = [chart for chart in content["compareRunCharts"] if chart["metricSectionId"] == "GPUs"]
    assert [(chart["metricKey"], chart["xAxisKey"]) for chart in charts] == [(name, "time-relative") for name in used]
    assert "GPUs" not in {section["uuid"] for section in view()["compareRunSections"]}


def test_where_all_failed_the_reasons_come_first() -> None:
    assert view(errors_first=True)["selectedColumns"][:2] == ["tags.`state`", "tags.`error`"]


def test_each_link_opens_mlflow_for_training() -> None:
    links = [
        comparison_view.path("7", "s"),
        comparison_view.path("7", "s", as_table=True),
        comparison_view.ALL_EXPERIMENTS,
    ]
    assert all("?workflowType=machine_learning" in link for link in links)
    assert "compareRunsMode=TABLE" in links[1]


@pytest.mark.parametrize("version, is_known", [("3.17.2", True), ("3.18.0", False), ("4.0.0rc1", False)])
def test_unknown_mlflow_opens_its_plain_page(monkeypatch: pytest.MonkeyPatch, version: str, is_known: bool) -> None:
    monkeypatch.setattr(comparison_view.metadata, "version", lambda _: version)
    assert ("viewStateShareKey" in comparison_view.path("7", "s")) == is_known
    assert comparison_view.path("7", "s").startswith("/#/experiments/7/runs?")
    assert comparison_view.unknown_version() == ("" if is_known else version)


def test_several_objectives_are_all_shown() -> None:
    content = view(objective=["loss", "seconds"], maximize=False)
    assert content["compareRunCharts"][0]["selectedMetrics"] == ["best/loss", "best/seconds"]
    assert (content["orderByKey"], content["orderByAsc"]) == ("metrics.`best/loss`", True)


def test_every_chart_is_in_a_section() -> None:
    content = view()
    sections = {section["uuid"] for section in content["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in content["compareRunCharts"]} == sections
    assert len({chart["uuid"] for chart in content["compareRunCharts"]}) == len(content["compareRunCharts"])


def test_description_fits_into_mlflow() -> None:
    params = [f"model.layers.{i}.a_rather_long_name" for i in range(100)]
    _, value = comparison_view.View(study="s" * 200, params=params, objective=["o"], maximize=False, curves=params).tag
    assert len(value) < 20_000


def test_a_study_keeps_its_address() -> None:
    key, _ = comparison_view.View(study="s", params=[], objective=["o"], maximize=False, curves=[]).tag
    assert f"viewStateShareKey={key.rpartition('.')[2]}&compareRunsMode=CHART" in comparison_view.path("7", "s")
    assert comparison_view.path("7", "s").startswith("/#/experiments/7/runs?")
    assert comparison_view.key("s") != comparison_view.key("t")


@some("most_others", [0, 50], 2)
def test_filter_of_several_studies(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_others: int
) -> None:
    monkeypatch.setattr(pages, "_MOST_OTHERS", most_others)
    studies = []
    for name in ("a", "b", "c"):
        row = studies_on_disk.complete(studies_on_disk.new_row(tmp_path / name, 0))
        studies.append(replace(studies_on_disk.summary_of(tmp_path / name, row), name=name))
        tracker = Tracker(store, "e", studies[-1])
        tracker.open()
        tracker.catch_up(studies[-1])
    compared = [ComparedStudy(study.name, Findings(study)) for study in studies[:2]]
    assert pages.studies_path(store, compared) == comparison_view.path("1", "a, b")
    later = replace(studies[2], name="d", folder=tmp_path / "d")
    later = replace(later, rows=[studies_on_disk.complete(studies_on_disk.new_row(tmp_path / "d", 0))])
    (tracker := Tracker(store, "e", later)).open()
    tracker.catch_up(later)
    client = MlflowClient(store)
    content = unpacked(client.get_experiment("1").tags[comparison_view.tag_name("a, b")])
    trials = client.search_runs(["1"], content["searchFilter"])
    assert sorted(run.data.tags["study"] for run in trials) == ["a", "b"]
