"""From a command line to a plan: every trial is composed and checked before any starts."""

import inspect
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import Infeasible, UserError
from sweeps.base.files import CorruptFile, holder
from sweeps.base.secrets import refuse_typed
from sweeps.base.wording import counted
from sweeps.choose.repeats import Seeds
from sweeps.hydra.brought import Brought
from sweeps.hydra.followed import source
from sweeps.hydra.parts import typed_words
from sweeps.hydra.settings import SweeperConf
from sweeps.launchers.batch import BatchTrials
from sweeps.launchers.contract import TrialLauncher
from sweeps.record import study_file
from sweeps.record.definition import Definition, define
from sweeps.record.place import resume_line
from sweeps.show.terminal.lines import View, cost, requests_table
from sweeps.space.space import MOST_CORNERS, SAMPLED, SearchSpace, is_grid
from sweeps.study.folder import code
from sweeps.study.folder.claim import refuse_running
from sweeps.study.folder.handover import refuse_driver_job
from sweeps.study.folder.reading import read_study
from sweeps.study.plan.compose import Composer, describe_gpus, describe_unread
from sweeps.study.plan.help import at_once
from sweeps.study.plan.likely_mistakes import likely_mistakes, ranges_as_texts, with_likely_mistake
from sweeps.study.plan.listed_points import in_table, with_start
from sweeps.study.plan.points import Points, announce
from sweeps.study.plan.price import measured_price
from sweeps.study.plan.typed_space import in_space, read_space, refuse_fractions
from sweeps.study.run import notify
from sweeps.study.run.choosing import Choosing
from sweeps.study.run.requests import Requests
from sweeps.trial.directions import natural_direction
from sweeps.trial.job import Point, Request
from sweeps.trial.run.process import EXPECTED_RETURN

_MOST_PREVIEWED = 2000  # points of a grid that a preview composes, which takes seconds


@dataclass(frozen=True)
class App:
    """What Hydra passes to a sweeper: the configuration of all trials, and the function that runs
    one."""

    config: DictConfig
    hydra_context: HydraContext
    task_function: TaskFunction


@dataclass(frozen=True)
class _Checked:
    """What the check of a study's points found."""

    # of each trial; of a search the most expensive one, as often as there are trials
    requests: list[Request]
    left_out: list[str]  # why infeasible points cannot run here
    count: int  # number of points that were composed and checked


@dataclass(frozen=True)
class Plan:
    """A checked study that has not started."""

    folder: Path
    config: DictConfig
    settings: SweeperConf
    choosing: Choosing
    points: Points
    added: Requests
    launcher: TrialLauncher
    checked: _Checked
    notes: list[str]  # lines to print first

    def preview(self, name: str, task_function: TaskFunction) -> None:
        """Print the planned trials, their cost, and what would be submitted. Raises UserError on a
        refusal."""
        view = View()
        choosing = self.choosing
        typed = define(
            name, self.settings, choosing.space, self.config, choosing.planned, choosing.size
        )
        view.say(_check_existing(self.folder, typed, self.settings.extend, task_function))
        grid = is_grid(self.settings)
        requests = self.checked.requests
        planned = len(requests)
        checked = "all composed and checked"
        if grid and self.checked.count < planned:
            checked = (
                f"{self.checked.count} of them composed and checked; the study itself checks all"
                " first"
            )
        view.say(f"{counted(planned, 'trial')}, {checked}; none was started")
        if count := len(self.checked.left_out):
            points = "more points" if grid else "corners of the search space"
            view.say(
                f"{count} {points} are infeasible, and would not be started. The first:"
                f" {self.checked.left_out[0]}"
            )
        for line in self.points.listing(self.settings.max_grid_trials) if grid else ():
            view.say(line)
        if choosing.rungs:
            view.say(choosing.rungs.description)
        view.console.print(requests_table(requests))
        view.say(measured_price(requests, self.settings, self.folder))
        for line in (cost(requests), at_once(self.config, planned), *self.launcher.preview()):
            view.say(line)


