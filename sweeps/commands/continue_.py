"""sweepyard continue: let ended and paused trials train longer, from their checkpoints."""

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.choose.rungs import best_to_train_on
from sweeps.commands import MULTIRUN, Name, Root, command, console, read
from sweeps.commands.changes import RETRIED
from sweeps.commands.resume import drive_on, refuse_moved, refuse_running
from sweeps.hydra.near import closest
from sweeps.record import study_file
from sweeps.record.definition import Definition
from sweeps.record.place import resume_line
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.record.trial_config import read_values
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State


@command("continue")
def continue_(
    name: Name,
    root: Root = MULTIRUN,
    top: Annotated[
        int | None, typer.Option(min=1, help="continue so many of the best trials")
    ] = None,
    trial: Annotated[
        list[int] | None, typer.Option(help="continue this trial; may be repeated")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="train up to this epoch: --set epochs=N")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="the longer budget, as in steps=5000"),
    ] = None,
) -> None:
    """Train completed and paused trials longer."""
    from sweeps.study.run.requests import request_retries

    study, definition = read(name, root)
    refuse_moved(study.folder, definition)
    refuse_running(study)
    longer = [*(change or [])]
    if epochs:
        longer.append(f"epochs={epochs}")
    _refuse_twice(longer)
    trials = _choose(study, top, trial or [], longer)
    anew = [_train_anew(definition, chosen, longer) for chosen in trials]
    for chosen, line in zip(trials, anew, strict=True):
        _check(study, chosen, longer, line)
    if not study.done:
        console.print(f"study {study.name} is not finished: its other trials run, too")
    numbers = [chosen.number for chosen in trials]
    request_retries(study.folder, numbers, longer, anew)
    drive_on(study.folder, definition, resume_line(definition, study.folder))


def _refuse_twice(longer: Sequence[str]) -> None:
    """Raise UserError if two words set one key."""
    words: dict[str, str] = {}
    for word in longer:
        key = word.partition("=")[0]
        if key in words:
            raise UserError(f"{words[key]} and {word} conflict.\nRemove one of them")
        words[key] = word


def _train_anew(definition: Definition, trial: TrialRecord, longer: Sequence[str]) -> str:
    """Return the command that trains a trial from the beginning with the longer budget."""
    from sweeps.after import best

    budget = {best.key(word) for word in longer}
    words = [word for word in best.overrides_of(definition, trial) if best.key(word) not in budget]
    overrides = [*words, *longer]
    command = best.rebuild_command(definition, overrides, best.needs_launcher(trial))
    return best.line(command, definition.working_folder)


def _choose(
    study: StudySnapshot, top: int | None, numbers: Sequence[int], longer: Sequence[str]
) -> list[TrialRecord]:
    """Return the trials to continue. Raises UserError if what was typed names none."""
    line = study_file.sweeps_line("continue", study.folder)
    if not longer:
        raise UserError(
            f"continue {study.name}: the longer budget is missing.\n"
            f"Type, for example: {line} --top 3 --epochs 60"
        )
    if (top is None) == (not numbers):
        raise UserError(
            f"continue {study.name}: type either --top or --trial.\n"
            f"Type, for example: {line} --top 3 {shlex.join(['--set', longer[0]])}"
        )
    if numbers:
        return [study.trial(number) for number in numbers]
    best = best_to_train_on(study)[:top]
    if not best:
        raise UserError(
            f"continue {study.name}: no trial has completed or paused.\n"
            f"See: {study_file.sweeps_line('status', study.folder)}"
        )
    return best


def _check(study: StudySnapshot, trial: TrialRecord, longer: Sequence[str], anew: str) -> None:
    """Raise UserError if a trial cannot train on, or not longer. The command `anew` trains it from
    the beginning."""
    if trial.state not in (State.COMPLETED, State.PAUSED):
        problem = f"the trial is {trial.state}; completed and paused trials can train longer"
        raise UserError(f"--trial {trial.number}: {problem}.\n{_advise(study, trial)}")
    folder = TrialFolder(trial.folder)
    has_checkpoint = bool(folder.checkpoints())
    if not has_checkpoint and (setting := folder.deleted_by()):
        raise UserError(
            f"trial {trial.number}: its checkpoint was deleted, because of"
            f" hydra.sweeper.keep_checkpoints={setting}.\nTrain it from the beginning: {anew}"
        )
    if not has_checkpoint:
        raise UserError(
            f"--trial {trial.number}: it has no checkpoint in {folder.checkpoint}."
            "\nLet your training save one in trial.checkpoint_folder, and train it from the"
            f" beginning: {anew}"
        )
    values = read_values(trial.folder)
    for word in longer:
        _check_word(trial, word, values)


def _advise(study: StudySnapshot, trial: TrialRecord) -> str:
    """Return what to type for a trial that has neither completed nor paused."""
    resume = study_file.sweeps_line("resume", study.folder)
    if trial.state in RETRIED:
        return f"To run it again: {resume} --retry {trial.state} --trials {trial.number}"
    if not trial.state.is_over:
        return f"Let it end first: {resume}"
    return f"See which trials completed: {study_file.sweeps_line('status', study.folder)}"


def _check_word(trial: TrialRecord, word: str, values: dict[str, object]) -> None:
    """Raise UserError if a word is no override, or no longer budget than the trial had."""
    key, equals, text = word.partition("=")
    if not equals or not text:
        raise UserError(f"--set {word}: it is no KEY=VALUE.\nType, for example: --set steps=5000")
    if key.lstrip("+") in trial.params:
        raise UserError(
            f"--set {word}: {key} is swept, so that another value is another trial.\n"
            "Type the key of the budget, as in --set steps=5000"
        )
    _refuse_missing(key, text, values)
    _refuse_less(trial, key, text, str(values.get(key)))


def _refuse_missing(key: str, text: str, values: dict[str, object]) -> None:
    """Raise UserError if the trial has no such key, but one of a near name."""
    near = "" if key in values or key.startswith("+") else closest(key, values)
    if near:
        raise UserError(
            f"--set {key}={text}: the trial has no {key}. Did you mean '{near}'?\n"
            f"Type: --set {near}={text}"
        )


def _refuse_less(trial: TrialRecord, key: str, text: str, before: str) -> None:
    """Raise UserError if the trial had as large a budget before."""
    # because another key than the budget's may have any value
    are_counts = before.isdecimal() and text.isdecimal()
    if are_counts and int(text) <= int(before):
        flag = f"--{key} " if key == "epochs" else f"--set {key}="
        raise UserError(
            f"{flag}{text}: trial {trial.number} was trained with {key}={before}.\n"
            f"Type more, as in: {flag}{2 * int(before)}"
        )
