"""Keep the slots full: ask, submit, poll, tell. Knows no SLURM, no TensorFlow and no Optuna."""

import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sweeps.errors import Infeasible, Outage, UserError
from sweeps.files import Rounds
from sweeps.launchers.contract import TrialLauncher
from sweeps.results.standing import Standing
from sweeps.results.summary import Row, Summary, counted
from sweeps.results.terminal import View
from sweeps.settings import SweeperConf
from sweeps.signals import on_signals
from sweeps.study.attempt import GOES_ON, Attempt, given_up, may_be_reopened, may_go_on
from sweeps.study.budget import Budget, Enough
from sweeps.study.search import Search
from sweeps.trial.folder import METRICS, TrialFolder
from sweeps.trial.job import End, Job, Point, State

if TYPE_CHECKING:
    from sweeps.results.live import LivePage
    from sweeps.tracking.tracker import Tracker

_PATIENCE_S = 60.0
_REFUSALS = 3


@dataclass
class Loop:
    """Runs the trials of one study to their ends."""

    search: Search
    launcher: TrialLauncher
    make_job: Callable[[Row], Job]  # tells the row its folder; raises UserError if its config is not valid
    summary: Summary
    settings: SweeperConf
    view: View
    tracker: "Tracker | None"
    told_to_stop: Callable[[], str]  # why the study should stop, in words; empty while it should not
    clock: Callable[[], float] = time.time
    added: Callable[[], Iterable[tuple[Point, str]]] = tuple
    """What a person adds meanwhile and is valid: points, and the names they are added under."""
    page: "LivePage | None" = None

    stopped: str = ""  # why no further trial was started; empty if all were
    enough: Enough | None = None  # the same, where it was enough
    interrupted: bool = False
    detach: bool = False  # whether to leave once there is room for no further trial
    had_ended: bool = True  # whether there was nothing to do: all trials had ended before
    running: dict[int, Attempt] = field(default_factory=dict)
    """The attempts that were submitted and are not over, by the numbers of their trials."""
    _by_hand: deque[Attempt] = field(default_factory=deque)
    _again: deque[Attempt] = field(default_factory=deque)
    _next: Attempt | None = None
    _asked_all: bool = False
    _race_alone: bool = False  # whether the search has enough, and only trials of its final race begin
    _waits: bool = False  # whether there is no trial to start until one has ended
    _at_once: bool = False  # whether the last that was asked for cannot be started, and room may stand empty
    _free_since: deque[float] = field(default_factory=deque)  # when the slots that stand empty became so
    _rounds: Rounds = field(default_factory=Rounds)
    _signal: signal.Signals | None = None
    _room: bool = False  # whether there was room when it was last looked for
    _told: Standing | None = None
    _refusals: list[str] = field(default_factory=list)  # the reasons of the newest refusals in a row, all alike

    def run(self) -> None:
        """Return when every trial has ended, or when what still ran after a reason to stop has."""
        self.detach = self.launcher.detach
        with on_signals(self._on_signal):
            self._take_up()
            while self._goes_on():
                for number, end in self.launcher.poll(timeout_s=0.0 if self._at_once else 0.25):
                    self.running[number].said = end
                for attempt, said in [(one, one.said) for one in self.running.values() if one.said]:
                    self._end(attempt, said)
                if any(one.began is None and not one.row.by_hand for one in self.running.values()):
                    self._spent()
                if self._rounds.due(len(self.running)):
                    for attempt in [one for one in self.running.values() if not one.said]:
                        self._hear(attempt)
                reason = f"it was interrupted ({self._signal.name})" if self._signal else self.told_to_stop()
                if reason and not self.interrupted:
                    self._interrupt(reason)
                if self.page:
                    self.page.tick()
                notes, troubles = self.launcher.notes(), self._troubles()
                self.view.tick(self.summary, [*notes, *troubles])
                self._tell(notes, troubles)
            self._tell([], [])

    def _tell(self, notes: list[str], troubles: list[str]) -> None:
        full = self._next is not None or not self._room
        words = (tuple(map(str, some)) for some in (notes, troubles))
        standing = Standing(len(self.running), full, self.stopped, *words)
        if standing != self._told:
            self._told = standing
            standing.write(self.summary.folder)

    def _on_signal(self, number: int, _: Any) -> None:
        """The first signal is acted on when the loop comes round, a second Ctrl-C at once."""
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or signal.Signals(number)

    def _interrupt(self, reason: str) -> None:
        self.interrupted, self.stopped = True, reason
        ended = self._signal not in (None, signal.SIGINT) and self.launcher.survives
        if self.launcher.keep_on_interrupt or ended:
            self.detach = True
            return
        self.view.say("stopping: running trials end after their epoch; press Ctrl-C again to kill them")
        for number, attempt in self.running.items():
            try:
                attempt.job.attempt_folder.request_stop(State.CANCELLED)
            except OSError as error:
                self.view.say(f"trial {number} cannot be told to stop: {error}")
        self.launcher.withdraw()

    def notes(self) -> list[str]:
        """What is not as it should be, in words."""
        return [*self.launcher.notes(), *self._troubles()]

    def _troubles(self) -> list[str]:
        """What of it keeps no trial waiting."""
        troubles = [f"trial {number}: {one.trouble}" for number, one in self.running.items() if one.trouble]
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        trouble = [Outage(f"{troubles[0]}{more}", "the files of all trials can be read again")] if troubles else []
        problem = [self.tracker.problem] if self.tracker and self.tracker.problem else []
        problem += [self.page.problem] if self.page and self.page.problem else []
        return [*trouble, *problem]

    def _take_up(self) -> None:
        """Go on with what an earlier driver left: adopt attempts that still live, queue the others."""
        if self.search.mended:
            self.view.say(self.search.mended)
        finished = self.search.finished()
        again = [row.number for row in finished if self._may_be_reopened(row)]
        if again:
            self.search.reopen(again)
            self.view.say(f"trials {', '.join(map(str, again))} were given up and go on now")
            finished = self.search.finished()
        self.summary.rows += finished
        for row in self.search.unfinished():
            if attempt := self._prepare(row):
                try:
                    self._take_up_one(attempt)
                except OSError as error:
                    self._record(row, End(State.REFUSED, f"its files cannot be read: {error}"))

    def _may_be_reopened(self, row: Row) -> bool:
        if row.state not in GOES_ON or self.settings.storage:  # a storage of the user's keeps an end for ever
            return False
        try:
            timeout_min = self.make_job(row).request.timeout_min
        except UserError:
            return False
        return may_be_reopened(row, timeout_min, self.settings.max_attempts, self.launcher.max_timeouts)

    def _take_up_one(self, attempt: Attempt) -> None:
        job, row = attempt.job, attempt.row
        newest = job.folder.newest()
        if newest is None:
            self._again.append(attempt)
            return
        adopted = replace(job, attempt=newest.number)
        if not newest.is_over and self.launcher.adopt(adopted):
            row.attempts = job.folder.ends()
            self.running[row.number] = replace(attempt, job=adopted, adopted=True)
            return
        newest.close(End(State.CANCELLED, "it ended with its driver"), newest.last_written())
        row.attempts = job.folder.ends()
        if row.attempts[-1].state in (State.CANCELLED, State.REFUSED) or len(row.attempts) <= row.forgiven:
            self._again.append(attempt)
        else:
            self._settle(attempt, row.attempts[-1])

    def _goes_on(self) -> bool:
        more = self._fill() or (self._begins_race() and self._fill())
        return (more and self._has_room()) if self.detach else (more or bool(self.running))

    def _begins_race(self) -> bool:
        """Whether a study whose search has enough goes on with its final race alone, which is not for improving."""
        has_enough = self.enough is not None and self.enough.done and self.settings.final_race > 0
        if not has_enough or self.running or self.interrupted or self._race_alone:
            return False
        begun = [*([self._next] if self._next else []), *self._again]  # which an earlier driver did not see end
        self._again = deque(one for one in begun if one.row.race or one.row.by_hand)
        self._race_alone, self.stopped, self._asked_all, self._next = True, "", False, None
        return True

    def _fill(self) -> bool:
        """Submit as many trials as there is room for. False when there is nothing left to submit."""
        self._at_once = False
        if not self.stopped:
            self._take_added()
        while not self.stopped:
            room = self._has_room()
            # A grid's next trial is made ready while all slots are busy; any other is chosen when there is room for it.
            if not room and (self._next or not self.search.is_grid or (self.settings.n_jobs and self.running)):
                return True
            waiting = self._by_hand or self._again
            self._next = self._next or (waiting.popleft() if waiting else self._ask())
            waits = self._next is None and (self._waits or self._waits_for_wanted())
            self._at_once = self._next is None and not self._asked_all and not waits and not self.stopped
            if self._at_once or (self._next is None and self._waits):
                return True
            if self._next is None or self._spent(self._next):
                return False
            if not room:
                return True
            attempt = self._next
            try:
                attempt.make_folder(idle_slot_s=self.clock() - self._free_since[0] if self._free_since else 0.0)
            except OSError as error:
                self._next = None
                self._record(attempt.row, End(State.REFUSED, f"its folder cannot be made: {error}"))
                continue
            if not self.launcher.submit(attempt.job):
                return True
            if self._free_since:
                self._free_since.popleft()
            self._next = None
            self.running[attempt.row.number] = attempt
        return False

    def _take_added(self) -> None:
        """What a person added is recorded at once, and comes next."""
        for point, name in self.added():
            row = self.search.add(point, name)
            self.summary.total = self.search.total
            if attempt := self._prepare(row):
                self._by_hand.append(attempt)

    def _waits_for_wanted(self) -> bool:
        """Whether a trial that a person added, or one of the race, was submitted and has not begun."""
        return any((one.row.by_hand or one.row.race) and one.began is None for one in self.running.values())

    def _has_room(self) -> bool:
        free = self.settings.n_jobs is None or len(self.running) < self.settings.n_jobs
        self._room = free and self.launcher.has_room(ahead=self.search.is_grid)
        return self._room

    def _ask(self) -> Attempt | None:
        """The next trial, if there is one and it can be started."""
        self._waits = False
        if self._asked_all or self._spent():
            return None
        row = self.search.ask(self._race_alone)
        self._waits = row is None and bool(self.running) and self.search.waits
        self._asked_all = row is None and not self._waits
        self.summary.total = self.search.total
        if self.search.news:
            self.view.say(self.search.news)
            self.search.news = ""
        return self._prepare(row, self.search.infeasible(row)) if row else None

    def _prepare(self, row: Row, infeasible: str = "") -> Attempt | None:
        """The trial, ready to be submitted. One whose config is not valid has failed, one that cannot run here, for
        which `infeasible` may be a reason, counts as pruned, and the study goes on.
        """
        self.summary.rows.append(row)
        self.had_ended, job = False, None
        try:
            if infeasible:
                raise Infeasible(infeasible)
            job = self.make_job(row)
        except Infeasible as error:
            infeasible = str(error)
        except UserError as error:
            self._record(row, End(State.FAILED, str(error)))
            return None
        self.search.place(row)
        try:
            TrialFolder(row.folder).write_point(row.number, row.params, row.repeat)
        except OSError as error:
            self._record(row, End(State.REFUSED, f"its folder cannot be made: {error}"))
            return None
        if job is None:
            self._record(row, End(State.PRUNED, infeasible))
            return None
        if self.tracker:
            run = self.tracker.start_trial(row, self.search.space.overrides(row.params), job.config)
            job = replace(job, environment={**job.environment, **run})
        return Attempt(job, row, asked=self.clock())

    def _spent(self, attempt: Attempt | None = None) -> bool:
        """Whether no further trial may start: the study has enough, or the one that is next exceeds a budget."""
        if not self.stopped:
            budget, running = Budget(self.settings, self.summary, self.clock), self.running.values()
            wanted = attempt is not None and attempt.row.by_hand  # also of a study that has enough
            enough = budget.spent(running) or (None if wanted or self._race_alone else budget.reached())
            if enough and enough.done and self._waits_for_wanted():
                return True  # it would be taken back with the others
            waiting = [*([attempt] if attempt else []), *(one for one in running if one.began is None)]
            exceeding = (budget.exceeded_by(one, running) for one in waiting)
            if enough := enough or next(filter(None, exceeding), None):
                self.enough = enough
                if self.running:
                    but = " but those of the final race" if enough.done and self.settings.final_race else ""
                    self.view.say(f"no further trial starts{but}: {enough.why}; those that run go on to their ends")
                self._stop(enough.why)
        return bool(self.stopped)

    def _hear(self, attempt: Attempt) -> None:
        """Read what the trial reported since the last time, and let the pruner decide on it."""
        row, folder = attempt.row, attempt.job.attempt_folder
        try:
            if attempt.began is None and (began := folder.began()) is not None:
                attempt.began, row.state = began, State.RUNNING
                self._refusals.clear()
                self.view.started(row)
            news = folder.trial.read_metrics(attempt.read_to)
            for line in news.values:
                row.metrics = line.metrics
                value = line.metrics.get(self.summary.objective[0])
                if value is not None and self.search.report(row.number, value, line.step):
                    folder.request_stop(State.PRUNED)
            attempt.read_to = news.offset
            if news.damaged:
                self.view.say(f"{counted(news.damaged, 'damaged line')} in {row.folder / METRICS}")
            attempt.trouble = ""
        except OSError as error:  # of this trial alone; a shared disk may be away for a moment
            attempt.trouble = f"{error}; it is looked at again"

    def _end(self, attempt: Attempt, said: End) -> None:
        """The launcher says that the attempt is over: what its folder says stands."""
        self._hear(attempt)
        try:
            end = attempt.job.attempt_folder.close(said)
        except OSError as error:
            attempt.trouble = f"{error}; it is looked at again"
            attempt.trouble_since = attempt.trouble_since or self.clock()
            if self.clock() - attempt.trouble_since < _PATIENCE_S:
                return  # tried again with the next tick
            # That it failed is what a launcher says of a trial of whose own word it does not know.
            state = State.LOST if said.state is State.FAILED else said.state
            end = replace(said, state=state, error=f"{said.error}; {error}", ended=self.clock())
        del self.running[attempt.row.number]
        self._free_since.append(self.clock())
        attempt.row.take(end)
        self._settle(attempt, end)

    def _settle(self, attempt: Attempt, end: End) -> None:
        """Let the trial go on in a new attempt, or end with this one."""
        row = attempt.row
        ends = row.attempts[row.forgiven :]
        if end.misfit:
            self._stop(end.error)
        again = end.state in GOES_ON and may_go_on(ends, self.settings.max_attempts, self.launcher.max_timeouts)
        refused_before = end.state is State.REFUSED and attempt.adopted and not self.stopped  # this command takes it up
        if again or refused_before:
            if not self.stopped:
                self.view.say(f"trial {row.number} {end.state}: {end.error}; it goes on in a new attempt")
                row.state = State.QUEUED
                job = replace(attempt.job, attempt=0)
                self._again.append(Attempt(job, row, asked=self.clock(), read_to=attempt.read_to))
                return
            end = replace(end, state=State.CANCELLED)
        elif end.state in GOES_ON:
            end = replace(end, error=given_up(ends))
        row.attempts[-1] = end
        self._record(row, end)

    def _stop(self, reason: str) -> None:
        """Start no further trial, for a reason that the others share. The first such reason stands."""
        if not self.stopped:
            self.stopped = reason
            self.launcher.withdraw()

    def _record(self, row: Row, end: End) -> None:
        """The trial has ended: for good or, if it was refused or cancelled, until the next command."""
        row.take(end)
        if row.state.is_over:
            self.search.tell(row)
        if row.state is State.REFUSED:
            reason = re.sub(r"\d+", "", end.error)
            self._refusals = [*self._refusals, reason] if reason in self._refusals else [reason]
            if len(self._refusals) == _REFUSALS:
                self._stop(f"{_REFUSALS} trials in a row were refused: {end.error}")
            if len(self._refusals) > 1:  # the reason was said
                return
        self.view.ended(row, self.summary)
        if self.tracker:
            self.tracker.end_trial(row)