def _check_existing(
    folder: Path, typed: Definition, extend: bool, task_function: TaskFunction
) -> str:
    """Return how far the study is, in words; empty if there is none. Raises UserError if the
    command would be refused.

    `typed` is the definition of the study that the command describes.
    """
    try:
        study = study_file.read(folder)
    except FileNotFoundError:
        return ""
    except CorruptFile as error:
        return f"{error}. The command defines the study anew"
    widens = extend and bool(study.differences(typed))
    if (driver := holder(folder / "driver.lock")) and not widens:
        refuse_running(folder, str(driver))
    refuse_driver_job(folder)
    study_file.refuse_differences(folder, study, typed, extend)
    code.check(folder, task_function, extend, resume_line(typed, folder))
    try:
        ended = read_study(folder, study).over()
    except UserError as error:  # because the command repairs the record
        return str(error).splitlines()[0]
    return (
        f"study {study.name} exists: {counted(ended, 'trial')} of it ended, and would not run again"
    )


def make(
    app: App,
    settings: SweeperConf,
    name: str,
    folder: Path,
    launcher: Launcher,
    typed: Sequence[str],
) -> Plan:
    """Return the plan of the typed study. Raises UserError if a setting or a trial is wrong."""
    config = app.config
    is_new = not (folder / "study.json").exists()
    grid = is_grid(settings)
    words = [*typed_words(config.hydra, "hydra"), *typed]
    refuse_typed(OmegaConf.to_container(config, resolve=False))
    notify.check(config)
    _refuse_added(config, words)
    if is_new:
        _refuse_direction(settings, config, words)

    loader = app.hydra_context.config_loader
    brought = Brought(loader, config)
    composer = Composer(loader, config, brought if is_new or settings.extend else None)
    settings = with_start(settings, composer)
    space, notes = read_space(composer, config, settings, typed, is_new)
    # also those of files
    refuse_typed(*space.fixed, *(f"{swept.key}={swept.typed}" for swept in space.parameters))
    if not grid:
        _refuse_search(settings, space, app.task_function, composer)
    choosing = Choosing(name, folder, settings, space, config)
    notes += [*_describe_seeds(settings, choosing.seeds), *choosing.earlier.notes]
    notes += likely_mistakes(settings, space, config, words, composer)

    trials = _trial_launcher(launcher, settings, folder)
    _refuse_launcher(trials, choosing, config, is_new)
    points = Points(composer, choosing.space, trials)
    try:
        checked = _Check(points, choosing, settings, is_new).run()
    except UserError as error:
        answer = with_likely_mistake(error, space, config, words, composer)
        if answer is error:
            raise
        raise answer from error
    if is_new and choosing.rungs and not settings.custom_search_space:
        points.refuse_late_rung(choosing.rungs)
    notes += brought.notes()
    notes += describe_gpus(config, [parameter.key for parameter in space.parameters])
    if any(word.startswith("+") for word in typed):
        corner = next(iter(choosing.space.corners()), {})
        first = points.compose(corner)
        notes += describe_unread(first, first.hydra, corner if is_new else ())
    if not grid:
        notes += _describe_sampled(choosing.space)
    if is_new:
        _check_suggested(points, settings, choosing.rehearse())
    added = Requests(folder, choosing.space, choosing.seeds, points)
    return Plan(folder, config, settings, choosing, points, added, trials, checked, notes)


def _trial_launcher(launcher: Launcher, settings: SweeperConf, folder: Path) -> TrialLauncher:
    """Return the launcher as the loop needs it: a foreign launcher runs batches of trials."""
    if hasattr(launcher, "trials"):
        trials: TrialLauncher = launcher.trials(folder)
        return trials
    return BatchTrials(launcher, settings.n_jobs or (1_000_000 if is_grid(settings) else 1))


