"""MLflow's registered models and dashboard links of a study, and the deletion of its runs."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.base.secrets import without_password
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import sweeps_line
from sweeps.tracking import comparison_view
from sweeps.tracking.run_data import mlflow_name
from sweeps.tracking.store import connect, first_line, is_server, outage_errors
from sweeps.tracking.study_run import read_tracking


def register(uri: str, name: str, trial: Path, tags: Mapping[str, str]) -> str:
    """Register the model of a trial's run under a name, unless it is registered, and return its
    name and version.

    Returns "" if the trial is not in MLflow. Raises UserError if MLflow does not answer or lacks
    the model.
    """
    run_id = run_of(trial)
    if run_id is None:
        return ""
    name = mlflow_name(name).replace("/", "_").replace(":", "_")
    try:
        client = connect(uri)
        for version in client.search_model_versions(f"name = '{name}'"):
            if version.run_id == run_id:
                return f"{name} version {version.version}"
        experiment = client.get_run(run_id).info.experiment_id
        models = client.search_logged_models([experiment], f"source_run_id = '{run_id}'")
        if not models:
            raise UserError(
                f"MLflow has no model of run {run_id}: the study's last command printed what is"
                " missing"
            )
        # because it may exist; the next call meets any other error again
        with suppress(outage_errors()[1]):
            client.create_registered_model(name)
        model_id = models[-1].model_id
        version = client.create_model_version(
            name, f"models:/{model_id}", run_id, dict(tags), model_id=model_id
        )
    except outage_errors() as error:
        raise UserError(
            f"the model was not registered: {without_password(first_line(error))}\nType the command"
            " again"
        ) from error
    return f"{name} version {version.version}"


def delete_runs(uri: str, study: Path) -> int:
    """Delete the runs of a study with their models, the trials' runs first, and return their
    number."""
    run_id = run_of(study)
    count = 0
    if run_id is None:
        return count
    try:
        client = connect(uri)
        run = client.get_run(run_id)
        experiment = [run.info.experiment_id]
        while runs := client.search_runs(experiment, f"tags.`mlflow.parentRunId` = '{run_id}'"):
            for child in runs:
                for model in client.search_logged_models(
                    experiment, f"source_run_id = '{child.info.run_id}'"
                ):
                    client.delete_logged_model(model.model_id)
                client.delete_run(child.info.run_id)
                count += 1
        if run.info.lifecycle_stage == "active":
            client.delete_run(run_id)
            count += 1
    except outage_errors() as error:
        # because another process deleted it
        if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            return count
        raise UserError(
            f"MLflow did not delete the runs: {without_password(first_line(error))}\n"
            f"Nothing else was deleted. To leave the runs in MLflow, delete {study} by hand"
        ) from error
    return count


def run_of(folder: Path) -> str | None:
    """Return the run of a study or a trial, from its folder; None if it has none, or the file is
    damaged."""
    return read_tracking(folder).get("run_id")


def dashboard_line(uri: str, study: StudySnapshot) -> str:
    """Return the line that leads to a study in MLflow, without a request; "" if the study is not in
    MLflow."""
    tracking = read_tracking(study.folder)
    if not tracking.get("run_id"):
        return ""
    if is_server(uri) and "experiment" in tracking:
        return server_line(uri, str(tracking["experiment"]), study)
    return f"dashboard: {sweeps_line('ui', study.folder)}"


def server_line(uri: str, experiment_id: str, study: StudySnapshot) -> str:
    """Return the line with the link to a study on an MLflow server."""
    path = comparison_view.path(experiment_id, study.name, study.all_failed)
    return f"dashboard: {without_password(uri).rstrip('/')}{path}"
