"""Composes and checks the configuration of every trial, before the first one starts."""

import difflib
import pickle
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from sweeps.errors import Infeasible, UserError
from sweeps.settings import MEANT, home
from sweeps.study.search_space import Choice, Interval, SearchSpace, text_of

_GRAMMAR = "Write key=value, or with -m key=a,b or 'key=interval(0.1, 1)'. All keys are in --help"
_NO_SUCH_CHOICE = re.compile(r"Could not find '(.*)'\s+Available options in '(.*)':\n([^:]*)\nConfig search path")


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

    def in_space(self, error: UserError, space: SearchSpace) -> UserError:
        """What is wrong with a point of this space, as what to change about the space."""
        said, fixed = str(error), dict(line.split("=", 1) for line in space.fixed)
        typed = {**fixed, **{one.key: one.typed for one in space.parameters}}
        for one in space.parameters:
            if isinstance(one, Interval) and said.startswith(f"{one.key}=") and "to Integer" in said:
                whole = replace(one, low=int(one.low), high=int(one.high)).typed
                what = f"{one.key}={one.typed} has fractions, and {one.key} is a whole number"
                return UserError(f"{what}\nType: {shlex.quote(f'{one.key}={whole}')}")
        lacks = re.match("'(.+?)' is not in the configuration", said)
        key = lacks[1] if lacks else ""
        values = {**fixed, **{one.key: text_of(one.values[0]) for one in space.parameters}}
        for group in space.parameters:
            if isinstance(group, Choice) and key in typed and key.startswith(f"{group.key}."):
                having = [one for one in group.texts if self._composes(f"{group.key}={one}", f"{key}={values[key]}")]
                lacking = ",".join(one for one in group.texts if one not in having)
                if having and lacking:
                    under = f"{group.key}={','.join(having)}".replace("=", r"\=").replace(",", r"\,")
                    declared = f'+hydra.sweeper.conditional_params={{{under}: {{{key}: "{typed[key]}"}}}}'
                    what = f"{group.key}={lacking} has no '{key}'"
                    return UserError(f"{what}. In place of {key}={typed[key]} type:\n{shlex.quote(declared)}")
        return error

    def _composes(self, *overrides: str) -> bool:
        try:
            self.compose(overrides, 0)
        except UserError:
            return False
        return True

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
            _check_ranks(whole, hydra.launcher)
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


def _check_ranks(config: Any, launcher: DictConfig) -> None:
    """Raise UserError if a trial was given other processes than its trainer says that it wants."""
    for name, setting in (("nodes", "nodes"), ("ranks", "tasks_per_node")):
        wanted, given = _wanted(config, name), launcher.get(setting)
        if wanted not in (None, 1) and given is None:
            raise UserError(
                f"{name}={wanted} needs a launcher that starts several processes: hydra/launcher=local, or slurm"
            )
        if wanted is not None and given not in (None, wanted):
            said = f"hydra.launcher.{setting}={given}, but the trial trains with {name}={wanted}"
            raise UserError(f"{said}\nSay {name}={given}, and leave hydra.launcher.{setting} out")


def processes(config: DictConfig) -> int:
    """In how many processes its trainer trains."""
    return (_wanted(config, "nodes") or 1) * (_wanted(config, "ranks") or 1)


def _wanted(config: Any, name: str) -> int | None:
    for key in ("trainer", name):  # a config, a dict or a dataclass
        config = config.get(key) if hasattr(config, "get") else getattr(config, key, None)
    return config  # type: ignore[no-any-return]


def explain(error: Exception, config: DictConfig) -> str:
    """What Hydra or OmegaConf found wrong, in at most two lines, with the nearest key or choice that exists."""
    if isinstance(error, OverrideParseException):
        return _unread(error, config)
    lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines()]
    if lines[0].startswith("Could not override '"):
        key = lines[0].split("'")[1]
        closed = key.startswith(("hydra.launcher.", "hydra.sweeper.")) and "param" not in key
        added = lines[1].split(" use ")[-1]
        if key in _keys(OmegaConf.to_container(config)):
            lost = "is not in the configuration. Another value that is typed takes its place\nLeave one of the two out"
            parts = f"is in the configuration, without these parts\nTo add them: {shlex.quote(added)}"
            return f"'{key}' {parts if added.partition('=')[2].startswith('{') else lost}"
        to_add = "" if closed else f"\nTo add a new key: {added}"
        return f"'{key}' is not in the configuration.{_at_home(key, config) or _nearest(key, config) + to_add}"
    if lines[0].startswith("Error merging override"):
        typed = lines[0].removeprefix("Error merging override ")
        return f"{typed}: {_no_list(typed, lines[1]) or _whole(lines[1])}"
    if wrong := _wrong_choice(lines):
        return wrong
    notes = ("full_key: ", "object_type=", "reference_type=")  # OmegaConf's, below its message
    where = [f"{line.removeprefix('full_key: ')}: " for line in lines if line.startswith("full_key: ")]
    where = where or [f"{key}: " for key in [getattr(error, "full_key", None)] if key]
    said = [line for line in lines if line and not line.startswith(notes)]
    said[0] = re.sub(r'^KeyError raised while resolving interpolation: "(.*)"$', r"\1", said[0])
    if said[0].startswith("Interpolation key '"):
        said[0] += "." + _nearest(said[0].split("'")[1], config)
    said[0] = _whole(said[0])
    if any("not in 'LocalLauncherConf'" in line for line in said):
        said[-1] += ", but perhaps in that of hydra/launcher=slurm: choose that launcher, or leave it out"
    return ("".join(where[:1]) + "\n".join(said))[:600]


