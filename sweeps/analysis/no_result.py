"""Why no trial of a study has a result, and what to type."""

from sweeps.base.errors import UserError
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import sweeps_line
from sweeps.trial.directions import objective_words
from sweeps.trial.job import State

_ANOTHER = "another hydra.sweeper.study_name, because another objective makes another study"


def explain_no_result(study: StudySnapshot) -> tuple[str, str]:
    """Return what the trials return in place of the objective, and what to do; both are empty if
    they return the objective, or none has completed."""
    if study.has_objective:
        return "", ""
    metrics: dict[str, float] = {}
    for trial in study.rows:
        if trial.state is State.COMPLETED:
            metrics |= trial.attempts[-1].metrics
        elif trial.attempts and trial.attempts[-1].missing_objective:
            return trial.error, f"Type the study's command with this, and {_ANOTHER}"
    if not study.count(State.COMPLETED):
        return "", ""
    if not metrics:
        return (
            "its trials return nothing",
            f"Return a number or a dict of metrics, and type the study's command with {_ANOTHER}",
        )
    words = objective_words(metrics, study.objective)
    return (
        f"its trials return {', '.join(metrics)}, and not {', '.join(study.objective)}",
        f"Type the study's command with {words} and {_ANOTHER}",
    )


def no_result_error(study: StudySnapshot, problem: str, before: str = "") -> UserError:
    """Return the error of a study of which no trial has a result; its advice begins with
    `before`."""
    reason, advice = explain_no_result(study)
    if reason:
        return UserError(f"{problem}: {reason}.\n{before}{advice}")
    status_line = sweeps_line("status", study.folder)
    return UserError(f"{problem}.\n{before}Show the reason: {status_line}")
