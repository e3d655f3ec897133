"""What the loop reports to its driver, which shows it: events, in the order in which they happened,
and its end."""

from dataclasses import dataclass

from sweeps.record.study import TrialRecord
from sweeps.study.run.budget import Enough
from sweeps.trial.job import Outcome


@dataclass(frozen=True)
class Started:
    """A trial has started, or goes on."""

    trial: TrialRecord
    how: str = "started"  # "resumed from step 4", if it is not its first attempt


@dataclass(frozen=True)
class Retried:
    """An attempt has ended, and its trial gets another one."""

    number: int
    outcome: Outcome


@dataclass(frozen=True)
class Ended:
    """A trial has ended, or was refused."""

    trial: TrialRecord


@dataclass(frozen=True)
class Note:
    """A line for the user."""

    text: str


Event = Started | Retried | Ended | Note


@dataclass(frozen=True)
class LoopEnd:
    """How the loop of a driver ended."""

    running: int  # number of trials that run without this driver
    stopped: str  # why no further trial was started; empty if all were started
    enough: Enough | None  # why the study had enough; None if it stopped for another reason
    interrupted: bool
    detached: bool  # whether trials were to run without this driver
    all_had_ended: bool  # whether all trials had ended before

    @property
    def is_over(self) -> bool:
        """Return whether no trial is left to start, to promote or to wait for, and no limit that a
        person may raise."""
        is_left = self.interrupted or self.detached or self.running > 0
        return not is_left and not self.stopped and self.enough is None

    @property
    def done(self) -> str:
        """Return why the study has reached its goal; empty if it has not."""
        if self.enough and self.enough.reached_goal and not self.interrupted:
            return self.enough.reason
        return ""
