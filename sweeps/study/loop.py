"""Keep the slots full: choose, submit, poll, record. Knows no SLURM, no TensorFlow and no Optuna."""

import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sweeps.errors import UserError
from sweeps.files import RateLimit
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.study import TrialRecord
from sweeps.record.writer import Record
from sweeps.settings import SweeperConf
from sweeps.signals import on_signals
from sweeps.study.attempt import GOES_ON, Attempt, given_up, may_go_on
from sweeps.study.starter import Starter
from sweeps.study.stop import Stop
from sweeps.study.watchers import Watchers
from sweeps.trial.folder import METRICS, TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.wording import counted

if TYPE_CHECKING:
    from sweeps.choose.sampler.pruner import Pruner


@dataclass(frozen=True)
class Timing:
    """How long a loop waits, in seconds."""

    poll_s: float = 0.25  # for a trial to end
    patience_s: float = 60.0  # for a file of a trial that has ended to be readable again


@dataclass
class Loop:
    """Runs the trials of one study to their ends."""

    record: Record
    starter: Starter
    stop: Stop
    launcher: TrialLauncher
    settings: SweeperConf
    watchers: Watchers
    told_to_stop: Callable[[], str]  # why the study should stop, in words; empty while it should not
    clock: Callable[[], float] = time.time
    pruner: "Pruner | None" = None
    ahead: bool = False  # whether the next trial is chosen before there is room: a grid learns nothing meanwhile
    timing: Timing = field(default_factory=Timing)

    interrupted: bool = False
    detach: bool = False  # whether to leave once there is room for no further trial
    running: dict[int, Attempt] = field(default_factory=dict)  # what was submitted and is not over, by trial
    _ready: Attempt | None = None  # an attempt that waits for room
    _at_once: bool = False  # whether the newest choice cannot be started, and room may stand empty
    _free_since: deque[float] = field(default_factory=deque)  # when the slots that stand empty became so
    _rounds: RateLimit = field(default_factory=RateLimit)
    _signal: signal.Signals | None = None
    _room: bool = False  # whether there was room at the last look

    def run(self) -> None:
        """Return when every trial has ended, or when what still ran after a reason to stop has."""
        self.detach = self.launcher.detach
        with on_signals(self._on_signal):
            self._take_up()
            while self._goes_on():
                for number, end in self.launcher.poll(timeout_s=0.0 if self._at_once else self.timing.poll_s):
                    self.running[number].said = end
                for attempt in [one for one in self.running.values() if one.said]:
                    self._end(attempt)
                if any(one.began is None and not one.trial.by_hand for one in self.running.values()):
                    self.stop.check_budget(self.running.values())
                if self._rounds.due(len(self.running)):
                    for attempt in [one for one in self.running.values() if not one.said]:
                        self._observe(attempt)
                reason = f"it was interrupted ({self._signal.name})" if self._signal else self.told_to_stop()
                if reason and not self.interrupted:
                    self._interrupt(reason)
                if all(attempt.began for attempt in self.running.values()):
                    self.stop.say()
                self.watchers.show(self.record.study, self.running, self._is_full, self.stop.reason)
            self.stop.end()
            self.watchers.show_end(self.record.study, self.running, self._is_full, self.stop.reason)

    @property
    def _is_full(self) -> bool:
        return self._ready is not None or not self._room

    def _goes_on(self) -> bool:
        more = self._fill()
        return (more and self._has_room()) if self.detach else (more or bool(self.running))

    def _fill(self) -> bool:
        """Submit as many trials as there is room for. False when there is nothing left to submit."""
        self._at_once = False
        while not self.stop.reason:
            self._drop_unwanted()
            room = self._has_room()
            ahead = self.ahead and not (self.settings.n_jobs and self.running)
            if not room and (self._ready or not ahead):
                return True
            if self._ready is None and not self.stop.check_budget(self.running.values()):
                try:
                    answer, self._ready = self.starter.choose(bool(self.stop.enough), self._record)
                except UserError as error:  # of the user's own search space
                    self.stop.now(str(error))
                    return False
                if self._ready is None:
                    self._at_once = bool(answer.begin or answer.resume) and not self.stop.reason
                    return self._at_once or (answer.waits and bool(self.running))
            if self.stop.check_budget(self.running.values(), self._ready):
                return False
            if not room or not self._submit():
                return True
        return False

    def _drop_unwanted(self) -> None:
        """Leave an attempt that waits for room, if the search has had enough since it was made ready."""
        self.stop.check_results(self.running.values())
        ready = self._ready.trial if self._ready else None
        if ready and self.stop.enough and ready.searched:
            self._leave(ready.number)

    def _submit(self) -> bool:
        """Start the attempt that is ready. False if there is no room for it."""
        assert self._ready
        attempt, number = self._ready, self._ready.trial.number
        try:
            attempt.make_folder(idle_slot_s=self.clock() - self._free_since[0] if self._free_since else 0.0)
        except OSError as error:
            self._leave(number)
            self._record(attempt.trial, Outcome(State.REFUSED, f"its folder cannot be made: {error}"))
            return True
        if not self.launcher.submit(attempt.job):
            return False
        if self._free_since:
            self._free_since.popleft()
        self._ready, self.running[number] = None, attempt
        return True

    def _leave(self, number: int) -> None:
        self.record.leave(number)
        self.running.pop(number, None)
        if self._ready and self._ready.trial.number == number:
            self._ready = None

    def _has_room(self) -> bool:
        free = self.settings.n_jobs is None or len(self.running) < self.settings.n_jobs
        self._room = free and self.launcher.has_room(ahead=self.ahead)
        return self._room

    def _take_up(self) -> None:
        """Adopt what lives of an earlier driver's, and record what ended meanwhile. The rest gets new attempts."""
        if self.record.mended:
            self.watchers.view.say(self.record.mended)
        lost = [trial for trial in self.record.trials if trial.state in GOES_ON]
        limits = self.settings.max_attempts, self.launcher.max_timeouts
        again = [trial.number for trial in lost if self.starter.may_reopen(trial, *limits)]
        if again:
            self.record.reopen(again)
            self.watchers.view.say(f"trials {', '.join(map(str, again))} were given up and go on now")
        for trial in self.record.study.open:
            try:
                self._take_up_one(trial)
            except OSError as error:
                self._record(trial, Outcome(State.REFUSED, f"its files cannot be read: {error}"))

    def _take_up_one(self, trial: TrialRecord) -> None:
        folder = TrialFolder(trial.folder)
        newest = folder.newest()
        if newest is None:
            return
        if not newest.is_over:
            if outcome := self.starter.make(trial):
                self._record(trial, outcome)
                return
            job = replace(self.starter.job(trial), attempt=newest.number)
            if self.launcher.adopt(job):
                self.starter.has_started = True
                self.record.show(replace(trial, attempts=tuple(folder.ends())))
                self.record.begin(trial.number)
                self.running[trial.number] = Attempt(job, trial, asked=self.clock(), adopted=True)
                return
        newest.close(Outcome(State.CANCELLED, "it ended with its driver"), newest.last_written())
        trial = replace(trial, attempts=tuple(folder.ends()))
        last = trial.attempts[-1]
        if last.state in (State.CANCELLED, State.REFUSED) or len(trial.attempts) <= trial.forgiven:
            self.record.show(trial)
            return
        self.starter.has_started = True
        self._settle(trial, last)

    def _observe(self, attempt: Attempt) -> None:
        """Read what the trial reported since the last time, and let the pruner judge it."""
        number, folder = attempt.trial.number, attempt.job.attempt_folder
        try:
            if attempt.began is None and (began := folder.began()) is not None:
                attempt.began = began
                self.record.show(replace(self.record.trials[number], state=State.RUNNING))
                self.stop.began()
                self.watchers.view.started(attempt.trial)
            news = folder.trial.read_metrics(attempt.read_to)
            for line in news.values:
                self.record.show(replace(self.record.trials[number], metrics=line.metrics))
                value = line.metrics.get(self.record.study.objective[0])
                if value is not None and self.pruner and self.pruner.report(number, line.step, value):
                    folder.request_stop(State.PRUNED)
            attempt.read_to = news.offset
            self.starter.noted(number, news.offset)
            if news.damaged:
                self.watchers.view.say(f"{counted(news.damaged, 'damaged line')} in {attempt.trial.folder / METRICS}")
            attempt.trouble = ""
        except OSError as error:  # of this trial alone; a shared disk may be away for a moment
            attempt.trouble = f"{error}; it is looked at again"

    def _end(self, attempt: Attempt) -> None:
        """The launcher says that the attempt is over: what its folder says stands."""
        assert attempt.said
        self._observe(attempt)
        end = attempt.said
        try:
            end = attempt.job.attempt_folder.close(end)
        except OSError as error:
            attempt.trouble = f"{error}; it is looked at again"
            attempt.trouble_since = attempt.trouble_since or self.clock()
            if self.clock() - attempt.trouble_since < self.timing.patience_s:
                return  # tried again with the next tick
            # That it failed is what a launcher says of a trial of whose own word it does not know.
            state = State.LOST if end.state is State.FAILED else end.state
            end = replace(end, state=state, error=f"{end.error}; {error}", ended=self.clock())
        self._leave(attempt.trial.number)
        self._free_since.append(self.clock())
        self._settle(self.record.trials[attempt.trial.number].with_end(end), end, attempt.adopted)

    def _settle(self, trial: TrialRecord, end: Outcome, adopted: bool = False) -> None:
        """Let the trial go on in a new attempt, or end with this one."""
        ends = list(trial.attempts[trial.forgiven :])
        if end.misfit:
            self.stop.now(end.error)
        again = end.state in GOES_ON and may_go_on(ends, self.settings.max_attempts, self.launcher.max_timeouts)
        over = self.stop.reason or (self.stop.enough and trial.searched)
        if not over and (again or (end.state is State.REFUSED and adopted)):  # this command takes it up
            self.watchers.view.say(f"trial {trial.number} {end.state}: {end.error}; it goes on in a new attempt")
            self.record.show(replace(trial, state=State.QUEUED))
            return
        if again:
            end = replace(end, state=State.CANCELLED)
        elif end.state in GOES_ON:
            end = replace(end, error=given_up(ends))
        self._record(replace(trial, attempts=trial.attempts[:-1]), end)

    def _record(self, trial: TrialRecord, end: Outcome) -> None:
        """The trial has ended: for good or, if it was refused or cancelled, until the next command."""
        trial = trial.with_end(end)
        if trial.state.is_over:
            self.record.end(trial)
        self.record.show(trial)
        self.starter.forget(trial.number)
        if trial.state is State.REFUSED and not self.stop.refused(end):  # the reason was said
            return
        self.watchers.view.ended(trial, self.record.study)
        if self.watchers.tracker:
            self.watchers.tracker.end_trial(trial)

    def _on_signal(self, number: int, _: Any) -> None:
        """The first signal is acted on when the loop comes round, a second Ctrl-C at once."""
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or signal.Signals(number)

    def _interrupt(self, reason: str) -> None:
        self.interrupted, self.stop.reason = True, reason
        self.detach = self._signal not in (None, signal.SIGINT) and self.launcher.survives
        self.detach = self.detach or self.launcher.keep_on_interrupt
        if self.detach:
            return
        self.watchers.view.say("stopping: running trials end after their epoch; press Ctrl-C again to kill them")
        for number, attempt in self.running.items():
            try:
                attempt.job.attempt_folder.request_stop(State.CANCELLED)
            except OSError as error:
                self.watchers.view.say(f"trial {number} cannot be told to stop: {error}")
        self.launcher.cancel_pending()
