"""python -m sweeps list, status: what there is, and how it stands."""

from collections import Counter
from statistics import fmean

from rich.table import Column, Table
from rich.text import Text

from sweeps.commands import MULTIRUN, Name, Root, app, console, jobs_of, newest_first, read, store_of
from sweeps.errors import UserError
from sweeps.files import holder
from sweeps.launchers.slurm.queue import SlurmError
from sweeps.record import configurations, definition
from sweeps.record.definition import Definition
from sweeps.record.study import StudySnapshot
from sweeps.trial.job import State


@app.command("list")
def list_studies(root: Root = MULTIRUN) -> None:
    """All studies, newest first."""
    study = Column("study", no_wrap=True, overflow="fold")  # whole, since it is what one types
    best = Column("best", overflow="fold")
    shown, troubles = Table(study, "trials", "pruned", "failed", best, "driver"), []
    for name in newest_first(root):
        try:
            summary, _ = read(name, root)
            driver = str(holder(summary.folder / "driver.lock") or "").partition(" since ")[0]
        except (UserError, OSError) as error:  # of this study alone
            shown.add_row(name, "?", "?", "?", "(see below)", "")
            troubles.append(str(error).splitlines()[0])
            continue
        top = [f"{summary.objective[0]}={row.result[0]:.6g}  {row.name}" for row in summary.top(1)]
        if group := configurations.best(summary):
            top = [f"mean {summary.objective[0]}={fmean(group.values):.6g}  {group.name}"]
        counts = summary.count(State.PRUNED, State.INFEASIBLE), len(summary.bad())
        pruned, failed = (str(count or "") for count in counts)
        shown.add_row(name, f"{summary.over()} of {summary.total}", pruned, failed, Text("".join(top)), driver)
    if not shown.row_count:
        console.print(f"there are no studies in {root}; start one with sweep.py -m")
        return
    console.print(shown)
    for trouble in troubles:
        console.print(trouble, soft_wrap=True)


@app.command()
def status(name: Name, root: Root = MULTIRUN) -> None:
    """How a study stands: counts, slots, what runs, what waits and why, the best trials, what went wrong."""
    from sweeps.results.status import show_status

    summary, definition_ = read(name, root)
    driver = holder(summary.folder / "driver.lock")
    show_status(summary, str(driver or ""), _jobs_in_words(summary), _where(summary, definition_))
    if summary.done:
        console.print(f"done: {summary.done}", soft_wrap=True)
    elif not driver and summary.over() < (summary.total or 0):
        console.print(f"not finished; go on with: {definition.resume_line(definition_)}", soft_wrap=True)


def _where(summary: StudySnapshot, definition_: Definition) -> str:
    from sweeps.tracking.registry import dashboard_line

    try:
        return dashboard_line(store_of(definition_), summary)
    except (UserError, OSError):  # a variable is not set here, the folder is gone: `ui` says which
        return dashboard_line("", summary)


def _jobs_in_words(summary: StudySnapshot) -> str:
    """What SLURM still has of a study; empty if nothing."""
    try:
        jobs = jobs_of(summary)
    except SlurmError as error:
        return f"SLURM does not tell of its jobs: {error}"
    kinds = Counter(f"{job.state} ({job.reason})" if job.state == "PENDING" else job.state for job in jobs)
    return "SLURM jobs: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) if jobs else ""
