"""Whether a study starts further trials: its results may be enough, a budget spent, or something
wrong."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from sweeps.hydra.settings import SweeperConf
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.writer import Record
from sweeps.study.run.attempt import Attempt
from sweeps.study.run.budget import Budget, Enough
from sweeps.trial.job import Outcome, State
from sweeps.trial.times import now

_REFUSALS = 3  # refusals in a row, for one reason, that stop the study


@dataclass
class Stop:
    """Stops the search, or the whole study, and cancels the attempts that have not started."""

    record: Record
    settings: SweeperConf
    launcher: TrialLauncher
    clock: Callable[[], float] = now
    reason: str = ""  # why no further trial starts; empty while trials start
    enough: Enough | None = None  # why the search, or with a `reason` the study, has enough
    _cancelled: bool = False  # whether the search's queued attempts were cancelled
    _message: str = ""  # why no further trial starts, until it is printed
    _has_started: bool = False  # whether a trial has started under this driver
    # the newest refusals in a row, all with one reason
    _refusals: list[str] = field(default_factory=list)

    def check_results(self, running: Collection[Attempt]) -> None:
        """Stop the search once its results are enough."""
        if self.enough is None:
            self.enough = Budget(self.settings, self.record.study, self.clock).judge_results()
            if self.enough and running:
                race = "; then the final race starts" if self.settings.final_race else ""
                self._message = (
                    f"Search finished ({self.enough.reason}). Running trials complete{race}."
                )
        if self.enough and not self._cancelled:
            # Only once trials of the race and of a person have started, because `cancel_pending`
            # cancels them too.
            self._cancelled = all(
                attempt.started_at or attempt.trial.ends_with_search for attempt in running
            )
            if self._cancelled:
                self.launcher.cancel_pending()

    def check_budget(self, running: Collection[Attempt], ready: Attempt | None = None) -> bool:
        """Return whether no further trial may start: a budget is spent, or the attempt that is
        ready exceeds it."""
        if self.reason:
            return True
        budget = Budget(self.settings, self.record.study, self.clock)
        enough = budget.judge_spending(running)
        for attempt in (ready, *running):
            if attempt and attempt.is_queued:
                enough = enough or budget.predict_overrun(attempt, running)
        if enough:
            self.enough = enough
            if running:
                self._message = (
                    f"No further trial starts ({enough.reason}). Running trials complete."
                )
            self.stop_study(enough.reason)
        return bool(self.reason)

    def stop_study(self, reason: str) -> None:
        """Start no further trial, for a reason that concerns all trials. The first reason is
        kept."""
        if not self.reason:
            self.reason = reason
            self.launcher.cancel_pending()

    def note_refusal(self, outcome: Outcome, is_alone: bool) -> bool:
        """Note that a trial was refused, and return whether the reason is new. Three in a row stop
        the study.

        So does the first submission of a command, with no other trial submitted (`is_alone`), if
        its request is wrong.
        """
        if outcome.request_refused and is_alone and not self._has_started:
            self.stop_study(outcome.error)
        reason = re.sub(r"\d+", "", outcome.error)
        self._refusals = [*self._refusals, reason] if reason in self._refusals else [reason]
        if len(self._refusals) == _REFUSALS:
            self.stop_study(f"{_REFUSALS} trials in a row were refused: {outcome.error}")
        return len(self._refusals) == 1

    def explain(self, outcome: Outcome, started_at: float | None) -> Outcome:
        """Return the outcome of an attempt; if the study stopped while the attempt was queued, with
        that reason."""
        if outcome.state is not State.CANCELLED or started_at is not None or not self.reason:
            return outcome
        return replace(
            outcome,
            error=f"it was queued when the study stopped: {self.reason.removeprefix('it was ')}",
        )

    def note_start(self) -> None:
        """Note that a trial has started: earlier refusals no longer count."""
        self._has_started = True
        self._refusals.clear()

    def take_message(self) -> str:
        """Return why no further trial starts, once; else an empty text."""
        message = self._message
        self._message = ""
        return message

    def end(self) -> None:
        """End the study with its search, if no final race follows."""
        if self.enough and self.enough.reached_goal and not self.settings.final_race:
            self.reason = self.reason or self.enough.reason
