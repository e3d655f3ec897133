"""The driver: it claims a study's folder, runs what was planned, and says how that ended."""

import gc
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from sweeps.choose import manual
from sweeps.errors import UserError
from sweeps.launchers.contract import pack_app
from sweeps.record.definition import DONE, define, resume_line, write_or_check
from sweeps.record.definition import read as read_definition
from sweeps.record.study import Added, StudySnapshot, TrialRecord
from sweeps.record.writer import Record
from sweeps.results.findings import Findings
from sweeps.results.terminal import View, escape_unencodable, tally
from sweeps.secrets import has_password
from sweeps.settings import SweeperConf, read
from sweeps.signals import on_signals
from sweeps.study import code
from sweeps.study.claim import Claim
from sweeps.study.closing import LoopEnd, Teller, failed, what_is_left, write_pages
from sweeps.study.loop import Loop
from sweeps.study.plan import App, make, place
from sweeps.study.reading import blank
from sweeps.study.starter import Starter
from sweeps.study.stop import Stop
from sweeps.study.upgrade import open_record
from sweeps.study.watchers import Watchers
from sweeps.trial.copies import use
from sweeps.trial.job import Job

if TYPE_CHECKING:
    from sweeps.choose.sampler.mirror import Mirror
    from sweeps.tracking.tracker import Tracker


