"""Each configuration of a search under several seeds: which of them are left to begin."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from omegaconf import DictConfig, OmegaConf

from sweeps.choose import Changes, Next, Proposal
from sweeps.errors import UserError
from sweeps.record.space import Choice, SearchSpace, is_grid
from sweeps.record.study import By, StudySnapshot, TrialRecord
from sweeps.settings import SweeperConf


@dataclass(frozen=True)
class Seeds:
    """The seeds that a study chooses itself."""

    key: str = "seed"
    repeated: Sequence[int] = ()  # those that each configuration runs under; empty without repeats
    fresh: Sequence[int] = ()  # those of the final race
    in_grid: bool = False  # whether the repeated seeds are a parameter of a grid

    @property
    def first(self) -> dict[str, int]:
        """The seed of a configuration's first trial in a search, by its key; empty without repeats."""
        return {self.key: self.repeated[0]} if self.repeated and not self.in_grid else {}


@dataclass
class Repeats:
    """Begins the configurations that have begun under their other seeds, one that decides for all others excepted."""

    seeds: Seeds
    _changes: Changes = field(default_factory=Changes)
    _trials: dict[int, dict[int, TrialRecord]] = field(default_factory=dict)  # by first trial, and seed
    _open: dict[int, None] = field(default_factory=dict)  # the first trials that have seeds left to begin

    def next(self, study: StudySnapshot) -> Next:
        """Return the next seed of the configuration that began first and has one left."""
        for number in self._changes.read_new(study):
            self._follow(study.rows[number], study)
        for first in () if study.enough else self._open:
            like, begun = study.rows[first], self._trials[first]
            seed = {self.seeds.key: next(one for one in self.seeds.repeated if one not in begun)}
            return Next([Proposal({**like.params, **seed}, By.REPEAT, first, seed, like.outside)])
        return Next()

    def _follow(self, trial: TrialRecord, study: StudySnapshot) -> None:
        first = trial.number if trial.of is None else trial.of
        if trial.race or self.seeds.key not in study.rows[first].seed:
            return  # the version before added lone trials
        begun = self._trials.setdefault(first, {})
        begun[trial.seed.get(self.seeds.key, self.seeds.repeated[0])] = trial
        decided = any(study.rows[one.number].state.decides for one in begun.values())
        if decided or len(begun) >= len(self.seeds.repeated):
            self._open.pop(first, None)
        else:
            self._open[first] = None


def choose_seeds(settings: SweeperConf, space: SearchSpace, config: DictConfig) -> Seeds:
    """Return the seeds of the repeats, and those of the final race. Raises UserError if they cannot be set."""
    key = settings.seed_key.lstrip("+")
    if settings.repeats == 1 and not settings.final_race:
        return Seeds(settings.seed_key)
    asked = f"hydra.sweeper.final_race={settings.final_race}"
    if settings.repeats > 1:
        asked = f"hydra.sweeper.repeats={settings.repeats}"
    if any(one.key.lstrip("+") == key for one in space.parameters):
        raise UserError(f"{asked} chooses the seeds itself, and {key} is swept: leave one of the two out")
    typed = {name.lstrip("+"): text for name, text in space.constants.items()}
    found = typed.get(key, OmegaConf.select(config, key, default=...))
    if found is ... and not settings.seed_key.startswith("+"):
        raise UserError(
            f"{asked} runs trials under several seeds, and this app's configuration has no '{key}'\n"
            "Name the key that holds it, as hydra.sweeper.seed_key=training.seed; ++seed is added where there is none"
        )
    text = "0" if found in (..., None, "null") else str(found)
    if not text.isdecimal():
        raise UserError(f"{asked} counts on from {key}={text}, which is no whole number of 0 or more; try {key}=0")
    first = int(text)
    fresh = first + settings.repeats
    repeated = [*range(first, fresh)] if settings.repeats > 1 else []
    return Seeds(settings.seed_key, repeated, [*range(fresh, fresh + settings.final_race_seeds)], is_grid(settings))


def add_seeds(space: SearchSpace, key: str, seeds: Sequence[int]) -> SearchSpace:
    """A grid with the seeds as its last parameter."""
    one = Choice(key, tuple(seeds), tuple(map(str, seeds)))
    return SearchSpace((*space.parameters, one), space.fixed, space.constants)
