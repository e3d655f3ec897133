"""The definition of a study, study.json: what it was started with, and the command that resumes
it."""

import json
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from omegaconf import DictConfig

from sweeps.base.secrets import mask_value
from sweeps.base.wording import short_difference
from sweeps.hydra import plain
from sweeps.hydra.followed import by_default, followed, source, written
from sweeps.hydra.settings import SweeperConf
from sweeps.hydra.shell_words import flags_first
from sweeps.hydra.sweeper_settings import is_grid_sampler
from sweeps.space.space import Choice, Parameter, SearchSpace, is_grid, text_of
from sweeps.trial.job import Point

NAME = "hydra.sweeper.study_name"
FORMAT = 1
"""The format of a study's files. Another one is refused."""
_MAY_CHANGE = {
    "sweeper/grid": ("memory_axes", "may_change", "refit", "refit_all_data"),
    "launcher/local": ("preload",),
}
"""Settings that change no result, and so may change between two commands, like the keys that they
follow."""


@dataclass(frozen=True)
class Definition:
    """The definition of a study. All values are text, as one would type them."""

    name: str
    command: list[str]  # the command line, without the name of the study
    working_folder: str
    objective: list[str]
    directions: list[str]
    parameters: dict[str, str]  # values of each swept parameter
    n_trials: str
    search: dict[str, str]  # sampler, pruner and all other settings that decide which trials run
    config: dict[str, str]  # values that all trials share, by their dotted names
    total: int  # number of trials
    # hydra.sweep.dir as its start resolved it; None for multirun/<name>
    sweep_dir: str | None = None
    storage: str | None = None
    tracking_uri: str | None = None
    """Both addresses as typed, because a password of the environment, `${oc.env:NAME}`, must be in
    no file."""
    seed_key: str = "seed"
    size: int | None = None  # number of points of the search space; None if far more than trials
    format: int = FORMAT
    # by whom, at which time, and by which values
    extended: list[dict[str, Any]] = field(default_factory=list)
    # keys of `config` with which the study may resume changed
    may_change: list[str] = field(default_factory=list)

    @property
    def is_grid(self) -> bool:
        """Return whether every point of the space is a trial, so that no sampler chooses."""
        return is_grid_sampler(json.loads(self.search.get("sampler", "null")))

    @property
    def listed(self) -> list[Point]:
        """Return the points of hydra.sweeper.points."""
        return [Point(point) for point in json.loads(self.search.get("points", "[]"))]

    @property
    def exclude(self) -> list[str]:
        """Return the conditions of hydra.sweeper.exclude."""
        return [*json.loads(self.search.get("exclude", "[]"))]

    @property
    def repeats(self) -> int:
        """Return the number of seeds that each configuration of a search runs under."""
        return int(self.search.get("repeats", 1))

    def differences(self, other: "Definition") -> dict[str, str]:
        """Return the differences of `other` from this study, in words, by the key of each."""
        old = self._identity()
        new = other._identity()
        free = self.free_keys() - other.parameters.keys()
        differences = {}
        for key in old | new:
            if key in free or _is_same(key, old.get(key), new.get(key)):
                continue
            before = old.get(key, "(nothing)")
            after = new.get(key, "(nothing)")
            differences[key] = f"{key}={' was '.join(short_difference(after, before))}"
        return differences

    def free_keys(self) -> set[str]:
        """Return the keys with which the study may resume changed, as the command named them that
        started it."""
        return {key for key in self.may_change if key in self.config and key not in self.parameters}

    def _identity(self) -> dict[str, str]:
        """Return all settings and values that may not change, as one would type them."""
        settings = {"study_name": self.name, "n_trials": self.n_trials, **self.search}
        identity = {f"hydra.sweeper.{key}": value for key, value in settings.items()}
        for key, text in self.config.items():
            if key and not _changes_no_result(key):
                identity[key] = text
        return identity | self.parameters