class Driver:
    """Runs one study, from its command line to its report."""

    def __init__(self, config: DictConfig, hydra_context: HydraContext, task_function: TaskFunction) -> None:
        """Raises UserError: a setting of the sweeper is wrong."""
        escape_unencodable()
        HydraConfig.instance().set_config(config)
        self._app = App(config, hydra_context, task_function)
        self._settings = settings = read(config.hydra.sweeper, SweeperConf)
        self._name, self._folder = place(config, settings)
        self._study = StudySnapshot(self._name, self._folder, settings.objectives, settings.directions, [])
        self._mirror: Mirror | None = None
        self._teller = Teller(settings.notify)
        self._resume_line, self._signal = "", ""
        self._has_begun = False  # whether a trial may have been asked for

    def run(self, launcher: Launcher, typed: Sequence[str]) -> StudySnapshot:
        """Check every trial, then run them. Raises UserError if something asked for is wrong: nothing has started."""
        plan = self._plan = make(self._app, self._settings, self._name, self._folder, launcher, typed)
        for line in plan.said:
            print(line)
        if self._settings.preview:
            plan.preview()
            return self._study
        plan.check_added()
        self._packed = pack_app(self._app.task_function, self._app.hydra_context)
        self._claim_folder()
        keep, refused = True, False  # whatever the driver did not expect does not end what runs well elsewhere
        try:
            end = self._run()
            keep = False
            if end.interrupted:
                raise SystemExit(130)
            return self._study
        except KeyboardInterrupt as error:
            keep = error.args not in ((), (signal.SIGINT,))
            print(f"{'ended' if keep else 'killed'}. Go on with: {self._resume_line}")
            self._tell(f"study {self._name} was {'ended' if keep else 'killed'}")
            raise SystemExit(130) from None
        except Exception as error:
            refused = isinstance(error, UserError) and not self._has_begun
            self._tell(f"study {self._name} had to stop: {error}")
            if isinstance(error, OSError):
                raise self._out_of_room(error) from error
            raise
        finally:
            plan.launcher.close(keep)
            self._claim.undo() if refused else self._claim.release()

    def _out_of_room(self, error: OSError) -> UserError:
        """Show what there is, which comes first, and return what to type once the disk can be written again."""
        with suppress(OSError):
            view = View()
            view.say(f"study {self._name}: {tally(self._study)}")
            view.closing(self._study)
        return UserError(
            f"the study had to stop: {error}\nWhat has ended is kept. Then go on with: {self._resume_line}"
        )

    def failed(self) -> bool:
        """Return whether more trials went wrong than may."""
        return failed(self._study, self._settings)

    def _claim_folder(self) -> None:
        """Make the study's folder, or take it up if it is the same study, as its only driver."""
        try:
            self._claim = Claim(self._folder)
            try:
                self._take_up()
            except BaseException:
                self._claim.undo()
                raise
        except OSError as error:
            raise UserError(
                f"the study's folder {self._folder} cannot be written: {error}\n"
                "Start in another folder, or name one: hydra.sweep.dir=/where/there/is/room"
            ) from error

    def _take_up(self) -> None:
        """Write down what the study is and its code, or check that it is what an earlier command started."""
        plan, folder = self._plan, self._folder
        choosing = plan.choosing
        definition = define(self._name, plan.settings, plan.space, plan.config, choosing.planned, choosing.size)
        if mended := write_or_check(folder, definition, plan.settings.extend):
            print(mended)
        self._definition = read_definition(folder)
        self._resume_line = resume_line(definition)
        copies, words = code.keep(folder, self._app.task_function, plan.settings.extend, self._resume_line)
        if words:
            print(words)
        use(copies)
        self._study = replace(blank(folder, definition), done="")
        OmegaConf.save(plan.config, folder / "multirun.yaml")
        for note in ("stop", DONE):
            (folder / note).unlink(missing_ok=True)

    def _run(self) -> LoopEnd:
        with on_signals(self._on_signal):
            uri = self._settings.tracking_uri or ""
            if has_password(uri):  # the only way in which trials may have it
                os.environ.setdefault("MLFLOW_TRACKING_URI", uri)
            self._plan.launcher.open()
            return self._run_trials()

    def _run_trials(self) -> LoopEnd:
        choosing, view = self._plan.choosing, View()
        record = self._open_record()
        with view.live:
            tracker = self._open_tracker()
            view.opening(self._study, tracker.dashboard_line() if tracker else "")
            loop = self._make_loop(record, view, tracker)
            gc.freeze()  # nobody looks through all the modules any more, which at the end takes most of a second
            self._has_begun = True
            loop.run()
            if loop.detach:
                self._plan.launcher.close(keep=True)
            stop, had_ended = loop.stop, not loop.starter.has_started
            end = LoopEnd(len(loop.running), stop.reason, stop.enough, loop.interrupted, had_ended)
            done = end.enough.reason if end.enough and end.enough.done and not end.interrupted else ""
            self._study = replace(self._study, importance=choosing.importance(self._study), done=done)
            findings = self._write(view, tracker, loop)
        self._say_end(view, tracker, end, findings)
        return end

    def _open_record(self) -> Record:
        """Open the record of the study, which shows itself in `self._study` from now on."""
        plan = self._plan
        plan.choosing.earlier.save()
        record = open_record(self._study, self._definition)
        record.update_outside(plan.space.contains)
        self._study = record.study
        if plan.settings.storage:
            from sweeps.choose.sampler.mirror import Mirror

            self._mirror = Mirror(plan.settings.storage, self._study, plan.space)
            self._mirror.open(
                is_new=not record.trials,
                may_replace=self._definition.version == 1 and self._definition.storage is not None,
            )
        return record

    def _open_tracker(self) -> "Tracker | None":
        if not self._settings.tracking:
            return None
        gc.disable()  # MLflow's modules leave next to no garbage
        from sweeps.tracking.tracker import Tracker

        tracker = Tracker(self._settings.tracking_uri, self._settings.experiment, self._study)
        tracker.open()
        gc.enable()
        return tracker

    def _make_loop(self, record: Record, view: View, tracker: "Tracker | None") -> Loop:
        from sweeps.results.live import LivePage  # here, where the launcher is still busy importing TensorFlow

        plan, settings, launcher = self._plan, self._settings, self._plan.launcher
        page = LivePage(self._study, partial(plan.choosing.importance, self._study))
        starter = Starter(
            record=record,
            choosers=plan.choosing.choosers(),
            make_job=self._make_job,
            overrides=lambda trial: plan.space.overrides(trial.params),
            print_line=view.say,
            tracker=tracker,
            take_added=lambda: self._added(record, view),
        )
        return Loop(
            record=record,
            starter=starter,
            stop=Stop(record, settings, view.say, launcher.cancel_pending),
            launcher=launcher,
            settings=settings,
            watchers=Watchers(view, launcher, tracker, page, self._mirror),
            stop_reason=self._stop_reason,
            pruner=plan.choosing.pruner(record),
            ahead=plan.choosing.is_grid,
        )

    def _make_job(self, row: TrialRecord) -> Job:
        return self._plan.points.job(row, self._name, self._folder, self._packed, self._plan.objective)

    def _added(self, record: Record, view: View) -> Iterator[Added]:
        """What a person added; what cannot be is refused. A file stays until its trial is recorded."""
        plan = self._plan
        for file in manual.list_added_files(self._folder):
            try:
                if not any(added.name == file.name for added in record.study.added):
                    wanted = manual.read_point(file, plan.space, plan.choosing.seeds)
                    manual.refuse_duplicate(wanted.params, record.trials, record.study.added)
                    plan.points.check(wanted.params)
                    yield wanted
                file.unlink(missing_ok=True)
            except UserError as error:
                manual.refuse_file(file, error)
                view.say(f"not added: {error}")

    def _on_signal(self, number: int, frame: Any) -> None:
        self._signal = f"it was interrupted ({signal.Signals(number).name})"
        raise KeyboardInterrupt(number)  # in the callback of a weak reference the exception is lost

    def _stop_reason(self) -> str:
        if other := self._claim.taken_over_by():
            raise UserError(f"study {self._name} is left to {other}, which runs it too: locks do not reach there")
        return "it was stopped by python -m sweeps stop" if (self._folder / "stop").exists() else self._signal

    def _write(self, view: View, tracker: "Tracker | None", loop: Loop) -> Findings:
        """Write the study's pages, and hand MLflow what it lacks. Return what follows from its trials.

        Raises OSError if a page cannot be written, once MLflow was told all the same.
        """
        if tracker:
            tracker.drain(self._study)
            self._study = self._study.with_tracking(tracker.seconds)
            if not tracker.problem:
                view.outages(loop.watchers.notes(loop.running))
        findings = Findings(self._study)
        page = loop.watchers.page
        unwritten = write_pages(findings, page.trials if page else None)
        if tracker:
            tracker.complete(findings)
        if unwritten:
            raise unwritten
        return findings

    def _say_end(self, view: View, tracker: "Tracker | None", end: LoopEnd, findings: Findings) -> None:
        """Say how the study ended and what is left of it, here and to whom the user wants to be told."""
        view.say(f"study {self._name}: {tally(self._study)}")
        view.closing(findings, tracker.dashboard_line() if tracker else "")
        view.say((tracker and tracker.problem) or "")
        left = what_is_left(self._study, end, self._resume_line)
        for line in left:
            view.say(line)
        if not end.had_ended and not end.running:  # else nothing happened, or its end is still to come
            self._tell(next((line for line in left if line.startswith("study ")), f"study {self._name} is finished"))

    def _tell(self, subject: str) -> None:
        self._teller.tell(subject, self._study, self._resume_line)
