"""What a person does to single trials of a study: ends one, or adds one, while its driver runs or before the next does.

A trial that is added is a file in the study's folder, `added/<when>.json` with its point, until the driver has recorded
it in the journal under that name. A file that cannot be added is renamed, `<when>.refused`, and says why.
"""

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from sweeps.choose import Changes, Next, Proposal
from sweeps.choose.repeats import Seeds
from sweeps.errors import UserError
from sweeps.files import CorruptFile, read_json, write_whole
from sweeps.record.definition import Definition
from sweeps.record.grammar import point_of
from sweeps.record.space import SearchSpace, canonical
from sweeps.record.study import Added, By, StudySnapshot, TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Point, State

_FOLDER = "added"


@dataclass
class Manual:
    """Begins what a person added, as a configuration: a grid that repeats its points runs it under each seed."""

    seeds: Seeds
    _changes: Changes = field(default_factory=Changes)
    _begun: dict[str, list[Any]] = field(default_factory=dict)  # the seeds of trials, by the name they were added under

    def next(self, study: StudySnapshot) -> Next:
        """Return the oldest trial that was added and not begun."""
        for number in self._changes.read_new(study):
            trial = study.rows[number]
            if trial.added and trial.of is None:
                self._begun.setdefault(trial.added, []).append(trial.params.get(self.seeds.key))
        for added in study.added:
            begun = self._begun.get(added.name, [])
            for seed in self._wanted(added) if self.seeds.in_grid or not begun else ():
                if seed not in begun:
                    return Next([self._proposal(added, seed)])
        return Next()

    def _wanted(self, added: Added) -> Sequence[Any]:
        """Return the seeds to begin a trial under; None stands for no seed of ours."""
        if not self.seeds.repeated or self.seeds.key in added.params:
            return [added.params.get(self.seeds.key)]
        return self.seeds.repeated if self.seeds.in_grid else self.seeds.repeated[:1]

    def _proposal(self, added: Added, seed: Any) -> Proposal:
        own = {self.seeds.key: seed} if self.seeds.repeated and self.seeds.key not in added.params else {}
        seeded = {} if self.seeds.in_grid else own
        return Proposal({**added.params, **own}, By.PERSON, seed=seeded, outside=added.outside, added=added.name)


def end_trial(summary: StudySnapshot, number: int) -> str:
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


def add_point(definition: Definition, summary: StudySnapshot, text: str) -> Path:
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
        raise UserError(f"--add '{text}' cannot be read: {error}".partition("\n")[0]) from error
    if not point or (wrong := [key for key in point if key.lstrip("+") not in keys]):
        what = f"{wrong[0]} is not what study {summary.name} sweeps" if point else "it names no value"
        raise UserError(f"--add '{text}': {what}\nGive a value for each of: {known}")
    point = {keys[key.lstrip("+")]: value for key, value in point.items()}
    refuse_duplicate(point, summary.rows, summary.added)
    file = summary.folder / _FOLDER / f"{time.time_ns()}.json"
    file.parent.mkdir(exist_ok=True)
    write_whole(file, json.dumps(point))
    return file


def refuse_duplicate(point: Point, rows: Sequence[TrialRecord], added: Sequence[Added] = ()) -> None:
    """Raise UserError if a trial has this point, or was added with it and waits for its turn."""
    for row in rows:
        if canonical(row.params) == canonical({**point, **row.seed}):
            raise UserError(f"trial {row.number} is that already ({row.name}): it is {row.state}, and not added again")
    if canonical(point) in [canonical(other.params) for other in added]:
        shown = " ".join(f"{key}={value}" for key, value in point.items())
        raise UserError(f"'{shown}' was added before, and is not added again")


def list_added_files(study: Path) -> list[Path]:
    """The files of what was added and is recorded nowhere yet, oldest first."""
    return sorted((study / _FOLDER).glob("*.json"))


def read_point(file: Path, space: SearchSpace, seeds: Seeds) -> Added:
    """Return what a file has added. Raises UserError if it is no point of this study, or the file is damaged."""
    try:
        point: Point = read_json(file) or {}
    except CorruptFile as error:
        raise UserError(str(error)) from error
    there = dict.fromkeys(one.key for one in space.parameters if space.exists(one, point))
    if seeds.in_grid and seeds.key not in point:
        there.pop(seeds.key, None)  # it runs under each seed
    shown = " ".join(f"{key}={value}" for key, value in point.items())
    if lacking := sorted(there.keys() - point.keys()):
        raise UserError(
            f"'{shown}' cannot be added: it has no {lacking[0]}. Give a value for each of: {', '.join(there)}"
        )
    if needless := sorted(point.keys() - there.keys()):
        raise UserError(f"'{shown}' cannot be added: {needless[0]} does not exist beside the others. Leave it out")
    first = {seeds.key: seeds.repeated[0]} if seeds.in_grid and seeds.repeated else {}
    return Added(file.name, point, outside=not space.contains({**first, **point}))


def refuse_file(file: Path, why: UserError) -> None:
    write_whole(file.with_suffix(".refused"), str(why))
    file.unlink(missing_ok=True)


def wait_for_driver(file: Path, for_s: float) -> str:
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
