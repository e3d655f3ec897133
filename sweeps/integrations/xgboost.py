"""A callback of XGBoost: `xgboost.train(..., callbacks=[ReportToTrial()])`, or of its scikit-learn
estimators."""

from typing import Any

import numpy as np
from xgboost.callback import TrainingCallback

from sweeps.integrations import is_reported
from sweeps.trial import Trial, current_trial


class ReportToTrial(TrainingCallback):
    """Reports the metrics of the rounds, named as XGBoost prints them, and stops if the trial
    should stop.

    Args:
        trial: The trial that this process runs, by default.
    """

    def __init__(self, trial: Trial | None = None) -> None:
        self._trial = trial or current_trial()

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if is_reported(epoch + 1):
            # The last value is a pair, of mean and deviation, in xgboost.cv.
            numbers = {
                f"{d}-{name}": np.ravel(v[-1])[0]
                for d, log in evals_log.items()
                for name, v in log.items()
            }
            self._trial.report(numbers, step=epoch + 1)
        return self._trial.should_stop()
