"""python -m sweeps: what already exists, also after its driver is gone."""

import gc
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweeps.errors import UserError
from sweeps.files import Held, Lock, holder, last_lines, write_whole
from sweeps.launchers.slurm.queue import JobInfo, SlurmError, living_jobs, take_back
from sweeps.results.summary import Summary, result_of
from sweeps.study import by_hand, definition
from sweeps.study.definition import Definition
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
_console = Console(highlight=False)

Name = Annotated[str, typer.Argument(help="the study's name, as `list` shows it")]
Root = Annotated[Path, typer.Option(help="the folder that holds the studies")]
Yes = Annotated[bool, typer.Option("--yes", help="do it without asking")]
Target = Annotated[float | None, typer.Option(help="scaling: the objective wanted; by default what all counts reach")]
Predict = Annotated[str, typer.Option(help="scaling: forecast these counts, as 16,32; by default twice the largest")]
_MULTIRUN = Path("multirun")
_ANSWER_S = 15.0
_RETRIED = ("failed", "diverged", "out_of_memory", "timed_out", "lost", "infeasible")


@app.command("list")
def list_studies(root: Root = _MULTIRUN) -> None:
    """All studies, newest first."""
    shown, troubles = Table("study", "trials", "best", "driver"), []
    for found in sorted(root.glob("*/study.json"), key=lambda file: -file.stat().st_mtime):
        try:
            summary, _ = _read(found.parent.name, root)
        except UserError as error:  # of this study alone
            shown.add_row(found.parent.name, "?", "(see below)", "")
            troubles.append(str(error).splitlines()[0])
            continue
        top = [f"{summary.objective[0]}={row.objective[0]:.6g}  {row.name}" for row in summary.top(1)]
        driver = holder(found.parent / "driver.lock")
        shown.add_row(summary.name, f"{summary.over()} of {summary.total}", Text("".join(top)), str(driver or ""))
    _console.print(shown)
    for trouble in troubles:
        _console.print(trouble, soft_wrap=True, markup=False)


@app.command()
def status(name: Name, root: Root = _MULTIRUN) -> None:
    """How a study stands: counts, the best trials, what runs, what went wrong."""
    from sweeps.results.terminal import show_status

    summary, definition_ = _read(name, root)
    driver = holder(summary.folder / "driver.lock")
    show_status(summary, str(driver or "none"), _jobs_in_words(summary))
    if not driver and (why := "".join(last_lines(summary.folder / definition.DONE, 1))):
        _console.print(f"done: {why}", soft_wrap=True, markup=False)
    elif not driver and summary.over() < (summary.total or 0):
        _console.print(f"not finished; go on with: {definition.resume_line(definition_)}", soft_wrap=True, markup=False)


@app.command()
def report(
    name: Name,
    root: Root = _MULTIRUN,
    scaling: Annotated[bool, typer.Option("--scaling", help="show what more GPUs, nodes or ranks brought")] = False,
    target: Target = None,
    predict: Predict = "",
) -> None:
    """Write report.html and trials.csv again."""
    from sweeps.results import report as writer
    from sweeps.results.scaling import COUNTED, EPOCH_TIME, of_study
    from sweeps.results.terminal import show_scaling
    from sweeps.study.storage import read_importance

    wanted, (summary, definition_) = _counts(predict), _read(name, root)
    summary.importance = read_importance(summary.folder, definition_)
    measured = of_study(summary, target, wanted)
    if measured is None and (scaling or target is not None or wanted):
        known = f"{', '.join(COUNTED[:-1])} or {COUNTED[-1]}"
        raise UserError(
            f"study {name} has no scaling to show: for that, trials differ in {known} and report {EPOCH_TIME}\n"
            f"Sweep one, as in gpus=1,2,4, and report {EPOCH_TIME} (s) in two epochs or more, as docs/scaling.md says"
        )
    writer.write(summary, measured)
    if measured and (scaling or target is not None or wanted):
        show_scaling(measured)
    for file in (writer.HTML, writer.CSV):
        _console.print(str(summary.folder / file), soft_wrap=True)


