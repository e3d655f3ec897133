"""The configuration of every trial, composed and checked before the first trial starts."""

import math
import pickle
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from sweeps.base.errors import Infeasible, UserError
from sweeps.hydra import parts as hydra_parts
from sweeps.hydra.brought import Brought
from sweeps.hydra.config_files import explain_file
from sweeps.hydra.followed import by_default, source
from sweeps.hydra.foreign_settings import adopt
from sweeps.hydra.mistakes import explain
from sweeps.hydra.near import closest, keys
from sweeps.hydra.parts import hydra_config
from sweeps.hydra.wrong_choices import explain_no_name
from sweeps.trial.packing import pack_for_here

_PARSED_LINES = 1_000


class Composer:
    """Composes trials as `ConfigLoader.load_sweep_config` does, and explains errors in two lines.

    Hydra takes 50 ms for one configuration, most of it for the defaults list. The defaults list
    depends only on the choices of config groups. So configurations that differ only in values share
    one composition: 2 ms each.
    """

    def __init__(
        self, loader: ConfigLoader, master: DictConfig, brought: Brought | None = None
    ) -> None:
        """Compose trials of the app of this loader. With `brought`, refuse choices that bring
        another launcher."""
        self._loader = loader
        self._master = master
        self._brought = brought
        self._groups = dict.fromkeys(master.hydra.runtime.choices, True)
        self._with_groups = hydra_parts.with_search_path(loader, master)
        self._parser = OverridesParser.create(config_loader=self._with_groups)
        # pickled, because that copies four times faster
        self._composed: dict[tuple[str, ...], bytes] = {}
        # because most lines of a trial are those of the trial before
        self._parse_line = lru_cache(_PARSED_LINES)(self._parse_one)

    def compose(self, overrides: Sequence[str], number: int) -> DictConfig:
        """Return the config of one trial, including its hydra node. Raises UserError if it cannot
        be composed."""
        parsed = self.parse(overrides)
        choices = [override for override in parsed if not self._is_value(override)]
        groups = tuple(str(override.input_line) for override in choices)
        try:
            if groups not in self._composed:
                for choice in choices:
                    # because Hydra would raise a ValueError
                    if problem := explain_no_name(choice, self.options(choice.key_or_group)):
                        raise UserError(problem)
                with hydra_parts.watch_overrides() as lines:
                    composed = hydra_parts.load_trial(self._loader, self._master, groups)
                adopt(composed.hydra)
                if self._brought is not None:
                    self._brought.look(composed.hydra, groups, lines)
                self._composed[groups] = pack_for_here(composed)
            # this process wrote it
            config: DictConfig = pickle.loads(self._composed[groups])  # noqa: S301
            OmegaConf.copy_cache(from_config=self._master, to_config=config)
            hydra_parts.set_values(
                config, [override for override in parsed if self._is_value(override)]
            )
            with hydra_config(config.hydra):
                hydra_parts.set_typed(config, overrides, parsed, number)
                hydra_parts.set_output_dir(config)
            return config
        except (HydraException, OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
            if mistake := explain_file(error, self._loader):
                raise UserError(mistake) from error
            pickled = self._composed.get(groups)  # not `config`, in which some values are set
            chosen = pickle.loads(pickled) if pickled else self._master  # noqa: S301
            raise UserError(explain(error, chosen)) from error

    def parse(self, lines: Sequence[str]) -> list[Override]:
        """Parse lines by Hydra's grammar. Raises UserError for a line that the grammar does not
        allow."""
        try:
            return [self._parse_line(line) for line in lines]
        except HydraException as error:
            raise UserError(explain(error, self._master)) from error

    def _parse_one(self, line: str) -> Override:
        (override,) = self._parser.parse_overrides([line])
        return override

    def options(self, group: str) -> list[str]:
        """Return the choices of a config group; empty if the group does not exist."""
        return self._with_groups.get_group_options(group.lstrip("+").partition("@")[0])

    def _is_value(self, override: Override) -> bool:
        """Return whether an override changes a value, by Hydra's rules, and not the defaults list
        as a choice does."""
        key = override.key_or_group
        if key not in self._groups:
            self._groups[key] = hydra_parts.group_exists(self._with_groups, key)
        return override.package is None and (
            isinstance(override.value(), dict) or not self._groups[key]
        )


def check(config: DictConfig, starts: bool = False, is_new: bool = False) -> None:
    """Check the settings of a trial that sweepyard reads, and the whole config if its own dataclass
    offers checks.

    A dataclass with a method `check_here()` offers them: it is made of the config, and if trials
    will start, the method is called. Of a new study, `check_typed()` is called, if the dataclass
    has it, also if none starts. Any other config is left to the trial, which may never read a value
    that is missing or wrong here. Raises UserError with the message of such a check; Infeasible if
    the config is valid but cannot run here.
    """
    is_typed = starts or is_new  # and not what a study that exists has
    try:
        with _without_hydra(config) as hydra:
            with hydra_config(hydra):
                whole: Any = OmegaConf.to_object(config) if _offers_checks(config) else None
            if hydra is not None:
                _check_launch(config, hydra, is_typed)
            if is_typed and hasattr(whole, "check_typed"):
                whole.check_typed()
            if starts and whole is not None:
                whole.check_here()
    except (ValueError, TypeError, OSError, OmegaConfBaseException) as error:
        kind = Infeasible if getattr(error, "infeasible", False) else UserError
        raise kind(explain(error, config)) from error


def explain_longer(config: DictConfig) -> str:
    """Return why a larger budget makes another training of a valid config; empty if it makes the
    same one, longer.

    A dataclass with a method `check_longer()` raises ValueError with the reason.
    """
    if not hasattr(OmegaConf.get_type(config), "check_longer"):
        return ""
    try:
        _whole(config).check_longer()
    except ValueError as error:
        return str(error)
    return ""


def last_step(config: DictConfig) -> int | None:
    """Return the last step that a trial of this config reports, as a dataclass with a method
    `last_step()` says; None if it is not known."""
    if not hasattr(OmegaConf.get_type(config), "last_step"):
        return None
    try:
        step: int | None = _whole(config).last_step()
    except (ValueError, TypeError, OSError, OmegaConfBaseException):
        return None  # because the config is not valid, which `check` explains
    return step


def _whole(config: DictConfig) -> Any:
    """Return the app's own dataclass of a config."""
    with _without_hydra(config) as hydra, hydra_config(hydra):
        return OmegaConf.to_object(config)


@contextmanager
def _without_hydra(config: DictConfig) -> Iterator[Any]:
    """Remove Hydra's node from a config meanwhile, because the app's dataclasses have no such
    field. Yield the node."""
    nodes = config._content
    assert isinstance(nodes, dict)  # because the root is neither missing nor an interpolation
    hydra = nodes.pop("hydra", None)
    try:
        yield hydra
    finally:
        if hydra is not None:
            nodes["hydra"] = hydra


def _offers_checks(config: DictConfig) -> bool:
    """Return whether the dataclass of a config offers checks to a driver, as
    trainers/config/schema.py does."""
    return hasattr(OmegaConf.get_type(config), "check_here")


def _check_launch(config: DictConfig, hydra: DictConfig, is_typed: bool) -> None:
    """Raise UserError if the launcher's settings, or words that are typed now, conflict with the
    app's keys."""
    _check_ranks(config, hydra.launcher)
    if is_typed:
        refuse_conflicts(hydra)
    if is_typed and _offers_checks(config):
        _refuse_other_gpus(config, hydra.launcher)


def refuse_conflicts(hydra: DictConfig) -> None:
    """Raise UserError if a key and a part of the key were typed with values: Hydra would use only
    the later one."""
    task = hydra_parts.typed_words(hydra, "task")
    words = [word.lstrip("+").partition("=") for word in task if not word.startswith("~")]
    typed = {key: value for key, _, value in words}
    for key, value in typed.items():
        part = next((name for name in typed if name.startswith(f"{key}.")), None)
        plain = value not in ("", "null") and not value.startswith(("{", "[", "$"))
        if part and plain and key not in hydra.runtime.choices:
            all_parts = shlex.quote(f"{key}={{{part.removeprefix(f'{key}.')}: {typed[part]}, ...}}")
            raise UserError(
                f"{key}={value} and {part}={typed[part]} conflict, because {value} has no parts.\n"
                f"Remove one, or type all parts: {all_parts}"
            )


def _check_ranks(config: DictConfig, launcher: DictConfig) -> None:
    """Raise UserError if the launcher would start other processes than the app's keys for nodes and
    ranks ask for."""
    for setting, key in _process_keys().items():
        count = _count(config, key)
        launched = launcher.get(setting)
        if count is None or launched == count:
            continue
        name = source(config, key)
        if launched is not None:
            raise UserError(
                f"hydra.launcher.{setting}={launched} and {name}={count} conflict.\n"
                f"Use {name}={launched}, and remove hydra.launcher.{setting}"
            )
        if count != 1:
            raise UserError(
                f"{name}={count}: this launcher starts one process.\nUse hydra/launcher=local, or"
                " slurm"
            )


def _refuse_other_gpus(config: DictConfig, launcher: DictConfig) -> None:
    """Raise UserError if the launcher would request other GPUs than the app's key for GPUs asks
    for."""
    counts = _other_gpus(config, launcher)
    if counts is None:
        return

    key, count, launched = counts
    raise UserError(
        f"hydra.launcher.gpus_per_node={launched} and {key}={count} conflict.\n"
        f"Type {key}={launched}, and remove hydra.launcher.gpus_per_node"
    )


def _other_gpus(config: DictConfig, launcher: DictConfig) -> tuple[str, Any, Any] | None:
    """Return the app's key for GPUs, its count and the launcher's other count; None if they are
    one."""
    key = by_default("launcher/local", "gpus_per_node")
    count = _count(config, key)
    launched = launcher.get("gpus_per_node")
    is_other = None not in (count, launched) and count != launched
    return (key, count, launched) if is_other else None


def describe_gpus(config: DictConfig, swept: Sequence[str]) -> Iterator[str]:
    """Yield that the launcher requests other GPUs than a key of the app says, which may mean
    anything there."""
    counts = _other_gpus(config, config.hydra.launcher)
    if counts and counts[0] not in swept and not _offers_checks(config):
        key, count, launched = counts
        yield (
            f"{key}={count} does not count for the launcher: a trial gets"
            f" hydra.launcher.gpus_per_node={launched}"
        )


def describe_unread(config: DictConfig, hydra: DictConfig, swept: Iterable[str] = ()) -> list[str]:
    """Return the keys that no code reads, each with the key that was likely meant. Raises UserError
    if one is swept."""
    names = [name for name in keys(config) if "." not in name]
    notes = []
    for key in _unread(config, hydra):
        near = closest(key, [name for name in names if name != key])
        problem = f"+{key}: no code reads this key, so that its values change nothing"
        if key in {name.lstrip("+") for name in swept}:
            advice = f"Type: {near}=..." if near else f"Remove +{key}; all keys are in --help all"
            raise UserError(f"{problem}.\n{advice}")
        notes.append(problem + (f". Did you mean '{near}'?" if near else ""))
    return notes


def _unread(config: DictConfig, hydra: DictConfig) -> Iterator[str]:
    """Yield the keys that the dataclass of a config calls unread, unless an interpolation reads
    them."""
    if not hasattr(OmegaConf.get_type(config), "unread") or hydra.callbacks:
        return  # because code of the app may read any key
    if hydra.sweeper.get("custom_search_space"):
        return
    with _without_hydra(config):
        whole: Any = OmegaConf.to_object(config)
        content = OmegaConf.to_container(config, resolve=False)
    settings: Any = OmegaConf.to_container(hydra, resolve=False)
    settings.pop("overrides")  # because they contain the key itself
    interpolations = " ".join(re.findall(r"\$\{[^}]*\}", f"{content} {settings}"))
    for key in whole.unread():
        if not re.search(rf"\b{re.escape(key)}\b", interpolations):
            yield key


def processes(config: DictConfig) -> int:
    """Return the number of processes of a trial, by the app's keys for nodes and ranks."""
    return math.prod(_count(config, key) or 1 for key in _process_keys().values())


def _count(config: DictConfig, key: str) -> Any:
    """Return the value of a key; None without the key, and of a section that cannot be resolved
    here."""
    try:
        OmegaConf.select(config, key.partition(".")[0])
    except OmegaConfBaseException:
        return None
    return OmegaConf.select(config, key)


def _process_keys() -> dict[str, str]:
    """Return the launcher's settings for processes, with the app's keys that they follow."""
    return {
        setting: by_default("launcher/local", setting) for setting in ("nodes", "tasks_per_node")
    }
