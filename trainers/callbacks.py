"""A Keras callback that connects a user's own `model.fit` with its trial."""

import time
from typing import Any
from weakref import WeakSet

import keras
import numpy as np

from sweeps.trial import Trial
from trainers import checkpoint
from trainers.checkpoint import Progress

_fitted: WeakSet[Trial] = WeakSet()
"""Trials in which a `fit` has begun."""


class ReportToTrial(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports each epoch to a trial, stops the training if the trial should stop, and resumes from its checkpoint.

    A restarted training resumes with its weights, its optimizer and its epoch, as with
    keras.callbacks.BackupAndRestore. The order in which `fit` shuffles examples is not restored.
    Epochs are reported from 1 on. The log names metrics that are arrays; they are not reported.
    Only one `fit` a trial is allowed, because epochs of a second `fit` would be mistaken for those of the first.

    Args:
        trial: the second argument of the task function f(cfg, trial).
        checkpoint_interval_s: minimum seconds between checkpoints. One is always written when the trial is stopped.
    """

    def __init__(self, trial: Trial, checkpoint_interval_s: float = 10.0) -> None:
        super().__init__()
        self._trial = trial
        self._interval_s = checkpoint_interval_s
        self._saved_at = 0.0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the newest checkpoint. Raises ValueError in a trial's second `fit`."""
        if self._trial in _fitted:
            raise ValueError(
                "ReportToTrial was used in an earlier `fit` of this trial, but can count the epochs of only one.\n"
                "Train in one `fit` with more epochs, or call trial.report with your own steps in the other `fit`s"
            )
        _fitted.add(self._trial)
        self.model.optimizer.build(self.model.trainable_variables)
        saved = checkpoint.newest(self._trial.checkpoint_folder)
        if saved:
            saved.assign_to(self.model)
        # `fit` reads this attribute after on_train_begin, because BackupAndRestore sets it there too.
        self.model._initial_epoch = saved.progress.epoch if saved else 0
        self._saved_at = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        arrays = {name: np.shape(value) for name, value in (logs or {}).items() if np.ndim(value)}
        if arrays and epoch == self.model._initial_epoch:
            print("not reported, because a metric must be one number:", arrays, flush=True)
        self._trial.report({n: float(v) for n, v in (logs or {}).items() if n not in arrays}, step=epoch + 1)
        self.model.stop_training |= bool(self._trial.should_stop())
        due = self.model.stop_training or time.monotonic() - self._saved_at >= self._interval_s
        if due and self._trial.world.is_chief:
            checkpoint.save(self._trial.checkpoint_folder, Progress(epoch + 1), self.model)
            self._saved_at = time.monotonic()