def _unread(error: OverrideParseException, config: DictConfig) -> str:
    """Of what is not of Hydra's grammar."""
    key, _, value = error.override.partition("=")
    if '"' not in value and (letter := next((one for one in value if not one.isascii()), "")):
        typed = shlex.quote(f'{key}="{value}"')
        return f"'{error.override}' cannot be read: a value with {letter} needs quotes\nType: {typed}"
    why = f": {error.message.splitlines()[0]}" if "while evaluating" in error.message else ""
    return f"'{error.override}' cannot be read{why}{_at_home(error.override, config) or chr(10) + _GRAMMAR}"


def _no_list(typed: str, said: str) -> str:
    """What to type where one value stands in place of a list, or a list in place of named values."""
    key, _, value = typed.partition("=")
    if value.startswith("[") and said.endswith("Cannot merge DictConfig with ListConfig"):
        return f"it must have names, as in '{key}={{name: value}}'"
    alone = said.endswith(("is not a ListConfig, list or tuple.", "Cannot merge DictConfig with ListConfig"))
    return f"it must be a list, as in '{typed.replace('=', '=[', 1)}]'" if alone else ""


def _whole(said: str) -> str:
    """What OmegaConf says of a number with a point or an exponent where a whole one belongs, and what to type."""
    found = re.search(r"'(\S+)' of type 'float' could not be converted to Integer$", said)
    value = float(found[1]) if found else 0.5
    return f"{said}. Type {value:.0f}" if value.is_integer() and abs(value) < 1e15 else said


def _at_home(word: str, config: DictConfig) -> str:
    """Where a setting of the sweeper or of a launcher belongs, if it was typed elsewhere."""
    if not (typed := home(word)):
        return ""
    key = typed.removesuffix("=...")
    if key.startswith("hydra.sweeper.") and (own := _followed(key, config)) != key:
        return f" Did you mean '{own}'?"
    owner = "the sweeper" if ".sweeper." in typed else typed.split()[0] if " " in typed else "the launcher"
    return f" It is a setting of {owner}.\nType: -m {typed}"


def _wrong_choice(lines: list[str]) -> str | None:
    if found := _NO_SUCH_CHOICE.search("\n".join(lines)):
        group, known = found[2], [name for name in found[3].split() if not name.startswith("sweepyard_")]
        name = found[1].removeprefix(f"{group}/")
        near = difflib.get_close_matches(name.lower(), known, 1)
        hint = f" Did you mean {group}={near[0]}?" if near else ""
        return f"{group}={name} does not exist.{hint}\nChoose one of: {', '.join(known)}"
    if lines[0].startswith("Multiple values for "):
        chosen = lines[0].rpartition("override ")[2].strip("'").replace(": ", "=")
        return f"{chosen.partition('=')[0]} is part of the configuration: leave out the plus.\nType: {chosen}"
    if lines[0].startswith("Ambiguous value for argument"):
        key = lines[0].split("'")[1]
        as_list = key.replace("=", "=[", 1) + "]"
        return f"{key}: several values make a sweep; add -m to run it.\nFor one value that is a list: {as_list}"
    return None


def _nearest(key: str, config: DictConfig) -> str:
    known = [k for k in _keys(OmegaConf.to_container(config)) if k.startswith("hydra.") == key.startswith("hydra.")]
    parent = key.rpartition(".")[0]
    beside = [k for k in known if k.rpartition(".")[0] == parent] if parent else []
    # Beside what exists the last part alone is wrong: what all have in common makes none of them near.
    names = {k.rpartition(".")[2]: k for k in beside} or {k: k for k in known}
    wrong = key.rpartition(".")[2] if beside else key
    same = [k for k in known if k.lower() == wrong.lower()]  # at the top, or in other letters
    near = [MEANT[wrong]] if MEANT.get(wrong) in names else difflib.get_close_matches(wrong, names, 1)
    if same or near:
        return f" Did you mean '{same[0] if same else _followed(names[near[0]], config)}'?"
    return f" Known here: {', '.join(beside)}." if beside else ""


def _followed(key: str, config: DictConfig) -> str:
    """The key, or the one that it takes its value from."""
    section, _, name = key.rpartition(".")
    parent = OmegaConf.select(config, section) if section else config
    node = parent._get_node(name) if isinstance(parent, DictConfig) else None
    follows = re.fullmatch(r"\$\{(?:oc\.select:)?([\w.]+)(?:,.*)?\}", str(node._value())) if node is not None else None
    return follows[1] if follows and OmegaConf.select(config, follows[1], default=...) is not ... else key


def _keys(node: Any, prefix: str = "") -> list[str]:
    found = []
    for key, value in node.items() if isinstance(node, dict) else ():
        if not str(key).startswith("_"):
            found += [f"{prefix}{key}", *_keys(value, f"{prefix}{key}.")]
    return found
