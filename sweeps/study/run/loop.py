"""The loop that keeps the slots full: choose, submit, poll, record. It imports no SLURM, TensorFlow
or Optuna."""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sweeps.base.errors import UserError
from sweeps.base.signals import Interrupted
from sweeps.choose import Next
from sweeps.hydra.settings import SweeperConf
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.study import TrialRecord
from sweeps.record.writer import Record
from sweeps.study.run.attempt import RETRIED, Attempt, give_up_reason, may_resume
from sweeps.study.run.events import Ended, Event, LoopEnd, Note, Retried, Started
from sweeps.study.run.interruption import Interruption, Lookout
from sweeps.study.run.observer import Observer
from sweeps.study.run.requests import Requests
from sweeps.study.run.starter import Starter
from sweeps.study.run.stop import Stop
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.nodes import find_bad_nodes
from sweeps.trial.times import now

_POLL_S = 0.25  # time that one poll waits for an outcome


@dataclass
class Loop:
    """Runs the trials of one study to their ends: call `begin`, `step` while it returns True, and
    `end`. `take_events` returns what happened."""

    record: Record
    starter: Starter
    stop: Stop
    launcher: TrialLauncher
    settings: SweeperConf
    lookout: Lookout
    requests: Requests
    observer: Observer
    clock: Callable[[], float] = now
    # whether to choose the next trial before there is room, because a grid learns nothing
    ahead: bool = False
    interrupted: bool = False
    # whether to leave running trials without a driver once there is no room for another
    detach: bool = False
    # submitted attempts without a recorded outcome, by trial
    running: dict[int, Attempt] = field(default_factory=dict)
    _events: list[Event] = field(default_factory=list)
    _ready: Attempt | None = None  # the attempt to submit next
    # whether to poll without waiting, because the newest choice could not be started
    _poll_now: bool = False
    # when each empty slot became empty, s since 1970
    _free_since: deque[float] = field(default_factory=deque)
    _room: bool = False  # whether there was room at the last look

    def begin(self) -> None:
        """Adopt the living attempts of an earlier driver, and record which attempts have ended.
        Others are retried."""
        self.detach = self.launcher.detach
        self._note(self.record.repairs)
        reopened = self.starter.reopen(self.settings.max_attempts, self.launcher.max_timeouts)
        if reopened:
            numbers = ", ".join(map(str, reopened))
            self._note(f"trials {numbers} were given up and resume now")

        for trial in self.record.study.open:
            try:
                self._resume_trial(trial)
            except OSError as error:
                self._refuse(trial, f"its files cannot be read: {error}")
        self._avoid_bad_nodes()

    def step(self) -> bool:
        """Submit, poll and observe once. Return False if all trials have ended; or, after a reason
        to stop, all running ones."""
        if not self._has_work():
            return False

        self._poll()
        if any(attempt.is_queued and not attempt.trial.by_hand for attempt in self._attempts):
            self.stop.check_budget(self._attempts)
        unended = [attempt for attempt in self._attempts if not attempt.outcome]
        for attempt in self.observer.due(unended):
            self._observe(attempt)

        interruption = self.lookout.look()
        if interruption:
            self._interrupt(interruption)
        if all(attempt.started_at for attempt in self._attempts):
            self._note(self.stop.take_message())
        return True

    def end(self) -> None:
        """Leave the trials that are to run without a driver, and complete the reason to stop."""
        if self.detach:
            self.launcher.close(keep=True)
            # because the last submissions may have been refused, or have found no room
            self._poll()
        self._note(self.stop.take_message())
        self.stop.end()

    def result(self) -> LoopEnd:
        """Return how the loop has ended."""
        return LoopEnd(
            running=len(self.running),
            stopped=self.stop.reason,
            enough=self.stop.enough,
            interrupted=self.interrupted,
            detached=self.detach,
            all_had_ended=not self.starter.has_started,
        )

    def take_events(self) -> list[Event]:
        """Return what happened since the last call."""
        events = self._events
        self._events = []
        return events

    @property
    def is_full(self) -> bool:
        """Return whether there was no room for a further trial at the last look."""
        return self._ready is not None or not self._room

    @property
    def _attempts(self) -> list[Attempt]:
        return list(self.running.values())

    def _note(self, text: str) -> None:
        if text:
            self._events.append(Note(text))

    def _has_work(self) -> bool:
        has_more = self._fill()
        if self.detach:
            return has_more and self._has_room()
        return has_more or bool(self.running)

    def _poll(self) -> None:
        timeout_s = 0.0 if self._poll_now else _POLL_S
        for number, outcome in self.launcher.poll(timeout_s=timeout_s):
            self.running[number].outcome = outcome
        for attempt in self._attempts:
            if attempt.outcome:
                self._close(attempt, attempt.outcome)

    def _fill(self) -> bool:
        """Submit as many trials as there is room for. Return False if nothing is left to submit."""
        self._poll_now = False
        for line in self.requests.take(self.record):
            self._note(line)

        while not self.stop.reason:
            self._drop_unwanted()
            has_room = self._has_room()
            if not has_room and not self._may_choose_ahead():
                return True

            if self._ready is None:
                answer = self._choose()
                if self._ready is None:
                    return self._asks_again(answer)

            if self.stop.check_budget(self._attempts, self._ready):
                return False
            if not has_room or not self._submit():
                return True
        return False

    def _may_choose_ahead(self) -> bool:
        """Return whether to choose an attempt that has no room yet."""
        has_limit = self.settings.n_jobs is not None and bool(self.running)
        return self._ready is None and self.ahead and not has_limit

    def _choose(self) -> Next:
        """Let the choosers choose, and return their answer; an empty one if they may choose no
        more. A trial that can start becomes the ready one."""
        if self.stop.check_budget(self._attempts):
            return Next()
        try:
            choice = self.starter.choose(enough=bool(self.stop.enough))
        except Interrupted as interrupted:  # after which no chooser is asked again
            interrupted.words()  # which raises the error, if it is for one
            assert self.lookout.interruption
            self._interrupt(self.lookout.interruption)
            return Next()
        except UserError as error:
            # raised by a sampler, or by a search space in the user's code
            self.stop.stop_study(str(error))
            return Next()

        for message in choice.messages:
            self._note(message)
        if choice.ended:
            trial, outcome = choice.ended
            self._record_end(trial, outcome)
        self._ready = choice.ready
        return choice.answer

    def _asks_again(self, answer: Next) -> bool:
        """Return whether the choosers are asked again after an answer without an attempt that can
        start."""
        has_chosen = bool(answer.begin or answer.resume)
        self._poll_now = has_chosen and not self.stop.reason
        return self._poll_now or (answer.waits and bool(self.running))

    def _drop_unwanted(self) -> None:
        """Drop the ready attempt if the search has had enough since it was made."""
        self.stop.check_results(self._attempts)
        if self._ready and self.stop.enough and self._ready.trial.ends_with_search:
            self._release(self._ready.trial.number)

    def _submit(self) -> bool:
        """Submit the ready attempt. Return False if there is no room for it."""
        assert self._ready
        attempt = self._ready
        number = attempt.trial.number
        idle_slot_s = self.clock() - self._free_since[0] if self._free_since else 0.0
        try:
            attempt.make_folder(idle_slot_s, self.launcher.name)
        except OSError as error:
            self._release(number)
            self._refuse(attempt.trial, f"its folder cannot be made: {error}")
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
        most = self.settings.n_jobs or math.inf
        self._room = len(self.running) < most and self.launcher.has_room(ahead=self.ahead)
        return self._room

    def _avoid_bad_nodes(self) -> None:
        """Let the launcher avoid the nodes that failed."""
        outcomes = [outcome for trial in self.record.trials for outcome in trial.attempts]
        self.launcher.avoid(find_bad_nodes(outcomes, unproven=True))

    def _resume_trial(self, trial: TrialRecord) -> None:
        folder = TrialFolder(trial.folder)
        newest = folder.newest()
        if newest is None or trial.state is State.PAUSED:
            return
        if not newest.is_over:
            outcome = self.starter.prepare(trial)
            if outcome:
                self._record_end(trial, outcome)
                return
            if self._adopt(trial, newest.number):
                return

        newest.close(Outcome(State.CANCELLED, "it ended with its driver"), newest.last_written())
        trial = replace(trial, attempts=tuple(folder.ends()))
        last = trial.attempts[-1]
        is_open = last.state in (State.CANCELLED, State.REFUSED)
        if is_open or len(trial.attempts) <= trial.forgiven:
            self.record.update(trial)
            return
        self.starter.has_started = True
        self._retry_or_end(trial, last)

    def _adopt(self, trial: TrialRecord, number: int) -> bool:
        """Take over the attempt of this number, if it is alive. Return whether it is."""
        job = replace(self.starter.tracked_job(trial), attempt=number)
        if not self.launcher.adopt(job):
            return False
        self.starter.has_started = True
        self.record.update(replace(trial, attempts=tuple(job.folder.ends())))
        self.record.mark_under_way(trial.number)
        self.running[trial.number] = Attempt(job, trial, queued_at=self.clock(), adopted=True)
        return True

    def _observe(self, attempt: Attempt) -> None:
        """Read what the trial reported since the last look."""
        events = self.observer.observe(attempt)
        self._events += events
        if any(isinstance(event, Started) for event in events):
            self.stop.note_start()

    def _close(self, attempt: Attempt, reported: Outcome) -> None:
        """End an attempt that the launcher reported as over. An outcome in the attempt's folder
        counts first."""
        self._observe(attempt)
        outcome = self.observer.read_end(attempt, self.stop.explain(reported, attempt.started_at))
        if outcome is None:
            return  # the next poll closes it again

        number = attempt.trial.number
        self._release(number)
        self._free_since.append(self.clock())
        trial = self.record.trials[number].with_end(outcome)
        self._retry_or_end(trial, outcome, attempt.adopted)
        is_of_node = outcome.node_failed or outcome.state is State.REFUSED
        if outcome.node and is_of_node:
            self._avoid_bad_nodes()

    def _retry_or_end(self, trial: TrialRecord, outcome: Outcome, adopted: bool = False) -> None:
        """Put the trial back into the queue for a new attempt, or end it with this outcome."""
        if outcome.missing_objective and not self.record.study.has_objective:
            self.stop.stop_study(outcome.error)
        outcomes = list(trial.attempts[trial.forgiven :])
        max_timeouts = self.launcher.max_timeouts
        is_lost = outcome.state in RETRIED
        resumes = is_lost and may_resume(outcomes, self.settings.max_attempts, max_timeouts)

        # A refusal or a stop under an earlier driver is retried, because this command was not
        # refused or stopped yet.
        retries = resumes or (adopted and _is_of_its_driver(trial, outcome))
        if retries and not self._has_stopped(trial):
            self._events.append(Retried(trial.number, outcome))
            self.record.update(replace(trial, state=State.QUEUED))
            return

        if resumes:
            outcome = replace(outcome, state=State.CANCELLED)
        elif is_lost:
            outcome = replace(outcome, error=give_up_reason(outcomes))
        self._record_end(replace(trial, attempts=trial.attempts[:-1]), outcome)

    def _has_stopped(self, trial: TrialRecord) -> bool:
        """Return whether this trial gets no further attempt, because the study or its search has
        stopped."""
        return bool(self.stop.reason or (self.stop.enough and trial.ends_with_search))

    def _refuse(self, trial: TrialRecord, problem: str) -> None:
        self._record_end(trial, Outcome(State.REFUSED, problem))

    def _record_end(self, trial: TrialRecord, outcome: Outcome) -> None:
        """Record a trial's outcome. A refused or cancelled trial stays open for the next
        command."""
        trial = trial.with_end(outcome)
        if trial.state.is_settled:
            self.record.end(trial)
        self.record.update(trial)
        self.starter.drop_job(trial.number)
        is_alone = all(attempt.outcome for attempt in self._attempts)
        if trial.state is State.REFUSED and not self.stop.note_refusal(outcome, is_alone):
            return  # because the reason was printed for an earlier trial
        self._events.append(Ended(trial))

    def _interrupt(self, interruption: Interruption) -> None:
        """Start no further trial, and end the running ones or leave them. Raises UserError if
        another driver writes the study."""
        if interruption.is_conflict:
            raise UserError(f"study {self.record.study.name} is {interruption.reason}")
        if self.interrupted:
            return

        self.interrupted = True
        self.stop.reason = interruption.reason
        leaves = interruption.leaves_trials and self.launcher.survives
        self.detach = self.launcher.keep_on_interrupt or leaves
        if self.detach:
            return
        self._note(
            "stopping: running trials end after their epoch; press Ctrl-C again to kill them"
        )
        for attempt in self._attempts:
            self._note(attempt.cancel())
        self.launcher.cancel_pending()


def _is_of_its_driver(trial: TrialRecord, outcome: Outcome) -> bool:
    """Return whether the newest attempt was refused, or was cancelled after a request to stop."""
    if outcome.state is not State.CANCELLED:
        return outcome.state is State.REFUSED
    with suppress(OSError):
        attempt = TrialFolder(trial.folder).newest()
        return attempt is not None and attempt.stop_requested() is State.CANCELLED
    return False
