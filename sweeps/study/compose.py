"""Composes and checks the configuration of every trial, before the first one starts."""

import math
import pickle
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from sweeps.errors import Infeasible, UserError
from sweeps.record.followed import by_default, source
from sweeps.study.mistakes import explain


class Composer:
    """Composes trials as `ConfigLoader.load_sweep_config` does, and answers mistakes in a line or two.

    Hydra takes 50 ms for one configuration, most of it for the defaults list. That list depends on the choices of
    config groups alone, so configurations that differ only in values share one composition: 2 ms each.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        assert isinstance(loader, ConfigLoaderImpl)  # the only one that Hydra has
        self._loader = loader
        self._master = master
        self._groups = dict.fromkeys(master.hydra.runtime.choices, True)
        self._parser = OverridesParser.create(config_loader=loader)
        self._composed: dict[tuple[str, ...], bytes] = {}  # pickled: copied four times faster than by deepcopy

    def compose(self, overrides: Sequence[str], number: int) -> DictConfig:
        """The whole config of one trial, its hydra node included. Raises UserError if it cannot be composed."""
        parsed = self.parse(overrides)
        groups = tuple(text for text, override in zip(overrides, parsed, strict=True) if not self._is_value(override))
        try:
            if groups not in self._composed:
                self._composed[groups] = pickle.dumps(self._loader.load_sweep_config(self._master, list(groups)))
            config: DictConfig = pickle.loads(self._composed[groups])  # noqa: S301 - this process wrote it
            OmegaConf.copy_cache(from_config=self._master, to_config=config)
            ConfigLoaderImpl._apply_overrides_to_config([one for one in parsed if self._is_value(one)], config)
            job = config.hydra.job
            of_task = [override for override in parsed if not override.is_hydra_override()]
            with open_dict(config):
                config.hydra.overrides.task = list(overrides)
                job.override_dirname = get_overrides_dirname(of_task, **job.config.override_dirname)
                job.id, job.num = f"{job.name}_{number}", number
            return config
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(explain(error, self._master)) from error

    def parse(self, lines: Sequence[str]) -> list[Override]:
        """Raises UserError: a line is not of Hydra's grammar."""
        try:
            return self._parser.parse_overrides(list(lines))
        except HydraException as error:
            raise UserError(explain(error, self._master)) from error

    def options(self, group: str) -> list[str]:
        """Return the choices that a config group has; empty if there is no such group."""
        return self._loader.get_group_options(group.lstrip("+").partition("@")[0])

    def _is_value(self, override: Override) -> bool:
        """Whether it changes a value, as Hydra tells it: the choice of a group changes the defaults list."""
        key = override.key_or_group
        if key not in self._groups:
            self._groups[key] = self._loader.repository.group_exists(key)
        return override.package is None and (isinstance(override.value(), dict) or not self._groups[key])


def check(config: DictConfig, starts: bool = False) -> None:
    """Turn the config into the dataclasses it is made of. Raises UserError with what their own checks say; Infeasible
    if they only know that it cannot run here. Before trials start the app's dataclass may look around too, with a
    method `check_here()`.
    """
    nodes = config._content
    assert isinstance(nodes, dict)  # neither missing nor an interpolation
    hydra: Any = nodes.pop("hydra", None)  # not part of what the app's dataclasses describe
    try:
        with _as_in_the_trial(hydra):
            whole: Any = OmegaConf.to_object(config)
        if hydra is not None:
            _check_ranks(config, hydra.launcher)
        if starts and hydra is not None:
            refuse_lost(hydra)
        if starts and hasattr(whole, "check_here"):
            whole.check_here()
    except (ValueError, TypeError, OSError, OmegaConfBaseException) as error:
        kind = Infeasible if getattr(error, "infeasible", False) else UserError
        raise kind(explain(error, config)) from error
    finally:
        if hydra is not None:
            nodes["hydra"] = hydra


@contextmanager
def _as_in_the_trial(hydra: DictConfig | None) -> Iterator[None]:
    """Let the app's dataclasses, if they ask HydraConfig, see the trial's own settings, as they do where it runs."""
    current: Any = HydraConfig.instance()
    before = current.cfg
    if hydra is not None:
        current.cfg = SimpleNamespace(hydra=hydra)  # set_config() would copy it
    try:
        yield
    finally:
        current.cfg = before


def refuse_lost(hydra: DictConfig) -> None:
    """Raise UserError for a value, and another one for a part of it, of which Hydra keeps the later alone."""
    words = [word.lstrip("+").partition("=") for word in hydra.overrides.task if not word.startswith("~")]
    typed = {key: value for key, _, value in words}
    for key, value in typed.items():
        part = next((other for other in typed if other.startswith(f"{key}.")), None)
        plain = value not in ("", "null") and not value.startswith(("{", "[", "$"))
        if part and plain and key not in hydra.runtime.choices:
            raise UserError(
                f"{key}={value} and {part}={typed[part]}: one would replace the other, since {value} has no parts\n"
                "Leave one of them out, or name all parts: "
                + shlex.quote(f"{key}={{{part.removeprefix(f'{key}.')}: {typed[part]}, ...}}")
            )


def _check_ranks(config: DictConfig, launcher: DictConfig) -> None:
    """Raise UserError if a trial was given other processes than the app's own keys, which the launchers follow, say."""
    for setting, key in _process_keys().items():
        wanted, given = OmegaConf.select(config, key), launcher.get(setting)
        if wanted is None or given == wanted:
            continue
        name = source(config, key)
        if given is not None:
            said = f"hydra.launcher.{setting}={given}, but the trial trains with {name}={wanted}"
            raise UserError(f"{said}\nSay {name}={given}, and leave hydra.launcher.{setting} out")
        if wanted != 1:
            raise UserError(
                f"{name}={wanted} needs a launcher that starts several processes: hydra/launcher=local, or slurm"
            )


def processes(config: DictConfig) -> int:
    """In how many processes a trial wants to run, by the app's own keys."""
    return math.prod(OmegaConf.select(config, key) or 1 for key in _process_keys().values())


def _process_keys() -> dict[str, str]:
    """The settings of a launcher that make several processes, and the keys of an app that they follow."""
    return {setting: by_default("launcher/local", setting) for setting in ("nodes", "tasks_per_node")}
