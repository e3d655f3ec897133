"""The model that a trial kept, in MLflow: with its signature, for `mlflow.pyfunc.load_model("models:/<id>")`."""

from pathlib import Path
from typing import Any

import yaml

_TAG = "kept_by_trial"


def log_saved_model(client: Any, experiment_id: str, run_id: str, folder: Path) -> None:
    """Log `folder`, which `mlflow.<flavor>.save_model` wrote, as a model of the run, unless it is there.

    What an earlier attempt kept, or a driver that was killed logged in part, is removed.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    written = str(yaml.load((folder / "MLmodel").read_text(), yaml.CSafeLoader)["model_uuid"])
    for known in client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'"):
        if known.tags.get(_TAG) == written and known.status is LoggedModelStatus.READY:
            return
        if _TAG in known.tags:  # others are the trainer's own
            client.delete_logged_model(known.model_id)
    model = client.create_logged_model(experiment_id, "model", run_id, {_TAG: written})
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    client.log_model_artifacts(model.model_id, str(folder))
    client.finalize_logged_model(model.model_id, "READY")


def load_saved_model(folder: Path) -> Any:
    """The model in `folder`, as `mlflow.pyfunc` loads it."""
    import mlflow

    return mlflow.pyfunc.load_model(str(folder))
