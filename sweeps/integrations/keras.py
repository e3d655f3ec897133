"""A Keras callback, for each backend of Keras: `model.fit(..., callbacks=[ReportToTrial()])`."""

import json
import time
from pathlib import Path
from typing import Any
from weakref import WeakSet

import keras
import numpy as np

from sweeps.trial import Trial, assign_arrays, current_trial, newest_checkpoint, put_checkpoint

_fitted: WeakSet[Trial] = WeakSet()  # trials in which a `fit` has begun


class ReportToTrial(keras.callbacks.Callback):
    """Reports each epoch to a trial, stops the training if the trial should stop, and resumes from
    its checkpoint.

    A restarted training resumes with its weights, its optimizer and its epoch, as with
    BackupAndRestore of Keras. `fit` then returns the history of all epochs, also if none is left to
    train. The order in which `fit` shuffles examples is not restored. Epochs are reported from 1
    on. Metrics that are arrays are not reported. Only one `fit` a trial is allowed, because epochs
    of a second would be mistaken for the first's. A checkpoint is also written when the training
    is stopped: by the trial, or by an EarlyStopping that stands before this callback.

    Args:
        trial: The trial that this process runs, by default.
        checkpoint_interval_s: The least time between two checkpoints (s).
    """

    def __init__(self, trial: Trial | None = None, checkpoint_interval_s: float = 10.0) -> None:
        super().__init__()
        self._trial = trial or current_trial()
        self._interval_s = checkpoint_interval_s
        self._saved_at = 0.0
        # values of each reported metric by epoch, as in keras' History
        self._history: dict[str, list[float]] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the newest checkpoint. Raises ValueError in a trial's second `fit`."""
        if self._trial in _fitted:
            raise ValueError(
                "ReportToTrial was used in an earlier `fit` of this trial, but can count the epochs"
                " of only one.\nTrain in one `fit` with more epochs, or call trial.report with your"
                " own steps in the other `fit`s"
            )
        _fitted.add(self._trial)
        self.model.optimizer.build(self.model.trainable_variables)
        saved = newest_checkpoint(self._trial.checkpoint_folder, ".npz")
        # `fit` reads this attribute after on_train_begin, because BackupAndRestore sets it there
        # too.
        self.model._initial_epoch = 0
        if saved:
            progress = _restore(saved, self._variables())
            self.model._initial_epoch = progress["epoch"]
            if progress.get("stopped_early"):
                self.model._initial_epoch = self.params["epochs"]
            # none in a checkpoint of an earlier version
            self._history = progress.get("history", {})
            for name, values in self._history.items():
                self.model.history.history[name] = [*values]
        self._saved_at = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._report(logs or {}, epoch)
        stopped_early = bool(self.model.stop_training)  # by another callback
        is_last = stopped_early or epoch + 1 >= self.params["epochs"]
        if not is_last and self._trial.should_stop():
            self.model.stop_training = True
        is_due = time.monotonic() - self._saved_at >= self._interval_s
        if self._trial.world.is_chief and (is_due or is_last or self.model.stop_training):
            progress = {
                "epoch": epoch + 1,
                "stopped_early": stopped_early,
                "history": self._history,
            }
            _save(self._trial.checkpoint_folder, progress, self._variables())
            self._saved_at = time.monotonic()

    def _report(self, logs: dict[str, Any], epoch: int) -> None:
        """Report the metrics that are numbers, and print once which are none."""
        arrays = {name: np.shape(value) for name, value in logs.items() if np.ndim(value)}
        if arrays and epoch == self.model._initial_epoch:
            print("not reported, because a metric must be one number:", arrays, flush=True)
        metrics = {name: float(value) for name, value in logs.items() if name not in arrays}
        self._trial.report(metrics, step=epoch + 1)
        for name, value in metrics.items():
            self._history.setdefault(name, []).append(value)

    def _variables(self) -> list[Any]:
        """Return all variables; model.variables contains the states of dropout's seed generators
        too."""
        return [*self.model.variables, *self.model.optimizer.variables]


def _save(folder: Path, progress: dict[str, Any], variables: list[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for i, variable in enumerate(variables):
        arrays[f"variable_{i}"] = keras.ops.convert_to_numpy(variable)
    aside = folder / "writing.npz"
    np.savez(aside, progress=np.array(json.dumps(progress)), **arrays)
    put_checkpoint(aside)


def _restore(path: Path, variables: list[Any]) -> dict[str, Any]:
    """Assign a checkpoint to the variables, and return its last epoch and its history."""
    with np.load(path, allow_pickle=False) as file:
        arrays = [file[f"variable_{i}"] for i in range(len(file.files) - 1)]
        assign_arrays(path, arrays, variables)
        progress: dict[str, Any] = json.loads(str(file["progress"]))
        return progress
