"""Studies as drivers and trials leave their files, and MLflow's view of the studies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.tracking.tracker import Tracker
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import MetricsLine

OBJECTIVE, DIRECTIONS = ("val_accuracy",), ("maximize",)

OF_A_TRIAL = {"MLFLOW_RUN_ID", "SWEEPYARD_MLFLOW_RUN", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"}
"""The variables of a trial whose run exists."""


def open_tracker(uri: str, folder: Path) -> Tracker:
    tracker = Tracker(uri, "e", summary_of(folder))
    tracker.open()
    return tracker


def finish(tracker: Tracker, summary: StudySnapshot, timeout_s: float = 30.0) -> None:
    tracker.drain(summary, timeout_s)
    tracker.complete(summary.with_tracking(tracker.seconds))


def new_row(study: Path, number: int, **params: Any) -> TrialRecord:
    row = TrialRecord(number, params or {"lr": 0.1 * (number + 1)}, State.RUNNING, study / str(number))
    row.folder.mkdir(parents=True, exist_ok=True)
    return row


def train(row: TrialRecord, steps: range) -> None:
    """Append metrics to the trial's folder as a trial does."""
    for step in steps:
        metrics = {"val_accuracy": step / 10, "loss": 1.0 / (step + 1)}
        TrialFolder(row.folder).append_metrics(MetricsLine(step, 1e9 + step, metrics))


def complete(row: TrialRecord) -> TrialRecord:
    folder = TrialFolder(row.folder)
    attempt = folder.newest() or folder.new_attempt()
    return row.with_end(attempt.close(Outcome(State.COMPLETED, "", [0.9], {"val_accuracy": 0.9, "val_loss": 0.3})))


def summary_of(study: Path, *rows: TrialRecord) -> StudySnapshot:
    return StudySnapshot("s", study, OBJECTIVE, DIRECTIONS, list(rows))


def runs(uri: str) -> dict[str, Any]:
    """Return all runs by name; check that the names are unique."""
    client = MlflowClient(uri)
    all_runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    names = [run.info.run_name for run in all_runs]
    assert len(set(names)) == len(names)
    return dict(zip(names, all_runs, strict=True))


def steps_of(uri: str, run: Any, metric: str = "val_accuracy") -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in MlflowClient(uri).get_metric_history(run.info.run_id, metric)]


def wait_for(condition: Callable[[], Any]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come about within a minute")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


_SERVE = """
import json, os, sys
import uvicorn
from mlflow.server.fastapi_app import app

for asked in sys.stdin:
    folder, port = json.loads(asked)
    child = os.fork()
    if child == 0:
        os.environ["_MLFLOW_SERVER_FILE_STORE"] = f"sqlite:///{folder}/mlflow.db"
        os.environ["_MLFLOW_SERVER_ARTIFACT_DESTINATION"] = f"{folder}/artifacts"
        os.dup2(os.open(f"{folder}/server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        os.dup2(2, 1)
        os.chdir(folder)
        uvicorn.run(app, host="127.0.0.1", port=port)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Servers:
    """A process of `mlflow server` that imports MLflow once and serves one store at a time."""

    def __init__(self, folder: Path) -> None:
        settings = {
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        with (folder / "servers.log").open("a") as log:
            self._imported = subprocess.Popen(
                [sys.executable, "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | settings,
                cwd=folder,
            )

    def start(self, folder: Path, port: int) -> int:
        """Return the process that serves the store in `folder`."""
        print(json.dumps([str(folder), port]), file=self._imported.stdin, flush=True)
        return int(self._imported.stdout.readline())

    def kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)
        self._imported.stdout.readline()  # the server ended

    def close(self) -> None:
        self._imported.communicate()


class Server:
    """A real MLflow server of one store, with a kill and a restart."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.port = free_port()
        self.folder, self.uri = folder, f"http://127.0.0.1:{self.port}"
        self._servers = servers
        self.start()

    def start(self) -> None:
        self.process = self._servers.start(self.folder, self.port)
        wait_for(self.answers)

    def answers(self) -> bool:
        try:
            return bool(urllib.request.urlopen(f"{self.uri}/health", timeout=5).status == 200)  # noqa: S310
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        if self.process:
            self._servers.kill(self.process)
            self.process = 0
