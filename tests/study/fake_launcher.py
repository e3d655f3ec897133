"""A launcher whose attempts do what a script says, one act a poll, by a clock of its own: the loop in milliseconds.

All else is real: the search and its journal, the folders, what a trial's process writes into them.
"""

import io
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig
from rich.console import Console

from sweeps.base.errors import Infeasible, UserError
from sweeps.base.signals import on_signals
from sweeps.choose import Chooser
from sweeps.hydra.settings import SweeperConf
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.study import Added, StudySnapshot, TrialRecord
from sweeps.record.writer import Record
from sweeps.show.terminal.lines import View
from sweeps.space.grammar import parse
from sweeps.study.run.checkpoints import checkpoints_of
from sweeps.study.run.choosing import Choosing
from sweeps.study.run.driver import drive
from sweeps.study.run.interruption import Interruption, Lookout, Signs
from sweeps.study.run.loop import Loop
from sweeps.study.run.observer import Observer
from sweeps.study.run.starter import Starter
from sweeps.study.run.stop import Stop
from sweeps.study.run.watchers import Watchers
from sweeps.trial import Trial, folder
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, Request, State
from sweeps.trial.run.process import outcome_of_error, outcome_of_return
from sweeps.trial.run.sent_job import Job

Acts = Generator[None, None, Outcome]
Script = Callable[[Job], Acts]
"""What the process of an attempt does, act by act; returns what the launcher says of its end."""

SILENT = Outcome(State.FAILED, "its process ended with exit code 0 and no result")
"""What a launcher says that knows nothing: the attempt's own word counts."""
_MOST_POLLS = 5000


class Clock:
    """Time as a test wants it, in seconds since 1970."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@contextmanager
def fake_time() -> Iterator[Clock]:
    """Set the clock of the trials' folders, and look at files without a rate limit."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.trial.folder.now", clock)
        patch.setattr("sweeps.trial.now", clock)
        patch.setattr("sweeps.base.looks.LOOKS_PER_S", 1e9)
        yield clock


