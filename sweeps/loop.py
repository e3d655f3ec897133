"""Keep the slots full: ask, submit, poll, tell. Knows no SLURM, no TensorFlow and no Optuna."""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeps.attempt import GOES_ON, Attempt
from sweeps.errors import UserError
from sweeps.launchers.contract import Exit, Rounds, TrialJob, TrialLauncher
from sweeps.settings import SweeperConf
from sweeps.study import Proposal, Study
from sweeps.summary import Row, Summary
from sweeps.terminal import View
from sweeps.trial_folder import Result, State, TrialFolder

if TYPE_CHECKING:
    from sweeps.tracking import Tracker

_TICK_S = 0.25


class Loop:
    """Runs the trials of one study to their ends.

    Args:
        make_job: from a proposal to a job with its folder; raises UserError if its config is not valid.
    """

    def __init__(
        self,
        study: Study,
        launcher: TrialLauncher,
        make_job: Callable[[Proposal], TrialJob],
        summary: Summary,
        settings: SweeperConf,
        view: View,
        tracker: "Tracker | None" = None,
        *,
        detach: bool = False,
        keep_on_interrupt: bool = False,
    ) -> None:
        self._study = study
        self._launcher = launcher
        self._make_job = make_job
        self._summary = summary
        self._settings = settings
        self._view = view
        self._tracker = tracker
        self.detach = detach
        """Whether to leave once there is room for no further trial."""
        self._keep_on_interrupt = keep_on_interrupt
        self._running: dict[int, Attempt] = {}
        self._again: deque[Attempt] = deque()
        self._next: Attempt | None = None
        self._asked_all = False
        self._free_since: deque[float] = deque()
        """When the slots that stand empty became so."""
        self._folder = TrialFolder(summary.folder)  # a study is stopped with the same file as a trial
        self._rounds = Rounds()
        self._signalled = False
        self.interrupted = False
        self.stopped = ""
        """Why no further trial was started; empty if all were."""

    def run(self) -> None:
        """Return when every trial has ended, or when what still ran after a reason to stop has."""
        with self._interruptible():
            self._take_up()
            while self._goes_on():
                for over in self._launcher.poll(_TICK_S):
                    self._end(self._running.pop(over.number), over)
                if self._rounds.due(len(self._running)):
                    for attempt in self._running.values():
                        self._hear(attempt)
                if self._signalled:
                    self._interrupt("it was interrupted")
                if self._folder.stop_requested():
                    self._interrupt("it was stopped by python -m sweeps stop")
                problem = self._tracker.problem if self._tracker else None
                self._view.tick(self._summary, [*self._launcher.notes(), *([problem] if problem else [])])

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The first Ctrl-C is acted on when the loop comes round, the second at once."""

        def interrupt(*_: Any) -> None:
            if self._signalled:
                raise KeyboardInterrupt
            self._signalled = True

        previous = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

    def _interrupt(self, reason: str) -> None:
        if self.interrupted:
            return
        self.interrupted, self.stopped = True, reason
        if self._keep_on_interrupt:
            self.detach = True
            return
        self._view.say("stopping: running trials end after their epoch; press Ctrl-C again to kill them")
        for attempt in self._running.values():
            attempt.job.folder.request_stop(State.CANCELLED)
        self._launcher.withdraw()

    def _goes_on(self) -> bool:
        more = self._fill()
        if self.detach:
            return more and not self._is_full()
        return more or bool(self._running)

    def _take_up(self) -> None:
        """Go on with what an earlier driver left: adopt attempts that still live, queue the others."""
        self._summary.rows += self._study.finished()
        for proposal in self._study.unfinished():
            attempt = self._prepare(proposal)
            if attempt is None:
                continue
            folder = attempt.job.folder
            attempt.row.attempts = folder.ends()
            result = folder.read_result()
            if result is not None and result.state is not State.CANCELLED:
                self._settle(attempt, result, folder.last_written())
            elif result is None and folder.attempts() and self._launcher.adopt(attempt.job):
                self._started(attempt)
            else:
                if folder.attempts():  # it was stopped, or ended with its driver
                    attempt.close(result or Result(State.CANCELLED), folder.last_written())
                self._again.append(attempt)

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
            self._next.make_folder()
            if not self._launcher.submit(self._next.job):
                return True
            if self._free_since:
                self._next.idle_slot_s = time.time() - self._free_since.popleft()
            self._started(self._next)
            self._next = None
        return False

    def _has_enough(self) -> bool:
        return self._settings.n_jobs is not None and len(self._running) >= self._settings.n_jobs

    def _is_full(self) -> bool:
        return self._has_enough() or not self._has_room()

    def _has_room(self) -> bool:
        return self._launcher.has_room(ahead=self._study.is_grid)

    def _choose(self) -> bool:
        """Get the next trial ready. False when there is none any more.

        A grid's next trial is known while all slots are busy; a search chooses only when there is room for it.
        """
        if not self._study.is_grid and not self._has_room():
            return bool(self._again) or not self._asked_all
        self._next = self._again.popleft() if self._again else self._ask()
        if self._next is None:
            self._asked_all = True
            return False
        return True

    def _ask(self) -> Attempt | None:
        while not self._asked_all and not self._spent():
            proposal = self._study.ask()
            if proposal is None:
                return None
            if attempt := self._prepare(proposal):
                return attempt
        return None

    def _prepare(self, proposal: Proposal) -> Attempt | None:
        """The trial, ready to be submitted. One whose config is not valid has failed, and the study goes on."""
        row = Row(proposal.number, proposal.point, State.QUEUED, self._summary.folder / str(proposal.number))
        self._summary.rows.append(row)
        try:
            job = self._make_job(proposal)
        except UserError as error:
            self._record(row, Result(State.FAILED, error=str(error)))
            return None
        row.folder = job.folder.path
        if self._tracker:
            run = self._tracker.start_trial(row, proposal.overrides, job.config)
            job.environment = {**job.environment, **run}
        return Attempt(job, row, asked=time.time())

    def _spent(self) -> bool:
        """Whether the study may not start further trials: too many failed, or its budget is used up."""
        rate, hours = self._settings.max_failure_rate, self._settings.max_gpu_hours
        if rate is not None and len(self._summary.bad()) > rate * self._study.total:
            self.stopped = (
                f"{len(self._summary.bad())} trials failed, more than max_failure_rate={rate} allows"
            )
        elif hours is not None and self._gpu_hours() >= hours:
            self.stopped = f"the budget of max_gpu_hours={hours} is spent"
        return bool(self.stopped)

    def _gpu_hours(self) -> float:
        now = time.time()
        ends = [end for row in self._summary.rows for end in row.attempts]
        ends += [attempt.end(Result(State.RUNNING), now) for attempt in self._running.values()]
        return sum(end.gpu_hours for end in ends)

    def _started(self, attempt: Attempt) -> None:
        attempt.row.state = State.RUNNING
        self._running[attempt.row.number] = attempt
        self._view.started(attempt.row)

    def _hear(self, attempt: Attempt) -> None:
        """Read what the trial reported since the last time, and let the pruner decide on it."""
        for line in attempt.news():
            attempt.row.metrics = line.metrics
            value = line.metrics.get(self._summary.objective[0])
            if value is not None and self._study.report(attempt.row.number, value, line.step):
                attempt.job.folder.request_stop(State.PRUNED)

    def _end(self, attempt: Attempt, over: Exit) -> None:
        self._hear(attempt)
        result = attempt.job.folder.read_result() or Result(over.state, error=over.error)
        ended = time.time()
        self._free_since.append(ended)
        self._settle(attempt, result, ended)

    def _settle(self, attempt: Attempt, result: Result, ended: float) -> None:
        """Note how an attempt ended, and let its trial go on in a new one or end with it."""
        row = attempt.row
        attempt.close(result, ended)
        if result.state not in GOES_ON or not attempt.may_be_followed(self._settings.max_attempts):
            self._record(row, result)
        elif self.stopped:
            self._record(row, replace(result, state=State.CANCELLED))
        else:
            self._view.say(f"trial {row.number} {result.state}: {result.error}; it goes on in a new attempt")
            row.state = State.QUEUED
            self._again.append(Attempt(attempt.job, row, asked=ended, read_to=attempt.read_to))

    def _record(self, row: Row, result: Result) -> None:
        row.take(result)
        if row.state.is_over:
            self._study.tell(row)
        self._view.ended(row, self._summary)
        if self._tracker:
            self._tracker.end_trial(row)
