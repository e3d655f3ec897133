"""Models with a signature, and tags from the notes of a trial, in a real MLflow."""

from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.models.signature import ModelSignature
from mlflow.pyfunc import PythonModel, load_model, save_model
from mlflow.types import Schema, TensorSpec
from studies import complete, finish, new_row, open_tracker, runs, summary_of, train

from sweeps.tracking.saved_model import log_saved_model
from sweeps.trial.folder import TrialFolder

SHAPE = Schema([TensorSpec(np.dtype("float32"), (-1, 2))])


class Plus(PythonModel):  # type: ignore[misc]
    def __init__(self, what: float) -> None:
        self.what = what

    def predict(self, context: object, model_input: np.ndarray, params: object = None) -> np.ndarray:
        return model_input + self.what


def keep(folder: TrialFolder, what: float) -> None:
    path = folder.path / "model"
    save_model(path, python_model=Plus(what), signature=ModelSignature(SHAPE, SHAPE), pip_requirements=[])


def test_saved_model_is_logged_once_with_its_signature(tmp_path: Path, store: str) -> None:
    study = tmp_path / "s"
    for _ in range(2):  # the second driver finds the first driver's model
        row = new_row(study, 0)
        train(row, range(2))
        if not (row.folder / "model").exists():
            keep(TrialFolder(row.folder), 1.0)
            TrialFolder(row.folder).add_note("data: what", "the test set was looked at")
        tracker = open_tracker(store, study)
        tracker.start_trial(row, ["lr=0.1"])
        row = complete(row)
        tracker.end_trial(row)
        finish(tracker, summary_of(study, row))
        assert tracker.problem is None
    client = MlflowClient(store)
    run = next(run for run in runs(store).values() if run.data.tags["role"] == "trial")
    assert run.data.tags["note.data: what"] == "the test set was looked at"
    (model,) = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    mlflow.set_tracking_uri(store)
    loaded = load_model(f"models:/{model.model_id}")
    assert loaded.metadata.signature.inputs.inputs[0].shape == (-1, 2)
    assert loaded.predict(np.zeros((1, 2), np.float32)).tolist() == [[1.0, 1.0]]


@pytest.mark.long
@pytest.mark.parametrize("finalized", [False, True])
def test_model_of_an_earlier_attempt_or_killed_driver_is_replaced(tmp_path: Path, finalized: bool) -> None:
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.create_experiment("e", str(tmp_path / "artifacts"))
    run = client.create_run(experiment).info.run_id
    own = client.create_logged_model(experiment, "their_own", run)
    earlier = client.create_logged_model(experiment, "model", run, {"kept_by_trial": "earlier"})
    if finalized:
        client.finalize_logged_model(earlier.model_id, "READY")
    keep(TrialFolder(tmp_path), 2.0)
    log_saved_model(client, experiment, run, tmp_path / "model")
    models = client.search_logged_models([experiment], f"source_run_id = '{run}'")
    assert {model.name for model in models} == {"model", "their_own"}
    assert earlier.model_id not in {model.model_id for model in models}
    assert own.model_id in {model.model_id for model in models}
