"""One attempt at a trial, as its driver sees it: its progress, and whether another attempt
follows."""

from contextlib import suppress
from dataclasses import dataclass, replace

from sweeps.base.wording import counted
from sweeps.record.study import TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job

RETRIED = {State.LOST, State.TIMED_OUT}
"""The states after which a trial gets another attempt, which resumes from its checkpoint."""


@dataclass
class Attempt:
    """An attempt that is ready, queued or running. Until the attempt has a folder, `job.attempt` is
    0."""

    job: Job
    trial: TrialRecord  # the trial when the attempt was made
    queued_at: float  # seconds since 1970
    started_at: float | None = None  # seconds since 1970
    outcome: Outcome | None = None  # the outcome that the launcher reported, until it is recorded
    read_error: str = ""  # why its files could not be read at the last look
    unreadable_since: float = 0.0  # seconds since 1970
    pause_step: int | None = None  # the step after whose report it pauses
    adopted: bool = False  # whether an earlier driver submitted it
    how: str = "started"  # how it starts, in words

    @property
    def is_queued(self) -> bool:
        """Return whether the attempt has not started."""
        return self.started_at is None

    def describe_start(self) -> str:
        """Return how the attempt has started, or goes on, in words."""
        is_older = self.adopted and self.started_at and self.started_at < self.queued_at
        return "still runs" if is_older else self.how

    def make_folder(self, idle_slot_s: float, launcher: str) -> None:
        """Make the attempt's folder, unless it has one. Raises OSError if the disk cannot be
        written."""
        if not self.job.attempt:
            folder = self.job.folder.new_attempt(
                self.queued_at, self.job.request, idle_slot_s, launcher, self.pause_step
            )
            self.job = replace(self.job, attempt=folder.number)
            with suppress(OSError):  # because the trial can run without these words
                self.how = _describe_resumption(self.job.folder, folder.number)

    def cancel(self) -> str:
        """Request that the attempt ends after its epoch. Return the problem if the request cannot
        be written."""
        try:
            self.job.attempt_folder.request_stop(State.CANCELLED)
        except OSError as error:
            return f"trial {self.trial.number}: the request to stop cannot be written: {error}"
        return ""


def _describe_resumption(trial: TrialFolder, attempt: int) -> str:
    """Return how an attempt that has not begun is going to start, in words. Raises OSError if a
    file cannot be read."""
    if all(earlier.began() is None for earlier in trial.attempts()):
        return "started"
    if not trial.checkpoints():
        return f"begins again, in attempt {attempt}"
    step = trial.checkpointed_step()
    return f"resumed from {'its checkpoint' if step is None else f'step {step}'}"


def may_resume(outcomes: list[Outcome], max_attempts: int, max_timeouts: int | None) -> bool:
    """Return whether a trial whose last attempt was lost or timed out gets another attempt.

    With `max_timeouts`, so many attempts may time out. Without it, a timeout counts as a loss only
    if the attempt did not advance.
    """
    timeouts = [outcome for outcome in outcomes if outcome.state is State.TIMED_OUT]
    losses = sum(outcome.state is State.LOST for outcome in outcomes)
    if max_timeouts is not None:
        return len(timeouts) <= max_timeouts and losses < max_attempts
    return losses + sum(not outcome.advanced for outcome in timeouts) < max_attempts


def give_up_reason(outcomes: list[Outcome]) -> str:
    """Return why a lost or timed out trial gets no further attempt, and which setting to raise."""
    last = outcomes[-1]
    count = sum(outcome.state in RETRIED for outcome in outcomes)
    timeout = "hydra.launcher.timeout_min or " if last.state is State.TIMED_OUT else ""
    return (
        f"{last.error}; given up after {counted(count, 'attempt')}. Raise"
        f" {timeout}hydra.sweeper.max_attempts"
    )


def may_be_reopened(
    trial: TrialRecord, timeout_min: float | None, max_attempts: int, max_timeouts: int | None
) -> bool:
    """Return whether a trial that was given up resumes under the present limits: more attempts, or
    a longer timeout."""
    outcomes = [*trial.attempts[trial.forgiven :]]
    if trial.state not in RETRIED or not outcomes:
        return False
    last = outcomes[-1]
    took_min = last.duration_s / 60  # an estimate, because an old record has no limit
    longer = timeout_min is None or timeout_min > (last.timeout_min or 1.1 * took_min)
    return (longer and trial.state is State.TIMED_OUT) or may_resume(
        outcomes, max_attempts, max_timeouts
    )
