"""What sweepyard uses of Hydra beyond its documented interface, and what differs between Hydra 1.3
and 1.4.

ConfigLoaderImpl._apply_overrides_to_config    1.3, 1.4   sets values in a composed config
Hydra.compose_config                           1.3, 1.4   composes the command line of `hydra.main`
ConfigLoaderImpl._ensure_sweep_config_...      1.4        refuses a job with another launcher than
                                               the driver's
Hydra.app_help, .get_help                      1.3, 1.4   answer --help
ConfigLoaderImpl.repository                    1.3, 1.4   tells whether a config group exists
ConfigLoaderImpl._parse_overrides_and_create_caching_repo  1.3, 1.4   adds the app's
                                                           `hydra.searchpath` to it
config_loader_impl.get_overrides_dirname       1.3        hydra.job.override_dirname, which 1.4
                                               resolves itself
CachingConfigRepository.__init__               1.3, 1.4   copies where configs are, and in Hydra
                                               all stored configs
ConfigStore.repo                               1.3, 1.4   holds what plugins stored
defaults_list.Overrides.add_override           1.3, 1.4   gets the `override` lines of defaults
                                               lists
hydra.main._run_hydra, Hydra.run, .multirun    1.3, 1.4   start the app of a program
Plugins.instantiate_sweeper                    1.3, 1.4   starts a sweep of hydra_zen.launch
hydra._internal.utils.get_args_parser          1.3, 1.4   knows the flags of a program
hydra.utils.UNSAFE_DISABLE_EXECUTION_CHECKS    1.4        calls any `_target_`, as 1.3 does
omegaconf.base.parse                           2.3, 2.4   parses an interpolation, half a
                                               millisecond each
"""

import argparse
import copy
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import hydra
import hydra.utils
import omegaconf.base
import yaml
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.defaults_list import Overrides
from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import GroupDefault
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from sweeps.base.errors import UserError

VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}
"""The argument of `hydra.main`, `initialize` and their like."""
register_resolver: Any = (
    OmegaConf.register_new_resolver if VERSION_BASE else OmegaConf.register_resolver
)
SUBDIR = "hydra.sweep.subdir"
_UNCHECKED = getattr(hydra.utils, "UNSAFE_DISABLE_EXECUTION_CHECKS", None)
_FULL_ERROR = "HYDRA_FULL_ERROR"
_ANSWERS = "SWEEPYARD_ANSWERS"
"""The variable that says that `let_hydra_raise` set HYDRA_FULL_ERROR, and not the user."""
_INTERPOLATIONS = 1_000
# because all trials have the same interpolations, and OmegaConf would parse each of them again
_omegaconf: Any = omegaconf.base
_omegaconf.parse = lru_cache(_INTERPOLATIONS)(_omegaconf.parse)
_overrides_dirname = getattr(config_loader_impl, "get_overrides_dirname", None)


def _share_store(self: Any, delegate: IConfigRepository) -> None:
    """Copy the repository without the stored configs, because `--help` copied them for each group.

    The store copies each config that is loaded from it.
    """
    store = ConfigStore.instance()
    self.delegate = copy.deepcopy(delegate, {id(store): store})
    self.cache = {}


CachingConfigRepository.__init__ = _share_store  # type: ignore[method-assign]


