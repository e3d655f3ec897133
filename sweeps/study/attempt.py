"""One attempt at a trial, from its driver's side: where it stands, and whether another one follows."""

from dataclasses import dataclass, replace

from sweeps.record.study import TrialRecord
from sweeps.trial.job import Job, Outcome, State
from sweeps.wording import counted

GOES_ON = {State.LOST, State.TIMED_OUT}
"""The ends after which a trial gets another attempt, which goes on from its checkpoint."""


@dataclass
class Attempt:
    """A trial that waits for room, or runs. Before it has a folder of its own, `job.attempt` is 0."""

    job: Job
    trial: TrialRecord  # as it was when the attempt was made: its number and params
    asked: float
    began: float | None = None  # when it did, once that was heard
    said: Outcome | None = None  # what the launcher said of its end, until that is settled
    trouble: str = ""  # what cannot be read of it; it is looked at again
    trouble_since: float = 0.0
    adopted: bool = False  # whether an earlier driver submitted it
    read_to: int = 0  # up to where its metrics were read, in bytes

    def make_folder(self, idle_slot_s: float) -> None:
        """Raises OSError where the disk takes no folder."""
        if not self.job.attempt:
            wanted = self.job.request
            made = self.job.folder.new_attempt(self.asked, wanted.gpus, idle_slot_s, wanted.timeout_min)
            self.job = replace(self.job, attempt=made.number)


def may_go_on(ends: list[Outcome], max_attempts: int, max_timeouts: int | None) -> bool:
    """Whether a trial whose last attempt was lost or timed out gets another one.

    A time limit counts as a loss only if the attempt did not advance, unless `max_timeouts` says how many may time out.
    """
    timeouts = [end for end in ends if end.state is State.TIMED_OUT]
    losses = sum(end.state is State.LOST for end in ends)
    if max_timeouts is not None:
        return len(timeouts) <= max_timeouts and losses < max_attempts
    return losses + sum(not end.advanced for end in timeouts) < max_attempts


def given_up(ends: list[Outcome]) -> str:
    """Why a trial that was lost or timed out gets no further attempt."""
    more = "allow more with hydra.sweeper.max_attempts"
    if ends[-1].state is State.TIMED_OUT:
        more = "give it more time (hydra.launcher.timeout_min), or attempts (hydra.sweeper.max_attempts)"
    count = sum(end.state in GOES_ON for end in ends)
    return f"{ends[-1].error}; given up after {counted(count, 'attempt')}: {more}"


def may_be_reopened(row: TrialRecord, timeout_min: float | None, max_attempts: int, max_timeouts: int | None) -> bool:
    """Whether a trial that was given up goes on under the settings of now: more attempts, or a longer time limit."""
    ends = [*row.attempts[row.forgiven :]]
    if row.state not in GOES_ON or not ends:
        return False
    last = ends[-1]
    took_min = (last.ended - (last.began or last.ended)) / 60  # near enough where the limit is not on record
    longer = timeout_min is None or timeout_min > (last.timeout_min or 1.1 * took_min)
    return (longer and row.state is State.TIMED_OUT) or may_go_on(ends, max_attempts, max_timeouts)
