"""One attempt at a trial, from its driver's side: what it reported, how it ended, and whether another one follows."""

from collections.abc import Sequence
from dataclasses import dataclass

from sweeps.launchers.contract import TrialJob
from sweeps.preview import request
from sweeps.summary import Row
from sweeps.system_metrics import energy_kwh
from sweeps.trial_folder import AttemptEnd, MetricsLine, Result, State

GOES_ON = {State.LOST, State.TIMED_OUT}
"""The ends after which a trial gets another attempt, which goes on from its checkpoint."""


@dataclass
class Attempt:
    """A trial that waits for room, or runs."""

    job: TrialJob
    row: Row
    asked: float
    has_folder: bool = False
    """Whether it has the folder of its own that a submission needs."""
    idle_slot_s: float = 0.0
    read_to: int = 0

    def make_folder(self) -> None:
        if not self.has_folder:
            self.job.attempt = self.job.folder.new_attempt(self.asked)
            self.has_folder = True

    def news(self) -> list[MetricsLine]:
        """What the trial reported since the last call."""
        lines, self.read_to = self.job.folder.read_metrics(self.read_to)
        return lines

    def close(self, result: Result, ended: float) -> None:
        """Note how the newest attempt ended, unless an earlier driver has."""
        if len(self.row.attempts) < len(self.job.folder.attempts()):
            end = self.end(result, ended)
            self.job.folder.write_end(end)
            self.row.attempts.append(end)

    def end(self, result: Result, ended: float) -> AttemptEnd:
        """What it took, if it ended at `ended` (seconds since 1970)."""
        folder = self.job.folder
        began = folder.began()
        return AttemptEnd(
            result.state,
            folder.asked(),
            began,
            ended,
            result.seconds,
            request(self.job.config).gpus,
            None if began is None else energy_kwh(folder, began),
            self.idle_slot_s,
        )

    def may_be_followed(self, max_attempts: int) -> bool:
        """Whether its trial goes on in another one, after one that was lost or timed out."""
        return may_go_on(
            self.row.attempts, max_attempts, self.job.config.hydra.launcher.get("max_num_timeout")
        )


def may_go_on(ends: Sequence[AttemptEnd], max_attempts: int, max_num_timeout: int | None) -> bool:
    """Whether a trial whose last attempt was lost or timed out gets another one.

    Attempts of either kind count together, unless `max_num_timeout` says how many may time out.
    """
    timeouts = sum(end.state is State.TIMED_OUT for end in ends)
    losses = sum(end.state is State.LOST for end in ends)
    if max_num_timeout is None:
        return timeouts + losses < max_attempts
    return timeouts <= max_num_timeout and losses < max_attempts