def on_command_line(
    answer: Callable[
        [Exception, Sequence[str], Callable[[Sequence[str]], DictConfig], ConfigLoader], None
    ],
    adopt: Callable[[DictConfig, bool], None],
) -> None:
    """Let `answer` print each mistake in the command line of an app with `hydra.main`, or return.

    It gets the error, the typed words, a function that composes the app's configuration with other
    words, and the loader of its files. `adopt` gets each configuration that was composed, and
    whether a sweep starts with it.
    """
    compose_config = Hydra.compose_config

    def compose(
        self: Hydra, config_name: str | None, overrides: list[str], *args: Any, **named: Any
    ) -> DictConfig:
        # not the first attempt, which only looks for hydra.mode
        is_last = named.get("validate_sweep_overrides", True)
        try:
            config = compose_config(self, config_name, overrides, *args, **named)
        except (HydraException, yaml.YAMLError, ValueError) as error:
            # not of hydra.compose, which no shell called
            if is_last and named.get("from_shell", True):
                loader = self.config_loader
                answer(
                    error,
                    overrides,
                    lambda words: loader.load_configuration(config_name, [*words], RunMode.RUN),
                    loader,
                )
            raise
        adopt(config, is_last and named.get("run_mode") is RunMode.MULTIRUN)
        return config

    Hydra.compose_config = compose  # type: ignore[method-assign]
    _adopt_before_comparing(adopt)


def on_help(explain: Callable[[DictConfig, Sequence[str]], str]) -> None:
    """Let `explain` answer `--help` with topics, such as `--help all`, in every app.

    It gets the configuration composed with the other words, and the topics.
    """
    app_help = Hydra.app_help

    def answer(
        self: Any, config_name: str | None, args_parser: Any, args: Any, **named: Any
    ) -> None:
        topics = [word for word in args.overrides if re.fullmatch(r"\w[\w./@-]*", word)]
        if topics:
            args.overrides = [word for word in args.overrides if word not in topics]
            self.get_help = lambda settings, *_, **__: explain(settings._get_root(), topics)
        app_help(self, config_name, args_parser, args, **named)

    Hydra.app_help = answer  # type: ignore[method-assign]


def _adopt_before_comparing(adopt: Callable[[DictConfig, bool], None]) -> None:
    """Let Hydra 1.4 compare the launcher and the sweeper of a job with the driver's after `adopt`
    has changed both."""
    name = "_ensure_sweep_config_controller_unchanged"
    ensure_unchanged = getattr(ConfigLoaderImpl, name, None)
    if ensure_unchanged is None:
        return

    def ensure(master_config: DictConfig, sweep_config: DictConfig) -> None:
        adopt(sweep_config, False)
        ensure_unchanged(master_config, sweep_config)

    setattr(ConfigLoaderImpl, name, staticmethod(ensure))


class HydraStarted(BaseException):
    """A program would start its app."""


@contextmanager
def hydra_refused() -> Iterator[None]:
    """Raise HydraStarted wherever a program would start its app."""

    def refuse(*args: Any, **named: Any) -> NoReturn:
        raise HydraStarted

    module: Any = sys.modules["hydra.main"]  # not hydra.main, which is the function
    starts = [
        (module, "_run_hydra"),
        (Hydra, "run"),
        (Hydra, "multirun"),
        (Plugins, "instantiate_sweeper"),
    ]
    originals = [getattr(place, name) for place, name in starts]
    for place, name in starts:
        setattr(place, name, refuse)
    try:
        yield
    finally:
        for (place, name), original in zip(starts, originals, strict=True):
            setattr(place, name, original)


def let_hydra_raise() -> None:
    """Let Hydra raise its errors in this process, instead of printing them."""
    if not shows_traceback():
        os.environ[_FULL_ERROR] = "1"
        os.environ[_ANSWERS] = "1"


def refused_words(words: Sequence[str]) -> list[str]:
    """Return the words that Hydra refuses: unknown flags first, and then overrides on another side
    of the flags.

    Raises UserError for a flag with a wrong value.
    """
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        unknown = parser.parse_known_args([*words])[1]
        return sorted(unknown, key=lambda word: not word.startswith("-"))
    except argparse.ArgumentError as error:
        # -multirun, which begins with the flag -m, and the flag with a value
        flags = [
            word for word in words if re.fullmatch(r"-[a-z]{3,}(=.*)?|(-m|--multirun)=.*", word)
        ]
        if flags:
            return flags
        raise UserError(
            f"{error.argument_name}: {error.message}.\nAll flags are in --hydra-help"
        ) from error


