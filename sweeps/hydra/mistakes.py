"""Errors of Hydra and OmegaConf about a command line, in two lines at most: the problem, and what
to type."""

import difflib
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import InstantiationException, MissingConfigException, OverrideParseException
from omegaconf import (
    BooleanNode,
    DictConfig,
    EnumNode,
    FloatNode,
    IntegerNode,
    ListConfig,
    OmegaConf,
)
from omegaconf.errors import OmegaConfBaseException

from sweeps.hydra.followed import source
from sweeps.hydra.near import advise_key, closest, keys, near_key
from sweeps.hydra.settings import SlurmLauncherConf, near_setting, suggest_setting
from sweeps.hydra.shell_words import sweep_flag
from sweeps.hydra.sweeper_settings import CHOSEN
from sweeps.hydra.units import UNITS, advise_number, in_unit_of, range_of, unit_of
from sweeps.hydra.unreadable import advise_list, explain_unreadable, first_line, typed_sweep
from sweeps.hydra.wrong_choices import explain_missing

CONDITIONS = "hydra.sweeper.conditional_params"
_OF_ANOTHER_LAUNCHER = re.compile(
    r"In '([^']+)': \w+ raised while composing.*\nKey '(\w+)' not in '\w*LauncherConf'"
)
# lines that OmegaConf adds below its message
_NOTES = ("full_key: ", "object_type=", "reference_type=")
_MERGING = "Error merging override "
_MOST_LETTERS = 600
_NAMES_OF_CHOICES = ("choice", "class", "kind", "name", "type")
"""What other tools call the key of a group's choice."""
_SECTIONS = ("hydra.launcher", "hydra.sweeper", "launcher", "sweeper")
_CHOSEN = {f"hydra.sweeper.{part}" for part in CHOSEN}
KINDS: dict[Any, tuple[str, str]] = {
    FloatNode: ("a number", "0.1"),
    IntegerNode: ("a whole number", "1"),
}
"""OmegaConf's nodes of numbers, each with its name and an example."""
_IN_UNITS = {"gb": "8", "min": "60", "hours": "8", "s": "60"}
"""Examples for keys with a unit."""
_NO_LIST = re.compile(r"([\w.]+)=([\w,. ]+): must be a list of .*")
_OUT_OF_RANGE = re.compile(r"([\w.]+)=(.+): must be a (whole number|number)\b.*")


def explain(error: Exception, config: DictConfig, typed: Sequence[str] = ()) -> str:
    """Return the problem, with the nearest key or choice; or the first lines of the error's own
    message.

    If choices of a group are among the words that were `typed`, only some of them may have a key
    that others lack.
    """
    if isinstance(error, OverrideParseException):
        section = _advise_section(str(error.override), "...", config)
        unread = f"'{error.override}' cannot be read.{section}" if section else ""
        return unread or explain_unreadable(error, config)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return explain_missing(error, error.missing_cfg_file, _choices(config))

    cause = error.__cause__
    lines = [line.strip() for line in f"{error}\n{cause or ''}".splitlines()]
    if isinstance(cause, OmegaConfBaseException) and lines[0].startswith(_MERGING):
        return _explain_value(lines[0].removeprefix(_MERGING), cause, config)
    explanations = (
        _explain_import(error, lines),
        _explain_override(lines, config, typed),
        _explain_launcher(lines),
        _explain_choice(lines[0]),
    )
    return next(filter(None, explanations), "") or _shorten(error, lines, config)


def _explain_import(error: Exception, lines: Sequence[str]) -> str:
    """Return which `_target_` cannot be imported, and why; empty if the error is another."""
    cause = error.__cause__
    if not (isinstance(error, InstantiationException) and isinstance(cause, ImportError)):
        return ""
    origin = cause.__cause__ or cause  # below Hydra's own words
    reason = first_line(origin).rstrip(".:") or type(origin).__name__
    target = ".".join([*_full_keys(lines)[:1], "_target_"])
    return f"{target} cannot be imported: {reason}.\nCorrect {target}, or remove it"


