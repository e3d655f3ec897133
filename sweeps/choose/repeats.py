"""Repeats: each configuration of a search under several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from omegaconf import DictConfig, OmegaConf

from sweeps.analysis.comparison import FIRST_TEST
from sweeps.base.errors import UserError
from sweeps.choose import Next, Proposal
from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import By, StudySnapshot, by_first
from sweeps.space.space import Choice, SearchSpace, is_grid


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

    def of_race(self, configurations: int) -> Sequence[int]:
        """Return the seeds of a race; a single configuration runs until the first test."""
        return self.fresh if configurations > 1 else self.fresh[:FIRST_TEST]


@dataclass
class Repeats:
    """A chooser that begins the further seeds of each configuration, unless one trial has decided
    for all."""

    seeds: Seeds

    def next(self, study: StudySnapshot) -> Next:
        """Return the next seed of the first configuration with a seed left."""
        if study.enough:
            return Next()
        key = self.seeds.key
        for number, trials in by_first(study.rows).items():
            first = study.rows[number]
            # a trial has no seed if that was lost with its files
            if key not in first.seed or any(trial.state.decides for trial in trials):
                continue
            begun = [trial.seed.get(key, self.seeds.repeated[0]) for trial in trials]
            for seed in self.seeds.repeated:
                if seed not in begun:
                    chosen = {key: seed}
                    params = {**first.params, **chosen}
                    return Next([Proposal(params, By.REPEAT, number, chosen, first.outside)])
        return Next()


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
    typed = {name.lstrip("+"): text for name, text in space.constants.items()}
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
