"""The fold of a journal's events into frozen trials, and events of trials that only their folders
record."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, read_json
from sweeps.record.journal import Event
from sweeps.record.study import Added, By, StudySnapshot, TrialRecord
from sweeps.record.trial_config import read_overrides
from sweeps.space.exclusion import Excluded, Restored
from sweeps.space.grammar import point_of
from sweeps.space.space import canonical
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.times import parse_time
from sweeps.trial.well_typed import check_point

VERSION = 1
_MAX_GAP = 1000  # numbers beyond the recorded trials up to which a folder's number is credible


@dataclass
class Fold:
    """A study's events, applied one by one. Only `apply` and the record write to the lists."""

    folder: Path
    trials: list[TrialRecord] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    excluded: list[Excluded] = field(default_factory=list)
    restored: list[Restored] = field(default_factory=list)  # exclusions that were removed
    changes: list[int] = field(default_factory=list)  # see `StudySnapshot.changes`
    open_numbers: set[int] = field(default_factory=set)
    shared: dict[str, Any] = field(default_factory=dict)  # opaque state of the sampler

    def apply(self, event: Event) -> None:
        """Apply an event. Raises ValueError, LookupError, TypeError or AttributeError if the event
        is invalid."""
        match event["op"]:
            case "started":
                _check_version(event["version"])
            case "queued":
                self._queue(event)
            case "ended":
                self._end(event)
            case "reopened":
                trial = self.trials[event["number"]]
                self._change(_reopened(trial, event))
            case "added":
                self.added.append(_added(event))
            case "excluded":
                self.excluded.append(_excluded(event))
            case "restored":
                self._restore(event)
            case "remembered":
                number = event["number"]
                self.trials[number] = replace(self.trials[number], memory=dict(event["memory"]))
            case unknown:
                raise ValueError(unknown)

    def _restore(self, event: Event) -> None:
        text = str(event["condition"])
        excluded = tuple(other for other in self.excluded if other.text == text)
        self.excluded[:] = [other for other in self.excluded if other.text != text]
        name = str(event["name"])
        at = parse_time(event["at"])
        self.restored.append(Restored(name, text, str(event["by"]), at, excluded))

    def _queue(self, event: Event) -> None:
        trial = trial_of(event, self.folder)
        if trial.number != len(self.trials):
            raise ValueError(trial.number)
        self.trials.append(trial)
        self.open_numbers.add(trial.number)
        self.shared |= event.get("shared", {})
        self.changes.append(trial.number)

    def _end(self, event: Event) -> None:
        trial = self.trials[event["number"]]
        attempts = tuple(map(Outcome.from_json, event["attempts"]))
        last = attempts[-1]
        metrics = last.metrics or trial.metrics
        step = max(trial.step, last.step)
        ended = replace(trial, attempts=attempts, state=last.state, metrics=metrics, step=step)
        self._change(ended)

    def _change(self, trial: TrialRecord) -> None:
        self.trials[trial.number] = trial
        if trial.state.is_over:
            self.open_numbers.discard(trial.number)
        else:
            self.open_numbers.add(trial.number)
        self.changes.append(trial.number)


def _check_version(version: object) -> None:
    if version != VERSION:
        raise ValueError(version)


def _reopened(trial: TrialRecord, event: Event) -> TrialRecord:
    forgiven = int(event["forgiven"])
    to_end = trial.to_end or bool(event.get("to_end"))
    longer = tuple(map(str, event.get("longer", trial.longer)))
    return replace(trial, state=State.QUEUED, forgiven=forgiven, to_end=to_end, longer=longer)


def _added(event: Event) -> Added:
    return Added(
        str(event["name"]),
        check_point(event["params"]),
        bool(event["outside"]),
        str(event.get("by", "")),
        parse_time(event.get("at")),
    )


def _excluded(event: Event) -> Excluded:
    return Excluded(
        str(event["name"]), str(event["condition"]), str(event["by"]), parse_time(event["at"])
    )


def trial_as_json(trial: TrialRecord, study: Path) -> dict[str, Any]:
    """Return a trial as JSON, for its event in the journal and for its trial.json."""
    where = os.path.relpath(trial.folder, study)
    content: dict[str, Any] = {"number": trial.number, "params": trial.params, "by": trial.by}
    if trial.of is not None:
        content["of"] = trial.of
    if where != str(trial.number):
        content["folder"] = where
    optional = {
        "seed": dict(trial.seed),
        "outside": trial.outside,
        "added": trial.added,
        "memory": dict(trial.memory),
    }
    return content | {name: value for name, value in optional.items() if value}


