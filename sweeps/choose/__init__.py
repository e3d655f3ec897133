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
    to_end: bool = False  # whether a trial that is resumed pauses at no further rung
    waits: bool = False  # whether a running trial must end before the chooser can decide
    message: str = ""  # line to show in the terminal


class Chooser(Protocol):
    """One way of choosing trials.

    This chooser tries each learning rate once::

        from sweeps.choose import Next, Proposal
        from sweeps.record.study import By


        class EachRate:
            def next(self, study):
                tried = [trial.params["lr"] for trial in study.rows]
                left = [rate for rate in (0.1, 0.01, 0.001) if rate not in tried]
                return Next([Proposal({"lr": rate}, By.GRID) for rate in left[:1]])
    """

    def next(self, study: StudySnapshot) -> Next:
        """Return the trials to begin or resume now.

        The loop calls the method whenever there is room for a trial, and again after each trial
        that it begins. The answer depends on the study alone: a chooser may cache what it derives
        from the trials, but counts nothing, because another driver must choose the same.

        Args:
            study: The study with its trials so far, which the method does not change.

        Returns:
            Trials to begin or to resume, of which the loop takes the first. An
            empty answer passes the choice to the next chooser; `waits` keeps the choice until a
            running trial has ended.

        Raises:
            UserError: The chooser cannot go on. The study stops; no trial is lost.
        """


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
