"""Settings of other plugins of Hydra in the sections of ours, as files have them that were written
for those plugins.

The names are those of hydra-optuna-sweeper, hydra-submitit-launcher, hydra-joblib-launcher and
Hydra's own sweeper: https://github.com/facebookresearch/hydra/tree/main/plugins. A setting with an
equal meaning here is set; any other is removed, and named once. The chosen group decides what runs,
not a `_target_` or a sampler that a file sets.
"""

import re
from collections.abc import Iterable
from typing import Any

import yaml
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from sweeps.base.errors import UserError
from sweeps.hydra.foreign_names import OfJoblib, OfSubmitit, OfSweepers, foreign_names
from sweeps.hydra.parts import typed_words
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf
from sweeps.hydra.sweeper_settings import target_of

LAUNCHERS = {
    "submitit_slurm": ("slurm", "hydra_submitit_launcher"),
    "submitit_local": ("local", "hydra_submitit_launcher"),
    "joblib": ("local", "hydra_joblib_launcher"),
}
"""Of each launcher of another plugin, ours that runs in its place, and the module of the plugin."""
_CORE = "hydra._internal.core_plugins"
_SUBMITIT = "hydra_plugins.hydra_submitit_launcher.submitit_launcher"
_JOBLIB = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
_SWEEPERS = (
    "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper",
    f"{_CORE}.basic_sweeper.BasicSweeper",
)
_LAUNCHERS = (
    f"{_SUBMITIT}.SlurmLauncher",
    f"{_SUBMITIT}.LocalLauncher",
    _JOBLIB,
    f"{_CORE}.basic_launcher.BasicLauncher",
)
"""The classes in whose place ours run, if our groups are chosen."""
_FOLLOWS_SECTION = re.compile(r"\$\{oc\.select:(\w+)\.[\w.]+,(.*)\}")


def adopt(hydra: DictConfig) -> list[str]:
    """Set what foreign settings in our sections mean here, and remove them. Return lines on those
    without effect.

    Raises UserError for the class of a plugin that is not installed, and for a storage without an
    address.
    """
    unused: list[str] = []
    notes: list[str] = []
    if OmegaConf.get_type(hydra, "launcher") in (LocalLauncherConf, SlurmLauncherConf):
        _follow_only_sections(hydra.launcher)
        unused += _adopt_launcher(hydra)
        chosen = hydra.runtime.choices.get("hydra/launcher")
        if chosen in LAUNCHERS:
            notes.append(
                f"hydra/launcher={chosen}: its plugin is not installed; sweepyard's"
                f" hydra/launcher={LAUNCHERS[chosen][0]} runs the trials"
            )
    if OmegaConf.get_type(hydra, "sweeper") is SweeperConf:
        _follow_only_sections(hydra.sweeper)
        unused += _adopt_sweeper(hydra.sweeper)
        notes += _adopt_sampler(hydra)
    if unused:
        notes.append(f"{', '.join(unused)}: of another plugin, without effect here")
    return notes


def _follow_only_sections(settings: DictConfig) -> None:
    """Set the default of settings that follow a section of the app, if that section cannot be
    resolved here."""
    config: Any = settings._get_root()
    written: Any = OmegaConf.to_container(settings)
    for name, value in written.items():
        match = _FOLLOWS_SECTION.fullmatch(str(value))
        if match is None:
            continue
        try:
            OmegaConf.select(config, match[1])
        except OmegaConfBaseException:
            _set(settings, name, yaml.safe_load(match[2]))


def _adopt_launcher(hydra: DictConfig) -> list[str]:
    """Take over the launcher's foreign settings. Return the names of those without effect."""
    launcher = hydra.launcher
    names = foreign_names(OfSubmitit)
    if _is_of_joblib(hydra):
        names += foreign_names(OfJoblib)
    taken = _take(launcher, names)
    _limit_trials(hydra, taken.pop("n_jobs", None))
    unused = _adopt_class(launcher, "hydra.launcher", _LAUNCHERS)
    return unused + [f"hydra.launcher.{name}" for name in taken]


def _is_of_joblib(hydra: DictConfig) -> bool:
    """Return whether a file wrote the section for hydra-joblib-launcher; a typed word of it for
    ours is a mistake."""
    launcher = hydra.launcher
    if (
        str(launcher._get_node("_target_")) == _JOBLIB
        or hydra.runtime.choices.get("hydra/launcher") == "joblib"
    ):
        return True
    written: Any = OmegaConf.to_container(launcher)
    names = [name for name in ("n_jobs", "backend") if written.get(name) is not None]
    typed = [word.lstrip("+").partition("=")[0] for word in typed_words(hydra, "hydra")]
    return any(f"hydra.launcher.{name}" not in typed for name in names)


