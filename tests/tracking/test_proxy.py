"""A study whose MLflow answers badly at its start, in its middle or at its end: `sync` completes it, and once."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from sweeps.tracking.tracker import Tracker
from tests import command_lines as lines
from tests.command_lines import THEIRS
from tests.tracking.proxy import MODES, proxy_of
from tests.tracking.studies import Server, complete, new_row, runs, steps_of, summary_of, train

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeouts of MLflow's client, because the proxy's faults last."""
    for name, value in {"MAX_RETRIES": "1", "BACKOFF_FACTOR": "0", "TIMEOUT": "1"}.items():
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)


@pytest.mark.parametrize("moment", ["start", "middle", "end"])
@pytest.mark.parametrize("mode", MODES)
def test_study_is_complete_once_after_a_fault(server: Server, tmp_path: Path, mode: str, moment: str) -> None:
    study = tmp_path / "s"
    with proxy_of(server.uri) as proxy:
        proxy.mode = mode if moment == "start" else ""
        tracker = Tracker(proxy.uri, "e", summary_of(study))
        tracker.open(required=False)
        rows = [new_row(study, number) for number in range(2)]
        for row in rows:
            proxy.mode = mode if row.number or moment == "start" else ""
            tracker.start_trial(row, [])
            train(row, range(3))
        proxy.mode = mode if moment == "middle" else ""
        rows = [complete(row) for row in rows]
        proxy.mode = mode if moment == "end" else ""
        tracker.drain(summary_of(study, *rows), timeout_s=2)
        tracker.complete(summary_of(study, *rows))
        lines = tracker.closing_lines()
        assert moment != "end" or mode == "slow" or "sweepyard sync s" in lines[1], lines
        proxy.mode = ""
        sync = Tracker(proxy.uri, "e", summary_of(study, *rows))
        sync.open()
        sync.catch_up(summary_of(study, *rows))
        assert sync.problem is None
    assert sorted(runs(server.uri)) == ["lr=0.1", "lr=0.2", "s"]
    for name, run in runs(server.uri).items():
        assert run.info.status == "FINISHED", name
        assert name == "s" or [step for step, _ in steps_of(server.uri, run)] == [0, 1, 2]


def test_begun_study_runs_without_mlflow_and_catches_up(server: Server, tmp_path: Path) -> None:
    store = [f"hydra.sweeper.tracking_uri={server.uri}", "hydra.sweeper.study_name=s"]
    line = [THEIRS, "-m", "hydra/sweeper=grid", "hydra/launcher=local", *store]
    server.kill()
    new = lines.run([*line, "+x=1,2"], tmp_path)
    assert new.code == 2 and "tracking_required=false" in new.err and not (tmp_path / "multirun" / "s").exists()
    server.start()
    assert lines.run([*line, "+x=1,2"], tmp_path).code == 0
    server.kill()
    begun = lines.run([*line, "+x=1,2,3", "hydra.sweeper.extend=true"], tmp_path)
    assert begun.code == 0, begun.said
    assert "Send the rest later: sweepyard sync s" in begun.out
    server.start()
    assert "sent 1 of 3 trials" in lines.sweeps(tmp_path, "sync", "s").out
    assert {run.info.status for run in runs(server.uri).values()} == {"FINISHED"}


def test_sync_deletes_and_names_a_duplicate_run(server: Server, tmp_path: Path) -> None:
    study, row = tmp_path / "s", complete(new_row(tmp_path / "s", 0))
    tracker = Tracker(server.uri, "e", summary_of(study, row))
    tracker.open()
    tracker.catch_up(summary_of(study, row))
    original = runs(server.uri)["lr=0.1"]
    client = MlflowClient(server.uri)
    duplicate = client.create_run(original.info.experiment_id, tags=original.data.tags)  # its answer was lost
    of_a_copy = client.create_run(original.info.experiment_id, tags={**original.data.tags, "folder": "/elsewhere/s/0"})
    sync = Tracker(server.uri, "e", summary_of(study, row))
    sync.open()
    sync.catch_up(summary_of(study, row))
    assert client.get_run(of_a_copy.info.run_id).info.lifecycle_stage == "active"
    client.delete_run(of_a_copy.info.run_id)
    assert sync.closing_lines() == [
        f"deleted 1 duplicate run in MLflow: {duplicate.info.run_id}. Each was created by a call whose answer was lost"
    ]
    assert runs(server.uri)["lr=0.1"].info.run_id == original.info.run_id


@pytest.mark.parametrize(
    ("method", "mode"), [("create_run", "late"), ("create_run", "half"), ("get_run", "404"), ("get_run", "drop")]
)
def test_fault_at_the_creation_of_a_study_leaves_no_second_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, mode: str
) -> None:
    study, call = tmp_path / "s", getattr(MlflowClient, method)
    with proxy_of(server.uri) as proxy:

        def fails(*arguments: Any, **named: Any) -> Any:
            proxy.mode = mode
            return call(*arguments, **named)

        tracker = Tracker(proxy.uri, "e", summary_of(study))
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, method, fails)
            tracker.open()
        assert tracker.problem and "training continues" in tracker.problem
        proxy.mode = ""
        sync = Tracker(proxy.uri, "e", summary_of(study))
        sync.open()
        sync.catch_up(summary_of(study))
    assert {name: run.info.status for name, run in runs(server.uri).items()} == {"s": "FINISHED"}
    assert "experiments/" in sync.dashboard_line()


def test_study_without_its_experiment_shows_no_link(tmp_path: Path) -> None:
    tracker = Tracker("http://127.0.0.1:9", "e", summary_of(tmp_path / "s"))
    tracker.open(required=False)
    assert tracker.dashboard_line() == ""
