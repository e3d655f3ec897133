"""Each configuration under several seeds: which are left to run, and what they say of it together. Knows no Optuna."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from omegaconf import DictConfig, OmegaConf

from sweeps.errors import UserError
from sweeps.settings import SweeperConf
from sweeps.study.search_space import Choice, SearchSpace
from sweeps.trial.job import End, State

_DECIDES = {State.PRUNED, State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY}
"""How one trial ends that decides for its whole configuration, whatever the others are."""


class Repeats:
    """The configurations of a search by the numbers of their first trials, and how each ended under which seed.

    A configuration is as good as the mean of its trials. One that is pruned or fails decides for all: no further one is
    begun. What was lost or timed out says nothing, and the mean is of the others.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = seeds
        self._ends: dict[int, dict[int, End | None]] = {}
        self._open: dict[int, None] = {}  # of which repeats are left to begin
        self.given_up: set[int] = set()

    def begin(self, first: int, seed: int) -> None:
        """A trial of the configuration whose first trial has this number."""
        ends = self._ends.setdefault(first, {})
        ends.setdefault(seed, None)
        self._open[first] = None
        if first in self.given_up or len(ends) >= len(self.seeds):
            self._open.pop(first)

    def end(self, first: int, seed: int, end: End) -> None:
        if first not in self._ends:
            return
        self._ends[first][seed] = end
        if end.state in _DECIDES:
            self.given_up.add(first)
            self._open.pop(first, None)

    def next(self) -> tuple[int, int] | None:
        """The repeat to begin: the number of the first trial, and the seed."""
        for first in self._open:
            return first, next(seed for seed in self.seeds if seed not in self._ends[first])
        return None

    def verdict(self, first: int) -> End | None:
        """How the configuration ended; None while that is open."""
        ends = self._ends.get(first, {})
        known = [end for end in ends.values() if end]
        if first in self.given_up:
            return next(end for end in known if end.state in _DECIDES)
        if len(known) < len(self.seeds):
            return None
        done = [end for end in known if end.state is State.COMPLETED and end.objective]
        if not done:
            return known[-1]
        means = [fmean(values) for values in zip(*(end.objective for end in done), strict=True)]
        return replace(done[0], objective=means)

    def left_out(self) -> int:
        """How many trials are not begun, since their configuration was given up."""
        return sum(len(self.seeds) - len(self._ends[first]) for first in self.given_up)


def seeds_of(settings: SweeperConf, space: SearchSpace, config: DictConfig) -> tuple[list[int], list[int]]:
    """The seeds of the repeats, and those of the final race. Raises UserError if they cannot be set."""
    key = settings.seed_key.lstrip("+")
    if settings.repeats == 1 and not settings.final_race:
        return [], []
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
    return [*range(first, fresh)], [*range(fresh, fresh + settings.final_race_seeds)]


def swept(space: SearchSpace, key: str, seeds: Sequence[int]) -> SearchSpace:
    """A grid with the seeds as its last parameter."""
    one = Choice(key, tuple(seeds), tuple(map(str, seeds)))
    return SearchSpace((*space.parameters, one), space.fixed, space.constants)
