"""The state of a study, for a reader who is not its driver."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from sweeps.analysis.advice import warn_idle_gpus
from sweeps.base.files import last_lines
from sweeps.base.wording import counted, size_text
from sweeps.record import driver_status
from sweeps.record.driver_status import DriverStatus
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.record.trial_config import read_launcher
from sweeps.show import steering
from sweeps.show.findings import count_states
from sweeps.show.terminal.lines import View, format_counts, format_metrics, join_numbers
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.trial.metrics import METRICS, MetricsLine

_SHOWN = 30  # running trials
_QUEUED = {State.QUEUED, State.REFUSED, State.CANCELLED}


def show_status(
    study: StudySnapshot, driver: str, next_driver: str, jobs: str, dashboard: str
) -> None:
    """Print the state of a study. `jobs` describes its SLURM jobs; both drivers are empty if there
    is none."""
    view = View()
    begun = ""
    if not (driver or jobs):  # because a trial without a driver and a job does not run
        begun = _describe_begun(study)
        study = replace(study, rows=[_as_queued(trial) for trial in study.rows])
    status = driver_status.read(study.folder)
    counts = count_states(study)
    view.say(_describe_progress(study, counts))
    view.say(begun)
    view.say(f"driver: {driver or next_driver or 'none'}")
    if driver:
        view.say(_describe_slots(status))
    view.say(jobs)
    reason = _explain_wait(status, bool(driver), bool(jobs or next_driver))
    view.say(_describe_queue(study, counts, reason))
    for trouble in status.troubles if driver and status else ():
        view.say(trouble)
    view.say(_describe_checkpoints(study))
    _show_running(view, study)
    _show_steering(view, study)
    view.closing(study, dashboard)


def _as_queued(trial: TrialRecord) -> TrialRecord:
    return replace(trial, state=State.QUEUED) if trial.state is State.RUNNING else trial


def _describe_begun(study: StudySnapshot) -> str:
    """Return which queued trials of a study without a driver have begun; empty if there are
    none."""
    begun = [
        trial.number
        for trial in study.rows
        if trial.state is State.RUNNING or (trial.state is State.QUEUED and trial.attempts)
    ]
    if not begun or study.done:
        return ""
    if len(begun) == 1:
        return f"trial {begun[0]} had begun, and resumes with the study"
    return f"trials {join_numbers(begun)} had begun, and resume with the study"


def _describe_progress(study: StudySnapshot, counts: Mapping[str, int]) -> str:
    total = "an unknown number of" if study.total is None else study.total
    line = (
        f"study {study.name}: {study.over()} of {total} trials have ended ({format_counts(counts)})"
    )
    resumed = [name for name in (State.REFUSED, State.CANCELLED) if name in counts]
    if study.done or not resumed:
        return line
    return f"{line}; {' and '.join(resumed)} trials resume with the study"


def _describe_slots(status: DriverStatus | None) -> str:
    if status is None:
        return ""
    line = f"slots: {status.running} in use"
    return f"{line}, none free" if status.full else line


def _describe_queue(study: StudySnapshot, counts: Mapping[str, int], reason: str) -> str:
    """Return the trials that wait, and why; empty if none waits or there is no reason."""
    waiting = {name: count for name, count in counts.items() if name in _QUEUED}
    has_line = waiting and reason and not study.done
    return f"{format_counts(waiting)}{reason}" if has_line else ""


def _describe_checkpoints(study: StudySnapshot) -> str:
    """Return the size of the checkpoints on disk; empty if there are none."""
    sizes = []
    for trial in study.rows:
        if trial.attempts or trial.state is State.RUNNING:
            sizes.append(TrialFolder(trial.folder).checkpoint_bytes())
    count = sum(size > 0 for size in sizes)
    return f"checkpoints: {size_text(sum(sizes))} of {counted(count, 'trial')}" if count else ""


def _show_running(view: View, study: StudySnapshot) -> None:
    running = study.in_state(State.RUNNING)
    for trial in running[:_SHOWN]:
        view.say(f"trial {trial.number} running   {trial.name}   {_newest_report(trial, study)}")
        view.say(warn_idle_gpus(trial, read_launcher(trial.folder).get("idle_gpu_min")))
    if len(running) > _SHOWN:
        view.say(f"and {len(running) - _SHOWN} more running")


def _show_steering(view: View, study: StudySnapshot) -> None:
    for line in steering.paragraphs(steering.describe_steering(study)):
        view.say(line.plain)


def _explain_wait(status: DriverStatus | None, driver: bool, jobs: bool) -> str:
    """Return why queued trials do not start, as the newest driver reported it; empty if jobs run
    without a driver."""
    if not driver and jobs:
        return ""
    stopped = status.stopped if status else ""
    if not driver:
        last = f"; the last driver stopped: {stopped}" if stopped else ""
        return f"; none can start: no driver runs the study{last}"
    if status is None:
        return ": the driver is starting"
    if stopped:
        return f"; none can start: {stopped}"
    return f": {'; '.join(_reasons(status))}"


def _reasons(status: DriverStatus) -> list[str]:
    """Return why the running driver starts no further trial."""
    if status.full and status.running:
        return [*status.notes, "all slots are in use"]
    if status.notes:
        return [*status.notes]
    if status.full:
        return ["importing the modules that all trials share"]
    return ["the next trial is being prepared"]


def _newest_report(trial: TrialRecord, study: StudySnapshot) -> str:
    """Return the newest metrics that a running trial reported, and their age."""
    for line in reversed(last_lines(trial.folder / METRICS, 2)):
        with suppress(ValueError, KeyError, TypeError):  # because the last line may be incomplete
            report = MetricsLine.parse(line.encode())
            age_s = max(0.0, time.time() - report.time)
            return (
                f"step {report.step}   {format_metrics(report.metrics, study)}   {age_s:.0f} s ago"
            )
    return "no metrics yet"
