"""The tree of runs in a real store: SQLite, and a real server that is killed."""

import base64
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient

from sweeps.analysis import costs
from sweeps.base.errors import UserError
from sweeps.record.fold import trial_as_json
from sweeps.record.study import TrialRecord
from sweeps.show import tables
from sweeps.show.page import report
from sweeps.show.tables import GAP
from sweeps.tracking.store import QUIET, first_line
from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_run import TrialRun
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import MetricsLine
from tests.command_lines import some
from tests.tracking.studies import (
    OF_A_TRIAL,
    Server,
    complete,
    finish,
    new_row,
    open_tracker,
    runs,
    steps_of,
    summary_of,
    train,
    wait_for,
)


def test_a_finished_study_is_a_tree(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(store, study)
    row = new_row(study, 0, optimizer="adam", **{"+extra@x": 1})
    write_hydra_files(row.folder)
    environment = tracker.start_trial(row, ["optimizer=adam", "+extra@x=1"])
    folder = TrialFolder(row.folder)
    folder.new_attempt().log.write_text("what it printed")
    train(row, range(3))
    folder.append_metrics(MetricsLine(0, 1e9, {"system/cpu_utilization_percentage": 99.0}), "system_metrics.jsonl")
    row = complete(row)
    seconds = {"idle_slot": 0.0, "queued": 2.0, "training": 1.5}
    spent = replace(row.attempts[-1], seconds=seconds, started_at=12.0, ended_at=14.0, gpus=2, energy_kwh=0.25)
    row = replace(row, attempts=(spent,))
    tracker.end_trial(row)
    summary = summary_of(study, row)
    report.write(summary)
    finish(tracker, summary)

    assert tracker.problem is None
    all_runs = runs(store)
    parent, child = all_runs["s"], all_runs["optimizer=adam extra@x=1"]
    run_id = child.info.run_id
    experiment = {"MLFLOW_EXPERIMENT_NAME": "e", "MLFLOW_EXPERIMENT_ID": child.info.experiment_id}
    own_run = {"MLFLOW_RUN_ID": run_id, "SWEEPYARD_MLFLOW_RUN": run_id}
    assert environment == {"MLFLOW_TRACKING_URI": store, **own_run, **experiment, **QUIET}
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")
    assert parent.data.tags.items() >= {"role": "study", "study": "s", "best_trial": f"0: {row.name}"}.items()
    metrics = dict(parent.data.metrics)
    assert metrics.pop("study/all/seconds/tracking") > 0
    assert metrics.pop("study/completed/seconds/tracking") > 0
    cost = {"trials": 1, "gpu_hours": 2 * 2 / 3600, "energy_kwh": 0.25}
    cost |= {"seconds/queued": 2, "seconds/training": 1.5, "seconds/idle_slot": 0}
    assert metrics == {
        "study/best_val_accuracy": 0.9,
        **{f"study/{kind}/{name}": value for kind in ("all", "completed") for name, value in cost.items()},
        "study/idle_slot_seconds_at_the_end": 0,
    }
    assert "| 0 | adam | 1 | 0.9 | completed |" in parent.data.tags["mlflow.note.content"].replace(GAP, "")
    tags = {"mlflow.parentRunId": parent.info.run_id, "role": "trial", "study": "s", "trial": "0"}
    tags |= {"overrides": "optimizer=adam +extra@x=1", "state": "completed"}
    assert child.data.tags.items() >= tags.items()
    described = {"lr": "0.001", "batch_size": "32", "model": "mlp", "dataset": "digits", "loss": "mse"}
    assert child.data.params == {"optimizer": "adam", "extra_at_x": "1", "optimizer.lr": "0.001", **described}
    assert (
        child.data.metrics.items()
        >= {
            "best/val_accuracy": 0.9,
            "val_loss": 0.3,
            "seconds/training": 1.5,
            "seconds/queued": 2.0,
            "energy_kwh": 0.25,
        }.items()
    )
    assert steps_of(store, child) == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert steps_of(store, child, "system/cpu_utilization_percentage") == [(0, 99.0)]
    artifacts = [[a.path for a in MlflowClient(store).list_artifacts(r.info.run_id)] for r in (parent, child)]
    assert artifacts == [["report.html", "trials.csv"], ["config.yaml", "log"]]
    assert parent.info.artifact_uri.startswith(str(tmp_path / "mlartifacts"))
    assert json.loads((row.folder / "tracking.json").read_text())["closed"] is True


def test_description_of_a_gpu_study_has_its_scaling(store: str, tmp_path: Path) -> None:
    tracker, rows = open_tracker(store, tmp_path / "s"), []
    for number, gpus in enumerate((1, 2)):
        row = new_row(tmp_path / "s", number, gpus=gpus)
        tracker.start_trial(row, [f"gpus={gpus}"])
        for step in range(3):
            metrics = {"val_accuracy": 0.9, "epoch_time": 8 / gpus}
            TrialFolder(row.folder).append_metrics(MetricsLine(step, 1e9 + step, metrics))
        rows.append(complete(row))
        tracker.end_trial(rows[-1])
    summary = summary_of(tmp_path / "s", *rows)
    report.write(summary)
    finish(tracker, summary)
    run = runs(store)["s"]
    note = run.data.tags["mlflow.note.content"].replace(GAP, "")
    assert "**Scaling**\n\n2 GPUs: 2.00 times as fast as 1, 100% of ideal." in note
    assert "| 2 | 1 | 4 | 2.00 | 100% |" in note
    page = MlflowClient(store).download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert "<h2>Scaling</h2>" in Path(page).read_text()


def write_hydra_files(trial: Path) -> None:
    """Write Hydra's files; lr refers to another key, and seed to a missing key."""
    (trial / ".hydra").mkdir()
    config = "lr: ${optimizer.lr}\nbatch_size: 32\nepochs: null\nseed: ${nothing}\noptimizer: {lr: 0.001}\n"
    (trial / ".hydra" / "config.yaml").write_text(config)
    choices = "{optimizer: sgd, model: mlp, dataset: digits, loss: mse}"
    (trial / ".hydra" / "hydra.yaml").write_text(f"hydra:\n  runtime:\n    choices: {choices}\n")
    (trial / ".hydra" / "overrides.yaml").write_text("[]")


@some(
    ("state", "status"),
    [
        (State.COMPLETED, "FINISHED"),
        (State.PRUNED, "FINISHED"),
        (State.INFEASIBLE, "FINISHED"),
        (State.FAILED, "FAILED"),
        (State.DIVERGED, "FAILED"),
        (State.OUT_OF_MEMORY, "FAILED"),
        (State.TIMED_OUT, "FAILED"),
        (State.REFUSED, "FAILED"),
        (State.LOST, "KILLED"),
        (State.CANCELLED, "KILLED"),
    ],
    4,
)
def test_how_a_trial_ended(store: str, tmp_path: Path, state: State, status: str) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    row = row.with_end(Outcome(state, "boom" if status == "FAILED" else ""))
    tracker.end_trial(row)
    finish(tracker, summary_of(tmp_path / "s", row))
    child = runs(store)["lr=0.1"]
    assert (child.info.status, child.data.tags["state"]) == (status, state)
    assert child.data.tags.get("error", "") == row.error


def test_a_config_that_was_refused_is_shown_as_failed(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = TrialRecord(0, {"lr": -1}, State.FAILED, tmp_path / "s" / "0", (Outcome(State.FAILED, "lr must be > 0"),))
    tracker.end_trial(row)
    finish(tracker, summary_of(tmp_path / "s", row))
    assert runs(store)["lr=-1"].data.tags["error"] == "lr must be > 0"
    assert runs(store)["s"].info.status == "FAILED"


def test_infeasible_mark_is_removed_when_the_trial_runs(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    end = Outcome(State.INFEASIBLE, "it is too large")
    row = TrialRecord(0, {"lr": 0.1}, State.QUEUED, study / "0").with_end(end)
    TrialFolder(row.folder).write_trial(trial_as_json(row, study))
    tracker = open_tracker(store, study)
    tracker.end_trial(row)
    finish(tracker, summary_of(study, row))
    child = runs(store)["lr=0.1"]
    assert (child.info.status, child.data.tags["state"]) == ("FINISHED", "infeasible")
    assert child.data.tags["error"] == "it is too large"
    tracker, row = open_tracker(store, study), new_row(study, 0, lr=0.1)
    tracker.start_trial(row, [])
    row = complete(row)
    tracker.end_trial(row)
    finish(tracker, summary_of(study, row))
    run = runs(store)["lr=0.1"]
    assert (run.info.run_id, run.data.tags["state"]) == (child.info.run_id, "completed")
    assert run.data.tags["error"] == ""


def test_metrics_appear_while_the_trial_runs(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    for epoch in range(3):
        train(row, range(epoch, epoch + 1))
        wait_for(lambda: len(steps_of(store, runs(store)["lr=0.1"])) == epoch + 1)  # noqa: B023
    assert runs(store)["lr=0.1"].info.status == "RUNNING"
    finish(tracker, summary_of(tmp_path / "s", complete(row)))


def test_run_of_a_queued_trial_is_updated_once(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[int] = []
    sync = TrialRun.sync

    def sync_and_count(run: TrialRun) -> None:
        sync(run)
        if run.trial.folder.is_relative_to(tmp_path):  # because a tracker of an earlier test may still run
            updates.append(run.trial.number)

    monkeypatch.setattr(TrialRun, "sync", sync_and_count)
    monkeypatch.setattr("sweeps.tracking.tracker._EVERY_S", 0.05)
    rows = [replace(new_row(tmp_path / "s", 0), state=State.QUEUED), new_row(tmp_path / "s", 1)]
    tracker = Tracker(store, "e", replace(summary_of(tmp_path / "s", *rows), open_numbers={0, 1}))
    tracker.open()
    for row in rows:
        tracker.start_trial(row, [])
    wait_for(lambda: updates.count(1) > 3)
    assert updates.count(0) == 1
    finish(tracker, summary_of(tmp_path / "s", *map(complete, rows)))


def test_page_is_sent_while_the_study_runs(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.tracking.tracker._PAGE_EVERY_S", 0.5)
    study = tmp_path / "s"
    tracker = open_tracker(store, study)
    row = new_row(study, 0)
    tracker.start_trial(row, [])

    def page() -> str:
        run = runs(store)["s"]
        if not any(artifact.path == tables.HTML for artifact in MlflowClient(store).list_artifacts(run.info.run_id)):
            return ""
        return Path(MlflowClient(store).download_artifacts(run.info.run_id, tables.HTML, str(tmp_path))).read_text()

    for text in ("as it began", "as its trial ended"):
        (study / tables.HTML).write_text(text)
        wait_for(lambda: page() == text)  # noqa: B023
        row = complete(row)
        tracker.end_trial(row)
    finish(tracker, summary_of(study, row))
    assert tracker.problem is None


@pytest.mark.long
def test_page_that_cannot_be_sent_affects_no_other_upload(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.tracking.tracker._PAGE_EVERY_S", 0.0)
    study = tmp_path / "s"
    tracker = open_tracker(store, study)
    places = list(Path(runs(store)["s"].info.artifact_uri).parents)
    places[0].mkdir(parents=True)
    places[0].joinpath("artifacts").write_text("no folder")
    (study / tables.HTML).write_text("the page")
    row = new_row(study, 0)
    tracker.start_trial(row, [])
    wait_for(lambda: tracker.problem)
    assert "MLflow lacks some of the study: its page: " in str(tracker.problem)
    train(row, range(2))
    wait_for(lambda: len(steps_of(store, runs(store)["lr=0.1"])) == 2)
    places[0].joinpath("artifacts").unlink()
    row = complete(row)
    tracker.end_trial(row)
    wait_for(lambda: not tracker.problem)
    finish(tracker, summary_of(study, row))
    assert tracker.problem is None


def test_more_lines_than_one_call_takes(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    train(row, range(1100))
    tracker.start_trial(row, [])
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    assert [step for step, _ in steps_of(store, runs(store)["lr=0.1"])] == list(range(1100))


def test_next_driver_continues_the_same_runs(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    first = open_tracker(store, study)
    rows = [new_row(study, number) for number in range(3)]
    for row in rows:
        first.start_trial(row, [])
        train(row, range(2))
    wait_for(
        lambda: len(runs(store)) == 4 and all(steps_of(store, run) for name, run in runs(store).items() if name != "s")
    )
    TrialFolder(rows[1].folder).write_tracking({"run_id": None})  # this driver died before the note of the run
    before = {name: run.info.run_id for name, run in runs(store).items()}
    first._finished.set()

    second = open_tracker(store, study)
    train(rows[0], range(2, 4))
    for row in rows[:2]:
        second.start_trial(row, [])
        second.end_trial(complete(row))
    finish(second, summary_of(study, *[complete(row) for row in rows]))  # the third ended without any driver

    after = runs(store)
    assert {name: run.info.run_id for name, run in after.items()} == before
    assert {run.info.status for run in after.values()} == {"FINISHED"}
    assert [step for step, _ in steps_of(store, after["lr=0.1"])] == [0, 1, 2, 3]
    assert [step for step, _ in steps_of(store, after["lr=0.3"])] == [0, 1]
    assert len(steps_of(store, after["lr=0.3"], "val_loss")) == 1


def test_changed_setting_of_a_study_is_a_tag(store: str, tmp_path: Path) -> None:
    for space in ("0.1,0.2", "0.1,0.2,0.3", "0.1,0.2,0.3,0.4"):
        study = replace(
            summary_of(tmp_path / "s"), space={"lr": space, "api_key": f"sesame{space}"}, fixed={"epochs": "5"}
        )
        Tracker(store, "e", study).open()
    (run,) = runs(store).values()
    assert run.data.params.items() >= {"lr": "0.1,0.2", "epochs": "5", "api_key": "***"}.items()
    assert run.data.tags["lr"] == "0.1,0.2,0.3,0.4"
    assert "epochs" not in run.data.tags
    assert "api_key" not in run.data.tags


def test_a_new_store_gets_everything(store: str, migrated: Path, tmp_path: Path) -> None:
    study, other = tmp_path / "s", f"sqlite:///{shutil.copy(migrated, tmp_path / 'other.db')}"
    row = new_row(study, 0)
    train(row, range(2))
    for uri in (store, other):
        tracker = open_tracker(uri, study)
        finish(tracker, summary_of(study, complete(row)))
        assert [step for step, _ in steps_of(uri, runs(uri)["lr=0.1"])] == [0, 1]


def test_refused_records_are_reported_and_the_rest_is_sent(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    client = MlflowClient(store)
    client.log_param(tracker.start_trial(row, [])["MLFLOW_RUN_ID"], "lr", "another")
    train(row, range(2))
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    assert tracker.problem is not None and "trial 0 (lr=0.1): Changing param values is not allowed" in tracker.problem
    assert len(steps_of(store, runs(store)["lr=0.1"])) == 2
    assert runs(store)["lr=0.1"].info.status == "FINISHED"


def test_run_deleted_by_hand_stops_no_trial(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    rows = [new_row(tmp_path / "s", number) for number in range(2)]
    for row in rows:
        tracker.start_trial(row, [])
    MlflowClient(store).delete_run(runs(store)["lr=0.1"].info.run_id)
    train(rows[1], range(2))
    finish(tracker, summary_of(tmp_path / "s", *[complete(row) for row in rows]))
    assert tracker.problem is not None and "trial 0" in tracker.problem
    assert runs(store)["lr=0.2"].info.status == runs(store)["s"].info.status == "FINISHED"


@pytest.mark.long
def test_a_trainer_that_logs_itself_writes_into_its_own_run(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = new_row(tmp_path / "s", 0)
    environment = {**os.environ, **tracker.start_trial(row, [])}
    trainer = "import mlflow; mlflow.log_metric('mine', 4.5, step=3); mlflow.log_param('layers', 2)"
    subprocess.run([sys.executable, "-c", trainer], env=environment, cwd=row.folder, check=True)
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    all_runs = runs(store)
    assert set(all_runs) == {"s", "lr=0.1"}
    assert steps_of(store, all_runs["lr=0.1"], "mine") == [(3, 4.5)]
    assert all_runs["lr=0.1"].data.params == {"layers": "2", "lr": "0.1"}


def test_a_locked_database_is_waited_for(store: str, tmp_path: Path) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(store, study)
    row = new_row(study, 0)
    other = sqlite3.connect(store.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    started = time.monotonic()
    assert tracker.start_trial(row, []) == {}
    assert time.monotonic() - started < 5
    assert "no answer within 3 s" in (tracker.problem or "")
    train(row, range(3))
    row = complete(row)
    tracker.end_trial(row)
    other.execute("ROLLBACK")
    finish(tracker, summary_of(study, row))
    assert tracker.problem is None
    assert [step for step, _ in steps_of(store, runs(store)["lr=0.1"])] == [0, 1, 2]


def test_a_deleted_experiment_is_explained(store: str, tmp_path: Path) -> None:
    client = MlflowClient(store)
    client.delete_experiment(client.create_experiment("e"))
    with pytest.raises(UserError, match=r"'e' was deleted.*\nMLFLOW_TRACKING_URI=sqlite.* experiments restore -x 1"):
        open_tracker(store, tmp_path / "s")


def test_a_file_of_the_study_that_is_in_the_way_is_not_blamed_on_mlflow(store: str, tmp_path: Path) -> None:
    (tmp_path / "s" / "tracking.json").mkdir(parents=True)
    with pytest.raises(UserError, match=r"^a file of the study cannot be written: .*s/tracking.json'\n.*in the way"):
        open_tracker(store, tmp_path / "s")


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "sqlite:////dev/null/mlflow.db", "sqlite:////usr", "gopher://x"])
def test_a_store_that_cannot_be_used_is_a_users_mistake(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"cannot be used: .+\n.*tracking.required=false"):
        open_tracker(uri, tmp_path / "s")


def test_full_disk_is_named_before_the_advice_of_sqlalchemy() -> None:
    error = "(raised as a result of Query-invoked autoflush; consider using a session.no_autoflush block)\n"
    assert first_line(Exception(f"{error}(sqlite3.OperationalError) database or disk is full\n[SQL: x]")) == (
        "(sqlite3.OperationalError) database or disk is full"
    )


@pytest.fixture
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.mark.parametrize(
    ("uri", "variable", "used", "line"),
    [
        (None, None, "sqlite:///{cwd}/mlflow.db", "sweepyard ui s --root {cwd}/here"),
        ("sqlite:///a.db", "http://h:1", "sqlite:///{cwd}/a.db", "sweepyard ui s --root {cwd}/here"),
        (None, "http://h:1", "http://h:1", "http://h:1/#/experiments/7/runs?workflowType=machine_learning&viewStateS"),
    ],
)
@pytest.mark.usefixtures("in_its_folder")
def test_store_and_the_setting_that_names_the_store(
    uri: str | None, variable: str | None, used: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    tracker = Tracker(uri, "e", summary_of(Path.cwd() / "here" / "s"))
    tracker._study = SimpleNamespace(experiment_id="7")
    assert tracker.uri == used.format(cwd=Path.cwd())
    assert tracker.dashboard_line().startswith(f"dashboard: {line.format(cwd=Path.cwd())}")


def test_tracking_is_imported_without_mlflow() -> None:
    heavy = "import sys, sweeps.tracking.tracker; print({'mlflow', 'sqlalchemy', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.long
def test_an_outage_leaves_no_gap(server: Server, tmp_path: Path) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(server.uri, study)
    rows = [new_row(study, number) for number in range(2)]
    assert set(tracker.start_trial(rows[0], [])) == {"MLFLOW_TRACKING_URI", *OF_A_TRIAL, *QUIET}
    train(rows[0], range(2))
    wait_for(lambda: steps_of(server.uri, runs(server.uri)["lr=0.1"]))

    server.kill()
    train(rows[0], range(2, 4))
    wait_for(lambda: tracker.problem is not None)
    assert f"MLflow at {server.uri} does not answer" in str(tracker.problem)
    assert tracker.start_trial(rows[1], []) == {}
    train(rows[1], range(4))
    tracker.end_trial(complete(rows[0]))

    server.start()
    wait_for(lambda: tracker.problem is None)
    finish(tracker, summary_of(study, *[complete(row) for row in rows]))
    assert tracker.problem is None
    for name in ("lr=0.1", "lr=0.2"):
        assert [step for step, _ in steps_of(server.uri, runs(server.uri)[name])] == [0, 1, 2, 3]
        assert runs(server.uri)[name].info.status == "FINISHED"

    (rows[0].folder / "tracking.json").write_text(  # sent once more from the first byte
        json.dumps({**TrialFolder(rows[0].folder).read_tracking(), "closed": False})
    )
    next_tracker = open_tracker(server.uri, study)
    finish(next_tracker, summary_of(study, *rows))
    assert [step for step, _ in steps_of(server.uri, runs(server.uri)["lr=0.1"])] == [0, 1, 2, 3]


@pytest.mark.long
def test_run_with_a_late_answer_is_created_once(server: Server, tmp_path: Path) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(server.uri, study)
    trial = new_row(study, 0)
    os.kill(server.process, signal.SIGSTOP)
    try:
        assert tracker.start_trial(trial, []) == {}
        time.sleep(7)  # longer than the timeout of repeated requests
    finally:
        os.kill(server.process, signal.SIGCONT)
    finish(tracker, summary_of(study, complete(trial)))
    client = MlflowClient(server.uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    assert len(client.search_runs(experiments, "tags.role = 'trial'")) == 1


@pytest.mark.long
def test_end_in_an_outage_names_what_is_missing(server: Server, tmp_path: Path) -> None:
    study = tmp_path / "s"
    tracker = open_tracker(server.uri, study)
    row = new_row(study, 0)
    tracker.start_trial(row, [])
    server.kill()
    row = complete(row)
    tracker.end_trial(row)
    finish(tracker, summary_of(study, row), timeout_s=1)
    assert "1 trial not complete there" in str(tracker.problem)
    server.start()
    finish(open_tracker(server.uri, study), summary_of(study, row))
    assert runs(server.uri)["lr=0.1"].info.status == "FINISHED"


def test_best_has_only_the_objective_of_the_returned_metrics(store: str, tmp_path: Path) -> None:
    tracker, row = open_tracker(store, tmp_path / "s"), new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    train(row, range(2))
    returned = {"val_accuracy": 0.9, "loss": 0.2, "test_accuracy": 0.8}  # and loss was reported too
    row = row.with_end(TrialFolder(row.folder).new_attempt().close(Outcome(State.COMPLETED, "", [0.9], returned)))
    finish(tracker, summary_of(tmp_path / "s", row))
    run = runs(store)["lr=0.1"]
    assert [name for name in run.data.metrics if name.startswith("best/")] == ["best/val_accuracy"]
    assert run.data.metrics["test_accuracy"] == 0.8
    assert steps_of(store, run, "loss") == [(0, 1.0), (1, 0.5)]


def test_a_trials_description_has_its_end_and_the_tail_of_its_log(store: str, tmp_path: Path) -> None:
    tracker, row = open_tracker(store, tmp_path / "s"), new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    attempt = TrialFolder(row.folder).new_attempt()
    lines = [f"epoch {number}" for number in range(100)]
    long = f"{'x' * 50} sqlite {'y' * 3} postgresql://me:sesame@host/db {'z' * 100}"  # folded within the address
    attempt.log.write_text("\n".join([long, *lines[-17:], "``` at me:", "ValueError: too large"]))
    row = row.with_end(attempt.close(Outcome(State.FAILED, "ValueError: too large")))
    finish(tracker, summary_of(tmp_path / "s", row))
    description = runs(store)["lr=0.1"].data.tags["mlflow.note.content"]
    assert description.startswith("**failed**: ValueError: too large\n")
    assert description.endswith("epoch 99\n``` at me:\nValueError: too large\n````")
    assert "epoch 83\n" in description and "epoch 82\n" not in description
    assert max(map(len, description.splitlines())) == 80
    assert "sesame" not in description.replace("\n", "")
    assert view_of(store)["selectedColumns"][:2] == ["tags.`state`", "tags.`error`"]  # all trials failed


@pytest.mark.parametrize(("epochs", "curves"), [(1, []), (2, ["val_accuracy", "loss"])])
def test_a_metric_of_a_single_point_has_no_chart(store: str, tmp_path: Path, epochs: int, curves: list[str]) -> None:
    tracker, row = open_tracker(store, tmp_path / "s"), new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    train(row, range(epochs))
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    assert [chart["metricKey"] for chart in view_of(store)["compareRunCharts"] if chart["type"] == "LINE"] == curves


def view_of(uri: str) -> dict[str, Any]:
    """Return the state of the only study's view in MLflow."""
    (view,) = (tag for name, tag in experiment_tags(uri).items() if name.startswith("mlflow.sharedViewState."))
    packed = json.loads(view)["state"].removeprefix("deflate;")
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def experiment_tags(uri: str) -> dict[str, str]:
    tags: dict[str, str] = MlflowClient(uri).get_experiment_by_name("e").tags
    return tags


def test_a_long_log_is_kept_head_and_tail(store: str, tmp_path: Path) -> None:
    tracker, row = open_tracker(store, tmp_path / "s"), new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    attempt = TrialFolder(row.folder).new_attempt()
    attempt.log.write_bytes(b"the head\n" + b"x" * 6_000_000 + b"\nthe tail")
    row = row.with_end(attempt.close(Outcome(State.COMPLETED, "", [0.9], {"val_accuracy": 0.9})))
    finish(tracker, summary_of(tmp_path / "s", row))
    (logged,) = (tmp_path / "mlartifacts").rglob("log")
    content = logged.read_bytes()
    assert content.startswith(b"the head\n") and content.endswith(b"\nthe tail")
    assert f"[... 1000018 bytes are left out here; the whole file: {attempt.log}]".encode() in content
    assert 5_000_000 < len(content) < 5_001_000


def test_deleted_store_is_reported_and_written_again(store: str, migrated: Path, tmp_path: Path) -> None:
    """Send the study as `sweepyard sync` does, also a trial that continues without a driver."""
    study = tmp_path / "s"
    tracker, rows = open_tracker(store, study), [new_row(study, number) for number in range(2)]
    for row in rows:
        tracker.start_trial(row, [])
        train(row, range(2))
    TrialFolder(rows[1].folder).new_attempt()
    Path(store.removeprefix("sqlite:///")).unlink()
    summary = summary_of(study, complete(rows[0]), rows[1])
    finish(tracker, summary, timeout_s=1)
    assert "was deleted: MLflow has nothing of this study" in str(tracker.problem)
    assert tracker.dashboard_line().endswith(f"To send it again: sweepyard sync s --root {tmp_path}")

    # because this process keeps the deleted store open
    store = f"sqlite:///{shutil.copy(migrated, tmp_path / 'new.db')}"
    next_tracker = Tracker(store, "e", summary, "python their_app.py -m x=1,2")
    next_tracker.open()
    assert next_tracker.catch_up(summary) == (1, 1)
    assert next_tracker.problem is None
    all_runs = runs(store)
    assert all_runs["s"].data.tags["command"] == "python their_app.py -m x=1,2"
    assert all_runs["s"].data.metrics["study/all/seconds/tracking"] > 0
    assert [len(steps_of(store, all_runs[name])) for name in ("lr=0.1", "lr=0.2")] == [2, 2]
    assert [all_runs[name].info.status for name in ("s", "lr=0.1", "lr=0.2")] == ["RUNNING", "FINISHED", "RUNNING"]
    once_more = open_tracker(store, study)
    assert once_more.catch_up(summary) == (0, 1)


def test_picture_that_cannot_be_drawn_affects_no_other_upload(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(summary: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("sweeps.show.figures.picture.render_picture", odd)
    tracker, row = open_tracker(store, tmp_path / "s"), new_row(tmp_path / "s", 0)
    tracker.start_trial(row, [])
    finish(tracker, summary_of(tmp_path / "s", complete(row)))
    study = runs(store)["s"]
    assert study.info.status == "FINISHED" and study.data.tags["best_trial"] == "0: lr=0.1"
    assert "\n\nThe figure could not be drawn: a bug" in study.data.tags["mlflow.note.content"]


def test_seconds_of_tracking_are_recorded(store: str, tmp_path: Path) -> None:
    tracker = open_tracker(store, tmp_path / "s")
    row = complete(new_row(tmp_path / "s", 0))
    tracker.start_trial(row, [])
    finish(tracker, summary_of(tmp_path / "s", row))
    assert 0 < costs.read_tracking_seconds(tmp_path / "s")[0] == tracker.seconds[0]
    assert open_tracker(store, tmp_path / "s").seconds == tracker.seconds
