"""Manual changes to a study: a person ends trials, adds or excludes points, with or without a
running driver.

A request for points is a file, `added/<time>.json` in the study's folder, until the driver has
recorded it in the journal under this name. If the driver refuses the request, it writes the reason
to `<time>.refused` instead.
"""

import errno
import json
import os
import re
import shlex
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from sweeps.base.errors import UserError
from sweeps.base.files import MALFORMED, CorruptFile, quarantine, read_json, write_whole
from sweeps.base.wording import point_text
from sweeps.choose import Changes, Next, Proposal
from sweeps.choose.repeats import Seeds
from sweeps.record.definition import Definition
from sweeps.record.extension import user_name
from sweeps.record.study import Added, By, StudySnapshot, TrialRecord
from sweeps.record.study_file import sweeps_line
from sweeps.space.exclusion import Excluded, Restored
from sweeps.space.grammar import point_of
from sweeps.space.space import SearchSpace, canonical
from sweeps.trial.folder import AttemptFolder, TrialFolder
from sweeps.trial.job import Point, State
from sweeps.trial.times import parse_time
from sweeps.trial.well_typed import check_point

_FOLDER = "added"
_MOST_BYTES = 1_000_000  # of a request
_ADD_AGAIN = 'Delete it, and request it again: sweepyard resume NAME --add "key=value"'

_KEY = r"\+{0,2}[A-Za-z_][\w./@-]*"
_REPAIRS = {
    r"\s*(?::=?|==?)\s*": "=",
    rf"(?:\s*[,;]|\s+and\b)\s*(?={_KEY}[=\s])": " ",
    rf"(?<!\S)({_KEY})\s+(?=[-+.\d])": r"\1=",
}
"""Signs between keys and values that belong to other languages, and what --add has there."""


@dataclass
class Manual:
    """A chooser that begins the added points; a grid with repeats begins a point under each
    seed."""

    seeds: Seeds
    _changes: Changes = field(default_factory=Changes)
    # seeds of the trials, by the name of the added point
    _begun: dict[str, list[Any]] = field(default_factory=dict)

    def next(self, study: StudySnapshot) -> Next:
        """Return the oldest added trial that has not begun."""
        for number in self._changes.read_new(study):
            trial = study.rows[number]
            if trial.added and trial.of is None:
                self._begun.setdefault(trial.added, []).append(trial.params.get(self.seeds.key))
        for added in study.added:
            begun = self._begun.get(added.name, [])
            if begun and not self.seeds.in_grid:
                continue
            for seed in self._choose_seeds(added):
                if seed not in begun:
                    return Next([self._propose(added, seed)])
        return Next()

    def _choose_seeds(self, added: Added) -> Sequence[Any]:
        """Return the seeds to run an added point under; None is no seed of the study."""
        if not self.seeds.repeated or self.seeds.key in added.params:
            return [added.params.get(self.seeds.key)]
        return self.seeds.repeated if self.seeds.in_grid else self.seeds.repeated[:1]

    def _propose(self, added: Added, seed: Any) -> Proposal:
        chosen = (
            {self.seeds.key: seed}
            if self.seeds.repeated and self.seeds.key not in added.params
            else {}
        )
        recorded = {} if self.seeds.in_grid else chosen
        return Proposal(
            {**added.params, **chosen},
            By.PERSON,
            seed=recorded,
            outside=added.outside,
            added=added.name,
        )


def end_trials(study: StudySnapshot, numbers: Sequence[int]) -> list[str]:
    """Request that open trials end as pruned, and return a message for each. Raises UserError; then
    none ends."""
    messages = []
    for trial, attempt in [_open_trial(study, number) for number in numbers]:
        if attempt.stop_requested() is None:
            attempt.request_stop(State.PRUNED, by=user_name())
        queued = "after its first epoch, because it is still queued"
        when = "at its next report" if trial.state is State.RUNNING else queued
        messages.append(f"trial {trial.number} ends {when} and counts as pruned")
    return messages


def _open_trial(study: StudySnapshot, number: int) -> tuple[TrialRecord, AttemptFolder]:
    """Return a trial with its open attempt. Raises UserError if it has none."""
    trial = study.trial(number)
    attempt = TrialFolder(trial.folder).newest()
    if attempt is None or attempt.is_over:
        problem = "has ended" if trial.state.is_over else "does not run"
        open_numbers = [str(row.number) for row in study.in_state(State.RUNNING)]
        running = ", ".join(open_numbers)
        advice = f"Choose a running trial: {running}" if running else "No trial is running."
        raise UserError(f"--trial {number}: trial {number} {problem} ({trial.state}).\n{advice}")
    return trial, attempt


