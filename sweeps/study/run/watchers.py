"""What is updated while a study runs: its terminal, MLflow, page, mirror and driver status."""

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from sweeps.analysis.advice import warn_idle_gpus
from sweeps.base.errors import Outage
from sweeps.base.wording import one_line
from sweeps.choose.rungs import Halving
from sweeps.hydra.settings import SweeperConf
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.driver_status import DriverStatus
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.terminal.lines import View
from sweeps.study.run.attempt import Attempt
from sweeps.study.run.checkpoints import Checkpoints
from sweeps.study.run.events import Ended, Event, Note, Retried, Started
from sweeps.study.run.jobs import GpuSharing

if TYPE_CHECKING:
    from sweeps.choose.sampler.mirror import Mirror
    from sweeps.show.terminal.live import LivePage
    from sweeps.tracking.tracker import Tracker

_IDLE_CHECK_S = 60.0  # because the samples of all trials with GPUs are read


@dataclass
class Watchers:
    """Shows the running study, at each call."""

    view: View
    launcher: TrialLauncher
    tracker: "Tracker | None" = None
    page: "LivePage | None" = None
    mirror: "Mirror | None" = None
    command: str = ""  # the command that resumes the study
    sharing: GpuSharing | None = None
    rungs: Halving | None = None
    checkpoints: Checkpoints | None = None
    clock: Callable[[], float] = time.monotonic
    _has_explained_rungs: bool = False
    _idle: set[int] = field(default_factory=set)  # trials with a warning about an idle GPU
    _idle_check_at: float = 0.0  # time of the next look at the GPUs, by the clock
    _status: DriverStatus | None = None  # the status that was written last

    def hand_on(self, events: Iterable[Event], study: StudySnapshot) -> None:
        """Print what happened, track the trials that have ended, and delete the checkpoints that
        are no longer needed."""
        has_ended = False
        for event in events:
            match event:
                case Note(text):
                    self.view.say(text)
                case Started(trial, how):
                    self.view.started(trial, how, study)
                case Retried(number, outcome):
                    reason = f"trial {number} {outcome.state}: {one_line(outcome.error)}"
                    self.view.say(f"{reason}; retried in a new attempt")
                case Ended(trial):
                    self.view.ended(trial, study)
                    self._explain_rungs(trial)
                    if self.sharing:
                        self.view.say(self.sharing.note(trial))
                    if self.tracker:
                        self.tracker.end_trial(trial)
                    has_ended = True
        if has_ended:
            self.delete_checkpoints(study)

    def delete_checkpoints(self, study: StudySnapshot, is_over: bool = False) -> None:
        """Delete the checkpoints that are no longer needed, and print what hinders that."""
        if self.checkpoints:
            self.view.say(self.checkpoints.delete(study, is_over))

    def show(
        self, study: StudySnapshot, running: Mapping[int, Attempt], full: bool, stopped: str
    ) -> None:
        """Show the study: its running attempts, whether there is room, and why no further trial
        starts."""
        for watcher in (self.page, self.mirror):
            if watcher:
                watcher.tick()
        self._warn_idle_gpus(study, running)
        notes = self.launcher.notes()
        problems = self._problems(running)
        self.view.tick(study, [*notes, *problems])

        pending = tuple(map(str, notes))
        unanswered = tuple(map(str, problems))
        status = DriverStatus(len(running), full, stopped, pending, unanswered, self.command)
        self._write(study, status)

    def show_end(
        self, study: StudySnapshot, running: Mapping[int, Attempt], full: bool, stopped: str
    ) -> None:
        """Show the study as its driver leaves it, without the notes on waiting trials."""
        if self.mirror:
            self.mirror.tick(at_once=True)
        self._write(study, DriverStatus(len(running), full, stopped, command=self.command))

    def _explain_rungs(self, trial: TrialRecord) -> None:
        """Print once why rungs are of no use to a trial."""
        if self.rungs and not self._has_explained_rungs:
            problem = self.rungs.explain_no_use(trial)
            self._has_explained_rungs = bool(problem)
            self.view.say(problem)

    def _warn_idle_gpus(self, study: StudySnapshot, running: Mapping[int, Attempt]) -> None:
        """Print a warning for each trial whose GPU is idle, once a trial."""
        if self.clock() < self._idle_check_at:
            return
        self._idle_check_at = self.clock() + _IDLE_CHECK_S
        for number, attempt in running.items():
            has_gpu = attempt.job.request.gpus > 0
            if not has_gpu or attempt.is_queued or number in self._idle:
                continue
            idle_min = OmegaConf.select(attempt.job.config, "hydra.launcher.idle_gpu_min")
            warning = warn_idle_gpus(study.rows[number], idle_min)
            if warning:
                self._idle.add(number)
                self.view.say(warning)

    def _write(self, study: StudySnapshot, status: DriverStatus) -> None:
        if status != self._status:
            self._status = status
            status.write(study.folder)

    def notes(self, running: Mapping[int, Attempt]) -> list[str]:
        """Return why trials wait, and which files and services do not answer."""
        return [*self.launcher.notes(), *self._problems(running)]

    def _problems(self, running: Mapping[int, Attempt]) -> list[str]:
        """Return which files and services do not answer; no trial waits for them."""
        problems = [
            watcher.problem for watcher in (self.tracker, self.page, self.mirror) if watcher
        ]
        errors = []
        for number, attempt in running.items():
            if attempt.read_error:
                errors.append(f"trial {number}: {attempt.read_error}")
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            files = "the files of all trials can be read again"
            problems = [Outage(f"{errors[0]}{more}", files), *problems]
        return [problem for problem in problems if problem]


def open_tracker(settings: SweeperConf, study: StudySnapshot) -> "Tracker | None":
    """Return the tracker of the study, opened; None without tracking. Raises UserError if it is
    required and fails."""
    if not settings.tracking:
        return None
    gc.disable()  # because importing MLflow leaves little garbage
    from sweeps.tracking.tracker import Tracker

    tracker = Tracker(settings.tracking_uri, settings.experiment, study)
    tracker.open(required=settings.tracking_required and not study.rows)
    gc.enable()
    return tracker
