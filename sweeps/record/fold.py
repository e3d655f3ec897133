"""What the events of a study's journal make together: frozen trials."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeps.files import CorruptFile, read_json
from sweeps.record.journal import Event
from sweeps.record.study import Added, By, TrialRecord
from sweeps.trial.job import Outcome, State

VERSION = 1
_LIKELY = 1000  # how far beyond the known numbers a folder's number is believed


@dataclass
class Fold:
    """A study's events, applied one by one. Nobody else writes to its lists."""

    folder: Path
    trials: list[TrialRecord] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)  # see `StudySnapshot.changes`
    open_numbers: set[int] = field(default_factory=set)
    shared: dict[str, Any] = field(default_factory=dict)  # what the sampler keeps with the study, opaque

    def apply(self, event: Event) -> None:
        """Raises ValueError, LookupError, TypeError or AttributeError for an event that makes no sense here."""
        match event["op"]:
            case "begun":
                if event["version"] != VERSION:
                    raise ValueError(event["version"])
            case "asked":
                self._ask(event)
            case "ended":
                self._end(event)
            case "reopened":
                trial = self.trials[event["trial"]]
                self._change(replace(trial, state=State.QUEUED, forgiven=int(event["forgiven"])))
            case "added":
                self.added.append(Added(str(event["name"]), dict(event["point"]), bool(event["outside"])))
            case "remembered":
                number = event["trial"]
                self.trials[number] = replace(self.trials[number], memory=dict(event["memory"]))
            case unknown:
                raise ValueError(unknown)

    def _ask(self, event: Event) -> None:
        trial = trial_of(event, self.folder)
        if trial.number != len(self.trials):
            raise ValueError(trial.number)
        self.trials.append(trial)
        self.open_numbers.add(trial.number)
        self.shared |= event.get("shared", {})
        self.changes.append(trial.number)

    def _end(self, event: Event) -> None:
        trial, attempts = self.trials[event["trial"]], tuple(Outcome.from_json(one) for one in event["attempts"])
        last = attempts[-1]
        metrics = last.metrics or trial.metrics
        self._change(replace(trial, attempts=attempts, state=last.state, metrics=metrics))

    def _change(self, trial: TrialRecord) -> None:
        self.trials[trial.number] = trial
        (self.open_numbers.discard if trial.state.is_over else self.open_numbers.add)(trial.number)
        self.changes.append(trial.number)


def asked(trial: TrialRecord, study: Path) -> dict[str, Any]:
    """Return what the journal and the trial's own trial.json tell of a trial that was asked for."""
    optional = {"seed": dict(trial.seed), "outside": trial.outside, "added": trial.added, "memory": dict(trial.memory)}
    where = os.path.relpath(trial.folder, study)
    content: dict[str, Any] = {"trial": trial.number, "point": trial.params, "by": trial.by}
    content |= {} if trial.of is None else {"of": trial.of}
    content |= {} if where == str(trial.number) else {"folder": where}
    return content | {name: value for name, value in optional.items() if value}


def trial_of(content: Mapping[str, Any], study: Path) -> TrialRecord:
    """Return the trial that an event, or a trial.json, tells of. Raises as `Fold.apply` does."""
    number, of = int(content["trial"]), content.get("of")
    if of is not None and int(of) >= number:
        raise ValueError(of)
    return TrialRecord(
        number,
        dict(content["point"]),
        State.QUEUED,
        study / str(content.get("folder", number)),
        by=By(content["by"]),
        of=None if of is None else int(of),
        seed=dict(content.get("seed", {})),
        outside=bool(content.get("outside")),
        added=str(content.get("added", "")),
        memory=dict(content.get("memory", {})),
    )


def missing(study: Path, trials: Sequence[TrialRecord], by: By) -> list[Event]:
    """Return an asked event for each trial that a folder tells of, but none of the journal's `trials`.

    A number that no folder tells of any more is taken all the same: its event has a true `unknown`.
    """
    known, there = len(trials), {str(trial.folder) for trial in trials}
    found = {number: event for number, event in _in_folders(study, by, there) if number >= known}
    likely = [number for number in found if number < known + len(found) + _LIKELY]  # others are noise
    numbers = range(known, max(likely, default=-1) + 1)
    return [found.get(number, _unknown(number, by)) for number in numbers]


def _in_folders(study: Path, by: By, there: Collection[str]) -> Iterable[tuple[int, Event]]:
    for where, folders, files in os.walk(study):
        folders[:] = [name for name in folders if f"{where}/{name}" not in there]
        folder = Path(where)
        if "study.json" in files and folder != study:
            folders.clear()  # of another study
        elif "trial.json" in files:
            folders.clear()
            try:
                event = _noted(folder, study, by)
                yield event["trial"], event
            except (CorruptFile, LookupError, TypeError, ValueError, AttributeError):
                if folder.name.isdecimal():  # the folder is left alone, and its point is tried anew
                    yield int(folder.name), _unknown(int(folder.name), by)


def _noted(folder: Path, study: Path, by: By) -> Event:
    """Return what a trial's own trial.json tells; one of the version before has `repeat`."""
    note = read_json(folder / "trial.json") or {}
    event = {"op": "asked", "by": by, **note, "trial": int(note["number"]), "folder": str(folder.relative_to(study))}
    if repeat := event.pop("repeat", None):
        event |= {"of": repeat.get("of"), "seed": dict(repeat["seed"])}
        again = By.RACE if repeat.get("race") else By.REPEAT
        event["by"] = by if event["of"] is None else again
    trial_of(event, study)
    return event


def _unknown(number: int, by: By) -> Event:
    return {"op": "asked", "trial": number, "point": {}, "by": by, "unknown": True}
