"""Changed copies of frozen trials and studies."""

from dataclasses import replace
from typing import Any

from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.configurations import describe_best_configuration
from sweeps.show.findings import Findings
from sweeps.trial.job import Outcome, State


def ended(trial: TrialRecord, state: State, error: str = "", **more: Any) -> TrialRecord:
    """Return the trial with a single attempt that has this outcome."""
    return replace(trial, attempts=()).with_end(Outcome(state, error, **more))


def with_outcome(trial: TrialRecord, **changes: Any) -> TrialRecord:
    """Return the trial with these changes in the outcome of the newest attempt."""
    *before, newest = trial.attempts
    return replace(trial, attempts=(*before, replace(newest, **changes)))


def with_trials(study: StudySnapshot, *trials: TrialRecord) -> StudySnapshot:
    """Return the study with these trials in place of the trials with equal numbers."""
    by_number = {trial.number: trial for trial in trials}
    return replace(study, rows=[by_number.get(row.number, row) for row in study.rows])


def headline(study: StudySnapshot) -> str:
    """Return the best configuration as a line of Markdown; empty if configurations have one seed."""
    line = describe_best_configuration(Findings(study))
    return line.markdown if line else ""
