"""What connects a training of one's own, by `model.fit`, with its trial."""

import time
from typing import Any
from weakref import WeakSet

import keras
import numpy as np

from sweeps.trial import Trial
from trainers import checkpoint
from trainers.checkpoint import Progress

_begun: WeakSet[Trial] = WeakSet()
"""Trials in which a `fit` was begun."""


class ReportToTrial(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports each epoch to a trial, ends the training when the trial is told to, and goes on where it was.

    A training that is begun again, after whatever ended it, finds its weights, its optimizer and its epoch in the
    trial's folder, as with keras.callbacks.BackupAndRestore; which examples `fit` shuffles into which batch then
    follows its own course. Epochs are reported from 1 on; a metric that is an array is named in the log, and left out.
    One `fit` a trial: another one's epochs would be taken for those of the first.

    Args:
        trial: that of the task function, f(cfg, trial).
        checkpoint_interval_s: seconds between checkpoints, at least. One is always written when the trial is stopped.
    """

    def __init__(self, trial: Trial, checkpoint_interval_s: float = 10.0) -> None:
        super().__init__()
        self._trial = trial
        self._interval_s = checkpoint_interval_s
        self._saved_at = 0.0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Raises ValueError in a trial's second `fit`."""
        if self._trial in _begun:
            raise ValueError(
                "ReportToTrial was in a `fit` of this trial before, and counts the epochs of one alone\n"
                "Train in one `fit` of more epochs, or call trial.report in the others with steps of your own"
            )
        _begun.add(self._trial)
        self.model.optimizer.build(self.model.trainable_variables)
        saved = checkpoint.newest(self._trial.checkpoint_folder)
        if saved:
            saved.assign_to(self.model)
        # Where `fit` looks after this call, as BackupAndRestore knows.
        self.model._initial_epoch = saved.progress.epoch if saved else 0
        self._saved_at = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        arrays = {name: np.shape(value) for name, value in (logs or {}).items() if np.ndim(value)}
        if arrays and epoch == self.model._initial_epoch:
            print("not reported, since a metric is one number:", arrays, flush=True)
        self._trial.report({n: float(v) for n, v in (logs or {}).items() if n not in arrays}, step=epoch + 1)
        self.model.stop_training |= bool(self._trial.should_stop())
        due = self.model.stop_training or time.monotonic() - self._saved_at >= self._interval_s
        if due and self._trial.world.is_chief:
            checkpoint.save(self._trial.checkpoint_folder, Progress(epoch + 1), self.model)
            self._saved_at = time.monotonic()