def _full_keys(lines: Sequence[str]) -> list[str]:
    return [line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")]


def _explain_override(lines: list[str], config: DictConfig, typed: Sequence[str]) -> str:
    """Return why a typed word does not fit the configuration; empty if the error is another."""
    problem = lines[0]
    name = problem.split("'")[1] if "'" in problem else ""
    if problem.startswith("Could not override '"):
        # of a group, the line is below another one
        to_add = next((line for line in lines if " use " in line), lines[1]).split(" use ")[-1]
        to_add = f"+{to_add}" if _sweeps_choices(typed, config) else to_add
        return _explain_key(name, to_add, config)
    if problem.startswith("Could not delete "):
        return _explain_deletion(name, config)
    if problem.startswith("Could not append to config. An item is already at '"):
        # perhaps only with some choices of a swept group
        to_set = lines[2].split(": ", 1)[1].strip("'")
        return (
            f"'{name}' is in the configuration already, and one plus only adds new keys.\nType:"
            f" {shlex.quote(to_set)}"
        )
    if problem.startswith("Sweeping over Hydra's configuration"):
        word = problem.split("'", 2)[2].strip(" :'")
        advice = "Type one value"
        if word.startswith("hydra.launcher."):
            advice = (
                "For several kinds of jobs, write one file for each kind and sweep the files:"
                " cluster=plain,power9"
            )
        return f"{word}: all trials share a setting of Hydra.\n{advice}"
    return ""


def explain_lacking(
    group: str,
    having: Sequence[str],
    lacking: Sequence[str],
    key: str,
    typed: str,
    together: bool = False,
) -> str:
    """Return that only some choices of a swept group have a key, and how to sweep the key under
    these choices.

    With `together` the key was typed in zip(...) or in hydra.sweeper.also.
    """
    problem = f"{group}={','.join(lacking)} has no '{key}'."
    chosen = f"{group}={','.join(having)}"
    if together:
        grid = shlex.quote(f'hydra.sweeper.also=["{chosen} {key}={typed}"]')
        return f"{problem} Type {key} in a grid with {chosen} alone, as in:\n{grid}"
    condition = re.sub("([=,])", r"\\\1", chosen)
    declared = f'+{CONDITIONS}={{{condition}: {{{key}: "{typed}"}}}}'
    return f"{problem} In place of {key}={typed} type:\n{shlex.quote(declared)}"


def _explain_value(word: str, cause: OmegaConfBaseException, config: DictConfig) -> str:
    """Return that a value has another type than its key, and a value to type."""
    key, _, value = word.partition("=")
    section = key.rpartition(".")[0]
    of_section = OmegaConf.select(config, section, throw_on_resolution_failure=False)
    if isinstance(of_section, bool | int | float | str):
        return (
            f"'{key}' is not in the configuration: {section} is a value.\nType:"
            f" {shlex.quote(f'{section}={value}')}"
        )
    if type(cause.child_node) in KINDS and isinstance(cause.value, str | float):
        is_whole = isinstance(cause.child_node, IntegerNode)
        if advice := advise_number(key, str(cause.value), is_whole):
            return f"{word}: {must_be(cause, key)}.\n{advice}"
    advice = advise_list(word) or _advise_type(key, value, cause, config)
    return f"{word}: {first_line(cause)}{advice}"


def must_be(error: OmegaConfBaseException, key: str) -> str:
    """Return the kind of number that a key needs, with its unit."""
    unit = unit_of(key)
    kind, _ = KINDS[type(error.child_node)]
    return f"it must be {kind}" + (f" of {UNITS[unit]}" if unit else "")


def _explain_key(key: str, to_add: str, config: DictConfig) -> str:
    """Return that a key is not in the configuration, or is there in another way, and what to
    type."""
    value = to_add.partition("=")[2]
    if key not in keys(config):
        choices = _choices(config).items()
        chosen = [
            f" with {group}={choice}" for group, choice in choices if key.startswith(f"{group}.")
        ]
        return (
            f"'{key}' is not in the"
            f" configuration{''.join(chosen)}.{_advise_missing(key, value, to_add, config)}"
        )
    if value.startswith("{"):
        return (
            f"'{key}' is in the configuration, without these parts\nTo add them:"
            f" {shlex.quote(to_add)}"
        )
    return (
        f"'{key}' is not in the configuration. Another typed value replaces its section\nRemove one"
        " of the two"
    )


def _advise_missing(key: str, value: str, to_add: str, config: DictConfig) -> str:
    """Return what to type in place of a key that is not in the configuration."""
    if key in ("sweeper", "launcher"):
        return f"\nType: {sweep_flag(sys.argv)}hydra/{key}={shlex.quote(value)}"
    if advice := _advise_section(key, value, config):
        return advice
    section, _, last = key.rpartition(".")
    group = closest(section, _choices(config))
    if group and last in _NAMES_OF_CHOICES:
        return f" Choices of {group} have no key.\nType: {group}={shlex.quote(value)}"
    if near := near_key(key, config):
        if near in _CHOSEN:
            near = near.replace(".", "/")
        word = f"{near}={in_unit_of(near, value)}"
        return f" Did you mean '{near}'?\nType: {shlex.quote(word)}"
    if setting := _near_own(section, last):
        return f" Did you mean '{setting}'?{_advise_section(setting, value, config)}"
    return advise_key(key, config) + _advise_new_key(key, to_add, config)


def _advise_new_key(key: str, to_add: str, config: DictConfig) -> str:
    """Return how to add a key; empty if nothing may read it."""
    if "." not in key and hasattr(OmegaConf.get_type(config), "unread"):
        return "\nAll keys, with what they mean: --help all"
    # no section of ours has a new key
    is_closed = key.startswith(("hydra.launcher.", "hydra.sweeper.")) and "param" not in key
    return "" if is_closed else f"\nTo add a new key: {shlex.quote(to_add)}"


def _near_own(section: str, name: str) -> str:
    """Return the setting of the sweeper or of a launcher that was likely meant; empty if the
    section is another."""
    is_ours = not section or difflib.get_close_matches(section, _SECTIONS, cutoff=0.8)
    return near_setting(name) if is_ours else ""


def _explain_deletion(typed: str, config: DictConfig) -> str:
    """Return that a key to delete is missing, or has another value."""
    key = typed.partition("=")[0]
    current = _choices(config).get(key)
    if key in keys(config) and current is None:
        current = OmegaConf.select(config, key, throw_on_resolution_failure=False)
        if current is None:
            return f"~{key}: its value is null, so that there is nothing to delete.\nRemove ~{key}"
    if current is not None:
        return f"~{typed}: its value is {current}.\nType: ~{key}"
    if near := near_key(key, config):
        return f"'{key}' is not in the configuration. Did you mean '{near}'?\nType: ~{near}"
    return f"'{key}' is not in the configuration.\nRemove ~{typed}"


def _sweeps_choices(typed: Sequence[str], config: DictConfig) -> bool:
    """Return whether choices of a group are swept, so that two plus signs set a key with each of
    them."""
    for override in OverridesParser.create().parse_overrides([*typed]):
        group = override.key_or_group
        is_group = group in _choices(config) or group not in keys(config)
        if override.is_sweep_override() and is_group:
            return True
    return False


def _explain_launcher(lines: list[str]) -> str:
    """Return that a file has a setting of the SLURM launcher, and another launcher is chosen; empty
    if none has."""
    match = _OF_ANOTHER_LAUNCHER.search("\n".join(lines))
    if match is None or match[2] not in SlurmLauncherConf.__dataclass_fields__:
        return ""
    group, _, name = match[1].rpartition("/")
    choice = f"{group}={name}" if group else f"{name}.yaml"
    return (
        f"{choice}: hydra.launcher.{match[2]} is a setting of hydra/launcher=slurm, and another one"
        " is chosen"
        ".\nType hydra/launcher=slurm too, or remove"
        f" {choice if group else f'it from {choice}'}"
    )


def _explain_choice(problem: str) -> str:
    """Return that a group has several choices where it has one, or that a key is no group; empty if
    the error is another."""
    if problem.startswith("Override ") and "@" in problem:
        word = problem.removeprefix("Override ").partition(" looks like ")[0]
        key = word.partition("@")[0]
        return f"{word}: {key} is no group.\nType: {key}={word.partition('=')[2]}"
    if problem.startswith("Multiple values for "):
        chosen = problem.rpartition("override ")[2].strip("'").replace(": ", "=")
        group = chosen.partition("=")[0]
        return f"{group} is part of the configuration: leave out the plus.\nType: {chosen}"
    if problem.startswith("Ambiguous value for argument"):
        key = problem.split("'")[1]
        return (
            f"{key}: several values make a sweep; add -m to run it.\nFor one value that is a list:"
            f" {key.replace('=', '=[', 1)}]"
        )
    if problem.startswith("Sweep parameters '"):
        word = problem.removeprefix("Sweep parameters '").rpartition("'")[0]
        return f"{word}: several values make a sweep.\nType: -m {shlex.quote(word)}"
    return ""


def _shorten(error: Exception, lines: list[str], config: DictConfig) -> str:
    """Return the key that an error is about, and the first two lines of its message."""
    names = [*_full_keys(lines), getattr(error, "full_key", None)]
    key = next(filter(None, names), "")
    message = [line for line in lines if line and not line.startswith(_NOTES)]
    problem = message[0] if message else type(error).__name__
    text = "\n".join(message)
    more = message[1:]
    if problem.startswith("Interpolation key '"):
        problem += "." + advise_key(problem.split("'")[1], config)
    if match := _OUT_OF_RANGE.fullmatch(text):
        key = ""  # because the problem begins with it
        more = _advise_range(match[1], match[2], match[3], config) or more
    elif match := _NO_LIST.fullmatch(text):
        more = [f"Type: {shlex.quote(f'{match[1]}=[{match[2]}]')}"]
    elif deletion := _typed_deletion(problem):
        problem = problem.rstrip(".") + "."
        more = [f"Remove {deletion}"]
    return (f"{key}: " if key else "") + "\n".join([problem, *more][:2])[:_MOST_LETTERS]


def _advise_range(key: str, value: str, kind: str, config: DictConfig) -> list[str]:
    advice = advise_number(key, value, kind == "whole number") or advise_sweep(key, value, config)
    return [advice] if advice else []


def _typed_deletion(problem: str) -> str:
    """Return the typed word that deletes a key which a problem names; empty if there is none."""
    names = re.findall(r"[\w/]+", problem)
    deletions = [word for word in sys.argv[1:] if word[:1] == "~" and word[1:] in names]
    return next(iter(deletions), "")


def _advise_type(key: str, value: str, error: OmegaConfBaseException, config: DictConfig) -> str:
    """Return what a key of a list or a number takes; empty for other types."""
    if isinstance(error.child_node, ListConfig) and error.value is not None:
        return f"\nType a list: {shlex.quote(f'{key}=[{value}]')}"
    if isinstance(error.child_node, BooleanNode):
        return f".\nType {key}=true or {key}=false"
    if isinstance(error.child_node, EnumNode):
        return _advise_member(key, str(error.value), error.child_node)
    if sweep := advise_sweep(key, value, config):
        return f".\n{sweep}"
    if kinds := _kind_of_gpus(key, value, config):
        return f".\nType: {kinds}"
    return _advise_kind(key, value, error, config)


def _advise_member(key: str, typed: str, node: EnumNode) -> str:
    """Return the name of an enum's member that was likely meant, or all names."""
    names = [*node.enum_type.__members__]
    lowered = {name.lower(): name for name in names}
    if near := closest(typed.lower(), lowered):
        return f".\nType: {key}={lowered[near]}"
    return f".\nChoose one of: {', '.join(names)}"


def advise_sweep(key: str, value: str, config: DictConfig) -> str:
    """Return how to sweep a list, a range or a row of numbers that was typed as one value; empty
    for other values."""
    values = "" if key.startswith("hydra.") else _values_to_sweep(value)
    return f"To sweep these values, type: {typed_sweep(key, values, config)}" if values else ""


def _advise_kind(key: str, value: str, error: OmegaConfBaseException, config: DictConfig) -> str:
    """Return a value of the kind that the key has, as an example; empty if the kind is unknown."""
    current = OmegaConf.select(config, key.lstrip("+"), throw_on_resolution_failure=False)
    if isinstance(current, DictConfig) and len(current):
        first = str(next(iter(current)))
        return f".\nType one of its keys, as in {key}.{first}={shlex.quote(value)}"
    if error.value is None:  # which is not Optional
        return "" if current is None else f".\nType a value, as in {key}={current}"
    kind, example = KINDS.get(type(error.child_node), ("", ""))
    example = _IN_UNITS.get(unit_of(key), example)
    if isinstance(current, int | float):
        example = str(current)
    return f".\nType {kind}, as in {key}={example}" if kind else ""


def _values_to_sweep(value: str) -> str:
    """Return the values of a list, a range or a row of numbers as a sweep of them; empty for other
    values."""
    if function := range_of(value):
        return function
    if value.startswith("["):
        return value.strip("[] ")
    values = [part for part in re.split(r"[\s|;\\]+", value) if part]
    are_numbers = all(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", part) for part in values)
    return ",".join(values) if len(values) > 1 and are_numbers else ""


def _kind_of_gpus(key: str, value: str, config: DictConfig) -> str:
    """Return what to type for a number of GPUs of one kind, such as `a100:2`; empty for others."""
    match = re.fullmatch(r"([a-z]\w*):(\d+)", value)
    if match is None or key.rpartition(".")[2] not in ("gpus", "gpus_per_node"):
        return ""
    names = keys(config)
    key = source(config, key) if key in names else key
    launcher = "" if "hydra.launcher.gres" in names else " hydra/launcher=slurm"
    return f"{key}={match[2]}{launcher} hydra.launcher.gres=gpu:{match[1]}"


def _advise_section(word: str, value: str, config: DictConfig) -> str:
    """Return where to type a setting of the sweeper or of a launcher; empty if it is none, or in
    its place."""
    if not (suggestion := suggest_setting(word)):
        return ""
    key = suggestion.removesuffix("=...")
    if key in keys(config) and (followed := source(config, key)) != key:
        typed = _kind_of_gpus(followed, value, config) or f"{followed}={shlex.quote(value)}"
        return f" Did you mean '{followed}'?\nType: {typed}"
    owner = suggestion.split()[0] if " " in suggestion else "the launcher"
    if re.match(r"hydra[./]sweeper\W", suggestion):
        owner = "the sweeper"
    # not of another tool
    name = re.split("[./]", key)[-1]
    return (
        f" It is a setting of {owner}.\nType: {sweep_flag(sys.argv)}"
        f"{key}={shlex.quote(in_unit_of(name, value))}"
    )


def _choices(config: DictConfig) -> dict[str, Any]:
    """Return the chosen option of each group of a configuration."""
    choices: dict[str, Any] = OmegaConf.select(config, "hydra.runtime.choices", default={})
    return choices
