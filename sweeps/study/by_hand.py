"""What a person does to single trials of a study: ends one, or adds one, while its driver runs or before the next does.

A trial that is added is a file in the study's folder, `added/<when>.json` with its point, until the driver has recorded
it in the journal under that name. One that cannot be is renamed, `<when>.refused`, and says why.
"""

import json
import shlex
import time
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.files import Unreadable, read_json, write_whole
from sweeps.results.summary import Row, Summary
from sweeps.study.compose import explain
from sweeps.study.definition import Definition
from sweeps.study.search_space import SearchSpace, canonical, point_of
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Point, State

_FOLDER = "added"


def end(summary: Summary, number: int) -> str:
    """Ask a trial that runs, or is about to, to end after its epoch as if it were pruned. Returns what happens."""
    row = next((row for row in summary.rows if row.number == number), None)
    newest = TrialFolder(row.folder).newest() if row else None
    if row is None or newest is None or newest.is_over:
        running = ", ".join(str(row.number) for row in summary.rows if row.state is State.RUNNING) or "none"
        what = f"is {row.state}" if row else "does not exist"
        raise UserError(f"trial {number} of study {summary.name} {what}. Those that run: {running}")
    if newest.stop_requested() is None:
        newest.request_stop(State.PRUNED)
    when = "when it next reports" if row.state is State.RUNNING else "with its first epoch: it waits for room"
    return f"trial {number} ends {when}, and counts as pruned"


def add(definition: Definition, summary: Summary, text: str) -> Path:
    """Have the study try the point of this text, as in "lr=0.003 batch_size=48". Returns the file that says so.

    Raises UserError if it is no point of this study, as far as its definition tells, or was tried already.
    """
    keys = {name.partition(" under ")[0].lstrip("+"): name.partition(" under ")[0] for name in definition.parameters}
    known = ", ".join(keys)
    if definition.search.get("custom_search_space", "None") != "None":
        raise UserError(f"study {summary.name} has a search space in code: no point can be added to it by hand")
    try:
        point = point_of(OverridesParser.create().parse_overrides(shlex.split(text)))
    except (HydraException, ValueError) as error:
        said = explain(error, DictConfig({})) if isinstance(error, HydraException) else str(error)
        raise UserError(f"--add '{text}' cannot be read: {said}".partition("\n")[0]) from error
    if not point or (wrong := [key for key in point if key.lstrip("+") not in keys]):
        what = f"{wrong[0]} is not what study {summary.name} sweeps" if point else "it names no value"
        raise UserError(f"--add '{text}': {what}\nGive a value for each of: {known}")
    point = {keys[key.lstrip("+")]: value for key, value in point.items()}
    refuse_twice(point, summary.rows)
    file = summary.folder / _FOLDER / f"{time.time_ns()}.json"
    file.parent.mkdir(exist_ok=True)
    write_whole(file, json.dumps(point))
    return file


def refuse_twice(point: Point, rows: list[Row]) -> None:
    """Raise UserError if a trial has this point."""
    for row in rows:
        if canonical(row.params) == canonical({**point, **row.repeat.get("seed", {})}):
            raise UserError(f"trial {row.number} is that already ({row.name}): it is {row.state}, and not added again")


def waiting(study: Path) -> list[Path]:
    """The files of what was added and is recorded nowhere yet, oldest first."""
    return sorted((study / _FOLDER).glob("*.json"))


def read(file: Path, space: SearchSpace) -> Point:
    """The point of one. Raises UserError if it is none of this space, or the file is damaged."""
    try:
        point: Point = read_json(file) or {}
    except Unreadable as error:
        raise UserError(str(error)) from error
    there = {one.key for one in space.parameters if space.exists(one, point)}
    shown = " ".join(f"{key}={value}" for key, value in point.items())
    if lacking := sorted(there - point.keys()):
        raise UserError(
            f"'{shown}' cannot be added: it has no {lacking[0]}. Give a value for each of: {', '.join(there)}"
        )
    if needless := sorted(point.keys() - there):
        raise UserError(f"'{shown}' cannot be added: {needless[0]} does not exist beside the others. Leave it out")
    return point


def refuse(file: Path, why: UserError) -> None:
    write_whole(file.with_suffix(".refused"), str(why))
    file.unlink(missing_ok=True)


def answer(file: Path, for_s: float) -> str:
    """What the driver makes of it, in words; nothing if it has not looked within `for_s`. Raises UserError if it will
    not have it.
    """
    deadline, refused = time.monotonic() + for_s, file.with_suffix(".refused")
    while file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if refused.exists():
        said = refused.read_text()
        refused.unlink(missing_ok=True)
        raise UserError(said)
    return "" if file.exists() else "the study has it, and starts it when there is room"
