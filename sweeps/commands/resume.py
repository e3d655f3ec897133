"""python -m sweeps resume: resume a study, retry trials, add a trial."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from sweeps.choose import manual
from sweeps.commands import MULTIRUN, Name, Root, command, console, has_driver, read, working_folder
from sweeps.errors import UserError
from sweeps.files import Lock, LockHeld
from sweeps.record import definition
from sweeps.record.definition import Definition
from sweeps.record.place import is_usual, resume_line
from sweeps.record.study import StudySnapshot

_RETRIED = ("failed", "diverged", "out_of_memory", "timed_out", "lost", "infeasible")


@command()
def resume(
    name: Name,
    root: Root = MULTIRUN,
    retry: Annotated[str, typer.Option(help=f"also retry trials in some of these states: {','.join(_RETRIED)}")] = "",
    trials: Annotated[str, typer.Option(help="retry only the trials of these numbers, as in 3,7")] = "",
    add: Annotated[
        str | None,
        typer.Option(help='add a trial with these params, also while the study runs: "lr=0.003 batch_size=48"'),
    ] = None,
) -> None:
    """Resume a study with the command that started it."""
    folder, definition_ = definition.find(name, root)
    _refuse_moved(folder, definition_)
    if add is not None:
        study, _ = read(name, root)
        request = manual.add_point(definition_, study, add)
        if has_driver(folder, request, "added: the study recorded the trial and starts it when a slot is free"):
            return
    if retry or trials:
        _reopen(*read(name, root), retry or ",".join(_RETRIED), trials)
    line = resume_line(definition_, folder)
    definition.refuse_foreign(folder, f"cd {shlex.quote(definition_.working_folder)} && {line}")
    console.print(line, soft_wrap=True)
    os.chdir(working_folder(definition_))
    words = shlex.split(line)
    os.execvp(words[0], words)  # noqa: S606 - the command that the user typed, without a shell


def _refuse_moved(folder: Path, definition_: Definition) -> None:
    """Raise UserError if the study was renamed or copied, because its command would resume or start another study."""
    usual = is_usual(definition_)
    if usual and folder.name != definition_.name and folder.parent == Path(definition_.working_folder, MULTIRUN):
        original = folder.with_name(definition_.name)
        raise UserError(
            f"{folder} is study {definition_.name}, renamed or copied: its command would resume {original}.\n"
            f"Move the folder first: {shlex.join(['mv', str(folder), str(original)])}"
        )


def _reopen(study: StudySnapshot, definition_: Definition, retry: str, trials: str) -> None:
    """Reopen the trials in the states `retry`. With `trials`, reopen only these numbers. Raises UserError."""
    from sweeps.record.writer import Record
    from sweeps.study.reading import blank

    states = retry.replace(" ", "").split(",")
    if wrong := [state for state in states if state not in _RETRIED]:
        raise UserError(
            f"--retry {wrong[0]}: not a state that can be retried.\n"
            f"Choose among {', '.join(_RETRIED)}, as in --retry failed,lost"
        )
    if not all(word.strip().isdecimal() for word in trials.split(",") if trials):
        raise UserError(f"--trials {trials}: not a list of trial numbers.\nType numbers, as in --trials 3,7")
    typed = {int(word) for word in trials.split(",") if trials}
    ended = {trial.number: trial.state.value for trial in study.rows if not trial.unknown}
    matching = [number for number, state in ended.items() if state in states]
    numbers = [number for number in matching if not typed or number in typed]
    if not numbers or not typed.issubset(numbers):
        counts = ", ".join(f"{[*ended.values()].count(state)} {state}" for state in _RETRIED)
        hint = f"\nChoose among: --trials {','.join(map(str, matching))}" if matching else ""
        raise UserError(f"study {study.name} has no such trials to retry. It has: {counts}{hint}")
    try:
        lock = Lock(study.folder / "driver.lock")
    except LockHeld as error:
        stop_line = definition.sweeps_line("stop", study.folder)
        raise UserError(f"study {study.name} is being run by {error}.\nStop it first: {stop_line}") from None
    record = Record(blank(study.folder, definition_))
    record.open(definition_.command)
    record.reopen(numbers)
    lock.release()
    console.print(f"retries trials {', '.join(map(str, numbers))}")
