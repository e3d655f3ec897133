"""Whether a study goes on choosing: its results are good enough, a budget is spent, or something went wrong."""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from sweeps.record.writer import Record
from sweeps.settings import SweeperConf
from sweeps.study.attempt import Attempt
from sweeps.study.budget import Budget, Enough
from sweeps.trial.job import Outcome

_REFUSALS = 3  # in a row, for one reason, stop the study


@dataclass
class Stop:
    """Stops the search, or the whole study, and says so once all that was submitted has begun.

    `cancel_pending` takes back what was submitted and has not begun.
    """

    record: Record
    settings: SweeperConf
    tell: Callable[[str], None]
    cancel_pending: Callable[[], None]
    clock: Callable[[], float] = time.time
    reason: str = ""  # why no further trial starts; empty while some may
    enough: Enough | None = None  # why the search, or with a `reason` the study, has enough
    _withdrawn: bool = False  # whether the search's trials that had not begun were taken back
    _news: str = ""
    _refusals: list[str] = field(default_factory=list)  # the reasons of the newest refusals in a row, all alike

    def check_results(self, running: Collection[Attempt]) -> None:
        """Begin no further trial of the search once its results are good enough, or do not get better."""
        if self.enough is None:
            self.enough = Budget(self.settings, self.record.study, self.clock).reached()
            if self.enough and running:
                but = " but those of the final race" if self.settings.final_race else ""
                self._news = f"no further trial starts{but}: {self.enough.why}; those that run go on to their ends"
        wanted = [attempt for attempt in running if not attempt.trial.searched]
        if self.enough and not self._withdrawn and all(attempt.began for attempt in wanted):  # else these were too
            self._withdrawn = True
            self.cancel_pending()

    def check_budget(self, running: Collection[Attempt], ready: Attempt | None = None) -> bool:
        """Whether no further trial may start: a budget is spent, or the attempt that is ready exceeds it."""
        if self.reason:
            return True
        budget = Budget(self.settings, self.record.study, self.clock)
        waiting = [*([ready] if ready else []), *(attempt for attempt in running if attempt.began is None)]
        exceeding = (budget.exceeded_by(attempt, running) for attempt in waiting)
        if spent := budget.spent(running) or next(filter(None, exceeding), None):
            self.enough = spent
            if running:
                self._news = f"no further trial starts: {spent.why}; those that run go on to their ends"
            self.now(spent.why)
        return bool(self.reason)

    def now(self, reason: str) -> None:
        """Start no further trial, for a reason that the others share. The first such reason stands."""
        if not self.reason:
            self.reason = reason
            self.cancel_pending()

    def refused(self, outcome: Outcome) -> bool:
        """Note that a trial was refused: three in a row for one reason stop the study. Return whether that is news."""
        reason = re.sub(r"\d+", "", outcome.error)
        self._refusals = [*self._refusals, reason] if reason in self._refusals else [reason]
        if len(self._refusals) == _REFUSALS:
            self.now(f"{_REFUSALS} trials in a row were refused: {outcome.error}")
        return len(self._refusals) == 1

    def began(self) -> None:
        """Note that a trial has begun: what was wrong before is mended."""
        self._refusals.clear()

    def say(self) -> None:
        """Say why no further trial starts, once."""
        if self._news:
            self.tell(self._news)
        self._news = ""

    def end(self) -> None:
        """Say what was not said yet. Of a study without a final race, enough for its search is enough for the study."""
        self.say()
        if self.enough and self.enough.done and not self.settings.final_race:
            self.reason = self.reason or self.enough.why
