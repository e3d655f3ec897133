"""The driver: claims a study's folder, runs its trials, and reports how the study ended."""

import gc
import os
import signal
from collections.abc import Sequence
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
from sweeps.study.run.closing import (
    LoopEnd,
    describe_driver_job,
    exit_code,
    explain_disk_error,
    summarize,
    what_is_left,
    write_pages,
)
from sweeps.study.run.gpu_sharing import GpuSharing
from sweeps.study.run.loop import Loop
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
        self._signal = ""
        self.has_begun = False  # whether the loop was started
        self.exit_code = ExitCode.FINISHED  # after `run`

    def run(self, launcher: Launcher, typed: Sequence[str]) -> StudySnapshot:
        """Check every trial, then run them all. Raises UserError if a setting or a trial is wrong:
        nothing starts."""
        plan = self._plan = make(
            self._app, self._settings, self._name, self._folder, launcher, typed
        )
        for note in plan.notes:
            print(note)
        self._job = launcher.driver_job(self._folder) if hasattr(launcher, "driver_job") else None
        if self._settings.preview:
            plan.preview(self._name, self._app.task_function)
            return self._study
        if not (self._job and self._job.is_here):
            plan.added.check()
        self._packed = pack_app(self._app.task_function, self._app.hydra_context)
        self._claim_folder()
        keep = True  # because an unexpected error must not end jobs that run well elsewhere
        refused = False
        try:
            if self._job and not self._job.is_here:
                record = self._open_record()  # because `status` reads it while the job is pending
                print(describe_driver_job(self._folder, self._job.submit(self._resume_line)))
                # the job's driver starts after this one has ended
                plan.added.retry(record, View().say)
                return self._study
            end = self._run()
            self.exit_code = exit_code(self._study, self._settings, end)
            keep = False
            return self._study
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
            plan.launcher.close(keep)
            if self._job and self._ends:
                self._job.end()
            if refused:
                self._claim.undo()
            else:
                self._claim.lock.release()

    @property
    def _goes_on(self) -> bool:
        """Return whether another driver continues the study."""
        # None if that command was killed
        waits = self._is_left and successor(self._folder) is not None
        return waits or (self._job is not None and self._job.goes_on and not self._ends)

    def _report_interrupt(self, keep: bool) -> None:
        """Print how to resume, and whether running trials were killed. With `keep`, trials that can
        continue do."""
        killed = not keep and self._study.count(State.RUNNING) > 0
        print(
            f"{'running trials were killed' if killed else 'interrupted'}. Resume with:"
            f" {self._resume_line}"
        )
        self._notify(f"study {self._study.name} was {'killed' if killed else 'interrupted'}")

    def _claim_folder(self) -> None:
        """Claim the study's folder, and write or check the study's definition and code."""
        try:
            plan = self._plan
            choosing = self._plan.choosing
            typed = define(
                self._name,
                plan.settings,
                choosing.space,
                plan.config,
                choosing.planned,
                choosing.size,
            )
            typed = replace(typed, sweep_dir=self._naming.sweep_dir)
            if plan.settings.extend and not (self._job and self._job.is_here):
                take_over(self._folder, typed, plan.launcher)
            self._claim = Claim(self._folder)
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
        if not (self._job and self._job.is_here):
            refuse_driver_job(folder)
        definition_note = write_or_check(folder, definition, extend := plan.settings.extend)
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
            self._plan.added.retry(record, view.say)
            loop = self._make_loop(record, view, tracker)
            gc.freeze()  # because collecting all modules at exit takes most of a second
            self.has_begun = True
            loop.run()
            stop = loop.stop
            all_had_ended = not loop.starter.has_started
            self._ends = not loop.interrupted or (self._folder / "stop").exists()
            end = LoopEnd(
                len(loop.running),
                stop.reason,
                stop.enough,
                loop.interrupted,
                loop.detach,
                all_had_ended,
            )
            done_reason = (
                end.enough.reason
                if end.enough and end.enough.reached_goal and not end.interrupted
                else ""
            )
            self._study = replace(
                self._study,
                importance=self._plan.choosing.importance(self._study),
                done=done_reason,
            )
            findings = self._write_results(view, tracker, loop)
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

    def _make_loop(self, record: Record, view: View, tracker: "Tracker | None") -> Loop:
        # late, because the launcher still imports TensorFlow meanwhile
        from sweeps.show.terminal.live import LivePage

        plan = self._plan
        settings = self._settings
        launcher = self._plan.launcher
        sharing = GpuSharing(launcher, view.say, record.study.rows)
        page = LivePage(self._study, partial(plan.choosing.importance, self._study))
        places = Places(self._folder, record, view.say)
        starter = Starter(
            record=record,
            choosers=plan.choosing.choosers(),
            make_job=lambda trial: sharing.fit(
                plan.points.job(trial, self._name, places, self._packed, plan.choosing.objective)
            ),
            overrides=lambda trial: plan.choosing.space.overrides(trial.params),
            print_line=view.say,
            tracker=tracker,
            take_requests=lambda: plan.added.take(record, view.say),
        )
        return Loop(
            record=record,
            starter=starter,
            stop=Stop(record, settings, view.say, launcher.cancel_pending),
            launcher=launcher,
            settings=settings,
            watchers=Watchers(
                view, launcher, tracker, page, self._mirror, self._resume_line, sharing
            ),
            stop_reason=self._stop_reason,
            pruner=plan.choosing.pruner(record),
            ahead=plan.choosing.is_grid,
        )

    def _on_signal(self, number: int, frame: Any) -> None:
        self._signal = f"it was interrupted ({signal.Signals(number).name})"
        # may be lost in the callback of a weak reference: hence `_signal`
        raise KeyboardInterrupt(number)

    def _stop_reason(self) -> str:
        if other := self._claim.lock.taken_over_by():
            raise UserError(
                f"study {self._study.name} is left to {other}, which runs it too: locks have no"
                " effect there"
            )
        if wider := successor(self._folder):
            self._is_left = True
            signal.raise_signal(signal.SIGTERM)  # because trials that survive their driver go on
            return f"it is left to {wider}"
        if self._job:
            self._job.watch()
        return (
            "it was stopped by python -m sweeps stop"
            if (self._folder / "stop").exists()
            else self._signal
        )

    def _write_results(self, view: View, tracker: "Tracker | None", loop: Loop) -> Findings:
        """Write the study's pages, complete it in MLflow, and return the findings.

        Raises OSError if a page cannot be written, after MLflow is complete.
        """
        if tracker:
            tracker.drain(self._study)
            self._study = self._study.with_tracking(tracker.seconds)
            if not tracker.problem:
                view.outages(loop.watchers.notes(loop.running))
        findings = Findings(self._study)
        page = loop.watchers.page
        page_error = write_pages(findings, page.files if page else None)
        if tracker:
            tracker.complete(findings)
        if page_error:
            raise page_error
        return findings

    def _report_end(
        self, view: View, tracker: "Tracker | None", end: LoopEnd, findings: Findings
    ) -> None:
        """Print how the study ended and which trials are left, and notify the user."""
        view.say(f"study {self._study.name}: {tally(self._study)}")
        view.closing(findings, tracker.dashboard_line() if tracker else "")
        for line in tracker.closing_lines() if tracker else ():
            view.say(line)
        following = "the next driver continues" + ", unless this job was cancelled with scancel" * (
            not self._is_left
        )
        lines = [following] if self._goes_on else what_is_left(self._study, end, self._resume_line)
        for line in lines:
            view.say(line)
        # Because otherwise nothing happened, unless an earlier driver was killed at the end, or
        # trials still run.
        if not ((end.all_had_ended and not self._job) or end.running):
            self._notify(
                next(
                    (line for line in lines if line.startswith("study ")),
                    f"study {self._study.name} is finished",
                )
            )

    def _notify(self, subject: str) -> None:
        """Send the user one notification that a study with trials has ended or stopped. Print why
        that failed."""
        if self._notify_target is None or not self._study.rows or self._goes_on:
            return
        # first, because Ctrl-C may interrupt the sending
        target, self._notify_target = self._notify_target, None
        text = summarize(self._study, self._resume_line)
        View().say(notify.send(target, printable(subject), printable(text)))