def define(
    name: str,
    settings: SweeperConf,
    space: SearchSpace,
    config: DictConfig,
    planned: int,
    size: int | None,
    sweep_dir: str | None = None,
) -> Definition:
    """Return the definition of a study that tries `planned` points of a space of `size` points."""
    repeats = 1 if is_grid(settings) else settings.repeats
    typed = [word for word in sys.orig_argv if not word.startswith(f"{NAME}=")]
    return Definition(
        name,
        command=flags_first(typed),
        working_folder=str(Path.cwd()),
        objective=list(settings.objectives),
        directions=list(settings.directions),
        parameters={space.name(p): _values(p) for p in space.parameters},
        n_trials=str(settings.n_trials),
        search=_search(settings, space),
        config=shared(config),
        total=planned * repeats,
        sweep_dir=sweep_dir,
        storage=as_typed(config, "hydra.sweeper.storage"),
        tracking_uri=as_typed(config, "hydra.sweeper.tracking_uri"),
        seed_key=settings.seed_key,
        size=size,
        may_change=settings.may_change,
    )


def _search(settings: SweeperConf, space: SearchSpace) -> dict[str, str]:
    """Return the settings that decide what a study tries, as text by their names."""
    search = {
        "sampler": json.dumps(settings.sampler, sort_keys=True),
        "pruner": json.dumps(settings.pruner, sort_keys=True),
        "objective": str(settings.objective),
        "direction": str(settings.direction),
        "custom_search_space": str(settings.custom_search_space),
    }
    if any((settings.rungs or {}).values()):
        search["rungs"] = json.dumps(settings.rungs, sort_keys=True)
    if settings.learn_from:
        search["learn_from"] = ",".join(settings.learn_from)
    if space.listed:
        search["points"] = json.dumps(space.listed)
    if settings.exclude:
        search["exclude"] = json.dumps(settings.exclude)
    if settings.repeats > 1 and not is_grid(settings):
        search["repeats"] = str(settings.repeats)
    if settings.final_race:
        search["final_race"] = str(settings.final_race)
        search["final_race_seeds"] = str(settings.final_race_seeds)
    return search


def shared(config: DictConfig) -> dict[str, str]:
    """Return the values that all trials share and that may not change, as text by their dotted
    names."""
    content = plain.content(config)
    content.pop("hydra", None)
    return {
        key: mask_value(key, text)
        for key, text in _flat(content)
        if key and not _changes_no_result(key)
    }


def _changes_no_result(key: str) -> bool:
    """Return whether a key, or the section that it is in, changes no result."""
    return any(key == name or key.startswith(f"{name}.") for name in _may_change())


@cache
def _may_change() -> tuple[str, ...]:
    return (
        "tracking",
        *(by_default(group, name) for group, names in _MAY_CHANGE.items() for name in names),
    )


def as_typed(config: DictConfig, key: str) -> str | None:
    """Return a setting, or the setting that it interpolates, as text with its interpolations; None
    without a value."""
    try:
        value = written(config, source(config, key))
    except KeyError:
        return None
    return None if followed(value) else value and str(value)


def _is_same(key: str, old: str | None, new: str | None) -> bool:
    """Return whether a value is unchanged. A `_target_` may have moved, because two modules may
    name one object."""
    if old is None or new is None or old == new:
        return old == new
    if not key.endswith("_target_") or old.rpartition(".")[2] != new.rpartition(".")[2]:
        return False
    try:
        return resolve_name(old) is resolve_name(new)
    except (ImportError, AttributeError, ValueError):
        return False


def _values(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return ",".join(parameter.texts)
    return f"{'log ' * parameter.log}interval({parameter.low}, {parameter.high})"


def _flat(node: Any, prefix: str = "") -> list[tuple[str, str]]:
    if not isinstance(node, dict) or not node:
        return [(prefix, node if isinstance(node, str) else text_of(node))]
    pairs = []
    for key, value in node.items():
        pairs += _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return pairs
