"""What runs next: each way of choosing a trial is a pure function of the record, a file a way.

The loop asks one after the other. Nothing is remembered but trials: the same trials make the same choice, whoever was
killed meanwhile. What a chooser keeps is a cache, which it makes anew from the trials.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweeps.record.study import By, StudySnapshot
from sweeps.trial.job import Point


@dataclass(frozen=True)
class Proposal:
    """A trial to begin, which was never asked for before."""

    params: Point
    by: By
    of: int | None = None  # the first trial of its configuration, if that is another one
    seed: Mapping[str, int] = field(default_factory=dict)  # as `TrialRecord.seed`
    outside: bool = False
    added: str = ""
    infeasible: str = ""  # why it cannot run here, in words
    memory: Mapping[str, Any] = field(default_factory=dict)  # what a sampler keeps with the trial, opaque
    shared: Mapping[str, Any] = field(default_factory=dict)  # and with the study


@dataclass(frozen=True)
class Next:
    """What a chooser wants to happen next. None of it: the loop asks the next chooser."""

    begin: Sequence[Proposal] = ()
    resume: Sequence[int] = ()  # the numbers of trials to go on with, in a new attempt
    waits: bool = False  # whether something has to end before it is known what follows
    message: str = ""  # what to say


class Chooser(Protocol):
    """One way of choosing."""

    def next(self, study: StudySnapshot) -> Next:
        """Return the trials to begin now, by what is known of the study."""


@dataclass
class Changes:
    """The trials that changed since the last look: lets a cache follow the record without reading all of it."""

    _read: int = 0

    def read_new(self, study: StudySnapshot) -> Sequence[int]:
        """Return the numbers of the trials that were asked for, ended or reopened since the last call."""
        numbers = study.changes[self._read :]
        self._read = len(study.changes)
        return numbers
