"""From a study's settings to the choosers that the loop asks for its next trials."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from sweeps.base.errors import UserError
from sweeps.base.wording import counted, reason
from sweeps.choose import Chooser, warm_start
from sweeps.choose.grid import Grid
from sweeps.choose.manual import Manual
from sweeps.choose.out_of_memory import OutOfMemory
from sweeps.choose.race import Race
from sweeps.choose.repeats import Repeats, add_seeds, choose_seeds
from sweeps.choose.retries import Retries
from sweeps.choose.rungs import LastPromotion, Promotion, rungs_of
from sweeps.hydra.settings import SweeperConf
from sweeps.hydra.sweeper_settings import target_of
from sweeps.record.narrowed import count_distinct
from sweeps.record.study import By, StudySnapshot
from sweeps.record.writer import Record
from sweeps.space.space import SearchSpace, canonical, is_grid
from sweeps.study.folder.reading import read_study
from sweeps.trial.job import Objective, Point

if TYPE_CHECKING:
    from sweeps.choose.sampler.fed_study import FedStudy
    from sweeps.choose.sampler.pruner import Pruner

# number of points that a person may add to a finite space without changing its counted size
_ADDED = 100


class Choosing:
    """The choosers that a study's settings ask for, checked before anything starts."""

    def __init__(
        self, name: str, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig
    ) -> None:
        """Build the sampler and the pruner.

        Raises UserError if they cannot be built, the search space in code cannot be imported, or a
        setting is wrong.
        """
        self._settings = settings
        self._config = config
        self.is_grid = is_grid(settings)
        self.seeds = choose_seeds(settings, space, config)
        self.space = space
        if self.is_grid and settings.repeats > 1:
            self.space = add_seeds(space, settings.seed_key, self.seeds.repeated)
        has_name = settings.objective is not None
        is_needed = has_name or not self.is_grid
        self.objective = Objective(settings.objectives, has_name, needed=is_needed)
        self._memory = OutOfMemory(settings.memory_axes, config)
        self.prunes = _prunes(settings)
        self.rungs = rungs_of(settings.rungs)
        # because an existing study was checked when it began
        if not (folder / "study.json").exists():
            self._refuse_wrong_settings()

        self.start = warm_start.start_points(settings, self.space)
        self.earlier = warm_start.load_earlier(settings, self.space, config, folder, read_study)
        self.size = None if settings.custom_search_space else count_points(self.space, settings)
        self.planned = self._planned_count()
        repeats = 1 if self.is_grid else settings.repeats
        self._study = StudySnapshot(
            name, folder, settings.objectives, settings.directions, [], repeats=repeats
        )
        self._custom = _import_custom_space(settings)
        self._fed: FedStudy | None = None
        self._chooser = self._grid() if self.is_grid and not self._custom else self._sampler()

    def _refuse_wrong_settings(self) -> None:
        """Raise UserError if the settings of a new study do not fit its space or its objectives."""
        keys = [parameter.key.lstrip("+") for parameter in self.space.parameters]
        self._memory.refuse_unknown(keys)
        directions = self._settings.directions
        if self.rungs:
            self._refuse_beside_rungs()
        if self.prunes and len(directions) > 1:
            raise UserError(
                f"a pruner needs one objective, but there are {len(directions)}: often neither of"
                " two trials dominates the other.\nRemove it (hydra/sweeper/pruner=none), or choose"
                f" one objective: hydra.sweeper.objective={self._settings.objectives[0]}"
                f" hydra.sweeper.direction={directions[0]}"
            )

    def _refuse_beside_rungs(self) -> None:
        """Raise UserError for a pruner, or several objectives, beside rungs."""
        if self.prunes:
            raise UserError(
                "hydra/sweeper/rungs=halving: a pruner ends trials that rungs would only pause.\n"
                "Choose one of them: hydra/sweeper/pruner=none, or hydra/sweeper/rungs=none"
            )
        if len(self._settings.directions) > 1:
            raise UserError(
                "hydra/sweeper/rungs=halving: rungs need one objective, but there are"
                f" {len(self._settings.directions)}.\nType hydra/sweeper/rungs=none, or choose one:"
                f" hydra.sweeper.objective={self._settings.objectives[0]}"
                f" hydra.sweeper.direction={self._settings.directions[0]}"
            )

    def _planned_count(self) -> int:
        """Return how many trials the study begins at most; 0 without a limit."""
        settings = self._settings
        limit = settings.max_grid_trials if self.is_grid else settings.n_trials or 0
        return min((count for count in (limit, self.size) if count is not None), default=0)

    def _grid(self) -> Chooser:
        if self.prunes:
            from sweeps.choose.sampler.build import pruner_of
            from sweeps.choose.sampler.fed_study import FedStudy

            self._fed = FedStudy(self._study, pruner=pruner_of(self._settings.pruner))
        return Grid(self.space, self._memory, self._settings.max_grid_trials)

    def _sampler(self) -> Chooser:
        from sweeps.choose.sampler import Sampler, Search
        from sweeps.choose.sampler.build import Samplers, pruner_of
        from sweeps.choose.sampler.encoding import Encoding
        from sweeps.choose.sampler.fed_study import FedStudy

        settings = self._settings
        earlier = self.earlier.trials
        start: Sequence[Point] = self.start
        limit = settings.n_trials or 0
        sampler = settings.sampler
        if self.is_grid:
            start = [*self.space.points()]
            limit = min(len(start), settings.max_grid_trials or len(start))
            sampler = None
        samplers = Samplers(sampler, settings.directions, self.space, self._study.name)
        encoding = Encoding(self.space, true_values=self._custom is not None)
        # because the surrogate weighs them itself
        fed = [] if samplers.models and not self._custom else earlier
        pruner = pruner_of(settings.pruner) if self.prunes else None
        self._fed = FedStudy(self._study, samplers.kind, encoding, pruner, fed)
        custom = partial(self._custom, self._config) if self._custom else None
        name = settings.custom_search_space or ""
        search = Search(
            self.space, self._memory, self.seeds, limit, start, earlier, custom, name, self.is_grid
        )
        return Sampler(search, samplers, self._fed)

    def rehearse(self) -> Point | None:
        """Return a point of the search space in the user's code; None if there is no such code.

        Raises UserError if the code raises.
        """
        if self._custom is None:
            return None
        try:
            rehearsed = self._sampler().next(self._study).begin
            return rehearsed[0].params if rehearsed else None
        finally:
            self._chooser = self._sampler()

    def describe_late_start(self, study: StudySnapshot) -> str:
        """Return that points of hydra.sweeper.start were added too late to be tried, and what to
        type; else ""."""
        begun = sum(trial.by is By.SAMPLER and trial.of is None for trial in study.rows)
        left = []
        for point in self.start:
            parts = []
            for row in study.rows:
                parts.append({key: row.params[key] for key in point if key in row.params})
            if canonical(point) not in map(canonical, parts):
                left.append(point)
        late = begun + len(left) - (self._settings.n_trials or 0)
        if not begun or not left or late <= 0:
            return ""
        return (
            f"hydra.sweeper.start: {late} of its points cannot be tried: {counted(begun, 'trial')}"
            f" began before.\nTo try them, type hydra.sweeper.n_trials={begun + len(left)}"
            " hydra.sweeper.extend=true"
        )

    def choosers(self) -> list[Chooser]:
        """Return the choosers, in the order in which the loop asks them."""
        settings = self._settings
        maximize = self._settings.directions[0] == "maximize"
        choosers: list[Chooser] = [Manual(self.seeds), Retries()]
        if self.seeds.first:
            choosers.append(Repeats(self.seeds, completed_only=self.rungs is not None))
        if self.rungs:
            choosers.append(Promotion(self.rungs, maximize))
        choosers.append(self._chooser)
        if self.rungs:
            choosers.append(LastPromotion(self.rungs, maximize))
        if settings.final_race:
            choosers.append(Race(settings.final_race, self.seeds, maximize))
        return choosers

    def pruner(self, record: Record) -> "Pruner | None":
        """Return the pruner of running trials; None if no trial is pruned."""
        if self._fed is None or not (self.prunes or self.seeds.first):
            return None
        from sweeps.choose.sampler.pruner import Pruner

        return Pruner(self._fed, record)

    def importance(self, study: StudySnapshot) -> dict[str, float]:
        """Return each parameter's fraction of the variance of the first objective; empty for a
        grid."""
        if self.is_grid or len(self.space.parameters) < 2:
            return {}
        from sweeps.choose.sampler.importance import importance

        return importance(study, self.space)


