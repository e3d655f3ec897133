"""The oracle of the chaos tests: what a study must be after any faults."""

import csv
import json
from pathlib import Path

from mlflow import MlflowClient

from sweeps.record.study_file import find
from sweeps.study.folder.reading import read_study
from sweeps.trial.job import State
from tests.command_lines import processes, steps, wait_until

SECRET = "sesame"  # noqa: S105 - in the environment of each driver


def check(study: Path, store: str, trials: int, epochs: int) -> None:
    """Check that a finished study has each trial and each epoch once, in its files, its table and MLflow.

    No process of the study is left, and no file has the secret of its environment.
    """
    rows = read_study(*find(study.name, study.parent)).rows
    done = [row for row in rows if not row.unknown]
    assert sorted(json.dumps(row.params) for row in done) == sorted(json.dumps({"+x": x}) for x in range(trials))
    assert {row.state for row in done} == {State.COMPLETED}
    for row in done:
        assert steps(row.folder) == list(range(1, epochs + 1)), row.number
        assert row.objective == [row.params["+x"]]
    with (study / "trials.csv").open() as file:
        table = [line for line in csv.DictReader(file) if line["state"] == "completed"]
    assert sorted(int(line["x"]) for line in table) == list(range(trials))
    _check_mlflow(store, study.name, trials, epochs)
    wait_until(lambda: not processes(study.parents[1]), timeout_s=30)
    files = [file for file in study.parents[1].rglob("*") if file.is_file()]
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]


def _check_mlflow(store: str, name: str, trials: int, epochs: int) -> None:
    client = MlflowClient(store)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.study = '{name}'")
    assert {run.info.status for run in runs if run.data.tags.get("state") != "failed"} == {"FINISHED"}
    of_trials = [run for run in runs if run.data.tags["role"] == "trial" and run.data.tags["state"] == "completed"]
    assert len(of_trials) == trials
    assert sum(run.data.tags["role"] == "study" for run in runs) == 1
    for run in of_trials:
        history = client.get_metric_history(run.info.run_id, "objective")
        assert sorted(point.step for point in history) == list(range(1, epochs + 1)), run.info.run_name
