"""Files that were cut, emptied or filled with noise: a trial keeps its run, and MLflow shows the readable lines."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from sweeps.tracking.study_run import StudyRun
from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_run import TrialRun
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from tests.command_lines import some
from tests.tracking.studies import complete, finish, new_row, open_tracker, runs, steps_of, summary_of, train, wait_for

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "noise": lambda content: bytes(range(256)),
    "doubled": lambda content: content * 2,
    "no object": lambda content: b'"text"',
    "another run": lambda content: content.replace(b'"run_id": "', b'"run_id": "0'),
    "nothing in it": lambda content: b"{}",
}


def ids(uri: str) -> dict[str, str]:
    return {name: run.info.run_id for name, run in runs(uri).items()}


OVER = [(name, True) for name in DAMAGES] + [(name, False) for name in ("cut", "another run", "nothing in it")]


@some(("name", "over"), OVER, 9)
@pytest.mark.parametrize("whose", ["s", "s/0"])
def test_run_with_a_damaged_note_is_found(store: str, tmp_path: Path, name: str, whose: str, over: bool) -> None:
    damage = DAMAGES[name]
    study = tmp_path / "s"
    rows = [new_row(study, number) for number in range(2)]
    first = open_tracker(store, study)
    for row in rows:
        first.start_trial(row, [])
        TrialFolder(row.folder).new_attempt()
        train(row, range(2))
    if over:
        finish(first, summary_of(study, *map(complete, rows)))
    first._finished.set()
    run_ids = ids(store)

    note = tmp_path / whose / "tracking.json"
    note.write_bytes(damage(note.read_bytes()))
    second = open_tracker(store, study)
    for row in rows:
        if not over:
            second.start_trial(row, [])
            train(row, range(2, 4))
    finish(second, summary_of(study, *map(complete, rows)))

    assert second.problem is None
    assert ids(store) == run_ids
    if not (over and damage is DAMAGES["another run"]):  # because an ended trial needs no note
        assert json.loads(note.read_text())["run_id"] == run_ids["s" if whose == "s" else "lr=0.1"]
    assert {run.info.status for run in runs(store).values()} == {"FINISHED"}
    for trial in ("lr=0.1", "lr=0.2"):
        assert len(steps_of(store, runs(store)[trial])) == (2 if over else 4)
        assert len(steps_of(store, runs(store)[trial], "val_loss")) == 1


def test_a_note_of_another_trial_is_not_followed(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    rows = [new_row(study, number) for number in range(2)]
    first = open_tracker(store, study)
    for row in rows:
        first.start_trial(row, [])
    first._finished.set()
    run_ids = ids(store)
    other = rows[1].folder / "tracking.json"
    (rows[0].folder / "tracking.json").write_bytes(other.read_bytes())
    second = open_tracker(store, study)
    assert [second.start_trial(row, [])["MLFLOW_RUN_ID"] for row in rows] == [run_ids["lr=0.1"], run_ids["lr=0.2"]]
    finish(second, summary_of(study, *map(complete, rows)))
    assert ids(store) == run_ids


def test_study_of_same_name_in_another_folder_is_separate(store: str, tmp_path: Path) -> None:
    for place in ("here", "there"):
        tracker = open_tracker(store, tmp_path / place / "s")
        (tmp_path / place / "s" / "tracking.json").write_text("")
        second = open_tracker(store, tmp_path / place / "s")
        assert second._study.run_id == tracker._study.run_id
        tracker._finished.set(), second._finished.set()
    notes = [json.loads((tmp_path / place / "s" / "tracking.json").read_text()) for place in ("here", "there")]
    assert notes[0] != notes[1]


def test_run_of_a_driver_killed_before_its_note_is_adopted(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    open_tracker(store, study)._finished.set()
    run_ids = ids(store)
    TrialFolder(study).write_tracking({"run_id": None})
    open_tracker(store, study)._finished.set()
    assert ids(store) == run_ids


def test_readable_lines_of_damaged_metrics_are_sent(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(store, study)
    rows = [new_row(study, number) for number in range(2)]
    for row in rows:
        tracker.start_trial(row, [])
        train(row, range(2))
    with (rows[0].folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "time": 1e9, "met\n\xff\xfe\x00\n[1, 2]\n')
    train(rows[0], range(3, 5))
    finish(tracker, summary_of(study, *map(complete, rows)))
    assert [step for step, _ in steps_of(store, runs(store)["lr=0.1"])] == [0, 1, 3, 4]
    assert {run.info.status for run in runs(store).values()} == {"FINISHED"}
    damaged = rows[0].folder / "metrics.jsonl"
    assert tracker.problem == f"MLflow lacks some of trial 0 (lr=0.1): 3 damaged lines in {damaged}"


def test_a_file_that_cannot_be_read_concerns_its_trial(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(store, study)
    rows = [new_row(study, number) for number in range(3)]
    for row in rows:
        tracker.start_trial(row, [])
    (rows[0].folder / "metrics.jsonl").mkdir()
    (rows[1].folder / ".hydra").mkdir()
    (rows[1].folder / ".hydra" / "config.yaml").write_bytes(bytes(range(256)))
    for row in rows[1:]:
        train(row, range(2))
    wait_for(lambda: str(rows[0].folder / "metrics.jsonl") in str(tracker.problem))
    rows = [*map(complete, rows)]
    started = time.monotonic()
    finish(tracker, summary_of(study, *rows))
    assert time.monotonic() - started < 10
    assert str(rows[0].folder / "metrics.jsonl") in str(tracker.problem)
    assert str(tracker.problem).endswith(" (and of 1 more)")
    assert runs(store)["s"].info.status == "FINISHED"
    for name in ("lr=0.2", "lr=0.3"):
        assert len(steps_of(store, runs(store)[name])) == 2
        assert runs(store)[name].info.status == "FINISHED"
        assert "lr" in runs(store)[name].data.params

    (rows[0].folder / "metrics.jsonl").rmdir()  # the next driver sends the metrics
    train(rows[0], range(2))
    finish(open_tracker(store, study), summary_of(study, *rows))
    assert len(steps_of(store, runs(store)["lr=0.1"])) == 2


def test_disk_away_for_a_moment_loses_no_data(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    (row.folder / "metrics.jsonl").mkdir()
    wait_for(lambda: tracker.problem)
    (row.folder / "metrics.jsonl").rmdir()
    train(row, range(2))
    wait_for(lambda: tracker.problem is None)
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    assert len(steps_of(store, runs(store)["lr=0.1"])) == 2


@pytest.mark.parametrize("error", [RuntimeError("what nobody foresaw"), RecursionError(), MemoryError()])
def test_thread_survives_and_reports_errors(
    store: str, tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: TrialRun, *arguments: Any) -> Any:
        if run.trial.number == 0:
            raise error
        return real(run)

    real = TrialRun._new_metrics
    monkeypatch.setattr(TrialRun, "_new_metrics", fail)
    tracker = open_tracker(store, tmp_path / "s")
    rows = [new_row(tmp_path / "s", number) for number in range(2)]
    for row in rows:
        tracker.start_trial(row, [])
        train(row, range(2))
    finish(tracker, summary_of(tmp_path / "s", *map(complete, rows)))
    assert type(error).__name__ in str(tracker.problem) and str(error) in str(tracker.problem)
    assert runs(store)["lr=0.2"].info.status == runs(store)["s"].info.status == "FINISHED"


def test_failed_start_does_not_end_the_driver(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    monkeypatch.setattr(StudyRun, "open_child", lambda *_: 1 / 0)
    assert tracker.start_trial(row, []) == {}
    wait_for(lambda: "ZeroDivisionError" in str(tracker.problem))
    tracker._finished.set()


def test_a_full_disk_is_no_outage_of_mlflow(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    monkeypatch.setattr(TrialFolder, "write_tracking", full)
    assert "MLFLOW_RUN_ID" in tracker.start_trial(row, [])
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    assert "does not answer" not in str(tracker.problem) and "No space left" in str(tracker.problem)
    assert runs(store)["lr=0.1"].info.status == "FINISHED"


def test_names_that_mlflow_refuses_cost_no_others(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0, lr=0.1)
    run_id = tracker.start_trial(row, [])["MLFLOW_RUN_ID"]
    MlflowClient(store).log_param(run_id, "lr", "another")  # which MLflow cannot change
    train(row, range(3))
    with (row.folder / "metrics.jsonl").open("a") as file:
        metrics = {"a//b": 1, "a@b": 2, "a#b": 3, "y" * 300: 2, "loss": 0.5}
        file.write(json.dumps({"step": 3, "time": 2e9, "metrics": metrics}) + "\n")
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    (run,) = (run for name, run in runs(store).items() if name != "s")
    assert run.data.params == {"lr": "another"}
    assert [step for step, _ in steps_of(store, run, "loss")] == [0, 1, 2, 3]
    assert run.data.metrics["val_loss"] == 0.3 and run.info.status == "FINISHED"
    assert [run.data.metrics[name] for name in ("a__b", "a_at_b", "a_no_b")] == [1, 2, 3]
    assert "trial 0" in str(tracker.problem)
    assert not any("Send the rest later" in line for line in tracker.closing_lines())


def test_more_params_than_one_call_takes(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0, **{f"p{number}": number for number in range(150)})
    tracker.start_trial(row, [])
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    (run,) = (run for name, run in runs(store).items() if name != "s")
    assert len(run.data.params) == 150 and tracker.problem is None


def test_end_time_of_a_trial_is_constant(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    row = complete(new_row(study, 0))
    TrialFolder(row.folder).write_tracking({})
    finish(open_tracker(store, study), summary_of(study, row))
    (row.folder / "tracking.json").write_text("")
    (row.folder / ".hydra").mkdir()
    finish(open_tracker(store, study), summary_of(study, row))
    run = runs(store)["lr=0.1"]
    assert len(steps_of(store, run, "val_loss")) == 1
    assert run.info.end_time == int(row.attempts[-1].ended_at * 1000)


@pytest.mark.parametrize("state", [State.RUNNING, State.QUEUED])
def test_detached_trials_stay_open(store: str, tmp_path: Path, state: State) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(store, study)
    rows = [replace(new_row(study, 0), state=state), replace(new_row(study, 1), state=State.QUEUED)]
    for row in rows:
        tracker.start_trial(row, [])
    TrialFolder(rows[0].folder).new_attempt()  # this trial has a job, the other trial has no job
    wait_for(lambda: runs(store)["lr=0.1"].info.status == "RUNNING")
    finish(tracker, summary_of(study, *rows))
    status = {name: run.info.status for name, run in runs(store).items()}
    assert status == {"s": "RUNNING", "lr=0.1": "RUNNING", "lr=0.2": "KILLED"}


def test_retried_trial_loses_its_old_error(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    row = new_row(study, 0)
    row = row.with_end(TrialFolder(row.folder).new_attempt().close(Outcome(State.FAILED, "boom")))
    finish(open_tracker(store, study), summary_of(study, row))
    retry = replace(row, state=State.QUEUED)
    tracker: Tracker = open_tracker(store, study)
    tracker.start_trial(retry, [])
    retry = retry.with_end(TrialFolder(row.folder).new_attempt().close(Outcome(State.COMPLETED, "", [0.5])))
    tracker.end_trial(retry)
    finish(tracker, summary_of(study, retry))
    run = runs(store)["lr=0.1"]
    assert (run.info.status, run.data.tags["state"], run.data.tags["error"]) == ("FINISHED", "completed", "")