def _refuse_launcher(
    trials: TrialLauncher, choosing: Choosing, config: DictConfig, is_new: bool
) -> None:
    """Raise UserError if the launcher cannot run trials that are pruned, or a search."""
    if choosing.prunes and is_new and isinstance(trials, BatchTrials):
        raise UserError(
            f"hydra/launcher={config.hydra.runtime.choices['hydra/launcher']}: its trials report"
            " only at their ends, so none would be pruned.\nType hydra/launcher=local or"
            " hydra/launcher=slurm, or hydra/sweeper/pruner=none"
        )
    if trials.grid_only and not choosing.is_grid:
        raise UserError(
            f"{trials.grid_only}: a search chooses each trial by the results of the others.\nRemove"
            f" {trials.grid_only}"
        )


def _refuse_added(config: DictConfig, words: Sequence[str]) -> None:
    """Raise UserError for a plus before a group that a file overrides, because Hydra would drop
    the typed choice."""
    choices = config.hydra.runtime.choices
    for word in words:
        group, sign, typed = word.removeprefix("+").partition("=")
        choice = typed.strip("'\"")
        if sign and word.startswith("+hydra/") and choices.get(group, choice) != choice:
            raise UserError(
                f"{word}: {group} is part of the configuration: leave out the plus"
                f".\nType: {group}={choice}"
            )


def _refuse_direction(settings: SweeperConf, config: DictConfig, words: Sequence[str]) -> None:
    """Raise UserError if a loss would be maximized, or an accuracy minimized, because nobody typed
    its direction."""
    keys = {"hydra.sweeper.direction", source(config, "hydra.sweeper.direction")}
    if any(word.lstrip("+").partition("=")[0] in keys for word in words):
        return
    natural = [*map(natural_direction, settings.objectives)]
    better = [named or typed for named, typed in zip(natural, settings.directions, strict=True)]
    for name, direction, meant in zip(
        settings.objectives, settings.directions, better, strict=True
    ):
        if direction != meant:
            raise UserError(
                f"{name} would be {direction}d, because hydra.sweeper.direction is not typed"
                f".\nAdd {_direction_word(better)}, or {_direction_word(settings.directions)} if"
                " this is meant"
            )


def _direction_word(directions: Sequence[str]) -> str:
    """Return the word that sets these directions, as typed in a shell."""
    joined = ",".join(directions)
    typed = joined if len(directions) == 1 else f"[{joined}]"
    return shlex.quote(f"hydra.sweeper.direction={typed}")


def _refuse_search(
    settings: SweeperConf, space: SearchSpace, task_function: TaskFunction, composer: Composer
) -> None:
    """Raise UserError if a search lacks its space, its number of trials or its objective."""
    if not space.parameters and not settings.custom_search_space:
        example = "Add one, such as 'lr=tag(log, interval(1e-4, 1e-1))'"
        advice = next(ranges_as_texts(space, composer), example)
        raise UserError(f"a search needs a search space.\n{advice}")
    if settings.n_trials is None:
        raise UserError("a search needs a number of trials.\nAdd hydra.sweeper.n_trials=20")
    if _returns_nothing(task_function):
        name = getattr(task_function, "__name__", "the task function")
        raise UserError(
            f"a search needs an objective, and {name}() returns nothing.\nReturn it:"
            f" {EXPECTED_RETURN}"
        )


