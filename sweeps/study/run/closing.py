"""The end of a study in words: which trials are left, and how to resume."""

import math
import shlex
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.analysis.advice import memory_line
from sweeps.base.errors import ExitCode, UserError
from sweeps.base.files import write_whole
from sweeps.base.wording import counted, one_line
from sweeps.hydra.settings import SweeperConf
from sweeps.launchers.contract import DRIVER_LOG
from sweeps.record.study import StudySnapshot, TrialRecord, by_failure_signature, result_of
from sweeps.record.study_file import DONE, sweeps_line
from sweeps.record.trial_config import read_launcher, read_memory_axes, read_values
from sweeps.show.configurations import describe_best_configuration
from sweeps.show.findings import Findings
from sweeps.show.terminal.lines import View, relative_path, tally
from sweeps.study.run.events import LoopEnd
from sweeps.trial.job import State

if TYPE_CHECKING:
    from sweeps.show.trials import TrialFiles


def exit_code(study: StudySnapshot, settings: SweeperConf, end: LoopEnd) -> ExitCode:
    """Return the exit code of the driver. Failed trials are more than max_failure_rate allows (by
    default none)."""
    if end.interrupted:
        return ExitCode.INTERRUPTED

    failed = sum(trial.state.has_failed for trial in study.rows)
    allowed = (settings.max_failure_rate or 0.0) * len(study.rows)
    are_all_infeasible = study.rows and all(trial.infeasible for trial in study.rows)
    if failed > allowed or are_all_infeasible:
        return ExitCode.FAILED

    total = study.total or len(study.rows)
    is_submitted = end.detached and study.over() + end.running >= total
    if is_submitted or not unfinished_reason(study, end):
        return ExitCode.FINISHED
    return ExitCode.NOT_FINISHED


def unfinished_reason(study: StudySnapshot, end: LoopEnd) -> str:
    """Return why the study is not finished, or an empty text if the study is finished."""
    enough = None if end.interrupted else end.enough
    if enough and (study.done or enough.setting):
        return "" if study.done else enough.reason
    # more may be over than a new grid has
    open_count = max(0, (study.total or len(study.rows)) - study.over())
    return end.stopped or (f"{counted(open_count, 'trial')} still open" if open_count else "")


def write_pages(findings: Findings, files: "TrialFiles | None" = None) -> OSError | None:
    """Write the study's report and solutions. Return the error if a file cannot be written."""
    from sweeps.show import tables
    from sweeps.show.page import report
    from sweeps.show.terminal import solutions

    try:
        report.write(findings, files)
        solutions.write(findings)
    except OSError as error:
        return error
    except Exception as error:  # because trials may leave anything, and their results are safe
        return OSError(f"{tables.HTML} cannot be written: {type(error).__name__}: {error}")
    return None


def what_is_left(study: StudySnapshot, end: LoopEnd, resume: str) -> list[str]:
    """Return which trials did not run and how to run them, a line each. `resume` is the command
    that resumes."""
    lines = _infeasible_lines(study)
    if end.running:
        trials = counted(end.running, "trial")
        watch = sweeps_line("status", study.folder)
        lines.append(f"{trials} queued or running without this command. Watch: {watch}")
    enough = None if end.interrupted else end.enough
    if reason := unfinished_reason(study, end):
        lines.append(f"study {study.name} is not finished: {_without_refusal(reason, study)}.")
        if enough and enough.setting:
            lines.append(f"To resume, raise hydra.sweeper.{enough.setting} in: {resume}")
        else:
            lines += _resume_lines(study, resume)
    elif enough and study.done:
        write_whole(study.folder / DONE, study.done)
        lines.append(f"study {study.name} is done: {study.done}.")
        lines.append(f"For more trials, change hydra.sweeper.{enough.setting} in: {resume}")
    elif end.all_had_ended:
        lines.append(f"nothing is left to do: every trial of study {study.name} had ended before.")
        lines.append(
            f"For more values or trials, change them in: {resume} hydra.sweeper.extend=true"
        )
    return lines + retry_lines(study)


def _without_refusal(reason: str, study: StudySnapshot) -> str:
    """Return why a study is not finished without the error of a refused trial, which is printed
    above."""
    for trial in study.rows:
        if trial.state is State.REFUSED and trial.error and reason.endswith(trial.error):
            left = reason.removesuffix(trial.error).rstrip(": ")
            return left or f"trial {trial.number} was refused"
    return reason


