"""From the choosers' proposals to attempts that are ready to be submitted."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sweeps.base.errors import Infeasible, UserError
from sweeps.base.signals import interruptible
from sweeps.base.wording import point_text
from sweeps.choose import Chooser, Next, Proposal
from sweeps.choose.rungs import Halving
from sweeps.record.fold import trial_as_json
from sweeps.record.study import TrialRecord
from sweeps.record.writer import Record
from sweeps.space.space import canonical
from sweeps.study.run.attempt import RETRIED, Attempt, may_be_reopened
from sweeps.study.run.interruption import Lookout
from sweeps.study.run.jobs import TrialJobs
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job
from sweeps.trial.times import now


@dataclass(frozen=True)
class Choice:
    """What the choosers chose: an attempt that is ready, a trial that has ended without one, or
    neither."""

    answer: Next
    messages: tuple[str, ...] = ()
    ready: Attempt | None = None
    ended: tuple[TrialRecord, Outcome] | None = None


@dataclass
class Starter:
    """Asks one chooser after the other, and makes an attempt at the trial that they choose."""

    record: Record
    choosers: Sequence[Chooser]
    jobs: TrialJobs
    lookout: Lookout
    clock: Callable[[], float] = now
    rungs: Halving | None = None
    has_started: bool = False  # whether this driver had anything to do
    _jobs: dict[int, Job] = field(default_factory=dict)  # the jobs of open trials, by number
    _tracked: set[int] = field(default_factory=set)  # numbers of the trials that have a run

    def choose(self, enough: bool) -> Choice:
        """Return what the choosers chose. With `enough`, the search has enough.

        Raises Interrupted, and records nothing, if the driver has to end during the choice.
        """
        study = replace(self.record.study, enough=enough)
        answer = Next()
        messages = []
        with interruptible(self.lookout.reason):
            for chooser in self.choosers:
                answer = chooser.next(study)
                messages.append(answer.message)
                if answer.begin or answer.resume or answer.waits:
                    break

        if answer.begin:
            choice = self._begin(answer.begin[0])
        elif answer.resume:
            choice = self._resume(answer.resume[0], answer.to_end)
        else:
            choice = Choice(answer)
        return replace(choice, answer=answer, messages=tuple(filter(None, messages)))

    def _resume(self, number: int, to_end: bool) -> Choice:
        """Return a new attempt at a trial; record first that it is promoted, if it is paused."""
        if self.record.trials[number].state is State.PAUSED:
            self.record.reopen([number], to_end)
        return self._make_attempt(self.record.trials[number])

    def _begin(self, chosen: Proposal) -> Choice:
        """Record a new trial, and return its first attempt."""
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
        outcome = self.prepare(trial, chosen.infeasible)
        if job := self._jobs.get(number):
            trial = replace(trial, folder=job.folder.path)
        self.record.queue(trial, chosen.shared)
        return self._make_attempt(trial, outcome)

    def prepare(self, trial: TrialRecord, infeasible: str = "") -> Outcome | None:
        """Make a trial's job. Return the trial's outcome if its config is not valid, or cannot run
        here."""
        try:
            if infeasible:
                raise Infeasible(infeasible)
            self._jobs[trial.number] = self.jobs.make(trial)
        except Infeasible as error:
            return Outcome(State.INFEASIBLE, str(error), ended_at=self.clock())
        except UserError as error:
            return Outcome(State.FAILED, str(error), ended_at=self.clock())
        return None

    def _make_attempt(self, trial: TrialRecord, outcome: Outcome | None = None) -> Choice:
        """Return a new attempt at a recorded trial; or, if the trial has an outcome without one,
        that outcome."""
        self.has_started = True
        if outcome is None and trial.number not in self._jobs:
            outcome = self.prepare(trial)
        try:
            refusal = self._check_folder(trial)
            outcome = outcome or refusal
        except OSError as error:
            problem = f"its folder cannot be made: {error}"
            outcome = Outcome(State.REFUSED, problem, ended_at=self.clock())
        if outcome:
            return Choice(Next(), ended=(trial, outcome))

        self.record.mark_under_way(trial.number)
        pause_step = self.rungs.pause_step(trial) if self.rungs else None
        job = self.tracked_job(trial)
        attempt = Attempt(job, trial, queued_at=self.clock(), pause_step=pause_step)
        return Choice(Next(), ready=attempt)

    def _check_folder(self, trial: TrialRecord) -> Outcome | None:
        """Write the trial's params into its folder. Return a refusal if the folder was made for
        other params."""
        folder = TrialFolder(trial.folder)
        params = folder.read_params()
        if params is None:
            folder.write_trial(trial_as_json(trial, self.record.study.folder))
            return None

        if canonical(params) == canonical(trial.params):
            return None
        problem = f"{folder.path} was made for {point_text(params)}. Move or remove it"
        return Outcome(State.REFUSED, problem, ended_at=self.clock())

    def tracked_job(self, trial: TrialRecord) -> Job:
        """Return the job of a prepared trial, with the environment that names its run in MLflow."""
        job = replace(self._jobs[trial.number], attempt=0)
        if trial.number not in self._tracked:
            self._tracked.add(trial.number)
            job = self.jobs.track(trial, job)
            self._jobs[trial.number] = job
        return job

    def reopen(self, max_attempts: int, max_timeouts: int | None) -> list[int]:
        """Reopen the trials that were given up and may resume under these limits. Return their
        numbers."""
        numbers = []
        for trial in self.record.trials:
            if trial.state not in RETRIED:
                continue
            with suppress(UserError):
                timeout_min = self.jobs.make(trial).request.timeout_min
                if may_be_reopened(trial, timeout_min, max_attempts, max_timeouts):
                    numbers.append(trial.number)
        if numbers:
            self.record.reopen(numbers)
        return numbers

    def drop_job(self, number: int) -> None:
        """Drop the job of a trial that has ended. If the trial is promoted, it is tracked again."""
        self._jobs.pop(number, None)
        self._tracked.discard(number)