@app.command()
def best(
    name: Name,
    root: Root = _MULTIRUN,
    trial: Annotated[int | None, typer.Option(help="another one than the best, by its number")] = None,
) -> None:
    """Print the command line that trains the best trial again, and write its configuration as a file."""
    from sweeps.study import best as of_best

    summary, definition_ = _read(name, root)
    front = summary.undominated() if trial is None else []
    if len(front) > 1:
        _console.print(f"no other trial dominates one of these {len(front)}; choose with --trial")
    for row in front if len(front) > 1 else [of_best.chosen(summary, trial)]:
        _console.print(f"# trial {row.number}: {row.name}   {result_of(row, summary)}", soft_wrap=True, markup=False)
        words = of_best.command(definition_, row)
        _console.print(of_best.line(words, definition_.working_folder), soft_wrap=True, markup=False)
    if len(front) <= 1:
        words = of_best.write_experiment(definition_, row, summary.folder)
        _console.print(f"# the same from {summary.folder / of_best.EXPERIMENT}", soft_wrap=True, markup=False)
        _console.print(of_best.line(words, definition_.working_folder), soft_wrap=True, markup=False)


@app.command("scaling")
def scaling_of_table(
    table: Annotated[Path, typer.Argument(help="CSV: gpus (nodes, ranks), epoch_time or total_time; docs/scaling.md")],
    output: Annotated[Path | None, typer.Option(help="the page; default: beside the table, .html")] = None,
    target: Target = None,
    predict: Predict = "",
) -> None:
    """The scaling page of a report, from numbers that were measured elsewhere."""
    from sweeps.results.scaling_page import whole_page
    from sweeps.results.scaling_table import read_table
    from sweeps.results.terminal import show_scaling

    measured = read_table(table, target, _counts(predict))
    output = output or table.with_suffix(".html")
    if output.resolve() == table.resolve():
        raise UserError(f"the page would overwrite the table {table}\nName another file with --output page.html")
    if output.is_dir() or not output.parent.is_dir():
        where = f"{output} is a folder" if output.is_dir() else f"there is no folder {output.parent}"
        raise UserError(f"--output {output}: {where}\nName a file in a folder that is there")
    write_whole(output, whole_page(measured))
    show_scaling(measured)
    _console.print(str(output), soft_wrap=True)


def _counts(words: str) -> list[int]:
    """The counts that --predict names."""
    numbers = words.replace(" ", "").split(",") if words else []
    if not all(number.isdecimal() and len(number) < 7 and int(number) for number in numbers):
        raise UserError(f"--predict {words}: give counts from 1 to 999999, as in --predict 16,32")
    return sorted({int(number) for number in numbers})


@app.command()
def resume(
    name: Name,
    root: Root = _MULTIRUN,
    retry: Annotated[str, typer.Option(help=f"also the trials that ended so: {', '.join(_RETRIED)}")] = "",
    trials: Annotated[str, typer.Option(help="of those only these, as 3,7")] = "",
    add: Annotated[
        str, typer.Option(help='try this point too, also while the study runs: "lr=0.003 batch_size=48"')
    ] = "",
) -> None:
    """Go on with a study, with the command that started it."""
    _, definition_ = definition.find(name, root)
    if add and _add(*_read(name, root), add):
        return
    if retry or trials:
        _reopen(*_read(name, root), retry or ",".join(_RETRIED), trials)
    line = definition.resume_line(definition_)
    _console.print(line, soft_wrap=True, markup=False)
    os.chdir(definition_.working_folder)
    words = shlex.split(line)
    os.execvp(words[0], words)  # noqa: S606 - the command that the user typed, without a shell


def _add(summary: Summary, definition_: Definition, text: str) -> bool:
    """Add a trial by hand. True if a driver runs, which takes it."""
    file = by_hand.add(definition_, summary, text)
    driver = holder(summary.folder / "driver.lock")
    if driver is None:
        return False
    waits = f"{driver} has not looked at it; it is tried by the next one at the latest"
    _console.print(by_hand.answer(file, _ANSWER_S) or waits, soft_wrap=True, markup=False)
    return True


