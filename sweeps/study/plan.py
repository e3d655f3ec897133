"""From a command line to a plan: what there is to run is read, composed and checked before anything starts."""

import inspect
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hydra.core.override_parser.types import Quote, QuotedString
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from sweeps.choose import manual
from sweeps.choose.repeats import Seeds
from sweeps.errors import Infeasible, UserError
from sweeps.launchers.batch import BatchTrials
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.definition import ARCHIVE, as_typed, resumed_sampler
from sweeps.record.space import Choice, SearchSpace, is_grid, total
from sweeps.results.terminal import View, cost, requests_table
from sweeps.secrets import refuse_typed
from sweeps.settings import SweeperConf
from sweeps.study import notify
from sweeps.study.choosing import Choosing
from sweeps.study.compose import Composer
from sweeps.study.help import at_once
from sweeps.study.points import Points
from sweeps.study.typed_space import in_space, read_space, refuse_fractions
from sweeps.trial.job import Objective, Point, Request
from sweeps.trial.process import EXPECTED_RETURN
from sweeps.wording import counted

_HYDRA_SWEEP_DIR = "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"  # Hydra's default: whoever set another one means it


@dataclass(frozen=True)
class App:
    """What Hydra hands to a sweeper: the configuration that all trials begin with, and how one is run."""

    config: DictConfig
    hydra_context: HydraContext
    task_function: TaskFunction


@dataclass(frozen=True)
class Plan:
    """A study that was checked, and has not started."""

    name: str
    folder: Path
    config: DictConfig
    settings: SweeperConf
    space: SearchSpace
    objective: Objective
    choosing: Choosing
    points: Points
    launcher: TrialLauncher
    requests: list[Request]
    """What each trial asks for; of a search the dearest, as often as there are trials."""
    left_out: list[str]
    """Why those that are left out cannot run here."""
    said: list[str]
    """What a person should know first, in lines."""

    def preview(self) -> None:
        """Show which trials there would be, and what they would cost."""
        view = View()
        trials = counted(len(self.requests), "trial")
        view.say(f"{trials}, all of them composed and checked; none was started")
        if count := len(self.left_out):
            what = "more points" if is_grid(self.settings) else "corners of the search space"
            view.say(f"{count} {what} are infeasible, and would not be started. The first: {self.left_out[0]}")
        view.console.print(requests_table(self.requests))
        view.say(cost(self.requests))
        view.say(at_once(self.config))

    def check_added(self) -> None:
        """Check what a person added while there was no driver. Raises UserError, and forgets what is wrong."""
        for file in manual.list_added_files(self.folder):
            try:
                self.points.check(manual.read_point(file, self.space, self.choosing.seeds).params)
            except UserError:
                file.unlink(missing_ok=True)
                raise


def place(config: DictConfig, settings: SweeperConf) -> tuple[str, Path]:
    """Return the study's name and folder, and have the trials' configurations say so.

    A name alone decides the folder, so that the same name finds it again. Raises UserError: it is no folder's name.
    """
    name = settings.study_name
    if as_typed(config, "hydra.sweep.dir") != _HYDRA_SWEEP_DIR:
        folder = Path(config.hydra.sweep.dir)
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
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.sweep.dir = str(folder)
        quoted = QuotedString(str(folder), Quote.single).with_quotes()
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir={quoted}")
    return name, folder.absolute()


def make(app: App, settings: SweeperConf, name: str, folder: Path, launcher: Launcher, typed: Sequence[str]) -> Plan:
    """Return the plan of the study that was typed. Raises UserError if something that was asked for is wrong."""
    config, is_new = app.config, not (folder / "study.json").exists()
    settings.sampler = resumed_sampler(folder, settings.sampler)
    refuse_typed(OmegaConf.to_container(config, resolve=False))
    notify.check(config)
    words = [*config.hydra.overrides.hydra, *typed]
    _refuse_direction(settings, words)
    composer = Composer(app.hydra_context.config_loader, config)
    space, said = read_space(composer, config, settings, typed, is_new)
    if not is_grid(settings):
        _refuse_search(settings, space, app.task_function)
    choosing = Choosing(name, folder, settings, space, config)
    said += [*_more_trials(settings, choosing.seeds), *choosing.earlier.notes]
    said += _likely_mistakes(settings, space, words)
    batches = BatchTrials(launcher, settings.n_jobs or (1_000_000 if is_grid(settings) else 1))
    trials: TrialLauncher = launcher.trials(folder) if hasattr(launcher, "trials") else batches
    points = Points(composer, choosing.space, trials)
    seed: Point = {**choosing.seeds.first} or dict.fromkeys([settings.seed_key] * bool(choosing.seeds.fresh), 0)
    found = [*_check(points, choosing.space, settings, seed, choosing.start, is_new)]
    requests, left_out = _sort_out(found, settings, choosing, is_new)
    if is_new and (rehearsed := choosing.rehearse()):
        _check_rehearsed(points, settings, rehearsed)
    return Plan(
        name=name,
        folder=folder,
        config=config,
        settings=settings,
        space=choosing.space,
        objective=choosing.objective,
        choosing=choosing,
        points=points,
        launcher=trials,
        requests=requests,
        left_out=left_out,
        said=said,
    )


