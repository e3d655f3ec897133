"""The driver: claims a study's folder, runs its trials, and reports how the study ended."""

import gc
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.base.errors import ExitCode, UserError, shown_warnings
from sweeps.base.secrets import has_password
from sweeps.base.signals import on_signals
from sweeps.base.wording import printable
from sweeps.hydra.settings import SweeperConf, read
from sweeps.record.definition import Definition, define
from sweeps.record.place import resume_line
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import read as read_definition
from sweeps.record.study_file import write_or_check
from sweeps.record.writer import Record
from sweeps.show.findings import Findings
from sweeps.show.terminal.lines import View, escape_unencodable, tally
from sweeps.study.folder import code
from sweeps.study.folder.claim import Claim
from sweeps.study.folder.handover import refuse_driver_job, refuse_running_elsewhere
from sweeps.study.folder.places import Places
from sweeps.study.folder.reading import blank
from sweeps.study.folder.takeover import successor, take_over
from sweeps.study.plan.naming import name_study
from sweeps.study.plan.plan import App, make
from sweeps.study.run import notify
from sweeps.study.run.attempt import Attempt
from sweeps.study.run.checkpoints import checkpoints_of
from sweeps.study.run.closing import (
    describe_driver_job,
    exit_code,
    explain_disk_error,
    summarize,
    what_is_left,
    write_pages,
)
from sweeps.study.run.events import LoopEnd
from sweeps.study.run.interruption import Lookout
from sweeps.study.run.jobs import GpuSharing, TrialJobs
from sweeps.study.run.loop import Loop
from sweeps.study.run.observer import Observer
from sweeps.study.run.starter import Starter
from sweeps.study.run.stop import Stop
from sweeps.study.run.watchers import Watchers, open_tracker
from sweeps.trial.job import State
from sweeps.trial.run.app import pack_app
from sweeps.trial.run.copies import use

if TYPE_CHECKING:
    from sweeps.choose.sampler.mirror import Mirror
    from sweeps.launchers.slurm.trials.driver_job import DriverJob
    from sweeps.tracking.tracker import Tracker


