"""Keep the slots full: ask, submit, poll, tell. Knows no SLURM, no TensorFlow and no Optuna."""

import re
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeps.errors import UserError
from sweeps.files import Rounds, Unreadable
from sweeps.launchers.contract import TrialLauncher
from sweeps.results.summary import Row, Summary
from sweeps.results.terminal import View
from sweeps.settings import SweeperConf
from sweeps.signals import on_signals
from sweeps.study.attempt import GOES_ON, Attempt, given_up, may_be_reopened, may_go_on
from sweeps.study.search import Proposal, Search
from sweeps.trial.folder import METRICS
from sweeps.trial.job import End, Job, State

if TYPE_CHECKING:
    from sweeps.tracking.tracker import Tracker

_TICK_S = 0.25
_PATIENCE_S = 60.0
_REFUSALS = 3


class Loop:
    """Runs the trials of one study to their ends.

    Args:
        make_job: from a proposal to a job with its folder; raises UserError if its config is not valid.
        told_to_stop: why the study should stop, in words; empty while it should not.
    """

    def __init__(
        self,
        search: Search,
        launcher: TrialLauncher,
        make_job: Callable[[Proposal], Job],
        summary: Summary,
        settings: SweeperConf,
        view: View,
        tracker: "Tracker | None" = None,
        told_to_stop: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._search = search
        self._launcher = launcher
        self._make_job = make_job
        self._summary = summary
        self._settings = settings
        self._view = view
        self._tracker = tracker
        self._told_to_stop = told_to_stop
        self._clock = clock
        self.detach = launcher.detach
        """Whether to leave once there is room for no further trial."""
        self._running: dict[int, Attempt] = {}
        self._again: deque[Attempt] = deque()
        self._next: Attempt | None = None
        self._asked_all = False
        self._free_since: deque[float] = deque()
        """When the slots that stand empty became so."""
        self._rounds = Rounds()
        self._signal: signal.Signals | None = None
        self._refusal, self._refusals = "", 0
        self.interrupted = False
        self.stopped = ""
        """Why no further trial was started; empty if all were."""

    def run(self) -> None:
        """Return when every trial has ended, or when what still ran after a reason to stop has."""
        with on_signals(self._on_signal):
            self._take_up()
            while self._goes_on():
                for number, end in self._launcher.poll(_TICK_S):
                    self._running[number].said = end
                for attempt in [one for one in self._running.values() if one.said]:
                    self._end(attempt)
                if not self.stopped and any(one.began is None for one in self._running.values()):
                    self._spent()
                if self._rounds.due(len(self._running)):
                    for attempt in [one for one in self._running.values() if not one.said]:
                        self._hear(attempt)
                if self._signal:
                    self._interrupt(f"it was interrupted ({self._signal.name})")
                elif reason := self._told_to_stop():
                    self._interrupt(reason)
                self._view.tick(self._summary, self._notes())

    @property
    def going_on(self) -> int:
        """How many attempts were submitted and are not over."""
        return len(self._running)

    def _on_signal(self, number: int, _: Any) -> None:
        """The first signal is acted on when the loop comes round, a second Ctrl-C at once."""
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or signal.Signals(number)

    def _interrupt(self, reason: str) -> None:
        if self.interrupted:
            return
        self.interrupted, self.stopped = True, reason
        ended = self._signal not in (None, signal.SIGINT) and self._launcher.survives
        if self._launcher.keep_on_interrupt or ended:
            self.detach = True
            return
        self._view.say("stopping: running trials end after their epoch; press Ctrl-C again to kill them")
        for attempt in self._running.values():
            try:
                attempt.job.attempt_folder.request_stop(State.CANCELLED)
            except OSError as error:
                self._view.say(f"trial {attempt.row.number} cannot be told to stop: {error}")
        self._launcher.withdraw()

    def _notes(self) -> list[str]:
        problem = self._tracker.problem if self._tracker else None
        trouble = [f"trial {n}: {one.trouble}" for n, one in self._running.items() if one.trouble]
        return [*self._launcher.notes(), *trouble, *([problem] if problem else [])]

    def _goes_on(self) -> bool:
        more = self._fill()
        if self.detach:
            return more and not self._is_full()
        return more or bool(self._running)

    def _take_up(self) -> None:
        """Go on with what an earlier driver left: adopt attempts that still live, queue the others."""
        if self._search.mended:
            self._view.say(self._search.mended)
        finished = self._search.finished()
        again = {row.number for row in finished if self._may_be_reopened(row)}
        if again and self._search.reopen(sorted(again)):
            self._view.say(f"trials {', '.join(map(str, sorted(again)))} were given up and go on now")
            finished = [row for row in finished if row.number not in again]
        self._summary.rows += finished
        for proposal in self._search.unfinished():
            if attempt := self._prepare(proposal):
                try:
                    self._take_up_one(attempt)
                except OSError as error:
                    self._refuse(attempt, End(State.REFUSED, f"its files cannot be read: {error}"))

    def _may_be_reopened(self, row: Row) -> bool:
        if row.state not in GOES_ON:
            return False
        proposal = Proposal(row.number, row.params, self._search.space.overrides(row.params))
        try:
            timeout_min = self._make_job(proposal).request.timeout_min
        except UserError:
            return False
        return may_be_reopened(row, timeout_min, self._settings.max_attempts, self._launcher.max_timeouts)

    def _take_up_one(self, attempt: Attempt) -> None:
        newest = attempt.job.folder.newest()
        if newest is None:
            self._again.append(attempt)
            return
        attempt.row.attempts = attempt.job.folder.ends()
        try:
            end = newest.end()
        except Unreadable as error:
            end = newest.close(End(State.LOST, str(error)), newest.last_written())
            attempt.row.attempts[-1:] = [end]
        if end is None:
            adopted = replace(attempt, job=replace(attempt.job, attempt=newest.number))
            if self._launcher.adopt(adopted.job):
                self._submitted(adopted)
                return
            end = newest.close(End(State.CANCELLED, "it ended with its driver"), newest.last_written())
            attempt.row.take(end)
        over_already = len(attempt.row.attempts) <= attempt.row.forgiven
        if end.state in (State.CANCELLED, State.REFUSED) or over_already:
            attempt.row.state = State.QUEUED
            self._again.append(attempt)
        else:
            self._settle(attempt, end)

    def _fill(self) -> bool:
        """Submit as many trials as there is room for. False when there is nothing left to submit."""
        while not self.stopped:
            if self._has_enough():
                return True
            if self._next is None and not self._choose():
                return False
            if self._next is None or not self._has_room():
                return True
            if self._spent():
                return False
            attempt = self._next
            try:
                attempt.make_folder(self._clock() - self._free_since[0] if self._free_since else 0.0)
            except OSError as error:
                self._next = None
                self._refuse(attempt, End(State.REFUSED, f"its folder cannot be made: {error}"))
                continue
            if not self._launcher.submit(attempt.job):
                return True
            if self._free_since:
                self._free_since.popleft()
            self._next = None
            self._submitted(attempt)
        return False

    def _has_enough(self) -> bool:
        return self._settings.n_jobs is not None and len(self._running) >= self._settings.n_jobs

    def _is_full(self) -> bool:
        return self._has_enough() or not self._has_room()

    def _has_room(self) -> bool:
        return self._launcher.has_room(ahead=self._search.is_grid)

    def _choose(self) -> bool:
        """Get the next trial ready. False when there is none any more.

        A grid's next trial is known while all slots are busy; a search chooses only when there is room for it.
        """
        if not self._search.is_grid and not self._has_room():
            return bool(self._again) or not self._asked_all
        self._next = self._again.popleft() if self._again else self._ask()
        if self._next is None:
            self._asked_all = True
            return False
        return True

    def _ask(self) -> Attempt | None:
        while not self._asked_all and not self._spent():
            proposal = self._search.ask()
            if proposal is None:
                return None
            if attempt := self._prepare(proposal):
                return attempt
        return None

    def _prepare(self, proposal: Proposal) -> Attempt | None:
        """The trial, ready to be submitted. One whose config is not valid has failed, and the study goes on."""
        row = Row(proposal.number, proposal.point, State.QUEUED, self._summary.folder / str(proposal.number))
        row.forgiven = proposal.forgiven
        self._summary.rows.append(row)
        try:
            job = self._make_job(proposal)
        except UserError as error:
            self._record(row, End(State.FAILED, str(error)))
            return None
        row.folder = job.folder.path
        self._search.place(row)
        try:
            job.folder.write_point(proposal.number, proposal.point)
        except OSError as error:
            self._refuse(Attempt(job, row, self._clock()), End(State.REFUSED, f"its folder cannot be made: {error}"))
            return None
        if self._tracker:
            run = self._tracker.start_trial(row, proposal.overrides, job.config)
            job = replace(job, environment={**job.environment, **run})
        return Attempt(job, row, asked=self._clock())

    def _spent(self) -> bool:
        """Whether the study may not start further trials: too many failed, or its budget is used up."""
        rate, hours = self._settings.max_failure_rate, self._settings.max_gpu_hours
        if rate is not None and len(self._summary.bad()) > rate * self._search.total:
            self._stop(f"{len(self._summary.bad())} trials failed, more than max_failure_rate={rate} allows")
        elif hours is not None and self._gpu_hours() >= hours:
            self._stop(f"the budget of max_gpu_hours={hours} is spent")
        return bool(self.stopped)

    def _gpu_hours(self) -> float:
        ended = sum(end.gpu_hours for row in self._summary.rows for end in row.attempts)
        running = [(one.job.request.gpus, self._clock() - one.began) for one in self._running.values() if one.began]
        return ended + sum(gpus * seconds for gpus, seconds in running) / 3600

    def _submitted(self, attempt: Attempt) -> None:
        attempt.row.state = State.QUEUED
        self._running[attempt.row.number] = attempt

    def _hear(self, attempt: Attempt) -> None:
        """Read what the trial reported since the last time, and let the pruner decide on it."""
        try:
            if attempt.began is None and (began := attempt.job.attempt_folder.began()) is not None:
                attempt.began, attempt.row.state = began, State.RUNNING
                self._refusals = 0
                self._view.started(attempt.row)
            before = attempt.damaged
            for line in attempt.news():
                attempt.row.metrics = line.metrics
                value = line.metrics.get(self._summary.objective[0])
                if value is not None and self._search.report(attempt.row.number, value, line.step):
                    attempt.job.attempt_folder.request_stop(State.PRUNED)
            attempt.trouble = ""
            if damaged := attempt.damaged - before:
                self._view.say(f"{damaged} lines of {attempt.job.folder.path / METRICS} are damaged")
        except OSError as error:  # of this trial alone; a shared disk may be away for a moment
            attempt.trouble = f"{error}; it is looked at again"

    def _end(self, attempt: Attempt) -> None:
        """The launcher says that the attempt is over: what its folder says stands."""
        assert attempt.said is not None
        self._hear(attempt)
        try:
            end = attempt.job.attempt_folder.close(attempt.said)
        except OSError as error:
            attempt.trouble = f"{error}; it is looked at again"
            attempt.trouble_since = attempt.trouble_since or self._clock()
            if self._clock() - attempt.trouble_since < _PATIENCE_S:
                return  # tried again with the next tick
            # That it failed is what a launcher says of a trial of whose own word it does not know.
            state = State.LOST if attempt.said.state is State.FAILED else attempt.said.state
            words = f"{attempt.said.error}; {error}"
            end = replace(attempt.said, state=state, error=words, ended=self._clock())
        del self._running[attempt.row.number]
        self._free_since.append(self._clock())
        attempt.row.take(end)
        if attempt.row.state is State.REFUSED:
            self._refuse(attempt, end)
        else:
            self._settle(attempt, end)

    def _settle(self, attempt: Attempt, end: End) -> None:
        """Let the trial go on in a new attempt, or end with this one."""
        row = attempt.row
        ends = row.attempts[row.forgiven :]
        if end.misfit and not self.stopped:
            self._stop(end.error)
        if end.state not in GOES_ON:
            self._record(row, end)
        elif not may_go_on(ends, self._settings.max_attempts, self._launcher.max_timeouts):
            row.attempts[-1] = replace(end, error=given_up(ends))
            self._record(row, row.attempts[-1])
        elif self.stopped:
            row.state = State.CANCELLED
            self._show_end(row)
        else:
            self._view.say(f"trial {row.number} {end.state}: {end.error}; it goes on in a new attempt")
            row.state = State.QUEUED
            job = replace(attempt.job, attempt=0)
            self._again.append(Attempt(job, row, asked=self._clock(), read_to=attempt.read_to))

    def _refuse(self, attempt: Attempt, end: End) -> None:
        """The trial never began. It is open for the next command; the same reason thrice in a row stops the study."""
        reason = re.sub(r"\d+", "", end.error)
        self._refusals = self._refusals + 1 if reason == self._refusal else 1
        said_before, self._refusal = self._refusals > 1, reason
        attempt.row.take(end)
        if not said_before:
            self._show_end(attempt.row)
        if self._refusals == _REFUSALS and not self.stopped:
            self._stop(f"{_REFUSALS} trials in a row were refused: {end.error}")

    def _stop(self, reason: str) -> None:
        """Start no further trial, for a reason that the others share."""
        self.stopped = reason
        self._launcher.withdraw()

    def _record(self, row: Row, end: End) -> None:
        row.take(end)
        if row.state.is_over:
            self._search.tell(row)
        self._show_end(row)

    def _show_end(self, row: Row) -> None:
        self._view.ended(row, self._summary)
        if self._tracker:
            self._tracker.end_trial(row)
