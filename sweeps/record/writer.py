"""The record of a study: its journal and its trials' folders, folded into frozen trials. One
writer, the driver."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sweeps.base.files import CorruptFile
from sweeps.record.fold import VERSION, Fold, events_of_folders, trial_as_json
from sweeps.record.journal import FILE, Event, Journal
from sweeps.record.narrowed import narrow, with_size
from sweeps.record.study import UNKNOWN, Added, StudySnapshot, TrialRecord, update_outside
from sweeps.space.exclusion import Excluded, Restored
from sweeps.space.space import SearchSpace
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State


class Record:
    """The driver's record of its study. `study` shows the current state to all readers."""

    def __init__(self, study: StudySnapshot) -> None:
        """Take the names of the study from `study`; its trials come from the journal."""
        self._journal = Journal(study.folder / FILE)
        self._fold = fold = Fold(study.folder)
        self._under_way: set[int] = set()
        self.study = replace(
            study,
            rows=fold.trials,
            changes=fold.changes,
            added=fold.added,
            excluded=fold.excluded,
            restored=fold.restored,
            shared=fold.shared,
            open_numbers=fold.open_numbers,
            under_way=self._under_way,
        )
        self.repairs = ""  # repairs of the journal, in words

    def open(self, typed: Collection[str] = ()) -> None:
        """Read the journal, and repair it from the trials' folders.

        `typed` are the words of the command and the overrides of all trials.
        """
        try:
            self._journal.read(self._fold.apply)
        except CorruptFile as error:
            damaged = self._journal.quarantine()
            self.repairs = (
                f"{error}. Later events were restored from the trials' folders (old file:"
                f" {damaged.name})"
            )
        self._journal.trim()
        if not self._journal.count:
            self._append({"op": "started", "version": VERSION})
        lost = events_of_folders(self.study, typed)
        if lost and not self.repairs:
            self.repairs = (
                f"{self._journal.path} lacks {len(lost)} trials. They were restored from their"
                " folders"
            )
        for event in lost:
            self._append(event)
            if event.get("unknown"):
                unknown = Outcome(State.FAILED, UNKNOWN)
                self._append(
                    {"op": "ended", "number": event["number"], "attempts": [unknown.as_json()]}
                )

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return self._fold.trials

    def queue(self, trial: TrialRecord, shared: Mapping[str, Any]) -> None:
        """Record a new trial, with the state of its sampler (`shared`)."""
        content = trial_as_json(trial, self.study.folder)
        if shared:
            content["shared"] = dict(shared)
        self._append({"op": "queued", **content})

    def add(self, added: Added) -> None:
        """Record a trial that a person adds."""
        self._append({"op": "added", **asdict(added)})

    def exclude(self, excluded: Excluded, space: SearchSpace) -> None:
        """Record a condition on the points of the study's space that a person excludes."""
        event = {"op": "excluded", "name": excluded.name, "condition": excluded.text}
        self._append({**event, "by": excluded.by, "at": excluded.at})
        self._fold.excluded[:] = with_size(self.study, space)

    def restore(self, restored: Restored, space: SearchSpace) -> None:
        """Record that a person removes an exclusion from the study."""
        event = {"op": "restored", "name": restored.name, "condition": restored.text}
        self._append({**event, "by": restored.by, "at": restored.at})
        self._fold.excluded[:] = with_size(self.study, space)

    def end(self, trial: TrialRecord) -> None:
        """Record that a trial is over or paused, with the outcome of each attempt."""
        outcomes = [outcome.as_json() for outcome in trial.attempts]
        self._append({"op": "ended", "number": trial.number, "attempts": outcomes})

    def reopen(
        self, numbers: Sequence[int], to_end: bool = False, longer: Sequence[str] = ()
    ) -> None:
        """Record that these trials run again, with `to_end` without a further pause, and with the
        overrides `longer`. Their earlier attempts no longer count against them."""
        events = []
        for number in dict.fromkeys(numbers):
            count = len(TrialFolder(self.trials[number].folder).ends())
            event: dict[str, Any] = {"op": "reopened", "number": number, "forgiven": count}
            if to_end:
                event["to_end"] = True
            if longer:
                event["longer"] = list(longer)
            events.append(event)
        self._append(*events)

    def store_memory(self, number: int, memory: Mapping[str, Any]) -> None:
        """Record the pruner's state of a trial, if the state has changed."""
        if dict(memory) != dict(self.trials[number].memory):
            self._append({"op": "remembered", "number": number, "memory": dict(memory)})

    def update(self, trial: TrialRecord) -> None:
        """Show the state of an open trial, which the journal does not record: queued or running,
        and its metrics."""
        self._fold.trials[trial.number] = trial

    def update_outside(self, space: SearchSpace) -> None:
        """Update which trials are outside of the search space, which may have grown, and how many
        points it has."""
        self._fold.excluded[:] = with_size(self.study, space)
        contains = narrow(space, self._fold.excluded).contains
        for trial in [*self.trials]:
            self.update(update_outside(trial, contains))
        added = self._fold.added
        added[:] = [
            replace(point, outside=point.outside and not contains(point.params)) for point in added
        ]

    def mark_under_way(self, number: int) -> None:
        """Mark a trial as under way, so that no chooser begins it once more."""
        self._under_way.add(number)

    def unmark_under_way(self, number: int) -> None:
        """Remove the mark that a trial is under way."""
        self._under_way.discard(number)

    def _append(self, *events: Event) -> None:
        self._journal.append(events)
        for event in events:
            self._fold.apply(event)


def read(study: StudySnapshot) -> StudySnapshot:
    """Return the study as its driver has recorded it. Raises CorruptFile if its journal is damaged
    or missing."""
    journal = Journal(study.folder / FILE)
    fold = Fold(study.folder)
    journal.read(fold.apply)
    if not journal.count:
        raise CorruptFile(journal.path, "it is empty")
    return replace(
        study,
        rows=tuple(fold.trials),
        changes=tuple(fold.changes),
        added=tuple(fold.added),
        excluded=tuple(fold.excluded),
        restored=tuple(fold.restored),
    )