def config_name(words: Sequence[str]) -> str:
    """Return the name of the primary file that was typed; empty if none was."""
    parsed, _ = get_args_parser().parse_known_args([*words])
    return parsed.config_name or ""


def own_app_answers() -> bool:
    """Return whether the app is ours, which prints each UserError itself."""
    return _ANSWERS in os.environ


def shows_traceback() -> bool:
    """Return whether the user wants the traceback of each error, by HYDRA_FULL_ERROR=1."""
    return os.environ.get(_FULL_ERROR) == "1" and _ANSWERS not in os.environ


def show_traceback(error: BaseException) -> None:
    """Print the traceback of an error that two lines explain, if the user wants it."""
    if shows_traceback():
        traceback.print_exception(error)


def call_target(settings: Any, **extra: Any) -> Any:
    """Call the `_target_` of the user's own settings, and return its result.

    Raises InstantiationException with Hydra 1.3, the error of the target with Hydra 1.4.
    """
    # Because with an exact whitelist Hydra 1.4 refuses a function that returns something callable,
    # such as a model.
    unchecked = {"_execution_whitelist_": _UNCHECKED} if _UNCHECKED is not None else {}
    return hydra.utils.instantiate(settings, **extra, **unchecked)


def drop_stored(provider: str) -> None:
    """Remove the configs that the plugin `provider` stored, because Hydra refuses a file that has
    the name of one."""

    def drop(group: dict[str, Any]) -> None:
        for name, content in [*group.items()]:
            if isinstance(content, dict):
                drop(content)
            elif content.provider == provider:
                del group[name]

    drop(ConfigStore.instance().repo)


def with_search_path(loader: ConfigLoader, master: DictConfig) -> ConfigLoader:
    """Return the loader with the groups of the app's own `hydra.searchpath`.

    Hydra adds this path to a copy of the repository for each composition, so that the app's loader
    lacks the groups.
    """
    assert isinstance(loader, ConfigLoaderImpl)  # because Hydra has no other
    typed: Any = OmegaConf.to_container(master.hydra.overrides.hydra, resolve=False)
    _, repository = loader._parse_overrides_and_create_caching_repo(
        master.hydra.job.config_name, typed
    )

    complete: Any = copy.copy(loader)
    complete.repository = repository.delegate
    with_groups: ConfigLoader = complete
    return with_groups


def group_exists(loader: ConfigLoader, group: str) -> bool:
    """Return whether a config group exists."""
    assert isinstance(loader, ConfigLoaderImpl)  # because Hydra has no other
    return bool(loader.repository.group_exists(group))


def overrides_of_groups(
    loader: ConfigLoader, words: Sequence[str]
) -> Iterator[tuple[Override, list[str]]]:
    """Yield the overrides among words that choose an option of a group, and the group's options."""
    for override in OverridesParser.create().parse_overrides([*words]):
        group = override.key_or_group
        is_choice = not override.is_sweep_override() and not isinstance(override.value(), dict)
        if is_choice and group_exists(loader, group):
            yield override, loader.get_group_options(group)


def load_trial(loader: ConfigLoader, master: DictConfig, choices: Sequence[str]) -> DictConfig:
    """Return the config of a trial with these choices of groups.

    Not `load_sweep_config`, because Hydra 1.4 refuses there a choice that changes the launcher's
    settings; the request of a trial comes from the trial's own config.
    """
    typed = typed_words(master.hydra, "hydra")
    config = loader.load_configuration(
        master.hydra.job.config_name, [*typed, *choices], RunMode.RUN
    )
    # a word that nobody typed
    if typed and typed[-1] == sweep_word("dir", str(master.hydra.sweep.dir)):
        config.hydra.overrides.hydra.pop(len(typed) - 1)
    return config


def load_driver(loader: ConfigLoader, master: DictConfig) -> DictConfig:
    """Return the config of the driver: without choices of a trial."""
    return loader.load_configuration(
        master.hydra.job.config_name, typed_words(master.hydra, "hydra"), RunMode.MULTIRUN
    )


