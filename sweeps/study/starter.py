"""From what the choosers choose to attempts that are ready to be submitted."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sweeps.choose import Chooser, Next, Proposal
from sweeps.errors import Infeasible, UserError
from sweeps.record.fold import asked
from sweeps.record.study import Added, TrialRecord
from sweeps.record.writer import Record
from sweeps.study.attempt import Attempt, may_be_reopened
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Job, Outcome, State

if TYPE_CHECKING:
    from sweeps.tracking.tracker import Tracker

End = Callable[[TrialRecord, Outcome], None]


@dataclass
class Starter:
    """Asks one chooser after the other, and makes what they choose ready."""

    record: Record
    choosers: Sequence[Chooser]
    make_job: Callable[[TrialRecord], Job]  # raises UserError if the trial's config is not valid
    overrides: Callable[[TrialRecord], list[str]]
    say: Callable[[str], None]
    tracker: "Tracker | None" = None
    added: Callable[[], Iterable[Added]] = tuple
    """What a person adds meanwhile and is valid."""
    clock: Callable[[], float] = time.time
    has_started: bool = False  # whether anything was to be done at all
    _jobs: dict[int, Job] = field(default_factory=dict)  # of open trials, once they were made
    _read_to: dict[int, int] = field(default_factory=dict)  # bytes of the metrics that were read, of tracked trials

    def choose(self, enough: bool, end: End) -> tuple[Next, Attempt | None]:
        """Return what was chosen, and the attempt that is ready; None if nothing was, or it has ended by `end`."""
        for wanted in self.added():
            self.record.add(wanted)
        study = replace(self.record.study, enough=enough)
        for chooser in self.choosers:
            answer = chooser.next(study)
            if answer.message:
                self.say(answer.message)
            if answer.begin:
                return answer, self._begin(answer.begin[0], end)
            if answer.resume:
                return answer, self.attempt(self.record.trials[answer.resume[0]], end)
            if answer.waits:
                return answer, None
        return Next(), None

    def _begin(self, chosen: Proposal, end: End) -> Attempt | None:
        """Put a trial on record that was never asked for, and return its first attempt."""
        number = len(self.record.trials)
        trial = TrialRecord(
            number,
            chosen.params,
            State.QUEUED,
            self.record.study.folder / str(number),
            by=chosen.by,
            of=chosen.of,
            seed=chosen.seed,
            outside=chosen.outside,
            added=chosen.added,
            memory=chosen.memory,
        )
        outcome = self.make(trial, chosen.infeasible)
        if job := self._jobs.get(number):
            trial = replace(trial, folder=job.folder.path)
        self.record.ask(trial, chosen.shared)
        return self.attempt(trial, end, outcome)

    def make(self, trial: TrialRecord, infeasible: str = "") -> Outcome | None:
        """Make a trial's job. Return how the trial ends if its config is not valid, or cannot run here."""
        try:
            if infeasible:
                raise Infeasible(infeasible)
            self._jobs[trial.number] = self.make_job(trial)
        except Infeasible as error:
            return Outcome(State.INFEASIBLE, str(error), ended=self.clock())
        except UserError as error:
            return Outcome(State.FAILED, str(error), ended=self.clock())
        return None

    def attempt(self, trial: TrialRecord, end: End, outcome: Outcome | None = None) -> Attempt | None:
        """Return a new attempt at a trial that is on record, unless it has an outcome without one."""
        self.has_started = True
        if outcome is None and trial.number not in self._jobs:
            outcome = self.make(trial)
        try:
            if not (trial.folder / "trial.json").exists():
                content = {"number": trial.number, **asked(trial, self.record.study.folder)}
                TrialFolder(trial.folder).write_trial(content)
        except OSError as error:
            outcome = Outcome(State.REFUSED, f"its folder cannot be made: {error}", ended=self.clock())
        if outcome:
            end(trial, outcome)
            return None
        self.record.begin(trial.number)
        return Attempt(self.job(trial), trial, asked=self.clock(), read_to=self._read_to[trial.number])

    def job(self, trial: TrialRecord) -> Job:
        """Return the job of a trial that was made, with what its process needs to know of its run in MLflow."""
        job = replace(self._jobs[trial.number], attempt=0)
        if self.tracker and trial.number not in self._read_to:
            run = self.tracker.start_trial(trial, self.overrides(trial), job.config)
            job = self._jobs[trial.number] = replace(job, environment={**job.environment, **run})
        self._read_to.setdefault(trial.number, 0)
        return job

    def may_reopen(self, trial: TrialRecord, max_attempts: int, max_timeouts: int | None) -> bool:
        """Return whether a trial that was given up may go on under the limits of this command."""
        try:
            timeout_min = self.make_job(trial).request.timeout_min
        except UserError:
            return False
        return may_be_reopened(trial, timeout_min, max_attempts, max_timeouts)

    def noted(self, number: int, read_to: int) -> None:
        """Note up to which byte a trial's metrics were read, for its next attempt."""
        self._read_to[number] = read_to

    def forget(self, number: int) -> None:
        """Drop the job of a trial that has ended."""
        self._jobs.pop(number, None)
