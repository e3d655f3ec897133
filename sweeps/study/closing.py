"""The end of a study in words: what is left, how to go on, and who is told."""

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.files import write_whole
from sweeps.record.definition import DONE, sweeps_line
from sweeps.record.study import StudySnapshot, by_failure_signature, result_of
from sweeps.results.configurations import of_seeds
from sweeps.results.findings import Findings
from sweeps.results.terminal import View, tally
from sweeps.settings import SweeperConf
from sweeps.study import notify
from sweeps.study.budget import Enough
from sweeps.wording import counted, printable

if TYPE_CHECKING:
    from sweeps.results.trials import Trials


@dataclass(frozen=True)
class LoopEnd:
    """How the loop of a driver ended."""

    running: int  # how many trials go on without it
    stopped: str  # why no further trial was started; empty if all were
    enough: Enough | None  # the same, where it was enough
    interrupted: bool
    had_ended: bool  # whether all trials had ended before


def failed(summary: StudySnapshot, settings: SweeperConf) -> bool:
    """Return whether more trials went wrong than max_failure_rate allows (none may by default), or none could run."""
    if summary.rows and all(row.infeasible for row in summary.rows):
        return True
    return len(summary.bad()) > (settings.max_failure_rate or 0.0) * len(summary.rows)


def write_pages(findings: Findings, trials: "Trials | None" = None) -> OSError | None:
    """Write what is to be read of the study. Returns why that was not possible: MLflow is told all the same."""
    from sweeps.results import report, solutions

    try:
        report.write(findings, trials)
        solutions.write(findings)
    except OSError as error:
        return error
    except Exception as error:  # whatever its trials left: they have ended, and are kept
        return OSError(f"{report.HTML} cannot be written: {type(error).__name__}: {error}")
    return None


def what_is_left(summary: StudySnapshot, end: LoopEnd, resume: str) -> list[str]:
    """Return what did not run, and how to go on, a line each. `resume` is what to type for that."""
    lines = _not_started(summary)
    if end.running:
        look = sweeps_line("status", summary.folder)
        lines.append(f"going on without this command: {counted(end.running, 'trial')}. Look: {look}")
    open_ones = (summary.total or len(summary.rows)) - summary.over()
    enough = end.enough if not end.interrupted else None
    if enough and summary.done:
        write_whole(summary.folder / DONE, summary.done)
        lines.append(f"study {summary.name} is done: {summary.done}.")
        lines.append(f"For more, change hydra.sweeper.{enough.setting} in: {resume}")
    elif enough and enough.setting:
        lines.append(f"study {summary.name} is not finished: {enough.reason}.")
        lines.append(f"To go on, raise hydra.sweeper.{enough.setting} in: {resume}")
    elif why := end.stopped or (f"{counted(open_ones, 'trial')} still open" if open_ones else ""):
        lines.append(f"study {summary.name} is not finished: {why}.")
        lines += _go_on(summary, resume)
    elif end.had_ended:
        lines += _nothing_to_do(summary, resume)
    return lines


def _not_started(summary: StudySnapshot) -> list[str]:
    count = sum(row.infeasible for row in summary.rows)
    if not count:
        return []
    what = f"{count} of {len(summary.rows)} trials are infeasible, and were not started"
    again = f"Once they can run: {sweeps_line('resume', summary.folder)} --retry infeasible"
    none_could = "no trial could run: " if count == len(summary.rows) else ""
    return [f"{none_could}{what}", again]


def _go_on(summary: StudySnapshot, resume: str) -> list[str]:
    if not any(row.attempts and row.attempts[-1].misfit for row in summary.rows):
        return [f"Go on with: {resume}"]
    other = "Another objective makes another study, with another hydra.sweeper.study_name"
    again = f"{sweeps_line('resume', summary.folder)} --retry failed"
    return [f"{other}. Once trials return this one:", f"Go on with: {again}"]


def _nothing_to_do(summary: StudySnapshot, resume: str) -> list[str]:
    lines = [f"nothing is left to do: every trial of study {summary.name} had ended before."]
    lines.append(f"For more values or trials, change them in: {resume} hydra.sweeper.extend=true")
    if bad := {str(row.state) for row in summary.bad()}:
        again = f"{sweeps_line('resume', summary.folder)} --retry {','.join(sorted(bad))}"
        lines.append(f"Once more what failed: {again}")
    return lines


class Teller:
    """Tells a person, once, that a study which has begun has ended or stopped."""

    def __init__(self, how: str | list[object] | None) -> None:
        self._how = how

    def tell(self, subject: str, summary: StudySnapshot, resume: str) -> None:
        """Say what went wrong with that, if anything did."""
        how, self._how = self._how, None if summary.rows else self._how  # once, also if Ctrl-C cuts it short
        if how is not None and summary.rows:
            View().say(notify.tell(how, printable(subject), printable(_in_short(summary, resume))))


def _in_short(summary: StudySnapshot, resume: str) -> str:
    lines = [tally(summary)]
    if words := of_seeds(Findings(summary)):
        lines.append(words.plain)
    elif best := summary.best():
        lines.append(f"best: trial {best.number} ({best.name}): {result_of(best, summary)}")
    lines += [f"trial {row.number} {row.state}: {row.error}" for row, *_ in by_failure_signature(summary.bad())[:3]]
    lines.append(f"in {summary.folder} on {socket.gethostname()}")
    lines += [f"go on with: {resume}"] * (summary.over() < (summary.total or 0))
    return "\n".join(lines)
