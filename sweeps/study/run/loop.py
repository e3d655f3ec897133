"""The loop that keeps the slots full: choose, submit, poll, record. It imports no SLURM, TensorFlow
or Optuna."""

import math
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sweeps.base.errors import UserError
from sweeps.base.looks import Looks
from sweeps.base.signals import Interrupted, on_signals
from sweeps.base.wording import counted
from sweeps.hydra.settings import SweeperConf
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.study import TrialRecord
from sweeps.record.writer import Record
from sweeps.study.run.attempt import RETRIED, Attempt, give_up_reason, may_resume
from sweeps.study.run.starter import Starter
from sweeps.study.run.stop import Stop
from sweeps.study.run.watchers import Watchers
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import METRICS
from sweeps.trial.times import now

if TYPE_CHECKING:
    from sweeps.choose.sampler.pruner import Pruner


_POLL_S = 0.25  # time that one poll waits for an outcome
_PATIENCE_S = 60.0  # time until an unreadable file of an ended trial is given up


@dataclass
class Loop:
    """Runs the trials of one study to their ends."""

    record: Record
    starter: Starter
    stop: Stop
    launcher: TrialLauncher
    settings: SweeperConf
    watchers: Watchers
    # returns why the study should stop, in words; empty if it should not
    stop_reason: Callable[[], str]
    clock: Callable[[], float] = now
    pruner: "Pruner | None" = None
    # whether to choose the next trial before there is room, because a grid learns nothing
    ahead: bool = False
    interrupted: bool = False
    # whether to leave running trials without a driver once there is no room for another
    detach: bool = False
    # submitted attempts without a recorded outcome, by trial
    running: dict[int, Attempt] = field(default_factory=dict)
    _ready: Attempt | None = None  # the attempt to submit next
    # whether to poll without waiting, because the newest choice could not be started
    _poll_now: bool = False
    # when each empty slot became empty, s since 1970
    _free_since: deque[float] = field(default_factory=deque)
    _looks: Looks = field(default_factory=Looks)
    _signal: signal.Signals | None = None
    _room: bool = False  # whether there was room at the last look

    def run(self) -> None:
        """Return when every trial has ended; or, after a reason to stop, when the running trials
        have ended."""
        self.detach = self.launcher.detach
        with on_signals(self._on_signal):
            self._resume_study()
            while self._has_work():
                self._poll()
                if any(
                    attempt.started_at is None and not attempt.trial.by_hand
                    for attempt in self.running.values()
                ):
                    self.stop.check_budget(self.running.values())
                for attempt in self._looks.due(
                    [a for a in self.running.values() if not a.outcome], Attempt.has_begun
                ):
                    self._observe(attempt)
                if (reason := self._reason()) and not self.interrupted:
                    self._interrupt(reason)
                if all(attempt.started_at for attempt in self.running.values()):
                    self.stop.print_message()
                self.watchers.show(self.record.study, self.running, self._is_full, self.stop.reason)
            if self.detach:
                self.launcher.close(keep=True)
                # because the last submissions may have been refused, or have found no room
                self._poll()
            self.stop.end()
            self.watchers.show_end(self.record.study, self.running, self._is_full, self.stop.reason)

    @property
    def _is_full(self) -> bool:
        return self._ready is not None or not self._room

    def _has_work(self) -> bool:
        return (
            (self._fill() and self._has_room())
            if self.detach
            else (self._fill() or bool(self.running))
        )

    def _poll(self) -> None:
        for number, outcome in self.launcher.poll(timeout_s=0.0 if self._poll_now else _POLL_S):
            self.running[number].outcome = outcome
        for attempt in [attempt for attempt in self.running.values() if attempt.outcome]:
            self._close(attempt)

    def _fill(self) -> bool:
        """Submit as many trials as there is room for. Return False if nothing is left to submit."""
        self._poll_now = False
        self.starter.take_requests()
        while not self.stop.reason:
            self._drop_unwanted()
            room = self._has_room()
            ahead = self.ahead and not (self.settings.n_jobs and self.running)
            if not room and (self._ready or not ahead):
                return True
            if self._ready is None and not self.stop.check_budget(self.running.values()):
                try:
                    answer, self._ready = self.starter.choose(
                        bool(self.stop.enough), self._record_end, self._reason
                    )
                except Interrupted as interrupted:  # after which no chooser is asked again
                    self._interrupt(interrupted.words())
                    break
                except UserError as error:
                    # raised by a sampler, or by a search space in the user's code
                    self.stop.stop_study(str(error))
                    break
                if self._ready is None:
                    self._poll_now = bool(answer.begin or answer.resume) and not self.stop.reason
                    return self._poll_now or (answer.waits and bool(self.running))
            if self.stop.check_budget(self.running.values(), self._ready):
                return False
            if not room or not self._submit():
                return True
        return False

    def _drop_unwanted(self) -> None:
        """Drop the ready attempt if the search has had enough since it was made."""
        self.stop.check_results(self.running.values())
        if self._ready and self.stop.enough and self._ready.trial.searched:
            self._release(self._ready.trial.number)

    def _submit(self) -> bool:
        """Submit the ready attempt. Return False if there is no room for it."""
        assert self._ready
        attempt = self._ready
        number = self._ready.trial.number
        try:
            idle_slot_s = self.clock() - self._free_since[0] if self._free_since else 0.0
            attempt.make_folder(idle_slot_s, self.launcher.name)
        except OSError as error:
            self._release(number)
            self._record_end(
                attempt.trial, Outcome(State.REFUSED, f"its folder cannot be made: {error}")
            )
            return True
        if not self.launcher.submit(attempt.job):
            return False
        if self._free_since:
            self._free_since.popleft()
        self._ready = None
        self.running[number] = attempt
        return True

    def _release(self, number: int) -> None:
        self.record.unmark_under_way(number)
        self.running.pop(number, None)
        if self._ready and self._ready.trial.number == number:
            self._ready = None

    def _has_room(self) -> bool:
        self._room = len(self.running) < (
            self.settings.n_jobs or math.inf
        ) and self.launcher.has_room(ahead=self.ahead)
        return self._room

    def _resume_study(self) -> None:
        """Adopt the living attempts of an earlier driver, and record which attempts have ended.
        Others are retried."""
        self.watchers.view.say(self.record.repairs)
        if reopened := self.starter.reopen(self.settings.max_attempts, self.launcher.max_timeouts):
            self.watchers.view.say(
                f"trials {', '.join(map(str, reopened))} were given up and resume now"
            )
        for trial in self.record.study.open:
            try:
                self._resume_trial(trial)
            except OSError as error:
                self._record_end(
                    trial, Outcome(State.REFUSED, f"its files cannot be read: {error}")
                )
        self.watchers.avoid_bad_nodes(self.record.study)

    def _resume_trial(self, trial: TrialRecord) -> None:
        folder = TrialFolder(trial.folder)
        if (newest := folder.newest()) is None:
            return
        if not newest.is_over:
            if outcome := self.starter.prepare(trial):
                self._record_end(trial, outcome)
                return
            job = replace(self.starter.tracked_job(trial), attempt=newest.number)
            if self.launcher.adopt(job):
                self.starter.has_started = True
                self.record.update(replace(trial, attempts=tuple(folder.ends())))
                self.record.mark_under_way(trial.number)
                self.running[trial.number] = Attempt(
                    job, trial, queued_at=self.clock(), adopted=True
                )
                return
        newest.close(Outcome(State.CANCELLED, "it ended with its driver"), newest.last_written())
        trial = replace(trial, attempts=tuple(folder.ends()))
        last = trial.attempts[-1]
        if last.state in (State.CANCELLED, State.REFUSED) or len(trial.attempts) <= trial.forgiven:
            self.record.update(trial)
            return
        self.starter.has_started = True
        self._retry_or_end(trial, last)

    def _observe(self, attempt: Attempt) -> None:
        """Read what the trial reported since the last look, and pass it to the pruner."""
        number = attempt.trial.number
        folder = attempt.job.attempt_folder
        try:
            if attempt.started_at is None and (started_at := folder.began()) is not None:
                attempt.started_at = started_at
                self.record.update(replace(self.record.trials[number], state=State.RUNNING))
                self.stop.note_start()
                self.watchers.view.started(attempt.trial, self.record.study)
            lines = folder.trial.read_metrics(attempt.metrics_offset)
            for line in lines.values:
                trial = self.record.trials[number]
                self.record.update(replace(trial, metrics={**trial.metrics, **line.metrics}))
                value = line.metrics.get(self.record.study.objective[0])
                if (
                    value is not None
                    and self.pruner
                    and self.pruner.report(number, line.step, value)
                ):
                    folder.request_stop(State.PRUNED)
            attempt.metrics_offset = lines.offset
            self.starter.note_offset(number, lines.offset)
            if lines.damaged:
                self.watchers.view.say(
                    f"{counted(lines.damaged, 'damaged line')} in {attempt.trial.folder / METRICS}"
                )
            attempt.read_error = ""
        except OSError as error:  # because a shared disk may be unreachable for a moment
            attempt.read_error = f"{error}; retrying"

    def _close(self, attempt: Attempt) -> None:
        """End an attempt that the launcher reported as over. An outcome in the attempt's folder
        counts first."""
        assert attempt.outcome
        self._observe(attempt)
        outcome = self.stop.explain(attempt.outcome, attempt.started_at)
        try:
            outcome = attempt.job.attempt_folder.close(outcome)
        except OSError as error:
            attempt.read_error = f"{error}; retrying"
            attempt.unreadable_since = attempt.unreadable_since or self.clock()
            if self.clock() - attempt.unreadable_since < _PATIENCE_S:
                return  # the next poll closes it again
            # because it may have a result
            state = State.LOST if outcome.state is State.FAILED else outcome.state
            text = (
                outcome.error
                if str(error.strerror) in outcome.error
                else f"{outcome.error}; {error}"
            )
            outcome = replace(outcome, state=state, error=text, ended_at=self.clock())
        self._release(attempt.trial.number)
        self._free_since.append(self.clock())
        self._retry_or_end(
            self.record.trials[attempt.trial.number].with_end(outcome), outcome, attempt.adopted
        )
        self.watchers.avoid_bad_nodes(self.record.study, outcome)

    def _retry_or_end(self, trial: TrialRecord, outcome: Outcome, adopted: bool = False) -> None:
        """Put the trial back into the queue for a new attempt, or end it with this outcome."""
        outcomes = list(trial.attempts[trial.forgiven :])
        if outcome.missing_objective and not self.record.study.has_objective:
            self.stop.stop_study(outcome.error)
        is_lost = outcome.state in RETRIED
        resumes = is_lost and may_resume(
            outcomes, self.settings.max_attempts, self.launcher.max_timeouts
        )
        over = self.stop.reason or (self.stop.enough and trial.searched)
        # A refusal or a stop under an earlier driver is retried, because this command was not
        # refused or stopped yet.
        if not over and (resumes or (adopted and _is_of_its_driver(trial, outcome))):
            self.watchers.show_retry(trial.number, outcome)
            self.record.update(replace(trial, state=State.QUEUED))
            return
        if resumes:
            outcome = replace(outcome, state=State.CANCELLED)
        elif is_lost:
            outcome = replace(outcome, error=give_up_reason(outcomes))
        self._record_end(replace(trial, attempts=trial.attempts[:-1]), outcome)

    def _record_end(self, trial: TrialRecord, outcome: Outcome) -> None:
        """Record a trial's outcome. A refused or cancelled trial stays open for the next
        command."""
        trial = trial.with_end(outcome)
        if trial.state.is_over:
            self.record.end(trial)
        self.record.update(trial)
        self.starter.drop_job(trial.number)
        is_alone = all(attempt.outcome for attempt in self.running.values())
        if trial.state is State.REFUSED and not self.stop.note_refusal(outcome, is_alone):
            return  # because the reason was printed for an earlier trial
        self.watchers.show_outcome(trial, self.record.study)

    def _on_signal(self, number: int, _: Any) -> None:
        """Note the first signal for the loop. A second Ctrl-C raises KeyboardInterrupt
        immediately."""
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or signal.Signals(number)

    def _reason(self) -> str:
        return f"it was interrupted ({self._signal.name})" if self._signal else self.stop_reason()

    def _interrupt(self, reason: str) -> None:
        self.interrupted = True
        self.stop.reason = reason
        killed = self._signal not in (None, signal.SIGINT)
        self.detach = self.launcher.keep_on_interrupt or (killed and self.launcher.survives)
        if self.detach:
            return
        self.watchers.view.say(
            "stopping: running trials end after their epoch; press Ctrl-C again to kill them"
        )
        for attempt in self.running.values():
            self.watchers.view.say(attempt.cancel())
        self.launcher.cancel_pending()


def _is_of_its_driver(trial: TrialRecord, outcome: Outcome) -> bool:
    """Return whether the newest attempt was refused, or was cancelled after a request to stop."""
    if outcome.state is not State.CANCELLED:
        return outcome.state is State.REFUSED
    with suppress(OSError):
        attempt = TrialFolder(trial.folder).newest()
        return attempt is not None and attempt.stop_requested() is State.CANCELLED
    return False
