"""A callback of LightGBM: `lightgbm.train(..., callbacks=[ReportToTrial()])`, or of its
scikit-learn estimators."""

from typing import Any

from lightgbm import EarlyStopException

from sweeps.integrations import is_reported
from sweeps.trial import Trial, current_trial


class ReportToTrial:
    """Reports the metrics of the rounds as `<data>-<metric>`, and stops if the trial should
    stop.

    Args:
        trial: The trial that this process runs, by default.
    """

    order = 20  # because early stopping, which has 30, raises

    def __init__(self, trial: Trial | None = None) -> None:
        self._trial = trial or current_trial()

    def __call__(self, env: Any) -> None:
        results = env.evaluation_result_list or []
        step = env.iteration + 1
        if is_reported(step):
            metrics = {f"{result[0]}-{result[1]}": result[2] for result in results}
            self._trial.report(metrics, step)
        if self._trial.should_stop():
            raise EarlyStopException(env.iteration, results)
