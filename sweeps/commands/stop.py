"""python -m sweeps stop: let a study end early."""

import time
from typing import Annotated

import typer

from sweeps.choose import manual
from sweeps.commands import MULTIRUN, Name, Root, app, console, jobs_of, read
from sweeps.errors import UserError
from sweeps.files import holder, write_whole
from sweeps.launchers.slurm.queue import take_back
from sweeps.record import definition
from sweeps.record.study import StudySnapshot
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.wording import counted


@app.command()
def stop(
    name: Name,
    root: Root = MULTIRUN,
    trial: Annotated[int | None, typer.Option(help="end this trial alone, for good: it counts as pruned")] = None,
) -> None:
    """Let a study's running trials end after their epoch, and cancel those that wait; it can go on later."""
    folder = (root / name).absolute()
    if trial is not None:
        summary, _ = read(name, root)
        if not holder(folder / "driver.lock") and not jobs_of(summary):
            raise UserError(f"study {name} is not running, and so is none of its trials")
        console.print(manual.end_trial(summary, trial), soft_wrap=True)
    elif driver := holder(folder / "driver.lock"):
        write_whole(folder / "stop", "")
        console.print(f"asked {driver} to stop; waiting for its trials to end their epoch")
        while holder(folder / "driver.lock"):
            time.sleep(0.1)
        console.print(f"stopped; go on with: {definition.sweeps_line('resume', folder)}", soft_wrap=True)
    else:
        _stop_jobs(read(name, root)[0])


def _stop_jobs(summary: StudySnapshot) -> None:
    """What a driver that is gone left in SLURM."""
    jobs = jobs_of(summary)
    if not jobs:
        console.print(f"study {summary.name} is not running")
        return
    for row in summary.rows:
        if row.state is State.RUNNING and (attempt := TrialFolder(row.folder).newest()):
            attempt.request_stop(State.CANCELLED)
    take_back(summary.folder, jobs)
    running = sum(job.state != "PENDING" for job in jobs)
    console.print(
        f"cancelled {counted(len(jobs) - running, 'job')} that waited; {running} end after their trials' epoch"
    )