class FakeLauncher(TrialLauncher):
    """`slots` attempts run at a time and `queue` more wait, each doing one act of its script with each poll.

    With `survives` it is a cluster: what runs goes on after its driver, whose next one adopts it.
    """

    name = "fake"

    def __init__(self, script: Script, clock: Clock, slots: int = 2, queue: int = 0, survives: bool = False) -> None:
        self.survives = survives
        self.script = script
        self.slots, self.queue = slots, queue
        self.on_poll: Callable[[], object] = lambda: None
        """Called first in each poll."""
        self.submitted: list[tuple[int, int]] = []
        """The number of the trial, and of the attempt, of all that was ever submitted."""
        self.most = 0
        """That ran or waited at a time."""
        self.acting = False
        """Whether it is the trials that work, not their driver."""
        self.polls = 0
        self.closed: list[bool] = []
        self.avoided: list[dict[str, str]] = []
        """The bad nodes of each call of `avoid`."""
        self._clock = clock
        self._known: set[int] = set()
        """To this driver."""
        self._waiting: dict[int, Job] = {}
        self._running: dict[int, tuple[Job, Acts]] = {}
        self._over: list[tuple[int, Outcome]] = []

    def trials(self, study_folder: Path) -> TrialLauncher:
        """Return this launcher, as a Hydra plugin returns its trials to the driver."""
        return self

    def request(self, config: DictConfig) -> Request:
        return Request()

    def open(self) -> None:
        """Begin with another driver, which has no trials."""
        self.polls = 0
        self._known.clear()
        self._over.clear()
        if not self.survives:
            self._running.clear()
            self._waiting.clear()

    def has_room(self, ahead: bool = False) -> bool:
        most = self.slots + (self.queue if ahead else 0)
        return len(self._running) + len(self._waiting) < most

    def submit(self, job: Job) -> bool:
        if not self.has_room(ahead=True):
            return False
        assert job.number not in {*self._waiting, *self._running}, "two attempts at a trial at once"
        self.submitted.append((job.number, job.attempt))
        self._known.add(job.number)
        self._waiting[job.number] = job
        self._start_some()
        self.most = max(self.most, len(self._running) + len(self._waiting))
        return True

    def adopt(self, job: Job) -> bool:
        mine = self._waiting.get(job.number) or self._running.get(job.number, (None,))[0]
        if mine is None or mine.attempt != job.attempt:
            return False
        self._known.add(job.number)
        return True

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        self.polls += 1
        assert self.polls < _MOST_POLLS, "the loop does not end"
        self.on_poll()
        self.act()
        over = [item for item in self._over if item[0] in self._known]
        self._over = [item for item in self._over if item not in over]
        self._clock.now += 0.01 if over else timeout_s
        return over

    def act(self) -> None:
        """Let the trials act, also without a driver."""
        self.acting = True
        for number, (_, acts) in list(self._running.items()):
            try:
                next(acts)
            except StopIteration as stop:
                del self._running[number]
                self._over.append((number, stop.value))
        self.acting = False
        self._start_some()

    def _start_some(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            number = next(iter(self._waiting))
            job = self._waiting.pop(number)
            self._running[number] = (job, self.script(job))

    def avoid(self, nodes: Mapping[str, str]) -> None:
        self.avoided.append(dict(nodes))

    def cancel_pending(self) -> None:
        self._over += [(number, Outcome(State.CANCELLED, "it was taken back")) for number in self._waiting]
        self._waiting.clear()

    def close(self, keep: bool = False) -> None:
        self.closed.append(keep)


def begin(job: Job) -> Trial:
    """Begin the attempt of a job, and return its trial."""
    job.attempt_folder.begin(folder.now())
    return Trial(job.folder, job.attempt, job.objective)


def trains(epochs: int = 3, metric: str = "objective", diary: list[tuple[int, int]] | None = None) -> Script:
    """Return the script of a trial that reports, saves a checkpoint, resumes, stops on request and writes its outcome.

    `diary` receives the trial and the step of each trained epoch.
    """

    def script(job: Job) -> Acts:
        trial = begin(job)
        saved = trial.checkpoint_folder / "epoch"
        first = saved.read_text(errors="replace") if saved.exists() else ""
        try:
            for epoch in range(int(first) if first.isdecimal() else 0, epochs):
                if diary is not None:
                    diary.append((job.number, epoch))
                trial.report({metric: result_of(job.number) + epochs - epoch - 1, "loss": 1.0}, epoch)
                saved.parent.mkdir(exist_ok=True)
                saved.write_text(str(epoch + 1))
                if trial.should_stop():
                    break
                yield
            end = outcome_of_return({metric: result_of(job.number)}, job.objective, job.attempt_folder.stop_reason())
        except Exception as error:
            end = outcome_of_error(error)
        job.attempt_folder.close(end)
        return SILENT

    return script


def result_of(number: int) -> float:
    """Return the result of the trial of this number."""
    return 100.0 + number


def ends(*outcomes: Outcome, begins: bool = True) -> Script:
    """Return the script of attempts with these outcomes, the last for all further attempts. They write no files."""

    def script(job: Job) -> Acts:
        if begins:
            begin(job)
        yield
        return outcomes[min(job.attempt, len(outcomes)) - 1]

    return script


def by_trial(others: Script, **scripts: Script) -> Script:
    """Return a script with other scripts for some trials: `t3=ends(...)`."""
    return lambda job: scripts.get(f"t{job.number}", others)(job)


class Said(View):
    """A view that keeps what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(file=io.StringIO())
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


class ScriptedLookout(Lookout):
    """A lookout that sees the signals of this process, and no files: `stop_reason` returns why the driver ends."""

    def __init__(self, stop_reason: Callable[[], str]) -> None:
        self._stop_reason = stop_reason
        self._signal = None
        self.interruption = None

    def observe(self) -> Signs:
        return Signs(self._signal)

    def look(self) -> Interruption | None:
        reason = self._stop_reason()
        if reason and not self.interruption:
            self.interruption = Interruption(reason)
        return super().look()


@dataclass
class Drive:
    """What one driver did."""

    loop: Loop
    watchers: Watchers
    summary: StudySnapshot
    lines: list[str]

    @property
    def out(self) -> str:
        return "\n".join(self.lines)

    def row(self, number: int) -> TrialRecord:
        return next(row for row in self.summary.rows if row.number == number)

    def states(self) -> list[str]:
        return [str(row.state) for row in sorted(self.summary.rows, key=lambda row: row.number)]

    def ended(self) -> list[str]:
        """Return the states of the trials that are not open."""
        return [state for state in self.states() if state != State.QUEUED]


class Study:
    """A study in `folder`, over the values in `lines`, for one driver after the other."""

    def __init__(self, folder: Path, clock: Clock, *lines: str, **settings: Any) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clock = clock
        self.settings = SweeperConf(**settings)
        self.space = parse(OverridesParser.create().parse_overrides(list(lines)), {}, {})
        self.refused: set[int] = set()
        """The trials whose config is not valid."""
        self.infeasible: Callable[[TrialRecord], bool] = lambda row: False
        """The trials that cannot run here."""
        self.added: Callable[[], Iterable[tuple[Point, str]]] = tuple
        """What a person adds while a driver runs."""
        self.more: Sequence[Chooser] = ()
        """Choosers that are asked after the study's own."""
        self.gpus = 0
        self.timeout_min: float | None = None
        """What each trial asks for."""

    def drive(self, launcher: FakeLauncher, stop_reason: Callable[[], str] = lambda: "", **changes: Any) -> Drive:
        """Run one driver, from its start to its end. `last` has the driver while it runs."""
        launcher.open()
        settings = SweeperConf(**{**vars(self.settings), **changes})
        view, lookout = Said(), ScriptedLookout(stop_reason)
        record = self.record(settings)
        choosing = self._choosing
        loop = Loop(
            record,
            Starter(record, [*choosing.choosers(), *self.more], self, lookout, self.clock, choosing.rungs),
            Stop(record, settings, launcher, self.clock),
            launcher,
            settings,
            lookout,
            self,
            Observer(record, choosing.pruner(record), self.clock),
            self.clock,
            ahead=choosing.is_grid,
        )
        checkpoints = checkpoints_of(settings, choosing.rungs)
        watchers = Watchers(view, launcher, rungs=choosing.rungs, checkpoints=checkpoints)
        self.last = Drive(loop, watchers, record.study, view.lines)
        with on_signals(lookout.note_signal):
            drive(loop, watchers, record.study)
        return self.last

    def take(self, record: Record) -> list[str]:
        """Record what a person adds."""
        for point, name in self.added():
            record.add(Added(name, point, not self.space.contains(point)))
        return []

    def record(self, settings: SweeperConf) -> Record:
        """Return the record of the study, as the next driver opens it."""
        self._choosing = choosing = Choosing("s", self.folder, settings, self.space, DictConfig({}))
        repeats = 1 if choosing.is_grid else settings.repeats
        study = StudySnapshot("s", self.folder, choosing.objective.names, settings.directions, [], choosing.planned)
        searched = not choosing.is_grid
        study = replace(study, size=choosing.size, repeats=repeats, searched=searched, seed_key=settings.seed_key)
        record = Record(study)
        choosing.earlier.save()
        record.open()
        record.update_outside(choosing.space)
        return record

    def trial(self, number: int) -> TrialFolder:
        return TrialFolder(self.folder / str(number))

    def steps(self, number: int) -> list[int]:
        return [line.step for line in self.trial(number).read_metrics().values]

    def make(self, row: TrialRecord) -> Job:
        if row.number in self.refused:
            raise UserError(f"trial {row.number} makes no sense")
        if self.infeasible(row):
            raise Infeasible(f"x={row.params['x']} is too large")
        number, request = row.number, Request(self.gpus, timeout_min=self.timeout_min)
        return Job("s", number, 0, DictConfig({}), request, self.trial(number), b"", self._choosing.objective)

    def track(self, row: TrialRecord, job: Job) -> Job:
        return job