def trial_of(content: Mapping[str, Any], study: Path) -> TrialRecord:
    """Return the trial of an event or of a trial.json. Raises the errors of `Fold.apply`."""
    number = int(content["number"])
    of = content.get("of")
    if of is not None and int(of) >= number:
        raise ValueError(of)
    return TrialRecord(
        number,
        check_point(content["params"]),
        State.QUEUED,
        study / str(content.get("folder", number)),
        by=By(content["by"]),
        of=None if of is None else int(of),
        seed=check_point(content.get("seed", {})),
        outside=bool(content.get("outside")),
        added=str(content.get("added", "")),
        memory=dict(content.get("memory", {})),
    )


def events_of_folders(study: StudySnapshot, typed: Collection[str]) -> list[Event]:
    """Return an event for each trial that has a folder, but is not among the study's trials.

    `typed` are the words of the command and the overrides of all trials. If a trial.json is damaged
    or missing, the other overrides with which Hydra composed the trial are its params. A number
    without any of them is not used again: its event has a true `unknown`.
    """
    by = By.SAMPLER if study.searched else By.GRID
    count = len(study.rows)
    recorded = {str(trial.folder) for trial in study.rows}
    folders = dict(_read_folders(study.folder, by, recorded))
    earlier = list(study.rows)
    events: dict[int, Event] = {}
    for number, event in sorted(folders.items()):
        if number < count:
            continue
        overrides: Event = {}
        if event.get("unknown"):
            overrides = _read_overrides(study, number, typed, earlier)
        events[number] = {**event, **overrides}
        earlier.append(trial_of(events[number], study.folder))

    credible = [number for number in events if number < count + len(events) + _MAX_GAP]
    numbers = range(count, max(credible, default=-1) + 1)
    return [events.get(number, _unknown(number, by)) for number in numbers]


def _read_folders(study: Path, by: By, recorded: Collection[str]) -> Iterable[tuple[int, Event]]:
    for path, folders, files in os.walk(study):
        folders[:] = [name for name in folders if f"{path}/{name}" not in recorded]
        folder = Path(path)
        if "study.json" in files and folder != study:
            folders.clear()  # because these folders are another study's
        elif "trial.json" in files or "attempts" in folders:
            folders.clear()
            try:
                event = _event_of(folder, study, by)
                yield event["number"], event
            except (CorruptFile, LookupError, TypeError, ValueError, AttributeError):
                if folder.name.isdecimal():
                    yield int(folder.name), _unknown(int(folder.name), by)


def _event_of(folder: Path, study: Path, by: By) -> Event:
    """Return the event of a trial's trial.json."""
    file = read_json(folder / "trial.json") or {}
    event = {
        "op": "queued",
        "by": by,
        **file,
        "number": int(file["number"]),
        "folder": str(folder.relative_to(study)),
    }
    trial_of(event, study)
    return event


def _read_params(folder: Path, typed: Collection[str]) -> Point:
    """Return the params of a trial by its overrides, without the `typed` ones; none if they cannot
    be read."""
    words = [word for word in read_overrides(folder) if word not in typed]
    try:
        return point_of(OverridesParser.create().parse_overrides(words))
    except (HydraException, UserError, ValueError):
        return {}


def _read_overrides(
    study: StudySnapshot, number: int, typed: Collection[str], earlier: Sequence[TrialRecord]
) -> Event:
    """Return the params of a trial and its origin, as parts of its event; nothing if its overrides
    cannot be read."""
    point = _read_params(study.folder / str(number), typed)
    if not point:
        return {}
    if not study.searched or study.seed_key not in point or study.seed_key in study.space:
        return {"params": point, "unknown": False}

    seed = {study.seed_key: point[study.seed_key]}
    event: dict[str, Any] = {"params": point, "seed": seed, "unknown": False}
    configuration = canonical({key: point[key] for key in point if key not in seed})
    equal = [trial for trial in earlier if canonical(trial.configuration) == configuration]
    if equal:
        event["of"] = equal[0].number
        event["by"] = By.REPEAT if len(equal) < study.repeats else By.RACE
    return event


def _unknown(number: int, by: By) -> Event:
    return {"op": "queued", "number": number, "params": {}, "by": by, "unknown": True}
