"""How a study chooses its trials: from its settings to the choosers that the loop asks."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.utils import _locate
from omegaconf import DictConfig

from sweeps.choose import Chooser, warm_start
from sweeps.choose.grid import Grid
from sweeps.choose.manual import Manual
from sweeps.choose.out_of_memory import OutOfMemory
from sweeps.choose.race import Race
from sweeps.choose.repeats import Repeats, add_seeds, choose_seeds
from sweeps.choose.retries import Retries
from sweeps.errors import UserError
from sweeps.record.space import SearchSpace, canonical, is_grid
from sweeps.record.study import StudySnapshot
from sweeps.record.writer import Record
from sweeps.settings import SweeperConf
from sweeps.study.reading import read_study
from sweeps.trial.job import Objective, Point

if TYPE_CHECKING:
    from sweeps.choose.sampler.fed_study import FedStudy
    from sweeps.choose.sampler.pruner import Pruner

_NOT_PRUNING = "optuna.pruners.NopPruner"
_ADDED = 100  # points that a person may add to a finite space, to be counted right


class Choosing:
    """The ways of choosing that a study has asked for, checked: nothing has begun."""

    def __init__(self, name: str, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig) -> None:
        """Raises UserError: the sampler or the pruner cannot be built, the search space in code cannot be imported, or
        the search cannot start as its settings say.
        """
        self._settings, self._config = settings, config
        self.is_grid = is_grid(settings)
        self.seeds = choose_seeds(settings, space, config)
        in_grid = self.is_grid and settings.repeats > 1
        self.space = add_seeds(space, settings.seed_key, self.seeds.repeated) if in_grid else space
        named = settings.objective is not None
        self.objective = Objective(settings.objectives, named, needed=named or not self.is_grid)
        is_new = not (folder / "study.json").exists()  # else all of it was passed over once
        self._memory = OutOfMemory(settings.memory_axes, config)
        if is_new:
            self._memory.refuse_unknown([one.key.lstrip("+") for one in self.space.parameters])
        self.start = warm_start.start_points(settings, self.space)
        self.earlier = warm_start.load_earlier(settings, self.space, config, folder, read_study)
        self._prunes = bool(settings.pruner) and settings.pruner["_target_"] != _NOT_PRUNING
        if self._prunes and len(settings.directions) > 1 and is_new:
            raise UserError(_one_objective(settings))
        repeats = settings.repeats if not self.is_grid else 1
        self.size = None if settings.custom_search_space else size_of(self.space, self.is_grid, settings)
        self.planned = _planned(settings, self.is_grid, self.size)
        self._study = StudySnapshot(name, folder, settings.objectives, settings.directions, [], repeats=repeats)
        self._custom = _custom(settings)
        self._fed: FedStudy | None = None
        self._way = self._grid() if self.is_grid and not self._custom else self._sampler()

    def _grid(self) -> Chooser:
        if self._prunes:
            from sweeps.choose.sampler.build import pruner_of
            from sweeps.choose.sampler.fed_study import FedStudy

            self._fed = FedStudy(self._study, pruner=pruner_of(self._settings))
        return Grid(self.space, self._memory, self._settings.max_grid_trials)

    def _sampler(self) -> Chooser:
        from sweeps.choose.sampler import Sampler, Search
        from sweeps.choose.sampler.build import Samplers, pruner_of
        from sweeps.choose.sampler.encoding import Encoding
        from sweeps.choose.sampler.fed_study import FedStudy

        settings, earlier = self._settings, self.earlier.trials
        start: Sequence[Point] = [*self.space.points()] if self.is_grid else self.start
        most = min(len(start), settings.max_grid_trials or len(start)) if self.is_grid else settings.n_trials or 0
        samplers = Samplers(
            None if self.is_grid else settings.sampler, settings.directions, self.space, self._study.name
        )
        encoding = Encoding(self.space, true_values=self._custom is not None)
        self._fed = FedStudy(self._study, samplers.kind, encoding, pruner_of(settings), earlier)
        custom = partial(self._custom, self._config) if self._custom else None
        name = settings.custom_search_space or ""
        search = Search(self.space, self._memory, self.seeds, most, start, earlier, custom, name)
        return Sampler(search, samplers, self._fed)

    def rehearse(self) -> Point | None:
        """Return a point of a search space in the user's own code; None without one.

        Raises UserError if that code raises.
        """
        if self._custom is None:
            return None
        try:
            return self._sampler().next(self._study).begin[0].params
        finally:
            self._way = self._sampler()

    def choosers(self) -> list[Chooser]:
        """Return the choosers, in the order in which they are asked."""
        settings, maximize = self._settings, self._settings.directions[0] == "maximize"
        ways: list[Chooser] = [Manual(self.seeds), Retries()]
        ways += [Repeats(self.seeds)] if self.seeds.first else []
        ways.append(self._way)
        return ways + ([Race(settings.final_race, self.seeds, maximize)] if settings.final_race else [])

    def pruner(self, record: Record) -> "Pruner | None":
        """Return who judges what running trials report; None where nobody does."""
        if self._fed is None or not (self._prunes or self.seeds.first):
            return None
        from sweeps.choose.sampler.pruner import Pruner

        return Pruner(self._fed, record)

    def importance(self, study: StudySnapshot) -> dict[str, float]:
        """Return the share of each parameter in the variance of the first objective; nothing of a grid."""
        if self.is_grid or len(self.space.parameters) < 2:
            return {}
        from sweeps.choose.sampler.importance import importance

        return importance(study, self.space)


def size_of(space: SearchSpace, grid: bool, settings: SweeperConf) -> int | None:
    """Return how many points the space has; None if they are far more than the study tries."""
    if grid:
        most = settings.max_grid_trials and settings.max_grid_trials + _ADDED
        count = sum(1 for _ in islice(space.points(), most))
        return None if count == most else count
    wanted = (settings.n_trials or 0) + _ADDED
    points: set[str] = set()
    for point in islice(space.all_points(), 20 * wanted):  # some come twice, where conditions overlap
        points.add(canonical(point))
        if len(points) == wanted:
            return None
    return len(points)


def _planned(settings: SweeperConf, grid: bool, size: int | None) -> int:
    """Return how many points the study tries by itself."""
    wanted = settings.max_grid_trials if grid else settings.n_trials or 0
    if wanted is None or size is None:
        return wanted or size or 0
    return min(wanted, size)


def _custom(settings: SweeperConf) -> Callable[..., Any] | None:
    name = settings.custom_search_space
    try:
        return _locate(name) if name else None
    except ImportError as error:
        why = f"{name} cannot be imported: {str(error).splitlines()[-1]}"
        raise UserError(f"hydra.sweeper.custom_search_space={why}") from error


def _one_objective(settings: SweeperConf) -> str:
    one = f"hydra.sweeper.objective={settings.objectives[0]} hydra.sweeper.direction={settings.directions[0]}"
    return (
        f"a pruner ends trials by one objective, and there are {len(settings.directions)}, by which often "
        f"neither of two trials is worse\nLeave it out (hydra/sweeper/pruner=none), or search on one: {one}"
    )
