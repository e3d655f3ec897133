"""The driver: from a command line to a finished study."""

import gc
import inspect
import os
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from sweeps.errors import Infeasible, UserError
from sweeps.files import Held, Lock, write_whole
from sweeps.launchers.batch import BatchTrials
from sweeps.launchers.contract import TrialLauncher, pack_app
from sweeps.results import groups
from sweeps.results.summary import Row, Summary, by_way, counted, printable, result_of
from sweeps.results.terminal import View, cost, requests_table, take_any_words, tally
from sweeps.secrets import has_password, refuse_typed
from sweeps.settings import SweeperConf, read
from sweeps.signals import on_signals
from sweeps.study import by_hand, code, notify
from sweeps.study.compose import Composer, check
from sweeps.study.definition import ARCHIVE, DONE, agree, as_typed, define, resume_line, sweeps_line
from sweeps.study.help import at_once
from sweeps.study.loop import Loop
from sweeps.study.search import Search
from sweeps.study.search_space import Choice, SearchSpace, is_grid, parse, parse_condition, text_of, total
from sweeps.trial.copies import use
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Job, Point, Request
from sweeps.trial.process import WANTED

_HYDRA_SWEEP_DIR = "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"  # Hydra's default: whoever set another one means it


class Driver:
    """Runs one study, from its command line to its report."""

    def __init__(self, config: DictConfig, hydra_context: HydraContext, task_function: TaskFunction) -> None:
        take_any_words()
        HydraConfig.instance().set_config(config)
        self._config = config
        self._context = hydra_context
        self._task_function = task_function
        self._settings = read(config.hydra.sweeper, SweeperConf)
        self._name, self._folder = self._place()
        self._summary = Summary(self._name, self._folder, self._settings.objectives, self._settings.directions, [])
        self._composer = Composer(hydra_context.config_loader, config)
        self._signal = ""
        self._numbers: dict[Path, int] = {}  # of the trials that have these folders

    def run(self, launcher: Launcher, arguments: Sequence[str]) -> Summary:
        """Check every trial, then run them. Raises UserError if something asked for is wrong: nothing has started."""
        refuse_typed(OmegaConf.to_container(self._config, resolve=False))
        notify.check(self._config)
        typed = [*self._config.hydra.overrides.hydra, *arguments]
        self._check_directions(typed)
        space = self._read_space(arguments)
        self._search = Search(self._name, self._folder, self._settings, space, self._config)
        self._say_what_is_more()
        batches = BatchTrials(launcher, self._settings.n_jobs or (1_000_000 if self._search.is_grid else 1))
        self._trials: TrialLauncher = launcher.trials(self._folder) if hasattr(launcher, "trials") else batches
        requests, left_out = self._check_trials()
        self._say_first(space, typed)
        if self._settings.preview:
            self._preview(requests, left_out)
            return self._summary
        self._check_added()
        self._app = pack_app(self._task_function, self._context)
        try:
            self._claim()
        except OSError as error:
            raise UserError(
                f"the study's folder {self._folder} cannot be written: {error}\n"
                "Start in another folder, or name one: hydra.sweep.dir=/where/there/is/room"
            ) from error
        keep = True  # whatever the driver did not expect does not end what runs well elsewhere
        try:
            with on_signals(self._on_signal):
                if has_password(self._settings.tracking_uri or ""):  # the only way in which trials may have it
                    os.environ.setdefault("MLFLOW_TRACKING_URI", self._settings.tracking_uri or "")
                self._trials.open()
                loop = self._run()
            keep = False
            if loop.interrupted:
                raise SystemExit(130)
            return self._summary
        except KeyboardInterrupt as error:
            keep = error.args not in ((), (signal.SIGINT,))
            print(f"{'ended' if keep else 'killed'}. Go on with: {self._resume_line}")
            self._tell(f"study {self._name} was {'ended' if keep else 'killed'}")
            raise SystemExit(130) from None
        except Exception as error:
            self._tell(f"study {self._name} had to stop: {error}")
            if not isinstance(error, OSError):
                raise
            with suppress(OSError):  # what there is comes first
                view = View()
                view.say(f"study {self._name}: {tally(self._summary)}")
                view.closing(self._summary)
            go_on = f"What has ended is kept. Then go on with: {self._resume_line}"  # a full or a read-only disk
            raise UserError(f"the study had to stop: {error}\n{go_on}") from error
        finally:
            self._trials.close(keep)
            self._lock.release()

    def _preview(self, requests: list[Request], left_out: list[Infeasible]) -> None:
        view = View()
        trials = counted(len(requests), "trial")
        view.say(f"{trials}, all of them composed and checked; none was started")
        if left_out:
            what = "more points" if self._search.is_grid else "corners of the search space"
            view.say(f"{len(left_out)} {what} are infeasible, and would not be started. The first: {left_out[0]}")
        view.console.print(requests_table(requests))
        view.say(cost(requests))
        view.say(at_once(self._config))

    def _check_added(self) -> None:
        """Check what a person added while there was no driver. Raises UserError, and forgets what is wrong."""
        for file in by_hand.waiting(self._folder):
            try:
                self._check_point(by_hand.read(file, self._search.space))
            except UserError:
                file.unlink(missing_ok=True)
                raise

    def _claim(self) -> None:
        """Make the study's folder, or take it up if it is the same study, as its only driver."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = Lock(self._folder / "driver.lock", beats=True)
        except Held as error:
            raise UserError(
                f"study {self._folder.name} is being run by {error}. A node that is gone is forgotten after a minute\n"
                f"Watch it with: {sweeps_line('status', self._folder)}, or end it: {sweeps_line('stop', self._folder)}"
            ) from None
        definition = define(self._name, self._settings, self._search.space, self._config)
        if mended := agree(self._folder, definition, self._settings.extend):
            print(mended)
        self._resume_line = resume_line(definition)
        copies, said = code.keep(self._folder, self._task_function, self._settings.extend, self._resume_line)
        if said:
            print(said)
        use(copies)
        self._summary.total, self._summary.fixed = definition.total, definition.config
        self._summary.seed_key, self._summary.space = definition.seed_key, definition.parameters
        self._summary.searched, self._summary.again = not self._search.is_grid, sweeps_line("best", self._folder)
        OmegaConf.save(self._config, self._folder / "multirun.yaml")
        for note in ("stop", DONE):
            (self._folder / note).unlink(missing_ok=True)

    def failed(self, summary: Summary) -> bool:
        """Whether more of the study's trials went wrong than max_failure_rate allows (none may by default), or none
        could run at all.
        """
        if summary.rows and all(row.infeasible for row in summary.rows):
            return True
        return len(summary.bad()) > (self._settings.max_failure_rate or 0.0) * len(summary.rows)

    def _run(self) -> Loop:
        from sweeps.results import live  # here, where the launcher is still busy importing TensorFlow

        search, summary = self._search, self._summary
        search.open()
        summary.total = search.total
        view = View()
        with view.live:
            tracker = None
            if self._settings.tracking:
                gc.disable()  # MLflow's modules leave next to no garbage
                from sweeps.tracking.tracker import Tracker

                tracker = Tracker(self._settings.tracking_uri, self._settings.experiment, summary)
                tracker.open()
                gc.enable()
            view.opening(summary, tracker.how_to_look() if tracker else "")
            loop = Loop(search, self._trials, self._make_job, summary, self._settings, view, tracker, self._stop_reason)
            loop.added, loop.page = partial(self._added, view), live.LivePage(summary, search.importance)
            gc.freeze()  # nobody looks through all the modules any more, which at the end takes most of a second
            loop.run()
            if loop.detach:
                self._trials.close(keep=True)
            summary.importance = search.importance()
            if loop.enough and loop.enough.done and not loop.interrupted:
                summary.done = loop.enough.why
            if tracker:
                tracker.drain(summary)
                if not tracker.problem:
                    view.outages(loop.notes())
            unwritten = self._write(summary)
            if tracker:
                tracker.complete(summary)
            if unwritten:
                raise unwritten
        view.say(f"study {summary.name}: {tally(summary)}")
        view.closing(summary, tracker.how_to_look() if tracker else "")
        view.say((tracker and tracker.problem) or "")
        left = self._what_is_left(loop)
        for line in left:
            view.say(line)
        if not loop.had_ended and not loop.running:  # else nothing happened, or its end is still to come
            self._tell(next((line for line in left if line.startswith("study ")), f"study {self._name} is finished"))
        return loop

    def _write(self, summary: Summary) -> OSError | None:
        """Write what is to be read of the study. Returns why that was not possible: MLflow is told all the same."""
        from sweeps.results import report, solutions

        try:
            report.write(summary)
            solutions.write(summary)
        except OSError as error:
            return error
        except Exception as error:  # whatever its trials left: they have ended, and are kept
            return OSError(f"{report.HTML} cannot be written: {type(error).__name__}: {error}")
        return None

    def _tell(self, subject: str) -> None:
        """Whom the user wants to be told that a study which has begun has ended, or stopped."""
        summary, how = self._summary, self._settings.notify
        if how is None or not summary.rows:
            return
        self._settings.notify = None  # once, also if Ctrl-C cuts it short
        lines = [tally(summary)]
        if of_seeds := groups.headline(summary):
            lines.append(of_seeds.replace("**", ""))
        elif best := summary.best():
            lines.append(f"best: trial {best.number} ({best.name}): {result_of(best, summary)}")
        lines += [f"trial {row.number} {row.state}: {row.error}" for row, *_ in by_way(summary.bad())[:3]]
        lines.append(f"in {summary.folder} on {socket.gethostname()}")
        lines += [f"go on with: {self._resume_line}"] * (summary.over() < (summary.total or 0))
        View().say(notify.tell(how, printable(subject), printable("\n".join(lines))))

    def _what_is_left(self, loop: Loop) -> list[str]:
        """What did not run, and how to go on."""
        summary, lines = self._summary, list[str]()
        if count := sum(row.infeasible for row in summary.rows):
            what = f"{count} of {len(summary.rows)} trials are infeasible, and were not started"
            lines.append(f"no trial could run: {what}" if count == len(summary.rows) else what)
            if not self._settings.storage:
                lines.append(f"Once they can run: {sweeps_line('resume', self._folder)} --retry infeasible")
        if running := len(loop.running):
            look = sweeps_line("status", self._folder)
            lines.append(f"going on without this command: {counted(running, 'trial')}. Look: {look}")
        open_ones = (summary.total or len(summary.rows)) - summary.over()
        enough = loop.enough if not loop.interrupted else None
        if enough and summary.done:
            write_whole(self._folder / DONE, summary.done)
            lines.append(f"study {self._name} is done: {summary.done}.")
            lines.append(f"For more, change hydra.sweeper.{enough.setting} in: {self._resume_line}")
        elif enough and enough.setting:
            lines.append(f"study {self._name} is not finished: {enough.why}.")
            lines.append(f"To go on, raise hydra.sweeper.{enough.setting} in: {self._resume_line}")
        elif loop.stopped or open_ones:
            why = loop.stopped or f"{counted(open_ones, 'trial')} still open"
            lines.append(f"study {self._name} is not finished: {why}.")
            go_on = self._resume_line
            if any(row.attempts and row.attempts[-1].misfit for row in summary.rows):
                other = "Another objective makes another study, with another hydra.sweeper.study_name"
                lines.append(f"{other}. Once trials return this one:")
                go_on = go_on if self._settings.storage else f"{sweeps_line('resume', self._folder)} --retry failed"
            lines.append(f"Go on with: {go_on}")
        elif loop.had_ended:
            lines.append(f"nothing is left to do: every trial of study {self._name} had ended before.")
            more = f"{self._resume_line} hydra.sweeper.extend=true"
            lines.append(f"For more values or trials, change them in: {more}")
            if (bad := {str(row.state) for row in summary.bad()}) and not self._settings.storage:
                lines.append(
                    f"Once more what failed: {sweeps_line('resume', self._folder)} --retry {','.join(sorted(bad))}"
                )
        return lines

    def _on_signal(self, number: int, frame: Any) -> None:
        self._signal = f"it was interrupted ({signal.Signals(number).name})"
        raise KeyboardInterrupt(number)  # in the callback of a weak reference the exception is lost

    def _stop_reason(self) -> str:
        if other := self._lock.taken_over_by():
            raise UserError(f"study {self._name} is left to {other}, which runs it too: locks do not reach there")
        return "it was stopped by python -m sweeps stop" if (self._folder / "stop").exists() else self._signal

    def _place(self) -> tuple[str, Path]:
        """The study's name and folder. A name alone decides the folder, so that the same name finds it again."""
        name = self._settings.study_name
        if as_typed(self._config, "hydra.sweep.dir") != _HYDRA_SWEEP_DIR:
            folder = Path(self._config.hydra.sweep.dir)
            name = name or folder.name
        else:
            name = name or f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{os.getpid()}"  # two may start in one second
            folder = Path("multirun", name)
        if not name or Path(name).name != name or name.startswith((".", "-")) or len(os.fsencode(name)) > 200:
            rule = "the name is a folder's name, without / or a first dot or dash, and of 200 letters at most"
            raise UserError(f"hydra.sweeper.study_name={name[:200]}: {rule}")
        if name == ARCHIVE:
            raise UserError(f"hydra.sweeper.study_name={name}: studies that are packed lie there; choose another name")
        # Whoever composes a trial of this study, a foreign launcher too, starts from these overrides.
        with read_write(self._config.hydra), open_dict(self._config.hydra):
            self._config.hydra.sweep.dir = str(folder)
            self._config.hydra.overrides.hydra.append(
                f"hydra.sweep.dir={QuotedString(str(folder), Quote.single).with_quotes()}"
            )
        return name, folder.absolute()

    def _check_directions(self, typed: Sequence[str]) -> None:
        """A direction that nobody typed is that of another objective. Raises UserError if it fits this one badly."""
        for name, direction in zip(self._settings.objectives, self._settings.directions, strict=True):
            if direction == "maximize" and name.endswith("loss") and not any(".direction=" in word for word in typed):
                raise UserError(f"{name} would be maximized; add hydra.sweeper.direction=minimize (or =maximize)")

    def _read_space(self, arguments: Sequence[str]) -> SearchSpace:
        read, settings = self._composer.parse, self._settings
        conditional = {parse_condition(text): read(_lines(p)) for text, p in settings.conditional_params.items()}
        choices, constants = self._config.hydra.runtime.choices, {}
        for key in (condition.key for condition in conditional):
            constants[key] = str(choices[key]) if key in choices else text_of(OmegaConf.select(self._config, key))
        space = parse(read([*_lines(settings.params), *arguments]), conditional, constants)
        kept = {(one.key, one.condition) for one in space.parameters}
        for condition, under in conditional.items():
            for one in under:
                if ((key := one.get_key_element()), condition) not in kept:
                    print(f"{one.input_line} under {condition} is left out: {key} is given for all")
        if is_grid(settings):
            return space
        if not space.parameters and not settings.custom_search_space:
            raise UserError("a search needs a search space; give one, such as 'lr=tag(log, interval(1e-4, 1e-1))'")
        if settings.n_trials is None:
            raise UserError("a search needs to know when to end; say it with hydra.sweeper.n_trials=20")
        if _returns_nothing(self._task_function):
            name = getattr(self._task_function, "__name__", "the task function")
            raise UserError(f"a search needs an objective, and {name}() returns nothing: {WANTED}")
        return space

    def _say_first(self, space: SearchSpace, typed: Sequence[str]) -> None:
        """Values that were typed twice, and fewer trials than were asked for: each point is tried once. And which
        earlier studies the search learns from.
        """
        for line in self._search.earlier.said:
            print(line)
        if (self._settings.sampler or {}).get("_target_") == "optuna.samplers.CmaEsSampler":
            unordered = [
                one.key for one in space.parameters if one.condition or (isinstance(one, Choice) and not one.ordered)
            ]
            if unordered:
                print(f"hydra/sweeper/sampler=cmaes learns of numbers alone: it draws {', '.join(unordered)} at random")
        target, name = self._settings.target, self._settings.objectives[0]
        if target is not None and name.endswith("accuracy") and 1 < target <= 100:
            print(
                f"hydra.sweeper.target={target:g} is out of reach if {name} is a share of 1: that is {target / 100:g}"
            )
        for one in space.parameters:
            if isinstance(one, Choice) and len(one.distinct) < len(one.values):
                print(f"{one.key}={one.typed} is {counted(len(one.distinct), 'value')}: each is tried once")
        wanted = self._settings.n_trials if any(".n_trials=" in word for word in typed) else None
        if wanted and (points := total(self._settings, space)) < wanted:
            grid = is_grid(self._settings)
            has = f"the {'grid' if grid else 'search space'} has {counted(points, 'point')}"
            hint = "; to search, add hydra/sweeper=optuna" * grid
            print(f"{has}: each is tried once, not hydra.sweeper.n_trials={wanted}{hint}")

    def _say_what_is_more(self) -> None:
        """That a configuration makes several trials, and that a race follows."""
        settings, search = self._settings, self._search
        if settings.repeats > 1:
            each = f"each configuration runs {settings.repeats} times, with {settings.seed_key}="
            counted = "; hydra.sweeper.n_trials counts configurations" if settings.n_trials else ""
            print(f"{each}{','.join(map(str, search.seeds))}{counted}")
        if settings.final_race:
            first, *_, last = search.fresh_seeds
            print(
                f"after all others the best {settings.final_race} configurations run with "
                f"{settings.seed_key}={first} to {last}, until a test tells them apart"
            )

    def _check_trials(self) -> tuple[list[Request], list[Infeasible]]:
        """Compose and check every trial of a grid, or the corners of a search. Returns what each asks for, and why
        those that are left out cannot run here. Raises UserError if a new study has no others.
        """
        found: list[Request | Infeasible] = []
        # A study that exists was checked when it began: its values are looked at once more, not all their combinations.
        space, is_new = self._search.space, not (self._folder / "study.json").exists()
        every_point = self._search.is_grid and (self._settings.preview or is_new)
        seed = {self._settings.seed_key: self._search.seeds[0]} if self._search.seeds else {}
        for point in space.points() if every_point else [*space.corners(), *self._search.start]:
            try:
                config = self._compose({**seed, **point})
            except UserError as error:
                raise self._composer.in_space(error, space) from error
            try:
                check(config, starts=is_new and not self._settings.preview)
                found.append(self._trials.request(config))
            except Infeasible as error:
                found.append(error)
        if self._search.is_grid:
            found = found[: self._settings.most]
        requests = [one for one in found if isinstance(one, Request)]
        left_out = [one for one in found if isinstance(one, Infeasible)]
        if is_new and left_out and not requests:
            raise left_out[0]
        if self._search.is_grid:
            return requests, left_out
        # Nobody knows yet what a search will choose: count its dearest trial.
        dearest = sorted(requests, key=lambda one: (one.gpus, one.timeout_min or 0))[-1:]
        return dearest * (total(self._settings, space) * self._settings.repeats), left_out

    def _check_point(self, point: Point) -> None:
        """Raises UserError if a trial of these values cannot start here."""
        config = self._compose(point)
        check(config)
        self._trials.request(config)

    def _added(self, view: View) -> Iterator[tuple[Point, str]]:
        """What a person added; what cannot be is refused. A file stays until its trial is recorded."""
        for file in by_hand.waiting(self._folder):
            try:
                if not self._search.was_added(file.name):
                    point = by_hand.read(file, self._search.space)
                    by_hand.refuse_twice(point, self._summary.rows)
                    self._check_point(point)
                    yield point, file.name
                file.unlink(missing_ok=True)
            except UserError as error:
                by_hand.refuse(file, error)
                view.say(f"not added: {error}")

    def _compose(self, point: Point, number: int = 0) -> DictConfig:
        config = self._composer.compose(self._search.space.overrides(point), number)
        OmegaConf.resolve(config.hydra.launcher)  # once, not at each look
        return config

    def _make_job(self, row: Row) -> Job:
        config, infeasible = self._compose(row.params, row.number), None
        try:
            check(config)
        except Infeasible as error:
            infeasible = error
        folder = TrialFolder(self._folder / str(config.hydra.sweep.subdir))
        if (other := self._numbers.setdefault(folder.path, row.number)) != row.number:
            raise UserError(f"hydra.sweep.subdir={folder.path.name} is the folder of trial {other} too")
        row.folder = folder.path
        if infeasible and not any(one.began() or not one.is_over for one in folder.attempts()):
            raise infeasible  # a trial that has begun goes on
        wanted, objective = self._trials.request(config), self._search.objective
        return Job(self._name, row.number, 0, config, wanted, folder, self._app, objective)


def _returns_nothing(function: Any) -> bool:
    """Whether the source of a function, where it can be read, has no `return` with a value."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return False
    return not re.search(r"\breturn\b *[^\s#]|\blambda\b", source)


def _lines(params: dict[str, Any]) -> list[str]:
    return [f"{key}={value if isinstance(value, str) else text_of(value)}" for key, value in params.items()]
