"""sweepyard stop and prune: stop a running study, or some of its trials."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.base.files import holder, write_whole
from sweeps.base.wording import counted
from sweeps.choose import manual
from sweeps.commands import MULTIRUN, Name, Root, command, console, jobs_of, read
from sweeps.launchers.slurm.queue import SlurmError, cancel, cancel_pending_and_dismiss_idle
from sweeps.launchers.slurm.trials import driver_chain
from sweeps.record import study_file
from sweeps.record.study import StudySnapshot
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State


@command()
def stop(
    name: Name,
    root: Root = MULTIRUN,
    trial: Annotated[
        list[int] | None,
        typer.Option(help="stop only this trial, for good; it counts as pruned; may be repeated"),
    ] = None,
) -> None:
    """Stop a study after the current epoch of its trials.

    Cancel its queued trials. `resume` continues the study later.
    """
    folder = (root / name).absolute()
    if trial:
        prune(name, trial, root)
        return
    process = holder(folder / "driver.lock")
    # which ends by itself, without messages of srun
    own = driver_chain.job_of(folder, process) if process else None
    with suppress(SlurmError):  # because a driver that runs cancels the next one itself
        _stop_drivers(folder, own)
    if driver := holder(folder / "driver.lock"):
        write_whole(folder / "stop", "")
        console.print(f"stopping {driver}; waiting for the end of the current epochs")
        while holder(folder / "driver.lock"):
            time.sleep(0.1)
        _stop_drivers(folder, own)  # because a driver may have submitted the next one meanwhile
        study = read(name, root)[0]
        console.print(
            "every trial has ended" if _is_complete(study) else _resumable("stopped", study)
        )
    else:
        _stop_drivers(folder, own)
        _stop_jobs(read(name, root)[0])


@command()
def prune(
    name: Name,
    trial: Annotated[list[int], typer.Option(help="number of the trial; may be repeated")],
    root: Root = MULTIRUN,
) -> None:
    """End trials at their next report, for good. They count as pruned."""
    study, _ = read(name, root)
    ended = [number for number in trial if study.trial(number).state.is_over]
    if not ended and not holder(study.folder / "driver.lock") and not jobs_of(study):
        raise UserError(
            f"study {name} and its trials are not running.\nResume it first:"
            f" {study_file.sweeps_line('resume', study.folder)}"
        )
    for message in manual.end_trials(study, trial):
        console.print(message)


def _stop_drivers(folder: Path, own: str | None) -> None:
    """Cancel the jobs of drivers, but not the job `own`, whose driver has claimed the study. Raises
    SlurmError."""
    if jobs := [job for job in driver_chain.living(folder) if job.id != own]:
        cancel([job.id for job in jobs])
        console.print(f"cancelled the driver: {jobs[0]}")


def _stop_jobs(study: StudySnapshot) -> None:
    """Stop the SLURM jobs of a study without a driver."""
    jobs = jobs_of(study)
    if not jobs:
        total = "an unknown number of" if study.total is None else study.total
        ended = f"{study.over()} of {total} trials have ended"
        state = f"study {study.name} is not running: {ended}"
        console.print(state if _is_complete(study) else _resumable(state, study))
        return
    for trial in study.rows:
        attempt = None if trial.state.is_over else TrialFolder(trial.folder).newest()
        # also a queued attempt, so that the next driver retries it
        if attempt and not attempt.is_over:
            attempt.request_stop(State.CANCELLED)
    cancel_pending_and_dismiss_idle(study.folder, jobs)
    running = sum(job.state != "PENDING" for job in jobs)
    console.print(
        f"cancelled {counted(len(jobs) - running, 'queued job')}; {running} stop after the current"
        " epoch"
    )


def _is_complete(study: StudySnapshot) -> bool:
    """Return whether no trial of a study is left."""
    return bool(study.done) or (study.total is not None and study.over() >= study.total)


def _resumable(state: str, study: StudySnapshot) -> str:
    """Return the state of a study with trials left, and the line that resumes it."""
    return f"{state}. Resume: {study_file.sweeps_line('resume', study.folder)}"
