"""Where pruned and running trials would end: curves and losses against tables, and what trials have reported."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.choose.curves import Curve, Ends, Reports
from sweeps.record.study import TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.trial.metrics import MetricsLine


def test_an_estimate_has_the_place_of_the_last_report_among_completed_trials() -> None:
    curves: list[Curve] = [{1: 9.0, 2: 5.0}, {1: 8.0, 2: 7.0}, {1: 6.0}, {1: 9.0, 2: 6.0}, {3: 1.0}, {}]
    losses = [4.0, 3.0, 2.0, math.inf, math.inf, math.inf]
    ends = Ends(curves, losses)
    assert ends.fill(curves, losses) == [4.0, 3.0, 2.0, 3.5, math.inf, math.inf]
    assert [ends.estimate({1: value})[0] for value in (10.0, 9.0, 7.0, 5.0)] == [5.0, 4.0, 2.5, 1.0]


@pytest.mark.parametrize(
    ("ends", "least", "most"),
    [
        ([1.0, 2.0, 3.0, 4.0], math.inf, math.inf),  # because they are too few
        ([2.0] * 9, math.inf, math.inf),
        ([5.0, 4.0, 3.0, 2.0, 1.0], math.inf, math.inf),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0.5, 0.6),
        ([2.0, 1.0, 3.0, 5.0, 4.0, 6.0], 0.6, 2.0),
        ([float(end) for end in range(40)], 0.0, 0.06),
    ],
)
def test_noise_falls_with_the_correlation_and_the_count_of_completed_trials(
    ends: list[float], least: float, most: float
) -> None:
    curves = [{3: 10.0**i, 4: 0.0} for i in range(len(ends))]
    assert least <= Ends(curves, ends).estimate({1: 1.0, 3: 1.0})[1] <= most
    assert Ends(curves, ends).estimate({5: 1.0}) == (math.inf, math.inf)
    assert Ends(curves, ends).estimate({4: 1.0})[1] == math.inf


def test_reports_follow_a_growing_file_and_its_attempts(tmp_path: Path) -> None:
    files, trial = TrialFolder(tmp_path), TrialRecord(0, {}, State.RUNNING, tmp_path)
    reports = Reports("accuracy", maximizes=True)

    def report(step: int, value: float, name: str = "accuracy") -> None:
        files.append_metrics(MetricsLine(step, 1.0, {name: value}))

    assert reports.curve(trial) == {}
    report(1, 0.5)
    report(2, math.nan)
    report(2, 0.1, "loss")
    assert reports.curve(trial) == {1: -0.5}
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "ti')
    assert reports.curve(trial) == {1: -0.5}
    report(1, 0.6)  # of a further attempt
    ended = replace(trial, state=State.COMPLETED)
    assert reports.curve(trial) == {1: -0.6}
    report(2, 0.7)
    assert reports.curve(ended) == {1: -0.6, 2: -0.7}
    (tmp_path / "metrics.jsonl").unlink()
    assert reports.curve(ended) == {1: -0.6, 2: -0.7}
    report(1, 0.2)
    assert reports.curve(trial)[1] == -0.2  # because the trial was retried
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    assert reports.curve(trial)[1] == -0.2
