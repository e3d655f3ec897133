"""python -m sweeps resume: go on with a study, retry trials, add points."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from sweeps.choose import manual
from sweeps.commands import MULTIRUN, Name, Root, app, began_in, console, read
from sweeps.errors import UserError
from sweeps.files import Lock, LockHeld, holder
from sweeps.record import definition
from sweeps.record.definition import Definition
from sweeps.record.study import StudySnapshot

_ANSWER_S = 15.0
_RETRIED = ("failed", "diverged", "out_of_memory", "timed_out", "lost", "infeasible")


@app.command()
def resume(
    name: Name,
    root: Root = MULTIRUN,
    retry: Annotated[str, typer.Option(help=f"also the trials that ended so: {', '.join(_RETRIED)}")] = "",
    trials: Annotated[str, typer.Option(help="of those only these, as 3,7")] = "",
    add: Annotated[
        str | None, typer.Option(help='try this point too, also while the study runs: "lr=0.003 batch_size=48"')
    ] = None,
) -> None:
    """Go on with a study, with the command that started it."""
    folder, definition_ = definition.find(name, root)
    _refuse_moved(folder, definition_)
    if add is not None and _add(*read(name, root), add):
        return
    if retry or trials:
        _reopen(*read(name, root), retry or ",".join(_RETRIED), trials)
    line = definition.resume_line(definition_)
    console.print(line, soft_wrap=True)
    os.chdir(began_in(definition_))
    words = shlex.split(line)
    os.execvp(words[0], words)  # noqa: S606 - the command that the user typed, without a shell


def _refuse_moved(folder: Path, definition_: Definition) -> None:
    """Raise UserError for a study whose command would go on with, or begin, another one: it was renamed or copied."""
    usual = not any(word.startswith("hydra.sweep.dir=") for word in definition_.command)
    if usual and folder.name != definition_.name and folder.parent == Path(definition_.working_folder, MULTIRUN):
        own = folder.with_name(definition_.name)
        raise UserError(
            f"{folder} is the study {definition_.name}, renamed or copied: its command goes on in {own}\n"
            f"Move it there first: {shlex.join(['mv', str(folder), str(own)])}"
        )


def _add(summary: StudySnapshot, definition_: Definition, text: str) -> bool:
    """Add a trial by hand. True if a driver runs, which takes it."""
    file = manual.add_point(definition_, summary, text)
    driver = holder(summary.folder / "driver.lock")
    if driver is None:
        return False
    waits = f"{driver} has not looked at it; it is tried by the next one at the latest"
    console.print(manual.wait_for_driver(file, _ANSWER_S) or waits, soft_wrap=True)
    return True


def _reopen(summary: StudySnapshot, definition_: Definition, retry: str, trials: str) -> None:
    from sweeps.study.reading import blank
    from sweeps.study.upgrade import open_record

    states = retry.replace(" ", "").split(",")
    if wrong := [state for state in states if state not in _RETRIED]:
        raise UserError(f"--retry {wrong[0]}: choose among {', '.join(_RETRIED)}, as in --retry failed,lost")
    if not all(word.strip().isdecimal() for word in trials.split(",") if trials):
        raise UserError(f"--trials {trials}: give the numbers of trials, as in --trials 3,7")
    wanted = {int(word) for word in trials.split(",") if trials}
    ended = {row.number: row.state.value for row in summary.rows if not row.unknown}
    found = [number for number, end in ended.items() if end in states and (not wanted or number in wanted)]
    if not found or not wanted.issubset(found):
        counts = ", ".join(f"{[*ended.values()].count(state)} {state}" for state in _RETRIED)
        fit = ",".join(str(number) for number, end in ended.items() if end in states)
        hint = f"\nThose that fit: --trials {fit}" if fit else ""
        raise UserError(f"study {summary.name} has no such trials to retry. It has: {counts}{hint}")
    try:
        lock = Lock(summary.folder / "driver.lock")
    except LockHeld as error:
        stop_line = definition.sweeps_line("stop", summary.folder)
        raise UserError(f"study {summary.name} is being run by {error}. End it first: {stop_line}") from None
    open_record(blank(summary.folder, definition_), definition_).reopen(found)
    lock.release()
    console.print(f"retries trials {', '.join(map(str, found))}")