def retry_lines(study: StudySnapshot) -> list[str]:
    """Return what to type after trials have failed: after a correction, with more memory, or with
    less to store."""
    failed = [trial for trial in study.rows if trial.state.has_failed]
    if _lacks_objective(study):
        return []  # because the study's own lines say what is missing
    lines = []
    states = sorted({str(trial.state) for trial in failed} - {str(State.OUT_OF_MEMORY)})
    if states:
        retry = f"{sweeps_line('resume', study.folder)} --retry {','.join(states)}"
        lines.append(f"Correct the cause of the failed trials, then type: {retry}")
    too_large = [trial for trial in failed if trial.state is State.OUT_OF_MEMORY]
    if too_large:
        lines.append(_memory_line(study, too_large[-1]))
    return lines


def _memory_line(study: StudySnapshot, trial: TrialRecord) -> str:
    """Return what to type for a trial out of memory: twice its limit, or half of what its memory
    grows with."""
    retry = f"{sweeps_line('resume', study.folder)} --retry {State.OUT_OF_MEMORY}"
    more = _more_memory(trial)
    if more:
        return f"For trials that were out of memory, type more of it: {retry} {more}"

    values = {**read_values(trial.folder), **trial.params}
    keys = [axis.partition("/")[0] for axis in read_memory_axes(trial.folder)]
    numbers = {key: values.get(key) for key in keys}
    half = []
    for key, number in numbers.items():
        if isinstance(number, int) and number > 1:
            half.append(f"{key}={number // 2}")
    if not half:
        return f"Let the trials that were out of memory need less, then type: {retry}"
    less = " ".join([*half, "hydra.sweeper.study_name=NAME"])
    return f"For trials that were out of memory, type less in another study: {less}"


def _more_memory(trial: TrialRecord) -> str:
    """Return the setting that requests twice a trial's memory; empty if that would not help."""
    last = trial.attempts[-1]
    limit_gb = last.requested.get("mem_gb", 0.0) / max(1.0, last.requested.get("nodes", 1.0))
    # an error of a framework, not of the launcher
    is_of_gpu = bool(last.gpus) and not last.error.startswith("it ")
    if is_of_gpu or not limit_gb:
        return ""
    return memory_line(math.ceil(2 * limit_gb), read_launcher(trial.folder))


def explain_disk_error(study: StudySnapshot, error: OSError, resume: str) -> UserError:
    """Print the results, and return what to type once the disk can be written again."""
    with suppress(OSError):
        view = View()
        view.say(f"study {study.name}: {tally(study)}")
        view.closing(study)
    return UserError(
        f"the study had to stop: {error}\nWhat has ended is kept. Resume with: {resume}"
    )


def describe_driver_job(study: Path, job_id: str) -> str:
    """Return how to follow and end a study whose driver is a SLURM job."""
    return (
        f"study {study.name}: its driver is SLURM job {job_id}, and needs this terminal no more\n"
        f"Follow it: {shlex.join(['tail', '-F', relative_path(study / DRIVER_LOG)])}\n"
        f"Watch the study: {sweeps_line('status', study)}, or stop it: {sweeps_line('stop', study)}"
    )


def _infeasible_lines(study: StudySnapshot) -> list[str]:
    count = sum(trial.infeasible for trial in study.rows)
    if not count:
        return []
    none_could = "no trial could run: " if count == len(study.rows) else ""
    return [
        f"{none_could}{count} of {len(study.rows)} trials are infeasible, and were not started",
        f"Once they can run: {sweeps_line('resume', study.folder)} --retry infeasible",
    ]


def _resume_lines(study: StudySnapshot, resume: str) -> list[str]:
    if not _lacks_objective(study):
        was_refused = any(trial.state is State.REFUSED for trial in study.rows)
        cause = "Correct the cause of the refusal, or the wrong setting in this command. "
        return [f"{cause if was_refused else ''}Resume with: {resume}"]
    retry = f"{sweeps_line('resume', study.folder)} --retry failed"
    return [
        "Another objective makes another study: choose another hydra.sweeper.study_name.",
        f"Once trials return this objective, resume with: {retry}",
    ]


def _lacks_objective(study: StudySnapshot) -> bool:
    """Return whether the study stopped because its trials lack the objective."""
    ended = [trial.attempts[-1] for trial in study.rows if trial.attempts]
    return any(end.missing_objective for end in ended) and not study.has_objective


def summarize(study: StudySnapshot, resume: str) -> str:
    """Return the text of a notification: the counts, the best trial, three failures, and how to
    resume."""
    lines = [tally(study)]
    if words := describe_best_configuration(Findings(study)):
        lines.append(words.plain)
    elif best := study.best():
        lines.append(f"best: trial {best.number} ({best.name}): {result_of(best, study)}")
    failures = [trial for trial, *_ in by_failure_signature(study.bad())[:3]]
    lines += [f"trial {trial.number} {trial.state}: {one_line(trial.error)}" for trial in failures]
    lines.append(f"in {study.folder} on {socket.gethostname()}")
    if study.over() < (study.total or 0):
        lines.append(f"resume with: {resume}")
    return "\n".join(lines)