class Driver:
    """Runs one study, from its command line to its report."""

    def __init__(
        self, config: DictConfig, hydra_context: HydraContext, task_function: TaskFunction
    ) -> None:
        """Read the settings, and name the study. Raises UserError if a setting of the sweeper is
        wrong."""
        escape_unencodable()
        HydraConfig.instance().set_config(config)
        self._app = App(config, hydra_context, task_function)
        self._settings = settings = read(config.hydra.sweeper, SweeperConf)
        self._naming = name_study(config, settings)
        self._name = self._naming.name
        self._folder = self._naming.folder
        self._study = StudySnapshot(
            self._folder.name, self._folder, settings.objectives, settings.directions, []
        )
        self._mirror: Mirror | None = None
        self._job: DriverJob | None = None  # the job that the driver runs in, or is going to run in
        self._ends = False  # whether the study ends with this driver, although it has a job
        self._is_left = False  # whether a command that widens the study drives it on
        self._notify_target = settings.notify
        self._resume_line = ""
        self.has_begun = False  # whether the loop was started
        self.exit_code = ExitCode.FINISHED  # after `run`

    def run(self, launcher: Launcher, typed: Sequence[str]) -> StudySnapshot:
        """Check every trial, then run them all. Raises UserError if a setting or a trial is wrong:
        nothing starts."""
        self._plan = plan = make(
            self._app, self._settings, self._name, self._folder, launcher, typed
        )
        for note in plan.notes:
            print(note)
        if hasattr(launcher, "driver_job"):
            self._job = launcher.driver_job(self._folder)
        if self._settings.preview:
            plan.preview(self._name, self._app.task_function)
            return self._study

        if not self._is_in_job:
            plan.added.check()
        self._packed = pack_app(self._app.task_function, self._app.hydra_context)
        self._claim_folder()
        self._run_or_submit()
        return self._study

    def _run_or_submit(self) -> None:
        """Run the study or, if its driver is to be a SLURM job, submit that job."""
        keep = True  # because an unexpected error must not end jobs that run well elsewhere
        refused = False
        try:
            if self._job and not self._job.is_here:
                # because `status` reads it while the job is pending
                record = self._open_record()
                # which starts after this process has ended
                job_id = self._job.submit(self._resume_line)
                print(describe_driver_job(self._folder, job_id))
                View().say(self._plan.added.retry(record))
                return
            end = self._run()
            self.exit_code = exit_code(self._study, self._settings, end)
            keep = False
        except KeyboardInterrupt as error:
            keep = error.args not in ((), (signal.SIGINT,))
            self._ends = not keep  # because the next driver completes the results
            self._report_interrupt(keep)
            raise SystemExit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            refused = isinstance(error, UserError) and not self.has_begun
            self._notify(f"study {self._study.name} had to stop: {error}")
            if isinstance(error, OSError):
                raise explain_disk_error(self._study, error, self._resume_line) from error
            raise
        finally:
            self._leave(keep, refused)

    def _leave(self, keep: bool, refused: bool) -> None:
        """Release the launcher and the folder. With `keep`, trials that can continue do."""
        self._plan.launcher.close(keep)
        if self._job and self._ends:
            self._job.end()
        if refused:
            self._claim.undo()
        else:
            self._claim.lock.release()

    @property
    def _is_in_job(self) -> bool:
        """Return whether this process is the driver in its own SLURM job."""
        return self._job is not None and self._job.is_here

    @property
    def _goes_on(self) -> bool:
        """Return whether another driver continues the study."""
        if self._is_left and successor(self._folder):  # None if that command was killed
            return True
        return self._job is not None and self._job.goes_on and not self._ends

    def _report_interrupt(self, keep: bool) -> None:
        """Print how to resume, and whether running trials were killed. With `keep`, trials that can
        continue do."""
        killed = not keep and self._study.count(State.RUNNING) > 0
        event = "running trials were killed" if killed else "interrupted"
        print(f"{event}. Resume with: {self._resume_line}")
        self._notify(f"study {self._study.name} was {'killed' if killed else 'interrupted'}")

    def _claim_folder(self) -> None:
        """Claim the study's folder, and write or check the study's definition and code."""
        try:
            plan = self._plan
            choosing = plan.choosing
            typed = define(
                self._name,
                plan.settings,
                choosing.space,
                plan.config,
                choosing.planned,
                choosing.size,
                self._naming.sweep_dir,
            )
            if plan.settings.extend and not self._is_in_job:
                take_over(self._folder, typed, plan.launcher)
            self._claim = Claim(self._folder)
            self._lookout = Lookout(self._folder, self._claim.lock, self._job)
            try:
                self._define_study(typed)
            except BaseException:
                self._claim.undo()
                raise
        except OSError as error:
            raise UserError(
                f"the study's folder {self._folder} cannot be written: {error}\n"
                "Start in another folder, or choose one: hydra.sweep.dir=/where/there/is/room"
            ) from error

    def _define_study(self, definition: Definition) -> None:
        """Write the study's definition and code, or check that an earlier command wrote the
        same."""
        plan = self._plan
        folder = self._folder
        if not self._is_in_job:
            refuse_driver_job(folder)
        extend = plan.settings.extend
        definition_note = write_or_check(folder, definition, extend)
        self._definition = read_definition(folder)
        self._resume_line = resume_line(definition, folder)
        View().say(definition_note)
        copies, code_note = code.keep(folder, self._app.task_function, extend, self._resume_line)
        View().say(code_note)
        use(copies)
        self._study = replace(blank(folder, definition), done="")
        self._claim.begin(plan.config)

    def _run(self) -> LoopEnd:
        with on_signals(self._on_signal), shown_warnings():
            uri = self._settings.tracking_uri or ""
            if has_password(uri):  # because trials get it from the environment alone
                os.environ.setdefault("MLFLOW_TRACKING_URI", uri)
            self._plan.launcher.open()
            return self._run_trials()

    def _run_trials(self) -> LoopEnd:
        view = View()
        record = self._open_record()
        refuse_running_elsewhere(self._study, self._plan.launcher)
        with view.live:
            tracker = open_tracker(self._settings, self._study)
            view.opening(self._study, tracker.dashboard_line() if tracker else "")
            view.say(self._plan.choosing.describe_late_start(self._study))
            view.say(self._plan.added.retry(record))
            loop, watchers = self._make_loop(record, view, tracker)
            gc.freeze()  # because collecting all modules at exit takes most of a second
            self.has_begun = True
            with on_signals(self._lookout.note_signal):
                drive(loop, watchers, self._study, self._job)

            end = loop.result()
            has_stop_file = (self._folder / "stop").exists()
            self._ends = not end.interrupted or has_stop_file
            interruption = self._lookout.interruption
            self._is_left = interruption is not None and interruption.has_successor
            importance = self._plan.choosing.importance(self._study)
            self._study = replace(self._study, importance=importance, done=end.done)
            findings = self._write_results(watchers, loop.running)
        self._report_end(view, tracker, end, findings)
        return end

    def _open_record(self) -> Record:
        """Open the record of the study. From now on `self._study` shows the record's trials."""
        plan = self._plan
        plan.choosing.earlier.save()
        record = Record(self._study)
        record.open([*self._definition.command, *plan.choosing.space.fixed])
        record.update_outside(plan.choosing.space)
        self._study = record.study
        if plan.settings.storage:
            from sweeps.choose.sampler.mirror import Mirror

            self._mirror = Mirror(
                plan.settings.storage, self._name, self._study, plan.choosing.space
            )
            self._mirror.open(is_new=not record.trials)
        return record

    def _make_loop(
        self, record: Record, view: View, tracker: "Tracker | None"
    ) -> tuple[Loop, Watchers]:
        """Return the loop, and those to whom its events are handed."""
        # late, because the launcher still imports TensorFlow meanwhile
        from sweeps.show.terminal.live import LivePage

        plan = self._plan
        choosing = plan.choosing
        launcher = plan.launcher
        sharing = GpuSharing(launcher, record.study.rows)
        jobs = TrialJobs(
            self._name,
            plan.points,
            choosing.space,
            Places(self._folder, record, view.say),
            self._packed,
            choosing.objective,
            sharing,
            tracker,
        )
        loop = Loop(
            record=record,
            starter=Starter(record, choosing.choosers(), jobs, self._lookout, rungs=choosing.rungs),
            stop=Stop(record, self._settings, launcher),
            launcher=launcher,
            settings=self._settings,
            lookout=self._lookout,
            requests=plan.added,
            observer=Observer(record, choosing.pruner(record)),
            ahead=choosing.is_grid,
        )
        page = LivePage(self._study, partial(choosing.importance, self._study))
        watchers = Watchers(
            view,
            launcher,
            tracker,
            page,
            self._mirror,
            self._resume_line,
            sharing,
            choosing.rungs,
            checkpoints_of(self._settings, choosing.rungs),
        )
        return loop, watchers

    def _on_signal(self, number: int, _: Any) -> None:
        # because the exception may be lost in the callback of a weak reference
        self._lookout.note_signal(number)
        raise KeyboardInterrupt(number)

    def _write_results(self, watchers: Watchers, running: Mapping[int, Attempt]) -> Findings:
        """Write the study's pages, complete it in MLflow, and return the findings.

        Raises OSError if a page cannot be written, after MLflow is complete.
        """
        tracker = watchers.tracker
        if tracker:
            tracker.drain(self._study)
            self._study = self._study.with_tracking(tracker.seconds)
            if not tracker.problem:
                watchers.view.outages(watchers.notes(running))
        findings = Findings(self._study)
        page = watchers.page
        page_error = write_pages(findings, page.files if page else None)
        if tracker:
            tracker.complete(findings)
        if page_error:
            raise page_error
        return findings

    def _report_end(
        self, view: View, tracker: "Tracker | None", end: LoopEnd, findings: Findings
    ) -> None:
        """Print how the study ended, and what follows."""
        view.say(f"study {self._study.name}: {tally(self._study)}")
        view.closing(findings, tracker.dashboard_line() if tracker else "")
        for line in tracker.closing_lines() if tracker else ():
            view.say(line)
        if self._goes_on:
            unless = "" if self._is_left else ", unless this job was cancelled with scancel"
            view.say(f"the next driver continues{unless}")
        else:
            self._report_left(view, end)

    def _report_left(self, view: View, end: LoopEnd) -> None:
        """Print which trials are left, and notify the user."""
        lines = what_is_left(self._study, end, self._resume_line)
        for line in lines:
            view.say(line)

        # Because otherwise nothing happened, unless an earlier driver was killed at the end, or
        # trials still run.
        had_nothing_to_do = end.all_had_ended and not self._job
        if not had_nothing_to_do and not end.running:
            subjects = [line for line in lines if line.startswith("study ")]
            self._notify(subjects[0] if subjects else f"study {self._study.name} is finished")

    def _notify(self, subject: str) -> None:
        """Send the user one notification that a study with trials has ended or stopped. Print why
        that failed."""
        target = self._notify_target
        if target is None or not self._study.rows or self._goes_on:
            return
        self._notify_target = None  # first, because Ctrl-C may interrupt the sending
        text = summarize(self._study, self._resume_line)
        View().say(notify.send(target, printable(subject), printable(text)))


def drive(
    loop: Loop, watchers: Watchers, study: StudySnapshot, job: "DriverJob | None" = None
) -> None:
    """Run the loop to its end, and hand its events on. A driver in a SLURM job lets another one
    follow."""
    try:
        loop.begin()
        while loop.step():
            if job:
                job.renew()
            watchers.hand_on(loop.take_events(), study)
            watchers.show(study, loop.running, loop.is_full, loop.stop.reason)
        loop.end()
    finally:  # because what has happened is shown, whatever follows
        watchers.hand_on(loop.take_events(), study)
    has_open = any(not trial.state.is_settled for trial in study.rows)
    if loop.result().is_over and not has_open:
        watchers.delete_checkpoints(study, is_over=True)
    watchers.show_end(study, loop.running, loop.is_full, loop.stop.reason)