@contextmanager
def watch_overrides() -> Iterator[list[str]]:
    """Yield a list that gets the `override` lines of all defaults lists that are composed, as
    group=choice.

    Hydra ignores such a line, and keeps nothing of it, if the group was typed.
    """
    lines: list[str] = []
    add_override = Overrides.add_override

    def add(self: Overrides, parent_config_path: str, default: GroupDefault) -> None:
        lines.append(f"{default.get_override_key()}={default.value}")
        add_override(self, parent_config_path, default)

    Overrides.add_override = add  # type: ignore[method-assign]
    try:
        yield lines
    finally:
        Overrides.add_override = add_override  # type: ignore[method-assign]


def typed_words(hydra: DictConfig, kind: str) -> list[str]:
    """Return the overrides of the kind `hydra` or `task` as typed, from Hydra's settings.

    They are not resolved, because a word may interpolate a value that only a trial has, or one with
    a secret.
    """
    words: Any = OmegaConf.to_container(hydra.overrides[kind], resolve=False)
    return [str(word) for word in words]


def pin_folder(config: DictConfig, folder: str) -> None:
    """Set hydra.sweep.dir, also in the overrides, because a foreign launcher composes each trial
    from them."""
    _pin(config, "dir", folder)


def _pin(config: DictConfig, name: str, value: str) -> None:
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.sweep[name] = value
        config.hydra.overrides.hydra.append(sweep_word(name, value))


def sweep_word(name: str, value: str) -> str:
    """Return the override that sets hydra.sweep.dir, or another name of that section."""
    return f"hydra.sweep.{name}={QuotedString(value, Quote.single).with_quotes()}"


def deletion_word(key: str) -> str:
    """Return the override that deletes a key, such as ~lr, whatever its value is.

    Before Hydra 1.4 as its sweeper writes it; from then on, ~lr=null deletes null alone.
    """
    return f"{key}=null" if VERSION_BASE else key


def set_values(config: DictConfig, values: Sequence[Override]) -> None:
    """Set values in a composed config. Raises HydraException or an exception of OmegaConf."""
    ConfigLoaderImpl._apply_overrides_to_config(list(values), config)


def set_typed(
    config: DictConfig, typed: Sequence[str], parsed: Sequence[Override], number: int
) -> None:
    """Set what Hydra's job node says about a trial: its overrides, and names made of them."""
    job = config.hydra.job
    task = []
    task_words = []
    hydra_words = []
    for word, override in zip(typed, parsed, strict=True):
        if override.is_hydra_override():
            hydra_words.append(word)
        else:
            task.append(override)
            task_words.append(word)
    with open_dict(config):
        config.hydra.overrides.task = task_words
        config.hydra.overrides.hydra.extend(hydra_words)
        job.num = number
        job.id = str(number)  # as in Hydra's own launcher
        if _overrides_dirname:
            job.override_dirname = _overrides_dirname(task, **job.config.override_dirname)


def set_output_dir(config: DictConfig) -> None:
    """Set the trial's output folder, by its HydraConfig, as Hydra does before it runs the trial."""
    folder = Path(str(config.hydra.sweep.dir), str(config.hydra.sweep.subdir))
    with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
        # because resolve() follows links
        config.hydra.runtime.output_dir = os.path.abspath(folder)  # noqa: PTH100


def pin_subdir(config: DictConfig, subdir: str) -> None:
    """Set hydra.sweep.subdir of a trial, also in its overrides, for a foreign launcher."""
    _pin(config, "subdir", subdir)
    set_output_dir(config)


@contextmanager
def hydra_config(hydra: DictConfig | None) -> Iterator[None]:
    """Set HydraConfig to the trial's own settings, for `${hydra:...}` and for checks of the app
    that read them."""
    current: Any = HydraConfig.instance()
    before = current.cfg
    if hydra is not None:
        current.cfg = SimpleNamespace(hydra=hydra)  # not set_config(), because that copies
    try:
        yield
    finally:
        current.cfg = before
