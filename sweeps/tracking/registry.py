"""What MLflow keeps of a study beside its runs while they are written: registered models, and taking all of it away."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweeps.errors import UserError
from sweeps.files import CorruptFile
from sweeps.record.definition import sweeps_line
from sweeps.record.study import StudySnapshot
from sweeps.secrets import without_password
from sweeps.tracking import comparison_view
from sweeps.tracking.store import connect, first_line, is_server, outage_errors
from sweeps.tracking.study_run import key
from sweeps.trial.folder import TrialFolder


def register(uri: str, name: str, trial: Path, tags: Mapping[str, str]) -> str:
    """Register the model of a trial's run under a name, once. Returns which version of it that is, in words, empty if
    the trial is in no MLflow. Raises UserError if MLflow does not answer, or lacks the model.
    """
    run_id = run_of(trial)
    if run_id is None:
        return ""
    name = key(name).replace("/", "_").replace(":", "_")
    try:
        client = connect(uri)
        known = [one for one in client.search_model_versions(f"name = '{name}'") if one.run_id == run_id]
        if known:
            return f"{name} version {known[0].version}"
        experiment = client.get_run(run_id).info.experiment_id
        models = client.search_logged_models([experiment], f"source_run_id = '{run_id}'")
        if not models:
            raise UserError(f"MLflow has no model of run {run_id}: the study's last command said what it lacks")
        with suppress(outage_errors()[1]):  # it is there already; what else is wrong the next call meets again
            client.create_registered_model(name)
        model_id = models[-1].model_id
        made = client.create_model_version(name, f"models:/{model_id}", run_id, dict(tags), model_id=model_id)
    except outage_errors() as error:
        raise UserError(
            f"the model was not registered: {without_password(first_line(error))}\nType it again"
        ) from error
    return f"{name} version {made.version}"


def delete_runs(uri: str, study: Path) -> int:
    """Delete the runs of a study, its trials' first, with their models. Returns how many there were."""
    run_id = run_of(study)
    if run_id is None:
        return 0
    count = 0
    try:
        client = connect(uri)
        run = client.get_run(run_id)
        experiment = [run.info.experiment_id]
        while runs := client.search_runs(experiment, f"tags.`mlflow.parentRunId` = '{run_id}'"):
            for child in runs:
                for model in client.search_logged_models(experiment, f"source_run_id = '{child.info.run_id}'"):
                    client.delete_logged_model(model.model_id)
                client.delete_run(child.info.run_id)
                count += 1
        if run.info.lifecycle_stage == "active":
            client.delete_run(run_id)
            count += 1
    except outage_errors() as error:
        if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":  # somebody was faster
            return count
        raise UserError(
            f"MLflow did not delete the runs: {without_password(first_line(error))}\n"
            f"Nothing else was deleted. To leave them there, delete {study} by hand"
        ) from error
    return count


def run_of(folder: Path) -> str | None:
    """The run of a study or a trial, as its folder notes it; None if it has none, or the note is damaged."""
    with suppress(CorruptFile, OSError):
        return TrialFolder(folder).read_tracking().get("run_id")
    return None


def dashboard_line(uri: str, summary: StudySnapshot) -> str:
    """The line that leads to a study in MLflow, without asking MLflow; empty if it was kept out of it."""
    note: dict[str, Any] = {}
    with suppress(CorruptFile, OSError):
        note = TrialFolder(summary.folder).read_tracking()
    if not note.get("run_id"):
        return ""
    if is_server(uri) and "experiment" in note:
        path = comparison_view.path(str(note["experiment"]), summary.name, summary.all_failed)
        return f"dashboard: {without_password(uri).rstrip('/')}{path}"
    return f"dashboard: {sweeps_line('ui', summary.folder)}"
