"""What more GPUs brought, worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pytest

from sweeps.results import report, scaling_page
from sweeps.results.scaling import Count, Sample, Scaling, Size, compare, of_study, size
from sweeps.trial.job import Point, State
from tests import command_lines as lines
from tests.results.scaled import study, trial


def page_of(*samples: Sample, target: float | None = None, maximize: bool = True) -> Scaling:
    return compare(Scaling("demo", "GPUs", "GPU-hours", "acc", "epoch time", [], []), samples, maximize, target)


def sample(count: int, epoch_s: float, series: str = "", **more: Any) -> Sample:
    return Sample(series, count, 1, more.pop("devices", count), [epoch_s], **more)


def counts(scaling: Scaling | None, series: int = 0) -> list[Count]:
    assert scaling
    return scaling.series[series].counts


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ({"gpus": 4}, Size(4, 1, 4)),
        ({"gpus": 0}, Size(1, 1, 0)),
        ({"+gpus": 4, "nodes": 2}, Size(8, 2, 4)),
        ({"gpus": 2, "nodes": 2, "ranks": 3}, Size(12, 2, 2)),
        ({"ranks": 4}, Size(4, 1, 0)),
        ({"lr": 0.1}, Size(1, 1, 0)),
        ({"gpus": "auto"}, None),
        ({"gpus": True}, None),
        ({"gpus": None}, None),
        ({"nodes": 0}, None),
        ({"gpus": -1}, None),
    ],
)
def test_what_a_trial_runs_on(point: Point, expected: Size | None) -> None:
    assert size(point) == expected


@pytest.mark.parametrize(
    ("attempts", "told", "expected"),
    [
        ([[9, 4, 5, 7]], True, [4, 5, 7]),  # the first epoch traces
        ([[9, 4, 5], [8, 6]], True, [4, 5, 6]),  # and so does that of a second attempt
        ([[9], [8, 6]], True, [6]),
        ([[9, 4, 5], [8, 6]], False, [4, 5, 6]),  # from when they were reported
        ([[9, 4, 0]], True, [4]),  # nobody trains in no time
        ([[9]], True, []),
        ([[]], True, []),
    ],
)
def test_epochs_that_count(tmp_path: Path, attempts: list[list[float]], told: bool, expected: list[float]) -> None:
    row = trial(tmp_path / "0", {"gpus": 1}, *attempts, told=told)
    other = trial(tmp_path / "1", {"gpus": 2}, [1, 1])
    found = of_study(study(tmp_path, [row, other]))
    assert found
    (first, *_) = counts(found)
    if expected:
        assert (first.count, first.trials, first.shortest_s, first.longest_s) == (1, 1, min(expected), max(expected))
        assert first.epoch_s == sorted(expected)[len(expected) // 2]
    else:
        assert first.count == 2
        assert "Trial 0 (gpus=1) is not in it: of no epoch but the first" in found.remarks[-1]


def test_a_study_by_hand(tmp_path: Path) -> None:
    use = {"system/gpu_0_utilization_percentage": 80.0, "system/gpu_0_power_usage_watts": 300.0}
    two = {"system/gpu_1_utilization_percentage": 60.0, "system/gpu_1_power_usage_watts": 100.0}
    cpu = {"system/cpu_utilization_percentage": 150.0}
    rows = [
        trial(tmp_path / "0", {"gpus": 1, "seed": 1}, [30, 20, 20], objectives=[0.5, 0.8, 0.9], use=use | cpu, gpus=1),
        trial(tmp_path / "1", {"gpus": 1, "seed": 2}, [30, 20, 24], objectives=[0.5, 0.7, 0.8], use=use | cpu, gpus=1),
        trial(
            tmp_path / "2",
            {"gpus": 2, "seed": 1},
            [20, 12, 13],
            objectives=[0.5, 0.85, 0.9],
            use=use | two | cpu,
            gpus=2,
            epochs_to_stable=2,
            time_to_stable=36.0,
        ),
        trial(tmp_path / "3", {"gpus": 2, "seed": 2}, [], state=State.OUT_OF_MEMORY, gpus=2),
    ]
    found = of_study(study(tmp_path, rows))
    assert found
    one, other = counts(found)
    assert (one.count, one.trials, one.epoch_s, one.shortest_s, one.longest_s) == (1, 2, 20, 20, 24)
    assert (one.speed_up, one.efficiency, one.images_s) == (1, 1, 50)
    assert (one.use_percent, one.watts, one.objective, one.stable_hours) == (80, 300, pytest.approx(0.85), None)
    assert (other.speed_up, other.efficiency) == (20 / 12.5, 20 / 12.5 / 2)
    assert (other.use_percent, other.watts) == (70, 400)
    assert (other.epochs_to_stable, other.time_to_stable_s) == (2, 36)
    assert (other.stable_hours, other.stable_kwh) == (36 * 2 / 3600, 36 * 400 / 3.6e6)
    assert found.series[0].target == 0.8  # what more than half of the trials of each count reach
    assert one.target_s == (50 + 74) / 2
    assert (other.target_s, other.target_hours) == (32, 32 * 2 / 3600)
    assert found.remarks == ["Trial 3 (gpus=2 seed=2) is not in it: out of memory, no memory."]
    assert (found.unit, found.hours) == ("GPUs", "GPU-hours")


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([{"lr": 0.1}, {"lr": 0.2}], None),
        ([{"gpus": 1, "lr": 0.1}, {"gpus": 1, "lr": 0.2}], None),
        ([{"gpus": 1}, {"gpus": "auto"}], None),
        ([], None),
        (
            [{"gpus": 0}, {"gpus": 2}, {"gpus": 4}],
            ("GPUs", [2, 4], "Trial 0 (gpus=0) is not in it: it ran on the CPU."),
        ),
        ([{"ranks": 1}, {"ranks": 2}], ("processes", [1, 2], "")),
        ([{"+nodes": 1}, {"+nodes": 4}], ("nodes", [1, 4], "")),
        (
            [{"gpus": 2}, {"gpus": 2, "nodes": 2}],
            ("GPUs", [2, 4], "GPU use, power and energy are those of each trial's first"),
        ),
        ([{"gpus": 1}, {"gpus": 2}, {"gpus": "auto"}], ("GPUs", [1, 2], "what it ran on is no whole number")),
    ],
)
def test_what_is_counted(tmp_path: Path, points: list[Point], expected: tuple[str, list[int], str] | None) -> None:
    rows = [trial(tmp_path / str(i), point, [2, 1]) for i, point in enumerate(points)]
    found = of_study(study(tmp_path, rows))
    assert (found is None) == (expected is None)
    if found and expected:
        assert (found.unit, [count.count for count in counts(found)]) == expected[:2]
        assert expected[2] in "".join(found.remarks)


def test_a_line_for_each_combination_of_other_values(tmp_path: Path) -> None:
    points: list[Point] = [{"gpus": g, "+model": m, "seed": s, "same": 1} for g in (1, 2) for m in "ab" for s in (1, 2)]
    found = of_study(study(tmp_path, [trial(tmp_path / str(i), point, [2, 1]) for i, point in enumerate(points)]))
    assert found
    assert [one.name for one in found.series] == ["model=a", "model=b"]
    assert [count.trials for count in counts(found)] == [2, 2]


def test_of_many_combinations_the_best_of_each_count(tmp_path: Path) -> None:
    points: list[Point] = [{"gpus": 1 + i % 2, "lr": i / 10} for i in range(12)]
    rows = [trial(tmp_path / str(i), point, [2, 1], objectives=[0, i / 10]) for i, point in enumerate(points)]
    found = of_study(study(tmp_path, rows))
    assert found
    assert [count.objective for count in counts(found)] == [1.0, 1.1]
    assert found.remarks == [
        "Of the 12 combinations of other values, those compared are each count's best by acc. "
        "1 GPU: lr=1; 2 GPUs: lr=1.1."
    ]


def test_without_an_objective_the_fastest_of_each_count() -> None:
    found = page_of(*(sample(1 + i % 2, 20 - i, f"x={i}") for i in range(12)))
    assert [count.epoch_s for count in counts(found)] == [10, 9]
    assert "best by time" in found.remarks[0]


@pytest.mark.parametrize(
    ("target", "maximize", "reached"),
    [
        (None, True, [20, 12]),  # what all of them reached: 0.8
        (0.9, True, [math.inf, 18]),
        (0.99, True, [math.inf, math.inf]),
        (0.85, False, [10, 6]),
    ],
)
def test_the_time_to_a_target(target: float | None, maximize: bool, reached: list[float]) -> None:
    one = sample(1, 10, objective=0.8, course=[(10, 0.5), (20, 0.8), (30, 0.8)])
    two = sample(2, 6, objective=0.9, course=[(6, 0.5), (12, 0.8), (18, 0.9)])
    found = page_of(one, two, target=target, maximize=maximize)
    assert [count.target_s for count in counts(found)] == reached


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([3600, 1700], "Fastest and cheapest to acc 0.9: 2 GPUs (28.3 minutes, 0.944 GPU-hours)."),
        (
            [3600, 2520],
            "Cheapest to acc 0.9: 1 GPU (60 minutes, 1 GPU-hours); 2 would save 18 minutes and cost 40% more.",
        ),
        ([3600, math.inf], "The only one to acc 0.9: 1 GPU (60 minutes, 1 GPU-hours). 2 did not reach it."),
        ([math.inf, math.inf], "No count reached acc 0.9."),
    ],
)
def test_the_cheapest_and_the_fastest_in_words(seconds: list[float], expected: str) -> None:
    courses = [[(s, 0.9)] if s < math.inf else [(1.0, 0.1)] for s in seconds]
    found = page_of(sample(1, 15, course=courses[0]), sample(2, 8, course=courses[1]), target=0.9)
    assert scaling_page.words(found) == [f"2 GPUs: 1.88 times as fast as 1, 94% of what is ideal. {expected}"]


def test_one_count_alone_is_said() -> None:
    found = page_of(sample(4, 1, "m=a"), sample(4, 2, "m=b"), sample(8, 1, "m=b"))
    assert found.remarks == ["m=a: only 4 GPUs measured, nothing to compare it with."]
    assert len(scaling_page.words(found)) == 1
    assert "one count tells nothing of others" in " ".join(scaling_page.doubts(found))


def test_what_nobody_told_has_no_column() -> None:
    found = page_of(sample(1, 2), sample(2, 1, watts=250.0))
    (speed,) = scaling_page.tables(found)
    assert speed == [
        ["GPUs", "trials", "epoch time (s)", "speed-up", "efficiency", "power (W)"],
        ["1", "1", "2", "1.00", "100%", ""],
        ["2", "1", "1", "2.00", "100%", "250"],
    ]
    assert scaling_page.missing(found)[0].startswith("Nobody told, and so not shown: images/s, GPU use (%), acc,")


def test_the_figure() -> None:
    slow = [sample(n, 10 / n + 1, "m=a", objective=0.9, course=[(60.0 / n, 0.9)]) for n in (1, 2, 4)]
    figure = scaling_page.figure(page_of(*slow), [16])
    traces = {trace.name: trace for trace in figure.data if trace.name}
    assert (list(traces["ideal"].x), list(traces["ideal"].y)) == ([1, 16], [1, 16])
    measured = next(trace for trace in figure.data if trace.name == "m=a" and trace.xaxis == "x")
    assert list(measured.x) == [1, 2, 4]
    assert list(measured.y) == pytest.approx([1, 11 / 6, 11 / 3.5])
    low, high, middle = [trace for trace in figure.data if trace.hoverinfo == "skip"]
    assert middle.line.dash == "dash"
    assert (middle.x[0], middle.x[-1]) == (1, pytest.approx(16))
    assert all(a <= b <= c for a, b, c in zip(low.y, middle.y, high.y, strict=True))
    cost = next(trace for trace in figure.data if trace.xaxis == "x2")
    assert list(cost.y) == [60, 30, 15]
    assert list(cost.text) == ["1", "2", "4"]


def test_a_report_ends_with_it(tmp_path: Path) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n, "m": "<b>"}, [9, 8 / n], objectives=[0.5, 0.9]) for n in (1, 2, 4)]
    rows.append(trial(tmp_path / "5", {"gpus": 8, "m": "<b>"}, [], state=State.FAILED))
    summary = study(tmp_path, rows)
    page = report.write(summary).read_text()
    assert page.index("What it cost") < page.index("<h2>Scaling</h2>") < page.index("Forecast, with the ends")
    assert "4 GPUs: 4.00 times as fast as 1, 100% of what is ideal." in page
    assert "Trial 5 (gpus=8 m=&lt;b&gt;) is not in it: failed, no memory." in page
    assert page.count("plotly.js v") == 1
    note = report.markdown(summary)
    assert "**Scaling**\n\n- 4 GPUs: 4.00 times as fast as 1" in note
    assert "| 4 | 1 | 2 | 500 | 4.00 | 100% |" in note


def test_a_study_all_of_whose_trials_failed_has_a_report(tmp_path: Path) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n}, [], state=State.FAILED) for n in (1, 2)]
    page = report.write(study(tmp_path, rows)).read_text()
    assert "<h2>Scaling</h2>" in page
    assert "Trial 1 (gpus=1; and 2 alike) is not in it: failed, no memory." in page
    assert "**Scaling**" in report.markdown(study(tmp_path, rows))


@pytest.mark.parametrize("damage", [b"", b"\xff\x00{\n", None])
def test_metrics_that_cannot_be_read_take_no_report_with_them(tmp_path: Path, damage: bytes | None) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n}, [2, 1]) for n in (1, 2)]
    file = tmp_path / "1" / "metrics.jsonl"
    file.unlink()
    file.mkdir() if damage is None else file.write_bytes(damage)
    found = of_study(study(tmp_path, rows))
    assert [count.count for count in counts(found)] == [2]


def test_the_command_that_shows_it(tmp_path: Path) -> None:
    done = lines.run(lines.theirs(*lines.GRID, "+x=1", "+ranks=1,2", "+epochs=4"), tmp_path)
    assert done.code == 0, done.said
    assert "<h2>Scaling</h2>" in (done.study() / "report.html").read_text()
    shown = lines.sweeps(tmp_path, "report", "s", "--scaling", "--predict", "4")
    assert shown.code == 0, shown.said
    assert "2 processes: " in shown.out
    assert "forecast" in shown.out
    assert "Beware: two counts fit any form: measure a third." in shown.out
    assert shown.out.splitlines()[-1].endswith("trials.csv")


def test_a_study_that_swept_nothing_that_is_counted_says_so(tmp_path: Path) -> None:
    lines.run(lines.theirs(*lines.GRID, "+x=1,2"), tmp_path)
    for words in (["--scaling"], ["--target", "1"], ["--predict", "4"]):
        said = lines.sweeps(tmp_path, "report", "s", *words)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("study s did not sweep gpus, nodes or ranks: there is no scaling to show.")


def test_trials_that_failed_alike_are_told_in_one_line(tmp_path: Path) -> None:
    rows = [trial(tmp_path / str(n), {"gpus": n, "lr": 0.1}, [2, 1]) for n in (1, 2)]
    rows += [trial(tmp_path / str(n), {"gpus": 8, "lr": n}, [], state=State.FAILED) for n in range(3, 40)]
    found = of_study(study(tmp_path, rows))
    assert found
    (remark,) = found.remarks
    assert remark.startswith("Trial 3 (gpus=8 lr=3; and 4, 5, 6, ")
    assert remark.endswith(", 23, and 16 more alike) is not in it: failed, no memory.")


def test_a_pruned_trial_tells_how_fast_it_was_and_no_more(tmp_path: Path) -> None:
    rows = [
        trial(tmp_path / "0", {"gpus": 1}, [9, 4, 4], objectives=[0.1, 0.5, 0.8]),
        trial(tmp_path / "1", {"gpus": 2}, [9, 2], objectives=[0.1, 0.2], state=State.PRUNED),
    ]
    one, two = counts(of_study(study(tmp_path, rows), target=0.5))
    assert (one.target_s, two.target_s, two.objective, two.speed_up) == (13, None, None, 2)
