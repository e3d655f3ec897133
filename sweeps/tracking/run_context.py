"""The context of MLflow runs that a trial's own code creates: they are children of the trial's run.

MLflow finds the class by the entry point `mlflow.run_context_provider` (pyproject.toml). This
module imports nothing slow, because each process that uses MLflow loads it.
"""

import os

TRIAL_RUN = "SWEEPYARD_MLFLOW_RUN"
"""The variable with the id of the trial's run, in the trial's process. MLflow removes its own,
MLFLOW_RUN_ID."""


class TrialRunContext:
    """The parent of a run that a trial creates beside its own, such as one of each fold."""

    def in_context(self) -> bool:
        """Return whether this process is a trial with a run in MLflow."""
        return TRIAL_RUN in os.environ

    def tags(self) -> dict[str, str]:
        """Return the tag that makes a new run a child of the trial's run. A parent that the code
        names wins."""
        return {"mlflow.parentRunId": os.environ[TRIAL_RUN]}