def _reopen(summary: Summary, definition_: Definition, retry: str, trials: str) -> None:
    from sweeps.study.storage import rewrite

    states = retry.replace(" ", "").split(",")
    if wrong := [state for state in states if state not in _RETRIED]:
        raise UserError(f"--retry {wrong[0]}: choose among {', '.join(_RETRIED)}, as in --retry failed,lost")
    if not all(word.strip().isdecimal() for word in trials.split(",") if trials):
        raise UserError(f"--trials {trials}: give the numbers of trials, as in --trials 3,7")
    if definition_.storage:
        raise UserError(f"trials in {definition_.storage} have ended for good: Optuna's storages keep an end for ever")
    wanted = {int(word) for word in trials.split(",") if trials}
    ended = {row.number: "infeasible" if row.infeasible else row.state.value for row in summary.rows}
    found = [number for number, end in ended.items() if end in states and (not wanted or number in wanted)]
    if not found or not wanted.issubset(found):
        counts = ", ".join(f"{[*ended.values()].count(state)} {state}" for state in _RETRIED)
        fit = ",".join(str(number) for number, end in ended.items() if end in states)
        hint = f"\nThose that fit: --trials {fit}" if fit else ""
        raise UserError(f"study {summary.name} has no such trials to retry. It has: {counts}{hint}")
    try:
        lock = Lock(summary.folder / "driver.lock")
    except Held as error:
        stop_line = definition.sweeps_line("stop", summary.folder)
        raise UserError(f"study {summary.name} is being run by {error}. End it first: {stop_line}") from None
    rewrite(definition_.name, summary.folder, found)
    lock.release()
    _console.print(f"retries trials {', '.join(map(str, found))}")


@app.command()
def stop(
    name: Name,
    root: Root = _MULTIRUN,
    trial: Annotated[int | None, typer.Option(help="end this trial alone, for good: it counts as pruned")] = None,
) -> None:
    """Let a study's running trials end after their epoch, and cancel those that wait; it can go on later."""
    folder = (root / name).absolute()
    if trial is not None:
        summary, _ = _read(name, root)
        if not holder(folder / "driver.lock") and not _jobs(summary):
            raise UserError(f"study {name} is not running, and so is none of its trials")
        _console.print(by_hand.end(summary, trial), soft_wrap=True)
    elif driver := holder(folder / "driver.lock"):
        write_whole(folder / "stop", "")
        _console.print(f"asked {driver} to stop; waiting for its trials to end their epoch")
        while holder(folder / "driver.lock"):
            time.sleep(0.1)
        _console.print(f"stopped; go on with: {definition.sweeps_line('resume', folder)}", soft_wrap=True)
    else:
        _stop_jobs(_read(name, root)[0])


def _jobs_in_words(summary: Summary) -> str:
    """What SLURM still has of a study; empty if nothing."""
    try:
        jobs = _jobs(summary)
    except SlurmError as error:
        return f"SLURM does not tell of its jobs: {error}"
    kinds = Counter(f"{job.state} ({job.reason})" if job.state == "PENDING" else job.state for job in jobs)
    return "SLURM jobs: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) if jobs else ""


def _jobs(summary: Summary) -> list[JobInfo]:
    return living_jobs(summary.folder, (row.folder for row in summary.rows if not row.state.is_over))


def _stop_jobs(summary: Summary) -> None:
    """What a driver that is gone left in SLURM."""
    jobs = _jobs(summary)
    if not jobs:
        _console.print(f"study {summary.name} is not running")
        return
    for row in summary.rows:
        if row.state is State.RUNNING and (attempt := TrialFolder(row.folder).newest()):
            attempt.request_stop(State.CANCELLED)
    take_back(summary.folder, jobs)
    running = sum(job.state != "PENDING" for job in jobs)
    _console.print(f"cancelled {len(jobs) - running} jobs that waited; {running} end after their trials' epoch")