def _adopt_sweeper(sweeper: DictConfig) -> list[str]:
    """Take over the sweeper's foreign settings. Return the names of those without effect."""
    taken = _take(sweeper, foreign_names(OfSweepers))
    names = [name for name in ("ax_config", "optim", "parametrization") if name in taken]
    unused = [f"hydra.sweeper.{name}" for name in names]
    _limit_trials(sweeper._get_parent(), taken.get("max_batch_size"))
    if "search_space" in taken:
        params = OmegaConf.to_container(sweeper).get("params") or {}  # type: ignore[union-attr]
        space = taken["search_space"]
        if not params:
            params = space
        elif isinstance(params, dict) and isinstance(space, dict):
            params = {**space, **params}
        else:
            raise UserError(
                "hydra.sweeper.search_space and hydra.sweeper.params are joined, and one of them is"
                " no mapping"
                ".\nWrite both as mappings, or one of them alone"
            )
        _set(sweeper, "params", params)

    unused += _adopt_class(sweeper, "hydra.sweeper", _SWEEPERS)
    storage = OmegaConf.to_container(sweeper).get("storage")  # type: ignore[union-attr]
    if isinstance(storage, dict):
        unused += _adopt_storage(sweeper, storage)
    return unused


def _adopt_storage(sweeper: DictConfig, storage: dict[Any, Any]) -> list[str]:
    """Set the address of a storage that is written as a class. Return the names of settings without
    effect."""
    target = str(storage.pop("_target_", None))
    address = storage.pop("url", None)
    if address is None and target.rpartition(".")[2] != "InMemoryStorage":
        raise UserError(
            f"hydra.sweeper.storage._target_={target}: a study is mirrored to an address.\n"
            "Type hydra.sweeper.storage=sqlite:///studies.db, or hydra.sweeper.storage=null"
        )
    _set(sweeper, "storage", address)
    return [f"hydra.sweeper.storage.{name}" for name, value in storage.items() if value is not None]


def _adopt_sampler(hydra: DictConfig) -> list[str]:
    """Let the chosen group decide whether the study is a grid or a search. Return a line if that
    drops a sampler."""
    choices = hydra.runtime.choices
    chosen = choices.get("hydra/sweeper/sampler") or choices.get("hydra/sweeper")
    settings: Any = OmegaConf.to_container(hydra.sweeper)
    sampler = settings["sampler"]
    grid = target_of("sampler", "grid")
    if sampler is None and chosen != "grid":
        _set(hydra.sweeper, "sampler", {"_target_": target_of("sampler", "default")})
    target = sampler.get("_target_") if isinstance(sampler, dict) else None
    if chosen != "grid" or target in (None, "", grid):
        return []
    _set(hydra.sweeper, "sampler", {"_target_": grid})
    limit = settings["n_trials"]
    points = "every point"
    if limit is not None:
        points = f"each point once, up to hydra.sweeper.n_trials={limit}"
    return [f"hydra.sweeper.sampler has no effect: the chosen grid tries {points}"]


def _adopt_class(section: DictConfig, name: str, replaced: Iterable[str]) -> list[str]:
    """Let our own class run in place of a foreign one. Return the setting's name if it has no
    effect.

    Raises UserError if the class is neither ours, nor one of `replaced`, nor of an installed
    plugin.
    """
    typed = str(section._get_node("_target_"))
    kind: Any = OmegaConf.get_type(section)
    ours = str(kind._target_)
    if typed == ours or (typed not in replaced and typed in Plugins.instance().class_name_to_class):
        return []
    if typed not in replaced:
        group = name.replace(".", "/")
        raise UserError(
            f"{name}._target_={typed}: no installed plugin has this class.\n"
            f"Remove it for sweepyard's, or install its plugin and choose its own {group}"
        )
    _set(section, "_target_", ours)
    return [f"{name}._target_"]


def _limit_trials(hydra: Any, limit: Any) -> None:
    """Set the number of trials at a time, unless hydra.sweeper.n_jobs sets it."""
    is_limit = isinstance(limit, int) and limit > 0
    if (
        is_limit
        and OmegaConf.get_type(hydra, "sweeper") is SweeperConf
        and hydra.sweeper.n_jobs is None
    ):
        _set(hydra.sweeper, "n_jobs", limit)


def _take(section: DictConfig, names: Iterable[str]) -> dict[str, Any]:
    """Remove settings from a section, and all foreign ones without a value. Return those with a
    value, as written."""
    written: Any = OmegaConf.to_container(section)
    taken = {name: written[name] for name in names if written.get(name) is not None}
    kind: Any = OmegaConf.get_type(section)
    with read_write(section), open_dict(section):
        for name in foreign_names(kind):
            if name in taken or (name in written and written[name] is None):
                del section[name]
    return taken


def _set(section: DictConfig, name: str, value: Any) -> None:
    with read_write(section), open_dict(section):
        section[name] = value