def add_points(
    definition: Definition, space: SearchSpace, study: StudySnapshot, texts: Sequence[str]
) -> list[Path]:
    """Add points such as "lr=0.003 batch_size=48" to a study of this space, and return their files.

    Raises UserError, and adds none, if one is invalid or tried.
    """
    if definition.search.get("custom_search_space", "None") != "None":
        raise UserError(
            f"--add '{texts[0]}': the search space of study {study.name} is code, so no point can"
            " be added."
        )
    points: list[Point] = []
    for text in texts:
        point = _read_point(definition, space, study, text)
        refuse_duplicate(point, study.rows, study.added, points)
        points.append(point)
    return [_request(study.folder, {"params": point}) for point in points]


def _read_point(
    definition: Definition, space: SearchSpace, study: StudySnapshot, text: str
) -> Point:
    """Return the point of a text. Raises UserError if it lacks a key, or has one that is not
    swept."""
    names = [name.partition(" under ")[0] for name in definition.parameters]
    keys = {name.lstrip("+"): name for name in names}
    swept = ", ".join(keys)
    typed = _parse_values(text, swept, sweeps_line("resume", study.folder))
    wrong = [key for key in typed if key.lstrip("+") not in keys]
    if wrong or not typed:
        problem = (
            f"study {study.name} does not sweep {wrong[0]}" if wrong else "there are no values"
        )
        raise UserError(f"--add '{text}': {problem}.\nType a value for each of: {swept}")
    point = {keys[key.lstrip("+")]: value for key, value in typed.items()}
    # Without the seed of a grid, because the driver alone knows whether it repeats the point.
    _is_outside(point, space, Seeds(definition.seed_key, in_grid=definition.is_grid))
    return point


def _parse_values(text: str, swept: str, resume: str) -> Point:
    """Return the values of a text such as "lr=0.003 batch_size=48". Raises UserError with the line
    to type if it can be read in another way."""
    try:
        return _parse_words(text)
    except (HydraException, ValueError) as error:
        advice = f"Type key=value for each of: {swept}"
        corrected = text.strip(" ,;{}-")
        for pattern, plain in _REPAIRS.items():
            corrected = re.sub(pattern, plain, corrected)
        with suppress(HydraException, ValueError, UserError):
            _parse_words(corrected)
            advice = f"Type: {resume} --add {shlex.quote(corrected)}"
        raise UserError(f"--add '{text}' cannot be read.\n{advice}") from error


def _parse_words(text: str) -> Point:
    return point_of(OverridesParser.create().parse_overrides(shlex.split(text)))


def exclude_points(study: Path, condition: str) -> Path:
    """Request that no trial begins for which the condition holds, and return the request's file."""
    return _request(study, {"condition": condition})


def restore_points(study: Path, condition: str) -> Path:
    """Request that an exclusion is removed, and return the request's file."""
    return _request(study, {"restored": condition})


def refuse_restoring(condition: str, study: StudySnapshot) -> None:
    """Raise UserError if nobody has excluded this condition from a study that had begun, or has
    requested that."""
    texts = [excluded.text for excluded in study.excluded]
    for file in list_requests(study.folder):
        with suppress(UserError, OSError, KeyError):
            texts.append(str(_read_content(file)["condition"]))
    if condition not in texts:
        choices = ", ".join(map(shlex.quote, texts))
        advice = f"Choose among: {choices}" if texts else "Nothing was excluded since it began"
        raise UserError(
            f"exclude --remove '{condition}': study {study.name} has no such exclusion.\n{advice}"
        )


def _request(study: Path, content: Mapping[str, Any]) -> Path:
    file = study / _FOLDER / f"{time.time_ns()}.json"
    _make_folder(file.parent)
    # Whatever the umask of this user is, because the study's owner reads the file.
    write_whole(file, json.dumps({**content, "by": user_name()}), mode=0o644)
    return file


