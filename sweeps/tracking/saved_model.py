"""The model that a trial saved: in MLflow with its signature, for
`mlflow.pyfunc.load_model("models:/<id>")`."""

from pathlib import Path
from typing import Any

import yaml

from sweeps.tracking.store import sent_once

_TAG = "kept_by_trial"


def log_saved_model(client: Any, experiment_id: str, run_id: str, folder: Path) -> None:
    """Log `folder`, which `mlflow.<flavor>.save_model` wrote, as a model of the run, unless the run
    has it.

    Models of earlier attempts, and models that a killed driver logged in part, are deleted.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    uuid = str(yaml.load((folder / "MLmodel").read_text(), yaml.CSafeLoader)["model_uuid"])
    for logged in client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'"):
        if logged.tags.get(_TAG) == uuid and logged.status is LoggedModelStatus.READY:
            return
        if _TAG in logged.tags:  # because models without the tag were logged by the trainer itself
            client.delete_logged_model(logged.model_id)
    with sent_once():
        model = client.create_logged_model(experiment_id, "model", run_id, {_TAG: uuid})
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    client.log_model_artifacts(model.model_id, str(folder))
    client.finalize_logged_model(model.model_id, "READY")


def load_saved_model(folder: Path) -> Any:
    """Load the model in `folder` with `mlflow.pyfunc`."""
    import mlflow

    return mlflow.pyfunc.load_model(str(folder))
