"""Tests of the scaling over GPUs, against values computed by hand."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plotly import graph_objects as go

from sweeps.record import study_file
from sweeps.record.study import TrialRecord
from sweeps.show.findings import Findings
from sweeps.show.page import report, scaling_page
from sweeps.show.page.theme import apply_colors, colors
from sweeps.show.scaling import Count, Sample, Scaling, Size, compare, parse_size
from sweeps.show.scaling_study import measure_scaling
from sweeps.show.tables import GAP, Paragraph
from sweeps.show.terminal.lines import show_scaling
from sweeps.study.folder.reading import read_study
from sweeps.trial.folder import MetricsLine, TrialFolder
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.metrics import SYSTEM_METRICS as FIRST
from tests import command_lines as lines
from tests.show.records import with_outcome
from tests.show.scaled import study, trial


def page_of(*samples: Sample, target: float | None = None, maximize: bool = True, **more: Any) -> Scaling:
    return compare(Scaling("demo", "GPUs", "GPU-hours", "acc", **more), samples, maximize, target)


def sample(count: int, epoch_s: float, series: str = "", nodes: int = 1, **more: Any) -> Sample:
    return Sample(series=series, count=count, nodes=nodes, devices=count, epoch_s=[epoch_s], **more)


def counts(scaling: Scaling | None, series: int = 0) -> list[Count]:
    assert scaling
    return scaling.series[series].counts


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ({"gpus": 4}, (4, 1, 4)),
        ({"gpus": 0}, (1, 1, 0)),
        ({"gpus": "4", "nodes": 2}, (8, 2, 4)),
        ({"ranks": 4, "nodes": 2}, (8, 2, 0)),
        ({"ranks": 2, "gpus": 2}, (2, 1, 2)),  # each rank uses a GPU
        ({"lr": 0.1}, (1, 1, 0)),
        ({"gpus": "auto"}, None),
        ({"gpus": True}, None),
        ({"gpus": None}, None),
        ({"nodes": 0}, None),
        ({"gpus": -1}, None),
    ],
)
def test_size_is_parsed_from_params(point: Point, expected: Size | None) -> None:
    assert parse_size(point) == expected


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([[9, 4, 5, 7]], [4, 5, 7]),  # the first epoch traces
        ([[9, 4, 5], [8, 6]], [4, 5, 6]),  # the first epoch of a second attempt traces, too
        ([[9], [8, 6]], [6]),
        ([[9, 4, 0, -1]], [4]),  # a damaged line may have an impossible time
        ([[9]], []),
        ([[]], []),
    ],
)
def test_first_epoch_of_each_attempt_is_excluded(
    tmp_path: Path, attempts: list[list[float]], expected: list[float]
) -> None:
    row = trial(tmp_path / "0", {"gpus": 1}, *attempts)
    other = trial(tmp_path / "1", {"gpus": 2}, [1, 1])
    scaling = measure_scaling(study(tmp_path, [row, other]))
    assert scaling
    (first, *_) = counts(scaling)
    if expected:
        assert (first.count, first.trials, first.shortest_s, first.longest_s) == (1, 1, min(expected), max(expected))
        assert first.epoch_s == sorted(expected)[len(expected) // 2]
    else:
        assert first.count == 2
        assert "Left out: trial 0 (gpus=1): no epoch_time except of the first epoch" in scaling.remarks[-1]


def test_scaling_of_a_study_equals_values_by_hand(tmp_path: Path) -> None:
    use = {"system/gpu_0_utilization_percentage": 80.0, "system/gpu_0_power_usage_watts": 300.0}
    two = {"system/gpu_1_utilization_percentage": 60.0, "system/gpu_1_power_usage_watts": 100.0}
    cpu = {"system/cpu_utilization_percentage": 150.0}
    rows = [
        trial(
            tmp_path / "0",
            {"gpus": 1, "seed": 1},
            [30, 20, 20],
            objectives=[0.5, 0.8, 0.9],
            use={FIRST: use | cpu},
            gpus=1,
        ),
        trial(
            tmp_path / "1",
            {"gpus": 1, "seed": 2},
            [30, 20, 24],
            objectives=[0.5, 0.7, 0.8],
            use={FIRST: use | cpu},
            gpus=1,
        ),
        trial(
            tmp_path / "2",
            {"gpus": 2, "seed": 1},
            [20, 12, 13],
            objectives=[0.5, 0.85, 0.9],
            use={FIRST: use | two | cpu},
            gpus=2,
            epochs_to_stable=2,
            time_to_stable=36.0,
        ),
        trial(tmp_path / "3", {"gpus": 2, "seed": 2}, [], state=State.OUT_OF_MEMORY, gpus=2),
    ]
    scaling = measure_scaling(study(tmp_path, rows))
    assert scaling
    first, second = counts(scaling)
    assert (first.count, first.trials, first.epoch_s, first.shortest_s, first.longest_s) == (1, 2, 20, 20, 24)
    assert (first.speed_up, first.efficiency, first.images_s) == (1, 1, (1000 / 20 + (1000 / 20 + 1000 / 24) / 2) / 2)
    assert (first.use_percent, first.watts, first.objective) == (80, 300, pytest.approx(0.85))
    assert (second.speed_up, second.efficiency) == (20 / 12.5, 20 / 12.5 / 2)
    assert (second.use_percent, second.watts) == (70, 400)
    assert (second.epochs_to_stable, second.time_to_stable_s, second.devices) == (2, 36, 2)
    assert scaling.series[0].target == 0.8  # the value that more than half of the trials of each count reach
    assert (first.target_s, first.tracing_s) == ((40 + 66) / 2, (10 + 8) / 2)  # without tracing
    assert (second.target_s, second.tracing_s) == (24.5, 7.5)
    assert scaling_page.tables(scaling)[1][2] == ["2", "0.9", "7.5", "2", "36", "0.02", "0.004", "24.5", "0.0136"]
    assert scaling.remarks == ["Left out: trial 3 (gpus=2 seed=2): out of memory, no memory."]
    assert (scaling.unit, scaling.hours) == ("GPUs", "GPU-hours")


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([{"lr": 0.1}, {"lr": 0.2}], None),
        ([{"gpus": 1, "lr": 0.1}, {"gpus": 1, "lr": 0.2}], None),
        ([{"gpus": 1}, {"gpus": "auto"}], None),
        ([], None),
        ([{"gpus": 0}, {"gpus": 2}, {"gpus": 4}], ("GPUs", [2, 4], "Left out: trial 0 (gpus=0): it ran on the CPU.")),
        ([{"ranks": 1}, {"ranks": 2}], ("processes", [1, 2], "")),
        ([{"+nodes": 1}, {"+nodes": 4}], ("nodes", [1, 4], "")),
        ([{"gpus": 2}, {"gpus": 2, "nodes": 2}], ("GPUs", [2, 4], "")),
        (
            [{"gpus": 1}, {"gpus": 2}, {"gpus": "auto"}],
            ("GPUs", [1, 2], "a value of gpus, nodes, ranks is no valid count"),
        ),
    ],
)
def test_unit_follows_the_varied_parameter(
    tmp_path: Path, points: list[Point], expected: tuple[str, list[int], str] | None
) -> None:
    rows = [trial(tmp_path / str(i), point, [2, 1]) for i, point in enumerate(points)]
    scaling = measure_scaling(study(tmp_path, rows))
    assert (scaling is None) == (expected is None)
    if scaling and expected:
        assert (scaling.unit, [count.count for count in counts(scaling)]) == expected[:2]
        assert expected[2] in "".join(scaling.remarks)


def test_trials_on_a_shared_gpu_are_left_out(tmp_path: Path) -> None:
    parts = (1, 2, 0.25)
    rows = [trial(tmp_path / str(i), {"gpus": max(1, int(gpus))}, [2, 1], gpus=gpus) for i, gpus in enumerate(parts)]
    scaling = measure_scaling(study(tmp_path, rows))
    assert [(count.count, count.trials) for count in counts(scaling)] == [(1, 1), (2, 1)]
    assert scaling and scaling.remarks == ["Left out: trial 2 (gpus=1): it shared its GPU with other trials."]


def test_other_params_split_the_series(tmp_path: Path) -> None:
    points: list[Point] = [{"gpus": g, "+model": m, "seed": s, "same": 1} for g in (1, 2) for m in "ab" for s in (1, 2)]
    scaling = measure_scaling(
        study(tmp_path, [trial(tmp_path / str(i), point, [2, 1]) for i, point in enumerate(points)])
    )
    assert scaling
    assert [series.name for series in scaling.series] == ["model=a", "model=b"]
    assert [count.trials for count in counts(scaling)] == [2, 2]


def test_ten_series_are_shown_and_others_are_listed() -> None:
    samples = [sample(n, 20 / n, f"x={i:02}") for i in range(12) for n in ((1, 2) if i > 2 else (1,))]
    scaling = page_of(*samples)
    assert [series.name for series in scaling.series] == ["x=00", *(f"x={i:02}" for i in range(3, 12))]
    assert scaling.remarks == [
        "Measured for a single count, so not compared: 1 GPU x=00.",
        "Series not shown (2 of 12): x=01, x=02.",
    ]
    assert go.Figure(apply_colors(scaling_page.figure(scaling)["data"], colors(dark=False)))


def test_nearly_equal_values_are_two_series(tmp_path: Path) -> None:
    points: list[Point] = [{"gpus": g, "lr": lr} for g in (1, 2) for lr in (0.00012341, 0.00012344)]
    scaling = measure_scaling(
        study(tmp_path, [trial(tmp_path / str(i), point, [2, 1]) for i, point in enumerate(points)])
    )
    assert scaling
    assert [(series.name, len(series.counts)) for series in scaling.series] == [
        ("lr=0.00012341", 2),
        ("lr=0.00012344", 2),
    ]


@pytest.mark.parametrize(
    ("points", "fixed", "expected"),
    [
        ([{"nodes": 1}, {"nodes": 2}], {"gpus": "4"}, ("GPUs", [(4, 1), (8, 2)])),
        ([{"gpus": 1}, {"gpus": 2}], {"nodes": "2"}, ("GPUs", [(2, 2), (4, 2)])),
        ([{"nodes": 1}, {"nodes": 2}], {"gpus": "0", "ranks": "2"}, ("processes", [(2, 1), (4, 2)])),
        ([{"gpus": 1}, {"gpus": 2}], {"gpus": "0", "nodes": "null"}, ("GPUs", [(1, 1), (2, 1)])),
    ],
)
def test_fixed_parameters_multiply_the_count(
    tmp_path: Path, points: list[Point], fixed: dict[str, str], expected: Any
) -> None:
    rows = [trial(tmp_path / str(i), point, [2, 1]) for i, point in enumerate(points)]
    scaling = measure_scaling(study(tmp_path, rows, fixed=fixed))
    assert scaling
    assert (scaling.unit, [(count.count, count.nodes) for count in counts(scaling)]) == expected


def test_equal_gpu_counts_on_different_nodes_are_separate_lines(tmp_path: Path) -> None:
    points: list[Point] = [{"gpus": g, "nodes": n} for n in (1, 2) for g in (1, 2)]
    epochs_s = (8, 6, 6.1, 5)
    rows = [trial(tmp_path / str(i), point, [9, epochs_s[i]]) for i, point in enumerate(points)]
    scaling = measure_scaling(study(tmp_path, rows))
    assert scaling
    assert [line[0] for line in scaling_page.tables(scaling)[0]] == ["GPUs", "1", "2", "2 on 2 nodes", "4 on 2 nodes"]
    assert [count.trials for count in counts(scaling)] == [1] * 4
    measured = next(trace for trace in scaling_page.figure(scaling)["data"] if trace["mode"] == "markers")
    assert (measured["x"], len({*measured["marker"]["symbol"]})) == ([1, 2, 2, 4], 2)
    assert measured["text"][2] == "2 GPUs on 2 nodes"
    assert scaling_page.words(scaling)[0].plain.startswith("4 GPUs on 2 nodes: 1.60 times as fast as 1,")


def test_one_node_and_several_nodes_follow_two_laws() -> None:
    times = {(1, 1): 8.0, (2, 1): 4.2, (4, 1): 2.3, (2, 2): 6.0}
    scaling = page_of(*(sample(count, seconds, "m=a", nodes) for (count, nodes), seconds in times.items()))
    by_name = {series.name: [(count.count, count.nodes) for count in series.counts] for series in scaling.series}
    assert by_name == {"m=a within one node": [(1, 1), (2, 1), (4, 1)], "m=a across nodes of 1 GPU": [(1, 1), (2, 2)]}
    assert scaling_page.contradictions(scaling)[-1].startswith("Equal counts on one and on several nodes differ")
    (_, within, across) = scaling_page.forecasts(scaling)
    assert float(within[2]) < 2.3
    assert float(across[2]) < 6


def test_impossible_and_slower_counts_have_usual_causes() -> None:
    scaling = page_of(sample(1, 8.0, "m=a"), sample(2, 3.0, "m=a"), sample(4, 4.0, "m=a"))
    above, slower = scaling_page.contradictions(scaling)
    assert above.startswith("More than 100% of ideal (m=a): 2 GPUs 133%. Usual causes: a slow start")
    assert slower.startswith("4 GPUs slower than 2 (m=a): 4 s against 3 s. Usual causes: batches too small")
    assert not scaling_page.contradictions(page_of(sample(1, 8.0, "m=a"), sample(2, 4.1, "m=a")))


def test_measured_quantities_have_figures_of_their_own() -> None:
    scaling = page_of(*(sample(n, 8 / n, "m=a") for n in (1, 2, 4)))
    figures = scaling_page.measured(scaling)
    assert [*figures] == ["epoch time (s)"]  # the samples lack the others
    assert figures["epoch time (s)"]["data"][0]["y"] == [8, 4, 2]


@pytest.mark.parametrize(("objective", "expected"), [("val_accuracy", 0.7), ("score", 0.8)])
def test_target_of_the_study_is_used(tmp_path: Path, objective: str, expected: float) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n}, [2, 1], objectives=[0.6, 0.8]) for n in (1, 2)]
    summary = replace(study(tmp_path, rows, fixed={"target": "0.7"}), objective=(objective,))
    scaling = measure_scaling(summary)
    assert scaling
    assert scaling.series[0].target == expected


def test_study_without_epoch_times_has_no_scaling(tmp_path: Path) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n}, [2, 1], reports_times=False, largest_batch=n) for n in (1, 2)]
    assert measure_scaling(study(tmp_path, rows)) is None
    assert "Scaling" not in report.write(study(tmp_path, rows)).read_text()


def test_power_is_summed_over_nodes(tmp_path: Path) -> None:
    use = {"system/gpu_0_utilization_percentage": 80.0, "system/gpu_0_power_usage_watts": 300.0}
    other = {"system/gpu_0_utilization_percentage": 60.0, "system/gpu_0_power_usage_watts": 100.0}
    damaged = {"system/gpu_0_power_usage_watts": math.inf}
    rows = [
        trial(tmp_path / "1", {"gpus": 1}, [2, 1], use={FIRST: use}),
        trial(tmp_path / "2", {"gpus": 1, "nodes": 2}, [2, 1], use={FIRST: use, "system_metrics.1.jsonl": other}),
    ]
    TrialFolder(tmp_path / "2").append_metrics(MetricsLine(3, 1103.0, damaged), FIRST)
    first, second = counts(measure_scaling(study(tmp_path, rows)))
    assert (first.watts, second.watts, second.use_percent) == (300, 400, 70)
    (tmp_path / "2" / FIRST).unlink()
    (tmp_path / "2" / FIRST).mkdir()  # so that only the metrics of the first node are unreadable
    first, second = counts(measure_scaling(study(tmp_path, rows)))
    assert (second.watts, second.epoch_s) == (100, 1)


def test_default_target_is_a_reported_metric(tmp_path: Path) -> None:
    """Return an unreported objective, such as the accuracy of averaged weights."""
    rows = [trial(tmp_path / str(n), {"gpus": n}, [9, 4 / n], objectives=[0.1, 0.5]) for n in (1, 2)]
    rows = [with_outcome(row, objective=[0.6]) for row in rows]
    assert [count.target_s for count in counts(measure_scaling(study(tmp_path, rows)))] == [8, 4]


def test_infeasible_trial_is_left_out_with_the_error(tmp_path: Path) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n, "m": "a"}, [2, 1]) for n in (1, 2)]
    rows.append(
        TrialRecord(3, {"gpus": 4, "m": "b"}, State.QUEUED, tmp_path / "3").with_end(
            Outcome(State.INFEASIBLE, "batch too large")
        )
    )
    scaling = measure_scaling(study(tmp_path, rows))
    assert scaling
    assert [series.name for series in scaling.series] == [""]
    assert scaling.remarks == ["Left out: trial 3 (gpus=4 m=b): infeasible, batch too large."]


@pytest.mark.parametrize(
    ("target", "maximize", "reached"),
    [
        (None, True, [20, 12]),  # the default target: 0.8, which all counts reach
        (0.9, True, [math.inf, 18]),
        (0.99, True, [math.inf, math.inf]),
        (0.85, False, [10, 6]),
    ],
)
def test_time_to_a_target_is_measured(target: float | None, maximize: bool, reached: list[float]) -> None:
    slow = sample(1, 10, objective=0.8, course=[(10, 0.5), (20, 0.8), (30, 0.8)])
    fast = sample(2, 6, objective=0.9, course=[(6, 0.5), (12, 0.8), (18, 0.9)])
    scaling = page_of(slow, fast, target=target, maximize=maximize)
    assert [count.target_s for count in counts(scaling)] == reached


def test_speed_up_by_images_has_a_line_of_its_own() -> None:
    scaling = page_of(sample(1, 15, images_s=100.0), sample(2, 10, images_s=190.0))
    expected = "This is by epoch time, with any validation; by images/s of the training alone, 1.90 times."
    assert scaling_page.words(scaling) == [Paragraph(f"2 GPUs: 1.50 times as fast as 1, 75% of ideal. {expected}")]
    same = page_of(sample(1, 15, images_s=100.0), sample(2, 10, images_s=151.0))
    assert scaling_page.words(same) == [Paragraph("2 GPUs: 1.50 times as fast as 1, 75% of ideal.")]


def test_accuracy_of_0_is_no_target() -> None:
    courses = [[(5.0, 0.0)], [(9.0, 0.0)]]
    samples = [sample(n + 1, 15 / (n + 1), course=course, objective=0.0) for n, course in enumerate(courses)]
    assert "to acc 0" not in scaling_page.words(page_of(*samples))[0].plain


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([3600, 1700], "Fastest and cheapest to acc 0.9: 2 GPUs (28.3 minutes, 0.944 GPU-hours)."),
        (
            [3600, 2520],
            "Cheapest to acc 0.9: 1 GPU (60 minutes, 1 GPU-hours); 2 would save 18 minutes and cost 40% more.",
        ),
        ([3600, math.inf], "The only count to acc 0.9: 1 GPU (60 minutes, 1 GPU-hours). 2 did not reach the target."),
        ([math.inf, math.inf], "No count reached acc 0.9."),
    ],
)
def test_text_names_the_cheapest_and_the_fastest_count(seconds: list[float], expected: str) -> None:
    courses = [[(s, 0.9)] if s < math.inf else [(1.0, 0.1)] for s in seconds]
    scaling = page_of(sample(1, 15, course=courses[0]), sample(2, 8, course=courses[1]), target=0.9)
    assert scaling_page.words(scaling) == [Paragraph(f"2 GPUs: 1.88 times as fast as 1, 94% of ideal. {expected}")]


def test_single_count_has_a_remark() -> None:
    scaling = page_of(sample(4, 1, "m=a"), sample(4, 2, "m=b"), sample(8, 1, "m=b"))
    assert scaling.remarks == ["Measured for a single count, so not compared: 4 GPUs m=a."]
    assert len(scaling_page.words(scaling)) == 1
    assert "one count is not enough" in " ".join(scaling_page.doubts(scaling))


def test_columns_without_data_are_omitted() -> None:
    scaling = page_of(sample(1, 2), sample(2, 1, watts=250.0))
    (speed,) = scaling_page.tables(scaling)
    assert speed == [
        ["GPUs", "trials", "epoch time (s)", "speed-up", "efficiency", "power (W)"],
        ["1", "1", "2", "1.00", "100%", ""],
        ["2", "1", "1", "2.00", "100%", "250"],
    ]


def test_figure_has_ideal_measured_and_forecast_lines() -> None:
    slow = [sample(n, 10 / n + 1, "m=a") for n in (1, 2, 4)]
    later = [sample(n, 40 / n, "m=b") for n in (2, 4)]
    figure = scaling_page.figure(page_of(*slow, *later, forecast_counts=[16]))
    traces = {trace["name"]: trace for trace in figure["data"] if "name" in trace}
    assert (traces["ideal"]["x"], traces["ideal"]["y"]) == ([1, 16], [1, 16])
    assert traces["m=a"]["x"] == [1, 2, 4]
    assert traces["m=a"]["y"] == pytest.approx([1, 11 / 6, 11 / 3.5])
    assert traces["m=b"]["y"] == pytest.approx([2, 4])  # ideal
    of_a = [trace for trace in figure["data"] if trace.get("legendgroup") == "m=a" and trace.get("hoverinfo") == "skip"]
    low, high, middle = of_a
    assert middle["line"]["dash"] == "dash"
    assert (middle["x"][0], middle["x"][-1]) == (1, pytest.approx(16))
    assert all(a <= b <= c for a, b, c in zip(low["y"], middle["y"], high["y"], strict=True))


def test_report_ends_with_the_scaling(tmp_path: Path) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n, "m": "<b>"}, [9, 8 / n], objectives=[0.5, 0.9]) for n in (1, 2, 4)]
    rows.append(trial(tmp_path / "5", {"gpus": 8, "m": "<b>"}, [], state=State.FAILED))
    summary = study(tmp_path, rows)
    findings = Findings(summary)
    page = report.write(findings).read_text()
    assert page.index("<h2>Cost</h2>") < page.index("<h2>Scaling</h2>") < page.index("Forecast with its 90%")
    assert "4 GPUs: 4.00 times as fast as 1, 100% of ideal." in page
    assert "Left out: trial 5 (gpus=8 m=&lt;b&gt;): failed, no memory." in page
    assert page.count('id="plotly"') == 1
    shutil.rmtree(tmp_path)
    note = report.markdown(findings).replace(GAP, "")  # from the trials that were read for the page
    assert "**Scaling**\n\n4 GPUs: 4.00 times as fast as 1" in note
    assert "| 4 | 1 | 2 | 500 | 4.00 | 100% |" in note


def test_note_of_many_series_ends_with_a_complete_table(tmp_path: Path) -> None:
    points: list[Point] = [{"gpus": 2**g, "a.long.name": "x" * 99 + str(i)} for i in range(10) for g in range(4)]
    rows = [trial(tmp_path / str(i), point, [9, 1], objectives=[0.1, 0.9]) for i, point in enumerate(points)]
    summary = study(tmp_path, rows)
    note = report.markdown(summary)
    assert len(note) < 8000
    assert note.count("8 GPUs: 1.00 times as fast as 1") == 10
    assert note.endswith("\n\nThe rest: report.html.")
    assert {line[-1] for line in note.splitlines() if line.startswith("|")} == {"|"}


@pytest.mark.parametrize("damage", [b"", b"\xff\x00{\n", None])
def test_trial_with_unreadable_metrics_is_left_out(tmp_path: Path, damage: bytes | None) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n}, [2, 1]) for n in (1, 2)]
    file = tmp_path / "1" / "metrics.jsonl"
    file.unlink()
    file.mkdir() if damage is None else file.write_bytes(damage)
    scaling = measure_scaling(study(tmp_path, rows))
    assert [count.count for count in counts(scaling)] == [2]


def test_report_command_prints_scaling_and_forecast(tmp_path: Path) -> None:
    done = lines.run(lines.theirs(*lines.GRID, "+x=1", "+ranks=1,2", "+epochs=4", "+epoch_time=1"), tmp_path)
    assert done.code == 0, done.said
    assert "<h2>Scaling</h2>" in (done.study() / "report.html").read_text()
    shown = lines.sweeps(tmp_path, "report", "s", "--scaling", "--predict", "4")
    assert shown.code == 0, shown.said
    assert "2 processes: " in shown.out
    assert "Forecast with" in shown.out
    assert "Unreliable forecast: two counts fit any law: measure a third; " in shown.out
    assert shown.out.splitlines()[-1].endswith("trials.csv")


def test_study_records_fixed_values(tmp_path: Path) -> None:
    line = [*lines.GRID, "+x=1", "+nodes=1", "+ranks=1,2", "+epochs=3", "+epoch_time=1"]
    done = lines.run(lines.theirs(*line), tmp_path)
    assert done.code == 0, done.said
    definition = study_file.read(done.study())
    assert definition.config["nodes"] == "1"
    assert read_study(done.study(), definition).fixed["nodes"] == "1"


def test_error_without_scaling_names_the_requirements(tmp_path: Path) -> None:
    lines.run(lines.theirs(*lines.GRID, "+x=1,2"), tmp_path)
    for words in (["--scaling"], ["--target", "1"], ["--predict", "4"]):
        done = lines.sweeps(tmp_path, "report", "s", *words)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("study s: no scaling data. Its trials do not differ in gpus, nodes or ranks")
        assert len(done.err.splitlines()) == 2


def test_error_if_no_trial_reported_epoch_times(tmp_path: Path) -> None:
    lines.run(lines.theirs(*lines.GRID, "+x=1", "+ranks=1,2", "+epochs=1", "+epoch_time=1"), tmp_path)
    done = lines.sweeps(tmp_path, "report", "s", "--scaling")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "study s: no scaling data. None of the 2 trials completed or was pruned after it reported"
    )
    assert len(done.err.splitlines()) == 2


def test_equal_failures_share_a_remark(tmp_path: Path) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n, "lr": 0.1}, [2, 1]) for n in (1, 2)]
    rows += [trial(tmp_path / str(n), {"gpus": 8, "lr": n}, [], state=State.FAILED) for n in range(3, 40)]
    scaling = measure_scaling(study(tmp_path, rows))
    assert scaling
    (remark,) = scaling.remarks
    assert remark.startswith("Left out: trial 3 (gpus=8 lr=3; also 4, 5, 6, ")
    assert remark.endswith(", 23, and 16 more): failed, no memory.")


def test_pruned_trial_has_speeds_but_no_results(tmp_path: Path) -> None:
    stable = {"epochs_to_stable": 1, "time_to_stable": 9}
    rows = [
        trial(tmp_path / "0", {"gpus": 1}, [9, 4, 4], objectives=[0.1, 0.5, 0.8]),
        trial(tmp_path / "1", {"gpus": 2}, [9, 2], objectives=[0.1, 0.2], state=State.PRUNED, **stable),
    ]
    completed, pruned = counts(measure_scaling(study(tmp_path, rows), target=0.5))
    assert (completed.target_s, pruned.target_s, pruned.objective, pruned.speed_up) == (8, None, None, 2)
    assert (pruned.epochs_to_stable, pruned.time_to_stable_s) == (None, None)


def test_page_and_terminal_forecast_the_same_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scaling = page_of(*(sample(n, 8 / n, "m=a") for n in (1, 2, 4)), *(sample(n, 8 / n, "m=b") for n in (1, 2)))
    assert scaling.forecast_counts == [8]
    assert [line[:2] for line in scaling_page.forecasts(scaling)[1:]] == [["m=a", "8"], ["m=b", "8"]]
    show_scaling(scaling)
    ahead = capsys.readouterr().out.partition("Forecast")[2]
    cells = [
        [cell.strip() for cell in line.strip("│┃").split("│" if "│" in line else "┃")] for line in ahead.splitlines()
    ]
    assert ["series", "m=a", "m=b"] in cells
    assert [scaling.unit, "8", "8"] in cells
