"""The record of a study: its journal and its trials' folders, folded into frozen trials. One writer, the driver."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sweeps.files import CorruptFile
from sweeps.record.fold import VERSION, Fold, asked, missing
from sweeps.record.journal import FILE, Event, Journal
from sweeps.record.study import UNKNOWN, Added, By, StudySnapshot, TrialRecord, within
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State


class Record:
    """What the driver knows of its study, and writes down. `study` shows it to all others, as it stands."""

    def __init__(self, study: StudySnapshot) -> None:
        """`study` names the study; the rest of it is the record's once that is open."""
        self._journal = Journal(study.folder / FILE)
        self._fold = fold = Fold(study.folder)
        self._under_way: set[int] = set()
        lists: dict[str, Any] = {"rows": fold.trials, "added": fold.added, "changes": fold.changes}
        self.study = replace(
            study, **lists, shared=fold.shared, open_numbers=fold.open_numbers, under_way=self._under_way
        )
        self.mended = ""  # what had to be mended in the journal, in words

    def open(self, first: Sequence[Event] = ()) -> None:
        """Read the journal, and mend it from the trials' folders. `first` are the events of an older format."""
        try:
            self._journal.read(self._fold.apply)
        except CorruptFile as error:
            kept = self._journal.quarantine()
            words = "What came after it is read from the trials' folders"
            self.mended = f"{error}. {words} ({kept.name} is kept)"
        self._journal.trim()
        if not self._journal.count:
            self._append({"op": "begun", "version": VERSION}, *first)
        lost = missing(self.study.folder, self.trials, By.SAMPLER if self.study.searched else By.GRID)
        if lost and not self.mended:
            self.mended = f"{self._journal.path} lacks {len(lost)} trials, which their folders tell of"
        for event in lost:
            self._append(event)
            if event.get("unknown"):
                unknown = Outcome(State.FAILED, UNKNOWN)
                self._append({"op": "ended", "trial": event["trial"], "attempts": [unknown.as_json()]})

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return self._fold.trials

    def ask(self, trial: TrialRecord, shared: Mapping[str, Any]) -> None:
        """Record a trial that was asked for, with what its sampler keeps with the study."""
        content = asked(trial, self.study.folder) | ({"shared": dict(shared)} if shared else {})
        self._append({"op": "asked", **content})

    def add(self, wanted: Added) -> None:
        """Record a trial that a person wants."""
        self._append({"op": "added", "name": wanted.name, "point": wanted.params, "outside": wanted.outside})

    def end(self, trial: TrialRecord) -> None:
        """Record that a trial has ended for good, and how each of its attempts did."""
        self._append({"op": "ended", "trial": trial.number, "attempts": [one.as_json() for one in trial.attempts]})

    def reopen(self, numbers: Sequence[int]) -> None:
        """Record that trials which have ended run again. What they did before no longer counts against them."""
        counts = {number: len(TrialFolder(self.trials[number].folder).ends()) for number in numbers}
        self._append(*({"op": "reopened", "trial": number, "forgiven": count} for number, count in counts.items()))

    def remember(self, number: int, memory: Mapping[str, Any]) -> None:
        """Record what the pruner keeps with a trial by now, if that has changed."""
        if dict(memory) != dict(self.trials[number].memory):
            self._append({"op": "remembered", "trial": number, "memory": dict(memory)})

    def show(self, trial: TrialRecord) -> None:
        """Hold how a trial stands that has not ended for good: whether it waits or runs, what it reported."""
        self._fold.trials[trial.number] = trial

    def place(self, holds: Callable[[Point], bool]) -> None:
        """Hold which trials lie in the search space of now, which may have grown since they were added."""
        for trial in [*self.trials]:
            self.show(within(trial, holds))
        wanted = [replace(one, outside=one.outside and not holds(one.params)) for one in self._fold.added]
        self._fold.added[:] = wanted

    def begin(self, number: int) -> None:
        """Hold that a trial is under way: no chooser begins it once more."""
        self._under_way.add(number)

    def leave(self, number: int) -> None:
        """Hold that a trial is not under way any more."""
        self._under_way.discard(number)

    def _append(self, *events: Event) -> None:
        self._journal.append(events)
        for event in events:
            self._fold.apply(event)


def read(study: StudySnapshot) -> StudySnapshot:
    """Return the study as its driver has recorded it. Raises CorruptFile if its journal is damaged, or is not there."""
    journal, fold = Journal(study.folder / FILE), Fold(study.folder)
    journal.read(fold.apply)
    if not journal.count:
        raise CorruptFile(journal.path, "it is empty")
    return replace(study, rows=tuple(fold.trials), added=tuple(fold.added), changes=tuple(fold.changes))
