"""A study in Python, as a notebook has it: over, running, damaged."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

import sweeps
from sweeps.base.errors import UserError
from sweeps.record.definition import Definition
from sweeps.record.trial_config import read_values
from sweeps.show.page.report import write
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import MetricsLine
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Clock, FakeLauncher, Study, by_trial, ends, trains


@pytest.fixture
def study(make_study: MakeStudy, clock: Clock, tmp_path: Path) -> Study:
    """Make four trials, one of which failed, with the configurations of Hydra."""
    study = make_study("x=1,2,3,4", "o=a")
    study.drive(FakeLauncher(by_trial(trains(), t2=ends(Outcome(State.FAILED, "too large"))), clock))
    for number in range(4):
        (study.trial(number).path / ".hydra").mkdir()
        (study.trial(number).path / ".hydra" / "config.yaml").write_text(f"x: {number + 1}\nm:\n  deep: ${{x}}\n")
    content = Definition(
        "s", ["python", "a.py"], str(tmp_path), ["objective"], ["minimize"], {"x": "1,2,3,4"}, "", {}, {}, 4
    )
    (tmp_path / "study.json").write_text(json.dumps(asdict(content)))
    return study


@pytest.mark.parametrize("typed", ["trial", "+state", "error", "folder", "attempts", "seconds_training", "host"])
def test_param_with_the_name_of_another_column(typed: str, make_study: MakeStudy, clock: Clock, tmp_path: Path) -> None:
    study = make_study(f"{typed}=7,8")
    study.drive(FakeLauncher(trains(), clock))
    content = Definition(
        "s", ["python", "a.py"], str(tmp_path), ["objective"], ["minimize"], {typed: "7,8"}, "", {}, {}, 2
    )
    (tmp_path / "study.json").write_text(json.dumps(asdict(content)))
    loaded = sweeps.load(tmp_path.name, tmp_path.parent)
    trials = loaded.trials
    key = typed.lstrip("+")
    assert list(trials.index) == [0, 1]
    assert list(trials["state"]) == ["completed"] * 2
    assert list(trials[f"param.{key}"]) == [7, 8]
    write(loaded.snapshot)
    header = (tmp_path / "trials.csv").read_text().splitlines()[0].split(",")
    assert len(header) == len(set(header))
    assert {"trial", "state", f"param.{key}"} <= set(header)


def test_a_study_as_data_frames(study: Study, tmp_path: Path) -> None:
    loaded = sweeps.load(tmp_path.name, tmp_path.parent)
    assert list(loaded.trials.index) == [0, 1, 2, 3]
    assert list(loaded.trials["state"]) == ["completed", "completed", "failed", "completed"]
    assert list(loaded.trials["x"]) == [1, 2, 3, 4]
    assert loaded.trials["objective"].dropna().to_dict() == {0: 100.0, 1: 101.0, 3: 103.0}
    assert loaded.trials.loc[2, "error"] == "too large"
    curve = loaded.curves[loaded.curves["trial"] == 1]
    assert list(curve["step"]) == [0, 1, 2]
    assert list(curve["objective"]) == [103.0, 102.0, 101.0]
    assert loaded.best.m.deep == 1
    assert loaded.config(3).x == 4
    assert "Learning curves" in loaded.figures
    with pytest.raises(UserError, match=rf"has no saved model\n.*sweepyard refit {tmp_path.name} .*--trial 0"):
        loaded.model()
    with pytest.raises(UserError, match="no result of trial 2"):
        loaded.config(2)


def test_repr_of_a_study_is_five_lines(study: Study, tmp_path: Path) -> None:
    assert repr(sweeps.load(tmp_path.name, tmp_path.parent)).splitlines() == [
        f"study {tmp_path.name}: 4 trials: 3 completed, 1 failed",
        "objective: objective (minimize)",
        "best: trial 0: objective=100   x=1",
        f"folder: {tmp_path}",
        "attributes: trials, curves, best, config(7), figures, model()",
    ]


def test_metric_named_as_a_column_gets_a_prefix(study: Study, tmp_path: Path) -> None:
    study.trial(0).append_metrics(MetricsLine(9, 5.0, {"time": 7.0, "step": 8.0, "loss": 1.0}))
    curves = sweeps.load(tmp_path).curves
    row = curves[(curves["trial"] == 0) & (curves["step"] == 9)].iloc[0]
    assert (row["time"], row["metric.time"], row["metric.step"], row["loss"]) == (5.0, 7.0, 8.0, 1.0)


def test_files_that_are_cut_or_gone_cost_no_more_than_themselves(study: Study, tmp_path: Path) -> None:
    for file in tmp_path.glob("[0-3]/**/*"):
        if file.is_file():
            file.write_bytes(os.urandom(9))
    (study.trial(1).path / "metrics.jsonl").unlink()
    loaded = sweeps.load(tmp_path.name, tmp_path.parent)
    assert list(loaded.trials["objective"].dropna()) == [100.0, 101.0, 103.0]  # the journal tells
    assert len(loaded.curves) == 0
    assert list(loaded.curves.columns) == ["trial", "step", "time"]
    with pytest.raises(UserError, match="the config of trial 0 cannot be read"):
        _ = loaded.best


def test_a_study_that_runs(make_study: MakeStudy, study: Study, clock: Clock, tmp_path: Path) -> None:
    def look() -> str:
        if not states and len(TrialFolder(tmp_path / "4").read_metrics().values) == 2:
            loaded = sweeps.load(tmp_path.name, tmp_path.parent)
            states.append((loaded.trials.loc[4, "state"], sum(loaded.curves["trial"] == 4)))
        return ""

    states: list[tuple[str, int]] = []
    make_study("x=1,2,3,4,5", "o=a").drive(FakeLauncher(trains(5), clock), look)
    assert states == [("running", 2)]


def test_missing_studies_and_trials(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no study nothing in"):
        sweeps.load("nothing", tmp_path)


@pytest.mark.parametrize("indent", [2, 4])
def test_settings_include_the_choices_of_config_groups(tmp_path: Path, indent: int) -> None:
    hydra = {"hydra": {"job": {"name": "a"}, "runtime": {"choices": {"optimizer": "adam", "hydra/launcher": "local"}}}}
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump(hydra, indent=indent))
    (tmp_path / ".hydra" / "config.yaml").write_text("lr: 0.1\nrate: ${lr}\n")
    assert read_values(tmp_path) == {"optimizer": "adam", "lr": 0.1, "rate": 0.1}
