"""sweepyard list, status: the studies in a folder, and the state of one study."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from rich.table import Column, Table
from rich.text import Text

from sweeps.analysis import configurations
from sweeps.base.errors import UserError
from sweeps.base.files import holder
from sweeps.commands import MULTIRUN, Name, Root, command, console, jobs_of, read, store_of
from sweeps.commands.disk_errors import explain
from sweeps.launchers.contract import DRIVER_LOG
from sweeps.launchers.slurm.queue import SlurmError
from sweeps.launchers.slurm.trials import driver_chain
from sweeps.record import study_file
from sweeps.record.definition import Definition
from sweeps.record.journal import FILE as JOURNAL
from sweeps.record.place import newest_first, resume_line
from sweeps.record.study import StudySnapshot
from sweeps.show.terminal.lines import relative_path
from sweeps.trial.job import State


@command("list")
def list_studies(root: Root = MULTIRUN) -> None:
    """List all studies, newest first."""
    rows: list[list[str]] = []
    problems = []
    for name in newest_first(root):
        try:
            rows.append([name, *_row(read(name, root)[0])])
        except (UserError, OSError) as error:
            # because a corrupt study must not hide the other studies
            rows.append([name, "?", "?", "?", "(see below)", ""])
            problems.append(explain(error).splitlines()[0])
    problems += _describe_unreadable(root)
    for file in sorted(root.glob("*/*/study.json")):
        outer = file.parents[1]
        list_line = shlex.join(["sweepyard", "list", "--root", str(outer)])
        problems.append(f"{outer.name} contains study {file.parent.name}. List it: {list_line}")
    if rows:
        console.print(_table(rows), soft_wrap=False)
    elif not problems:
        console.print(f"there are no studies in {root}; start one with sweep.py -m")
    for problem in problems:
        console.print(problem)


def _row(study: StudySnapshot) -> Iterator[str]:
    """Yield the cells of a study after its name."""
    yield f"{study.over()} of {study.total}"
    yield str(study.count(State.PRUNED, State.INFEASIBLE) or "")
    yield str(sum(trial.state.has_failed for trial in study.rows) or "")
    yield _best(study)
    yield str(holder(study.folder / "driver.lock") or "").partition(" since ")[0]


def _table(rows: Sequence[Sequence[str]]) -> Table:
    """Return the table of the studies, without its empty columns. It may cut the params of the
    best trial and the driver."""
    headers = ["study", "trials", "pruned", "failed", "best", "driver"]
    filled = [place for place, _ in enumerate(headers) if any(row[place] for row in rows)]
    # because the name is what a user types
    name_column = Column("study", no_wrap=True, overflow="fold")
    table = Table(name_column, *(headers[place] for place in filled[1:]))
    for name, *counts, best, driver in rows:
        cut = [Text(words, no_wrap=True, overflow="ellipsis") for words in (best, driver)]
        cells: list[str | Text] = [name, *counts, *cut]
        table.add_row(*(cells[place] for place in filled))
    return table


def _describe_unreadable(root: Path) -> list[str]:
    """Return a line for each folder that may hold a study, but has no definition that one may
    read."""
    problems = []
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        try:
            if (folder / JOURNAL).exists() and not (folder / study_file.FILE).exists():
                problems.append(study_file.explain_missing(folder).splitlines()[0])
        except OSError as error:
            problems.append(explain(error).splitlines()[0])
    return problems


def _best(study: StudySnapshot) -> str:
    """Return the best result, and the params of its configuration or trial."""
    if group := configurations.best(study):
        return f"mean {study.objective[0]}={fmean(group.values):.6g}  {group.name}"
    trial = study.best()
    return f"{study.objective[0]}={trial.result[0]:.6g}  {trial.name}" if trial else ""


@command()
def status(name: Name, root: Root = MULTIRUN) -> None:
    """Show the state of a study.

    Print the number of trials by state, the running trials, why queued trials do not start, the
    best trials, and the errors of failed trials.
    """
    from sweeps.show.terminal.status import show_status
    from sweeps.tracking.registry import dashboard_line

    study, definition = read(name, root)
    driver, next_driver = _describe_drivers(study.folder)
    # because the driver knows, and sites forbid frequent polling
    jobs = "" if driver else _describe_jobs(study)
    store = ""
    with suppress(UserError, OSError):  # because `ui` explains a missing variable or folder
        store = store_of(definition)
    show_status(study, driver, next_driver, jobs, dashboard_line(store, study))
    if study.done:
        console.print(f"done: {study.done}")
    elif not driver and not next_driver:
        _say_what_is_left(study, definition)


def _say_what_is_left(study: StudySnapshot, definition: Definition) -> None:
    """Print how to resume a study without a driver, and how to retry its failed trials."""
    from sweeps.study.run.closing import retry_lines

    if study.over() < (study.total or 0):
        if (log := study.folder / DRIVER_LOG).exists():
            console.print(f"the log of its last driver: {relative_path(log)}")
        console.print(f"not finished. Resume: {resume_line(definition, study.folder)}")
    for line in retry_lines(study):
        console.print(line)


def _describe_drivers(folder: Path) -> tuple[str, str]:
    """Return the driver of the study and, if there is none, the SLURM job in which the next driver
    starts."""
    log = f"; its log: {relative_path(folder / DRIVER_LOG)}"
    if process := holder(folder / "driver.lock"):
        job_id = driver_chain.job_of(folder, process)
        return f"{process}, SLURM job {job_id}{log}" if job_id else str(process), ""
    try:
        jobs = driver_chain.living(folder)
    except SlurmError as error:
        return "", f"none, unless in SLURM: {str(error).splitlines()[0]}"
    return "", f"{jobs[0]}{log}" if jobs else ""


def _describe_jobs(study: StudySnapshot) -> str:
    """Return the number of SLURM jobs by state, or an empty text without jobs."""
    try:
        jobs = jobs_of(study)
    except SlurmError as error:
        return f"SLURM jobs unknown: {error}"
    kinds: Counter[str] = Counter()
    for job in jobs:
        kinds[f"{job.state} ({job.reason})" if job.state == "PENDING" else job.state] += 1
    counts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    return f"SLURM jobs: {counts}" if jobs else ""
