"""python -m sweeps: what already exists, also after its driver is gone."""

import gc
import os
import shlex
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sweeps import definition
from sweeps.definition import Definition
from sweeps.errors import UserError
from sweeps.launchers.slurm_states import JobInfo
from sweeps.launchers.slurm_study import living_jobs, take_back
from sweeps.locks import holder, is_held
from sweeps.summary import Summary, with_results
from sweeps.trial_folder import State, TrialFolder

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
_console = Console(highlight=False)

Name = Annotated[str, typer.Argument(help="the study's name, as `list` shows it")]
Root = Annotated[Path, typer.Option(help="the folder that holds the studies")]
_MULTIRUN = Path("multirun")


@app.command("list")
def list_studies(root: Root = _MULTIRUN) -> None:
    """All studies, newest first."""
    shown = Table("study", "trials", "best", "driver")
    for folder in sorted(root.glob("*/study.json"), key=lambda file: -file.stat().st_mtime):
        summary, _ = _read(folder.parent.name, root)
        best = summary.best()
        lock = folder.parent / "driver.lock"
        shown.add_row(
            summary.name,
            f"{summary.over()} of {summary.total}",
            f"{summary.objective[0]}={best.objective[0]:.6g}  {best.name}" if best else "",
            holder(lock) if is_held(lock) else "",
        )
    _console.print(shown)


@app.command()
def status(name: Name, root: Root = _MULTIRUN) -> None:
    """How a study stands: counts, the best trials, what runs, what went wrong."""
    from sweeps.terminal import show_status

    summary, definition_ = _read(name, root)
    lock = summary.folder / "driver.lock"
    running = is_held(lock)
    jobs = _jobs(summary)
    show_status(summary, driver=holder(lock) if running else None, jobs=jobs)
    if not running and summary.over() < (summary.total or 0):
        _console.print(
            f"not finished; go on with: {definition.resume_line(definition_)}",
            soft_wrap=True,
            markup=False,
        )


@app.command()
def report(name: Name, root: Root = _MULTIRUN) -> None:
    """Write report.html and trials.csv again."""
    from sweeps import report as writer

    summary, _ = _read(name, root)
    writer.write(with_results(summary))
    for file in (writer.HTML, writer.CSV):
        _console.print(str(summary.folder / file), soft_wrap=True)


@app.command()
def resume(name: Name, root: Root = _MULTIRUN) -> None:
    """Go on with a study, with the command that started it."""
    _, definition_ = _read(name, root)
    line = definition.resume_line(definition_)
    _console.print(line, soft_wrap=True, markup=False)
    os.chdir(definition_.working_folder)
    words = shlex.split(line)
    os.execvp(words[0], words)  # noqa: S606 - the command that the user typed, without a shell


@app.command()
def stop(name: Name, root: Root = _MULTIRUN) -> None:
    """Let a study's running trials end after their epoch, and cancel those that wait; it can go on later."""
    folder = _folder(name, root)
    lock = folder / "driver.lock"
    if not is_held(lock):
        _stop_jobs(name, root)
        return
    TrialFolder(folder).request_stop(State.CANCELLED)
    _console.print(f"asked {holder(lock)} to stop; waiting for its trials to end their epoch")
    while is_held(lock):
        time.sleep(0.1)
    _console.print(f"stopped; go on with: {definition.sweeps_line('resume', folder)}", soft_wrap=True)


def _jobs(summary: Summary) -> list[JobInfo] | str:
    return living_jobs(summary.folder, (row.folder for row in summary.rows if not row.attempts))


def _stop_jobs(name: str, root: Path) -> None:
    """What a driver that is gone left in SLURM."""
    summary, _ = _read(name, root)
    jobs = _jobs(summary)
    if isinstance(jobs, str):
        raise UserError(f"SLURM does not answer: {jobs}")
    if not jobs:
        _console.print(f"study {name} is not running")
        return
    for row in summary.rows:
        if row.state is State.RUNNING:
            TrialFolder(row.folder).request_stop(State.CANCELLED)
    if problem := take_back(summary.folder, jobs):
        raise UserError(f"the jobs that wait could not be cancelled: {problem}")
    running = sum(job.state != "PENDING" for job in jobs)
    _console.print(
        f"cancelled {len(jobs) - running} jobs that waited; {running} end after their trials' epoch"
    )


@app.command()
def ui(name: Name, root: Root = _MULTIRUN, port: int = 5000) -> None:
    """Open MLflow's pages on a study, at 127.0.0.1."""
    from sweeps.tracking import Tracker

    summary, definition_ = _read(name, root)
    os.chdir(definition_.working_folder)
    tracker = Tracker(definition_.tracking_uri, "", summary)
    command = tracker.command()
    if command is None:
        _console.print(f"its runs are at {tracker.uri}")
        return
    words = shlex.split(command)
    os.execvp("env", ["env", *words[:-1], str(port)])  # noqa: S606 - without a shell


def _read(name: str, root: Path) -> tuple[Summary, Definition]:
    from sweeps.study_storage import read_summary

    folder = _folder(name, root)
    definition_ = definition.read(folder)
    return read_summary(folder, definition_), definition_


def _folder(name: str, root: Path) -> Path:
    folder = (root / name).absolute()
    if not (folder / "study.json").exists():
        known = ", ".join(sorted(file.parent.name for file in root.glob("*/study.json")))
        raise UserError(
            f"there is no study {name} in {root}. There is: {known or 'none; start one with sweep.py -m'}"
        )
    return folder


def main() -> None:
    gc.disable()  # to read a long study makes many objects and no garbage
    try:
        app()
    except UserError as error:
        Console(stderr=True, highlight=False).print(str(error), soft_wrap=True, markup=False)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
