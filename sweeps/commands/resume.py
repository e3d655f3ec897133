"""sweepyard resume: resume a study, retry trials, add a trial."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.base.files import holder
from sweeps.choose import manual
from sweeps.commands import (
    MULTIRUN,
    Name,
    Root,
    command,
    console,
    has_driver,
    numbers_of,
    read,
    working_folder,
)
from sweeps.commands.changes import RETRIED, change_line
from sweeps.record import study_file
from sweeps.record.definition import Definition
from sweeps.record.place import is_usual, resume_line
from sweeps.record.study import StudySnapshot


@command()
def resume(
    name: Name,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="settings of the launcher to change: hydra.launcher.mem_gb=16",
        ),
    ] = None,
    root: Root = MULTIRUN,
    retry: Annotated[
        str, typer.Option(help=f"also retry trials in some of these states: {','.join(RETRIED)}")
    ] = "",
    trials: Annotated[
        str, typer.Option(help="retry only the trials of these numbers, as in 3,7 or 0-4")
    ] = "",
    add: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                'add a trial with these params, also while the study runs: "lr=0.003 batch_size=48"'
                "; may be repeated"
            )
        ),
    ] = None,
) -> None:
    """Resume a study with the command that started it."""
    from sweeps.study.folder.reading import read_space

    folder, definition = study_file.find(name, root)
    refuse_moved(folder, definition)
    if add:
        study, _ = read(name, root)
        requests = manual.add_points(definition, read_space(definition), study, add)
        answer = "added: the study recorded the trial and starts it when a slot is free"
        answered = [has_driver(folder, request, answer) for request in requests]
        if all(answered):
            return
    if retry or trials:
        _request_retries(read(name, root)[0], retry or ",".join(RETRIED), trials)
    line = resume_line(definition, folder)
    if changes:
        line = change_line(definition, read(name, root)[0], changes)
    drive_on(folder, definition, line)


def drive_on(folder: Path, definition: Definition, line: str) -> None:
    """Turn this process into the study's own command. Raises UserError for another user's study."""
    study_file.refuse_foreign(folder, f"cd {shlex.quote(definition.working_folder)} && {line}")
    console.print(line)
    os.chdir(working_folder(definition))
    words = shlex.split(line)
    os.execvp(words[0], words)  # noqa: S606 - the command that the user typed, without a shell


def refuse_moved(folder: Path, definition: Definition) -> None:
    """Raise UserError if the study was renamed or copied, because its command would resume or start
    another study."""
    is_beside = folder.parent == Path(definition.working_folder, MULTIRUN)
    if folder.name == definition.name or not is_beside or not is_usual(definition):
        return
    original = folder.with_name(definition.name)
    if original.exists():
        raise UserError(
            f"{folder} is a copy of study {definition.name}.\n"
            f"Resume the study itself: {study_file.sweeps_line('resume', original)}"
        )
    raise UserError(
        f"{folder} is study {definition.name}, renamed: its command would resume"
        f" {original}.\nMove the folder first: {shlex.join(['mv', str(folder), str(original)])}"
    )


def _request_retries(study: StudySnapshot, retry: str, trials: str) -> None:
    """Request to retry the trials in the states `retry`; with `trials`, only these numbers. Raises
    UserError."""
    from sweeps.study.run.requests import request_retries

    numbers = _numbers_to_retry(study, _states(retry), {*numbers_of(trials)})
    refuse_running(study)
    request_retries(study.folder, numbers)


def refuse_running(study: StudySnapshot) -> None:
    """Raise UserError if a driver runs the study."""
    if process := holder(study.folder / "driver.lock"):
        stop_line = study_file.sweeps_line("stop", study.folder)
        raise UserError(
            f"study {study.name} is being run by {process}.\nStop it first: {stop_line}"
        )


def _states(retry: str) -> list[str]:
    """Return the states that were typed. Raises UserError for one that cannot be retried."""
    states = retry.replace(" ", "").split(",")
    for state in states:
        if state not in RETRIED:
            raise UserError(
                f"--retry {state}: not a state that can be retried.\n"
                f"Choose among {', '.join(RETRIED)}, as in --retry failed,lost"
            )
    return states


def _numbers_to_retry(study: StudySnapshot, states: Sequence[str], typed: set[int]) -> list[int]:
    """Return the trials to retry. Raises UserError if there are none, or if one that was typed has
    another state."""
    state_of = {trial.number: trial.state.value for trial in study.rows if not trial.unknown}
    matching = [number for number, state in state_of.items() if state in states]
    numbers = [number for number in matching if not typed or number in typed]
    if numbers and typed.issubset(numbers):
        return numbers

    ended = list(state_of.values())
    counts = ", ".join(f"{ended.count(state)} {state}" for state in RETRIED)
    hint = f"\nChoose among: --trials {','.join(map(str, matching))}" if matching else ""
    raise UserError(f"study {study.name} has no such trials to retry. It has: {counts}{hint}")