def _make_folder(folder: Path) -> None:
    """Make the folder of requests as the study's folder: with its permissions, and by root with its
    owner."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    study = folder.parent.stat()
    if os.getuid() == 0:
        os.chown(folder, study.st_uid, study.st_gid)
    folder.chmod(stat.S_IMODE(study.st_mode))


def refuse_duplicate(
    point: Point,
    trials: Sequence[TrialRecord],
    added: Sequence[Added] = (),
    others: Sequence[Point] = (),
) -> None:
    """Raise UserError if a trial has this point, or the point was added before."""
    for trial in trials:
        if canonical(trial.params) == canonical({**point, **trial.seed}):
            raise UserError(
                f"'{trial.name}' is trial {trial.number} already, which is {trial.state}."
            )
    points = [*(addition.params for addition in added), *others]
    if canonical(point) in map(canonical, points):
        raise UserError(f"'{point_text(point)}' was added already.")


def list_requests(study: Path) -> list[Path]:
    """Return the files of the requests that are not recorded yet, oldest first. Raises OSError if
    one may not look."""
    folder = study / _FOLDER
    if not folder.exists():
        return []
    return sorted(file for file in folder.iterdir() if file.suffix == ".json")


def read_request(file: Path, space: SearchSpace, seeds: Seeds) -> Added | Excluded | Restored:
    """Return the request of a file.

    Raises UserError if the study has no such point or the file is corrupt, and OSError if the file
    cannot be read now.
    """
    content = _read_content(file)
    user = str(content.get("by", ""))
    at = parse_time(file.stem, per_second=1e9)
    if content.keys() == {"condition", "by"} and isinstance(content["condition"], str):
        return Excluded(file.name, content["condition"], user, at)
    if content.keys() == {"restored", "by"} and isinstance(content["restored"], str):
        return Restored(file.name, content["restored"], user, at)

    params = content.get("params")
    if content.keys() != {"params", "by"} or not isinstance(params, dict):
        raise UserError(f"{file}: it is no request: it needs the keys params and by.\n{_ADD_AGAIN}")

    _refuse_values(file, params)
    return Added(file.name, params, _is_outside(params, space, seeds), user, at)


def requester(file: Path) -> str:
    """Return the name of the user who made a request; empty if the file cannot be read."""
    with suppress(UserError, OSError):
        return str(_read_content(file).get("by", ""))
    return ""


def _read_content(file: Path) -> dict[str, Any]:
    """Return the JSON object of a request. Raises UserError for anything else, OSError if it may be
    readable later."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise CorruptFile(file, f"it has more than {_MOST_BYTES} bytes")
        content = read_json(file)
    except CorruptFile as error:
        raise UserError(f"{error}.\n{_ADD_AGAIN}") from error
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EISDIR):
            raise UserError(
                f"{file} cannot be read: it is a folder, or a link to no file.\n{_ADD_AGAIN}"
            ) from error
        raise
    if content is None:
        raise UserError(f"{file} cannot be read: it was deleted.\n{_ADD_AGAIN}")
    return content


def _refuse_values(file: Path, point: Mapping[str, Any]) -> None:
    """Raise UserError if the point of a request has a value that nobody can type."""
    try:
        for key, value in check_point(point).items():
            f"{key}{value}".encode()  # raises ValueError for a lone surrogate
            if isinstance(value, int):
                # raises OverflowError for a number that cannot be compared with others
                float(value)
    except MALFORMED as error:
        raise UserError(
            f"{file}: its point cannot be read: {ascii(str(error))[1:-1]}.\n{_ADD_AGAIN}"
        ) from error


def _is_outside(point: Point, space: SearchSpace, seeds: Seeds) -> bool:
    """Return whether a point is outside of the space. Raises UserError if it has not the params of
    a trial."""
    keys = dict.fromkeys(
        parameter.key for parameter in space.parameters if space.exists(parameter, point)
    )
    if seeds.in_grid and seeds.key not in point:
        keys.pop(seeds.key, None)  # because the point runs under each seed
    if missing := sorted(keys.keys() - point.keys()):
        advice = f"Type a value for each of: {', '.join(key.lstrip('+') for key in keys)}"
        lacks = f"without {' and '.join(key.lstrip('+') for key in missing)}"
        raise UserError(f"'{point_text(point)}' cannot be added {lacks}.\n{advice}")
    if needless := sorted(point.keys() - keys.keys()):
        advice = f"Remove {needless[0]}."
        raise UserError(
            f"'{point_text(point)}' cannot be added: {needless[0]} does not exist with these"
            f" values.\n{advice}"
        )
    first = {seeds.key: seeds.repeated[0]} if seeds.in_grid and seeds.repeated else {}
    return not space.contains({**first, **point})


def refuse_file(file: Path, error: UserError) -> None:
    """Replace the file of a request by a file with the error. Raises OSError if the folder cannot
    be written."""
    write_whole(file.with_suffix(".refused"), str(error), mode=0o644)
    try:
        file.unlink(missing_ok=True)
    except IsADirectoryError:
        quarantine(file)


def wait_for_driver(file: Path, for_s: float) -> bool:
    """Return whether the driver has recorded the request within `for_s` seconds. Raises UserError
    if refused."""
    deadline = time.monotonic() + for_s
    refused = file.with_suffix(".refused")
    while file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if refused.exists():
        message = refused.read_text()
        refused.unlink(missing_ok=True)
        raise UserError(message)
    return not file.exists()