def _returns_nothing(function: TaskFunction) -> bool:
    """Return whether the source of a function can be read, and has no `return` with a value."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return False
    return not re.search(r"\breturn\b *[^\s#]|\blambda\b", source)


class _Check:
    """The check of a study's points, before any trial starts.

    It has every point of a new grid. Of a search, a study that exists, or the preview of a large
    grid, it has the corners of the space.
    """

    def __init__(
        self, points: Points, choosing: Choosing, settings: SweeperConf, is_new: bool
    ) -> None:
        self._points = points
        self._choosing = choosing
        self._space = choosing.space
        self._settings = settings
        self._is_new = is_new
        # whether the answers are those of a grid's trials: of all, or of a sample
        self._covers_grid = choosing.is_grid and (is_new or settings.preview)
        is_large = settings.preview and choosing.planned > _MOST_PREVIEWED
        self._has_all = self._covers_grid and not is_large

    def run(self) -> _Checked:
        """Return what each trial requests. Raises UserError if a point is wrong, and Infeasible if
        a new study has no feasible point."""
        answers = [*map(self._answer, self._chosen())]
        if self._is_new and not self._covers_grid:
            corners = [self._seeded(point) for point in self._space.corners()]
            refuse_fractions(self._space, corners, self._points.check)

        of_trials = self._of_trials(answers)
        requests = [answer for answer in of_trials if isinstance(answer, Request)]
        left_out = [answer for answer in of_trials if isinstance(answer, str)]
        if self._is_new and left_out and not requests:
            raise Infeasible(left_out[0])
        if not self._choosing.is_grid:
            # A search chooses its trials later: count each as its most expensive corner.
            requests.sort(key=lambda request: (request.gpus, request.timeout_min or 0))
            requests = requests[-1:] * (self._choosing.planned * self._settings.repeats)
        return _Checked(requests, left_out, len(answers))

    def _chosen(self) -> Iterator[Point]:
        if self._has_all:
            return announce(self._space.points(), self._choosing.planned)
        corners = [*self._space.corners()]
        if not self._covers_grid:
            corners += self._choosing.start
        return announce(corners, len(corners))

    def _seeded(self, point: Point) -> Point:
        return {**self._choosing.seeds.example, **point}

    def _answer(self, chosen: Point) -> Request | str:
        """Return what a trial of a point requests, or why the point is infeasible."""
        point = self._seeded(chosen)
        starts = self._is_new and not self._settings.preview
        check = self._points.check
        try:
            return check(point, starts, self._is_new)
        except Infeasible as error:
            return str(error)
        except UserError as error:
            answer = in_space(error, self._space, point, self._points.compose, check)
            raise in_table(answer, self._settings, point) from error

    def _of_trials(self, answers: list[Request | str]) -> list[Request | str]:
        """Return an answer for each trial of a grid, of which a preview has only some."""
        if not self._choosing.is_grid:
            return answers
        if self._covers_grid and not self._has_all:
            answers = [*islice(cycle(answers), self._choosing.planned)]
        return answers[: self._settings.max_grid_trials]


def _check_suggested(points: Points, settings: SweeperConf, point: Point | None) -> None:
    """Raise UserError if the search space in the user's code suggests keys that the configuration
    lacks."""
    if not point:
        return
    try:
        points.compose(point)
    except UserError as error:
        first = str(error).splitlines()[0]
        raise UserError(
            f"hydra.sweeper.custom_search_space={settings.custom_search_space}: "
            f"it suggests {', '.join(point)}. {first}\n"
            "Use only keys of the configuration, as in trial.suggest_float('lr', 0, 1)"
        ) from error


def _describe_sampled(space: SearchSpace) -> Iterator[str]:
    """Yield the parameters with too many values to check each."""
    for parameter in space.parameters:
        if len(parameter.values) > MOST_CORNERS:
            yield (
                f"{parameter.key} has {counted(len(parameter.values), 'value')}: {SAMPLED} are"
                " checked now, each other once a trial has it"
            )


def _describe_seeds(settings: SweeperConf, seeds: Seeds) -> Iterator[str]:
    """Yield that each configuration runs under several seeds, and that a final race follows."""
    if settings.repeats > 1:
        counts = "; hydra.sweeper.n_trials counts configurations" if settings.n_trials else ""
        values = ",".join(map(str, seeds.repeated))
        yield (
            f"each configuration runs {settings.repeats} times, with"
            f" {settings.seed_key}={values}{counts}"
        )
    if settings.final_race:
        fresh = seeds.of_race(settings.final_race)
        best = "configuration runs"
        until = ""
        if settings.final_race > 1:
            best = f"{settings.final_race} configurations run"
            until = ", until a test separates them"
        yield (
            f"after all other trials the best {best} with {settings.seed_key}={fresh[0]} to"
            f" {fresh[-1]}{until}"
        )
