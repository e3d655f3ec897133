"""Repeats: each configuration of a search under several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from omegaconf import DictConfig, OmegaConf

from sweeps.analysis.comparison import FIRST_TEST
from sweeps.base.errors import UserError
from sweeps.choose import Changes, Next, Proposal
from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import By, StudySnapshot, TrialRecord
from sweeps.space.space import Choice, SearchSpace, is_grid, without_plus


@dataclass(frozen=True)
class Seeds:
    """The seeds that a study chooses itself."""

    key: str = "seed"
    repeated: Sequence[int] = ()  # seeds of each configuration; empty without repeats
    fresh: Sequence[int] = ()  # seeds of the final race
    in_grid: bool = False  # whether the repeated seeds are a parameter of a grid

    @property
    def first(self) -> dict[str, int]:
        """Return the first seed of a search's configuration by its key; empty without repeats."""
        return {self.key: self.repeated[0]} if self.repeated and not self.in_grid else {}

    @property
    def example(self) -> dict[str, int]:
        """Return a seed that a trial may have, by its key; empty if the study chooses none."""
        if self.first:
            return self.first
        return {self.key: 0} if self.fresh else {}

    def of_race(self, configurations: int) -> Sequence[int]:
        """Return the seeds of a race; a single configuration runs until the first test."""
        return self.fresh if configurations > 1 else self.fresh[:FIRST_TEST]


@dataclass
class Repeats:
    """A chooser that begins the further seeds of each configuration, unless one trial has decided
    for all."""

    seeds: Seeds
    # whether a configuration repeats only once its first trial has completed
    completed_only: bool = False
    _changes: Changes = field(default_factory=Changes)
    # by number of the first trial, and seed
    _trials: dict[int, dict[int, TrialRecord]] = field(default_factory=dict)
    # first trials of the configurations with seeds left
    _open: dict[int, None] = field(default_factory=dict)

    def next(self, study: StudySnapshot) -> Next:
        """Return the next seed of the first configuration with a seed left."""
        for number in self._changes.read_new(study):
            self._follow(study.rows[number], study)
        if study.enough or not self._open:
            return Next()
        number = next(iter(self._open))
        first = study.rows[number]
        begun = self._trials[number]
        left = [seed for seed in self.seeds.repeated if seed not in begun]
        seed = {self.seeds.key: left[0]}
        params = {**first.params, **seed}
        return Next([Proposal(params, By.REPEAT, number, seed, first.outside)])

    def _follow(self, trial: TrialRecord, study: StudySnapshot) -> None:
        first = trial.first
        if trial.race or self.seeds.key not in study.rows[first].seed:
            return  # also if its seed is lost with its files
        begun = self._trials.setdefault(first, {})
        begun[trial.seed.get(self.seeds.key, self.seeds.repeated[0])] = trial
        is_decided = any(study.rows[repeat.number].state.decides for repeat in begun.values())
        is_due = study.rows[first].result or not self.completed_only
        if is_decided or not is_due or len(begun) >= len(self.seeds.repeated):
            self._open.pop(first, None)
        else:
            self._open[first] = None


def choose_seeds(settings: SweeperConf, space: SearchSpace, config: DictConfig) -> Seeds:
    """Return the seeds of the repeats and of the final race. Raises UserError if the seed's key
    cannot be used."""
    if settings.repeats == 1 and not settings.final_race:
        return Seeds(settings.seed_key)
    first = _first_seed(settings, space, config)
    first_fresh = first + settings.repeats
    repeated = [*range(first, first_fresh)] if settings.repeats > 1 else []
    fresh = [*range(first_fresh, first_fresh + settings.final_race_seeds)]
    return Seeds(settings.seed_key, repeated, fresh, is_grid(settings))


def _first_seed(settings: SweeperConf, space: SearchSpace, config: DictConfig) -> int:
    """Return the seed that was typed, or that of the configuration; 0 if it is null or a new
    key."""
    key = settings.seed_key.lstrip("+")
    setting = f"hydra.sweeper.repeats={settings.repeats}"
    if settings.repeats == 1:
        setting = f"hydra.sweeper.final_race={settings.final_race}"
    if any(parameter.key.lstrip("+") == key for parameter in space.parameters):
        raise UserError(f"{setting} chooses the seeds, but {key} is swept.\nRemove one of the two.")
    typed = without_plus(space.constants)
    value = typed.get(key, OmegaConf.select(config, key, default=...))
    if value is ... and not settings.seed_key.startswith("+"):
        raise UserError(
            f"{setting} needs a seed, but this app's configuration has no '{key}'.\n"
            "Type the key of your seed: hydra.sweeper.seed_key=training.seed. "
            "Or add a new key: hydra.sweeper.seed_key=++seed"
        )
    text = "0" if value in (..., None, "null") else str(value)
    if not text.isdecimal():
        raise UserError(
            f"{key}={text}: {setting} needs a whole number of at least 0.\nType {key}=0"
        )
    return int(text)


def add_seeds(space: SearchSpace, key: str, seeds: Sequence[int]) -> SearchSpace:
    """Return the space of a grid with the seeds as its last parameter."""
    parameter = Choice(key, tuple(seeds), tuple(map(str, seeds)))
    return replace(space, parameters=(*space.parameters, parameter))
