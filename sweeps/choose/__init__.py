"""The choosers of the next trial, a file each: every choice is a pure function of the record.

The loop asks one chooser after the other. A chooser may cache what it derives from the trials,
because the same trials always lead to the same choice, also after the driver was killed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweeps.record.study import By, StudySnapshot
from sweeps.trial.job import Point


@dataclass(frozen=True)
class Proposal:
    """A new trial to begin."""

    params: Point
    by: By
    of: int | None = None  # first trial of the configuration, if that is another trial
    seed: Mapping[str, int] = field(default_factory=dict)  # as `TrialRecord.seed`
    outside: bool = False  # whether the params are outside of the search space
    added: str = ""  # name under which a person added the trial
    infeasible: str = ""  # reason why the trial cannot run here
    # opaque data that the sampler stores with the trial
    memory: Mapping[str, Any] = field(default_factory=dict)
    # opaque data that the sampler stores with the study
    shared: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Next:
    """The answer of a chooser. After an empty answer the loop asks the next chooser."""

    begin: Sequence[Proposal] = ()
    resume: Sequence[int] = ()  # numbers of the trials that need a new attempt
    waits: bool = False  # whether a running trial must end before the chooser can decide
    message: str = ""  # line to show in the terminal


class Chooser(Protocol):
    """One way of choosing trials."""

    def next(self, study: StudySnapshot) -> Next:
        """Return the trials to begin or resume now, given the study's trials so far."""


@dataclass
class Changes:
    """A cursor over the study's changes, with which a cache follows the record without reading all
    of it."""

    _read: int = 0

    def read_new(self, study: StudySnapshot) -> Sequence[int]:
        """Return the numbers of the trials that were proposed, ended or reopened since the last
        call."""
        numbers = study.changes[self._read :]
        self._read = len(study.changes)
        return numbers
