"""How a study stands, for somebody who is not its driver."""

import time
from contextlib import suppress
from dataclasses import replace

from sweeps.files import last_lines
from sweeps.record import driver_status
from sweeps.record.driver_status import DriverStatus
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.results.terminal import View, counts_of, newest
from sweeps.trial.folder import METRICS, MetricsLine
from sweeps.trial.job import State

_SHOWN = 30  # running trials


def show_status(summary: StudySnapshot, driver: str, jobs: str, how_to_look: str) -> None:
    """How a study stands, for somebody who is not its driver; `jobs` says what a cluster still has of it."""
    view, last = View(), driver_status.read(summary.folder)
    now = last if driver else None
    if not driver and not jobs:  # what a driver left running is no longer
        open_ = [replace(row, state=State.QUEUED) if row.state is State.RUNNING else row for row in summary.rows]
        summary = replace(summary, rows=open_)
    view.say(f"study {summary.name}: {summary.over()} of {summary.total} trials have ended ({counts_of(summary)})")
    view.say(f"driver: {driver or 'none'}")
    if now:
        full = "; there is no room for another one" if now.full else ""
        view.say(f"slots: {now.running} in use{full}")
    view.say(jobs)
    waiting = max(summary.total or 0, len(summary.rows)) - summary.over() - summary.count(State.RUNNING)
    if waiting and not summary.done:
        for why in _waits(last, bool(driver), bool(jobs)):
            view.say(f"waiting: {waiting}, {why}")
    for trouble in now.troubles if now else ():
        view.say(trouble)
    running = [row for row in summary.rows if row.state is State.RUNNING]
    for row in running[:_SHOWN]:
        view.say(f"trial {row.number} runs   {row.name}   {_latest(row, summary)}")
    if len(running) > _SHOWN:
        view.say(f"and {len(running) - _SHOWN} more run")
    view.closing(summary, how_to_look)


def _waits(last: DriverStatus | None, driver: bool, jobs: bool) -> list[str]:
    """Why trials that are open have not begun, by what the newest driver said."""
    if not driver:
        stopped = f"; the last one stopped because {last.stopped}" if last and last.stopped else ""
        return [] if jobs else [f"for a driver: none runs the study{stopped}"]
    if last is None:
        return ["for what their driver is about to do"]
    if last.stopped:
        return [f"of which none starts: {last.stopped}"]
    if last.full and not last.running:
        return list(last.notes) or ["for the modules that trials share, which are being imported"]
    return [*last.notes, *(["for a slot"] if last.full else [])] or ["of which the next one is being made ready"]


def _latest(row: TrialRecord, summary: StudySnapshot) -> str:
    """What a running trial reported last, and when."""
    for text in reversed(last_lines(row.folder / METRICS, 2)):
        with suppress(ValueError, KeyError, TypeError):  # half a line, or a damaged one
            line = MetricsLine.parse(text.encode())
            return f"step {line.step}   {newest(line.metrics, summary)}   {max(0.0, time.time() - line.time):.0f} s ago"
    return "has reported nothing yet"