@app.command()
def refit(
    name: Name,
    root: Root = _MULTIRUN,
    trial: Annotated[int | None, typer.Option(help="another one than the best, by its number")] = None,
    all_data: Annotated[bool, typer.Option("--all-data", help="also on what the study was judged by")] = False,
) -> None:
    """Train the best trial once more, keep its model, and register it in MLflow."""
    from sweeps.study import best, refit
    from sweeps.tracking.registry import register

    summary, definition_ = _read(name, root)
    row = refit.chosen(summary, trial)
    words, folder = refit.command(definition_, summary, row, all_data)
    _console.print(best.line(words, definition_.working_folder), soft_wrap=True, markup=False)
    if code := subprocess.run(words, check=False, cwd=definition_.working_folder).returncode:
        raise SystemExit(code)
    again, _ = _read(folder.name, folder.parent)
    trained = again.rows[0]
    kept = refit.kept_model(summary, trained)
    shown = "  ".join(f"{key}={value:.6g}" for key, value in trained.metrics.items())
    _console.print(f"trial {row.number}, trained once more: {shown}\nits model: {kept}", soft_wrap=True, markup=False)
    tags = refit.tags(summary, row, trained, best.overrides_of(definition_, row))
    version = register(_store(summary, definition_), name, trained.folder, tags)
    _console.print(f"registered in MLflow: {version}" if version else "not registered: the study is in no MLflow")


@app.command()
def archive(name: Name, root: Root = _MULTIRUN, yes: Yes = False) -> None:
    """Pack a study's folder into archive/NAME.tar.gz beside it; MLflow keeps its runs."""
    from sweeps.study import removal

    folder, _ = definition.find(name, root)
    with removal.taken(folder):
        yes or typer.confirm(f"pack {folder} and remove it?", abort=True)
        packed = removal.pack(folder)
    _console.print(f"{packed}\nunpack it with: tar -xzf {packed} -C {folder.parent}", soft_wrap=True)


@app.command()
def delete(name: Name, root: Root = _MULTIRUN, yes: Yes = False) -> None:
    """Delete a study: its folder, and its runs in MLflow with their models. Registered models stay."""
    from sweeps.study import removal, storage
    from sweeps.tracking.registry import delete_runs

    folder, definition_ = definition.find(name, root)
    with removal.taken(folder):
        yes or typer.confirm(f"delete {folder}, and the study's runs in MLflow?", abort=True)
        count = delete_runs(_store(Summary(name, folder, (), (), []), definition_), folder)
        storage.forget(definition_)
        removal.delete(folder)
    _console.print(f"deleted {folder}, and {count} runs in MLflow", soft_wrap=True)


def _store(summary: Summary, definition_: Definition) -> str:
    """The address of the study's MLflow."""
    from sweeps.study.storage import resolved
    from sweeps.tracking.tracker import Tracker

    os.chdir(definition_.working_folder)
    return Tracker(definition_.tracking_uri and resolved(definition_.tracking_uri), "", summary).uri


@app.command()
def ui(name: Name, root: Root = _MULTIRUN, port: int = 5000) -> None:
    """Open MLflow's pages on a study, at 127.0.0.1."""
    from sweeps.study.storage import resolved
    from sweeps.tracking.secrets import without_password
    from sweeps.tracking.tracker import Tracker

    summary, definition_ = _read(name, root)
    os.chdir(definition_.working_folder)
    tracker = Tracker(definition_.tracking_uri and resolved(definition_.tracking_uri), "", summary)
    if tracker.is_server:
        _console.print(f"its runs are at {without_password(tracker.uri)}")
        return
    command = [sys.executable, "-m", "mlflow", "ui", "--port", str(port)]
    os.execvpe(command[0], command, tracker.ui_environment())  # noqa: S606 - without a shell


def _read(name: str, root: Path) -> tuple[Summary, Definition]:
    from sweeps.study.storage import read_summary

    folder, definition_ = definition.find(name, root)
    return read_summary(folder, definition_), definition_


def main() -> None:
    gc.disable()  # to read a long study makes many objects and no garbage
    try:
        app()
    except (UserError, OSError) as error:
        Console(stderr=True, highlight=False).print(str(error), soft_wrap=True, markup=False)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