def _refuse_direction(settings: SweeperConf, words: Sequence[str]) -> None:
    """Raise UserError if a direction, which nobody typed and is that of another objective, fits this one badly."""
    for name, direction in zip(settings.objectives, settings.directions, strict=True):
        if direction == "maximize" and name.endswith("loss") and not any(".direction=" in word for word in words):
            raise UserError(f"{name} would be maximized; add hydra.sweeper.direction=minimize (or =maximize)")


def _refuse_search(settings: SweeperConf, space: SearchSpace, task_function: TaskFunction) -> None:
    """Raise UserError if a search lacks what it needs."""
    if not space.parameters and not settings.custom_search_space:
        raise UserError("a search needs a search space; give one, such as 'lr=tag(log, interval(1e-4, 1e-1))'")
    if settings.n_trials is None:
        raise UserError("a search needs to know when to end; say it with hydra.sweeper.n_trials=20")
    if _returns_nothing(task_function):
        name = getattr(task_function, "__name__", "the task function")
        raise UserError(f"a search needs an objective, and {name}() returns nothing: {EXPECTED_RETURN}")


def _returns_nothing(function: TaskFunction) -> bool:
    """Whether the source of a function, where it can be read, has no `return` with a value."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return False
    return not re.search(r"\breturn\b *[^\s#]|\blambda\b", source)


def _check(
    points: Points, space: SearchSpace, settings: SweeperConf, seed: Point, start: Sequence[Point], is_new: bool
) -> Iterator[Request | str]:
    """Compose and check every trial of a grid, or the corners of a search: what each asks for, or why it cannot be.

    Of a study that exists, which was checked when it began, the values are looked at once more, not their combinations.
    """
    starts, every_point = is_new and not settings.preview, is_grid(settings) and (settings.preview or is_new)
    looked_at = space.points() if every_point else [*space.corners(), *start]
    for point in looked_at:
        try:
            yield points.check({**seed, **point}, starts)
        except Infeasible as error:
            yield str(error)
        except UserError as error:
            raise in_space(error, space, {**seed, **point}, points.compose, points.check) from error
    if is_new and not every_point:
        refuse_fractions(space, [{**seed, **point} for point in space.corners()], points.check)


def _sort_out(
    found: list[Request | str], settings: SweeperConf, choosing: Choosing, is_new: bool
) -> tuple[list[Request], list[str]]:
    """Return what the trials ask for, and why others are left out. Raises UserError if a new study has no others."""
    if is_grid(settings):
        found = found[: settings.max_grid_trials]
    requests = [one for one in found if isinstance(one, Request)]
    left_out = [one for one in found if isinstance(one, str)]
    if is_new and left_out and not requests:
        raise Infeasible(left_out[0])
    if is_grid(settings):
        return requests, left_out
    # Nobody knows yet what a search will choose: count its dearest trial.
    dearest = sorted(requests, key=lambda one: (one.gpus, one.timeout_min or 0))[-1:]
    return dearest * (choosing.planned * settings.repeats), left_out


def _check_rehearsed(points: Points, settings: SweeperConf, point: Point) -> None:
    """Check which keys the search space in the user's own code suggests. Raises UserError if no trial can have them."""
    try:
        points.compose(point)
    except UserError as error:
        first = str(error).splitlines()[0]
        raise UserError(
            f"hydra.sweeper.custom_search_space={settings.custom_search_space}: "
            f"it suggests {', '.join(point)}. {first}\n"
            "Let it suggest keys of the configuration alone, as trial.suggest_float('lr', 0, 1)"
        ) from error


def _more_trials(settings: SweeperConf, seeds: Seeds) -> Iterator[str]:
    """That a configuration makes several trials, and that a race follows."""
    if settings.repeats > 1:
        each = f"each configuration runs {settings.repeats} times, with {settings.seed_key}="
        counts = "; hydra.sweeper.n_trials counts configurations" if settings.n_trials else ""
        yield f"{each}{','.join(map(str, seeds.repeated))}{counts}"
    if settings.final_race:
        first, *_, last = seeds.fresh
        yield (
            f"after all others the best {settings.final_race} configurations run with "
            f"{settings.seed_key}={first} to {last}, until a test tells them apart"
        )


def _likely_mistakes(settings: SweeperConf, space: SearchSpace, words: Sequence[str]) -> Iterator[str]:
    """What is likely meant otherwise: values that were typed twice, and fewer trials than were asked for."""
    if (settings.sampler or {}).get("_target_") == "optuna.samplers.CmaEsSampler":
        unordered = [
            one.key for one in space.parameters if one.condition or (isinstance(one, Choice) and not one.ordered)
        ]
        if unordered:
            yield f"hydra/sweeper/sampler=cmaes learns of numbers alone: it draws {', '.join(unordered)} at random"
    target, name = settings.target, settings.objectives[0]
    if target is not None and name.endswith("accuracy") and 1 < target <= 100:
        yield f"hydra.sweeper.target={target:g} is out of reach if {name} is a share of 1: that is {target / 100:g}"
    for one in space.parameters:
        if isinstance(one, Choice) and len(one.distinct) < len(one.values):
            yield f"{one.key}={one.typed} is {counted(len(one.distinct), 'value')}: each is tried once"
    wanted = settings.n_trials if any(".n_trials=" in word for word in words) else None
    if wanted and (count := total(settings, space)) < wanted:
        has = f"the {'grid' if is_grid(settings) else 'search space'} has {counted(count, 'point')}"
        hint = "; to search, add hydra/sweeper=optuna" * is_grid(settings)
        yield f"{has}: each is tried once, not hydra.sweeper.n_trials={wanted}{hint}"
