"""What connects a training of one's own, by `model.fit`, with its trial."""

import time
from typing import Any

import keras

from sweeps.trial import Trial
from trainers import checkpoint
from trainers.checkpoint import Progress


class ReportToTrial(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports each epoch to a trial, ends the training when the trial is told to, and goes on where it was.

    A training that is begun again, after whatever ended it, finds its weights, its optimizer and its epoch in the
    trial's folder, as with keras.callbacks.BackupAndRestore; which examples `fit` shuffles into which batch then
    follows its own course. Epochs are reported from 1 on.

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
        self.model.optimizer.build(self.model.trainable_variables)
        progress = checkpoint.restore(self._trial.checkpoint_folder, self.model)
        # Where `fit` looks after this call, as BackupAndRestore knows.
        self.model._initial_epoch = progress.epoch
        self._saved_at = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        self._trial.report(numbers, step=epoch + 1)
        self.model.stop_training |= bool(self._trial.should_stop())
        if self.model.stop_training or time.monotonic() - self._saved_at >= self._interval_s:
            checkpoint.save(self._trial.checkpoint_folder, Progress(epoch + 1), self.model)
            self._saved_at = time.monotonic()
