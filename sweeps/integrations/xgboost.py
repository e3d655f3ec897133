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
        step = epoch + 1
        if is_reported(step):
            # The last value is a pair, of mean and deviation, in xgboost.cv.
            metrics = {
                f"{subset}-{name}": np.ravel(values[-1])[0]
                for subset, log in evals_log.items()
                for name, values in log.items()
            }
            self._trial.report(metrics, step)
        return self._trial.should_stop()