def _prunes(settings: SweeperConf) -> bool:
    """Return whether a pruner is chosen. Raises UserError if only its settings are typed."""
    conf = settings.pruner or {}
    if conf.get("_target_") not in (None, "", target_of("pruner", "none")):
        return True
    for name in conf:
        if name != "_target_":
            raise UserError(
                f"hydra.sweeper.pruner.{name}={conf[name]}: no pruner is chosen.\n"
                "Remove it, or add a pruner, such as hydra/sweeper/pruner=median"
            )
    return False


def count_points(space: SearchSpace, settings: SweeperConf) -> int | None:
    """Return the number of points in the space; None if there are far more than the study tries."""
    tried = settings.max_grid_trials if is_grid(settings) else settings.n_trials or 0
    limit = None if tried is None else tried + _ADDED
    count = _count_up_to(limit, space, settings)
    return None if count == limit else count


def total(settings: SweeperConf, space: SearchSpace) -> int:
    """Return the number of a grid's trials, or of a search's configurations; no point is tried
    twice."""
    if is_grid(settings):
        return _count_up_to(settings.max_grid_trials, space, settings)
    limit = settings.n_trials or 0
    return limit if settings.custom_search_space else _count_up_to(limit, space, settings)


def _count_up_to(limit: int | None, space: SearchSpace, settings: SweeperConf) -> int:
    """Return the number of different points, at most `limit`."""
    if limit is None or is_grid(settings):
        return sum(1 for _ in islice(space.points(), limit))
    return count_distinct(space, limit)


def _import_custom_space(settings: SweeperConf) -> Callable[..., Any] | None:
    name = settings.custom_search_space
    try:
        return resolve_name(name) if name else None
    except (Exception, SystemExit) as error:  # because the user's module may raise anything
        problem = f"{name} cannot be imported: {reason(error)}"
        advice = (
            "Type my_package.my_module.function, and start the command in the folder of my_package"
        )
        raise UserError(f"hydra.sweeper.custom_search_space={problem}.\n{advice}") from error
