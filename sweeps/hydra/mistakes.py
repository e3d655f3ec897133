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
from omegaconf import DictConfig, OmegaConf

from sweeps.hydra.followed import source
from sweeps.hydra.near import advise_key, closest, keys, near_key
from sweeps.hydra.settings import SlurmLauncherConf, near_setting, suggest_setting
from sweeps.hydra.shell_words import sweep_flag
from sweeps.hydra.sweeper_settings import CHOSEN
from sweeps.hydra.units import UNITS, advise_number, in_unit_of, unit_of
from sweeps.hydra.unreadable import advise_list, explain_unreadable, first_line
from sweeps.hydra.wrong_choices import explain_missing

CONDITIONS = "hydra.sweeper.conditional_params"
_OF_ANOTHER_LAUNCHER = re.compile(
    r"In '([^']+)': \w+ raised while composing.*\nKey '(\w+)' not in '\w*LauncherConf'"
)
# lines that OmegaConf adds below its message
_NOTES = ("full_key: ", "object_type=", "reference_type=")
_MOST_LETTERS = 600
_NAMES_OF_CHOICES = ("choice", "class", "kind", "name", "type")
"""What other tools call the key of a group's choice."""
_SECTIONS = ("hydra.launcher", "hydra.sweeper", "launcher", "sweeper")
_CHOSEN = {f"hydra.sweeper.{part}" for part in CHOSEN}
_TYPES = {"Float": ("a number", "0.1"), "Integer": ("a whole number", "1")}  # OmegaConf's names
_IN_UNITS = {"gb": "8", "min": "60", "hours": "8", "s": "60"}
"""Examples for keys with a unit."""
_NO_NUMBER = re.compile(
    r"Value '(.*)' of type '(?:str|float)' could not be converted to (Float|Integer)"
)
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

    lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines()]
    if isinstance(error, InstantiationException) and isinstance(error.__cause__, ImportError):
        return _explain_target(error.__cause__, lines)
    return (
        _explain_override(lines, config, typed)
        or _explain_launcher(lines)
        or _explain_choice(lines)
        or _shorten(error, lines, config)
    )


def _explain_override(lines: list[str], config: DictConfig, typed: Sequence[str]) -> str:
    """Return why a typed word does not fit the configuration; empty if the error is another."""
    problem = lines[0]
    if problem.startswith("Could not override '"):
        to_add = lines[1].split(" use ")[-1]
        to_add = f"+{to_add}" if _sweeps_choices(typed, config) else to_add
        return _explain_key(problem.split("'")[1], to_add, config)
    if problem.startswith("Could not delete "):
        return _explain_deletion(problem.split("'")[1], config)
    if problem.startswith("Could not append to config. An item is already at '"):
        return _explain_double(problem.split("'")[1], lines[2].split(": ", 1)[1].strip("'"))
    if problem.startswith("Error merging override"):
        word = problem.removeprefix("Error merging override ")
        return _explain_value(word, lines[1], config)
    if problem.startswith("Sweeping over Hydra's configuration"):
        return _explain_hydra_sweep(problem.split("'", 2)[2].strip(" :'"))
    return ""


def _explain_target(error: ImportError, lines: list[str]) -> str:
    """Return that a `_target_` cannot be imported."""
    cause = error.__cause__ or error  # below Hydra's own words
    reason = first_line(cause).rstrip(".:") or type(cause).__name__
    full_keys = [line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")]
    target = ".".join([*full_keys[:1], "_target_"])
    return f"{target} cannot be imported: {reason}.\nCorrect {target}, or remove it"


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
    if together:
        grid = shlex.quote(f'hydra.sweeper.also=["{group}={",".join(having)} {key}={typed}"]')
        return (
            f"{problem} Type {key} in a grid with {group}={','.join(having)} alone, as in:\n{grid}"
        )
    condition = f"{group}={','.join(having)}".replace("=", r"\=").replace(",", r"\,")
    declared = f'+{CONDITIONS}={{{condition}: {{{key}: "{typed}"}}}}'
    return f"{problem} In place of {key}={typed} type:\n{shlex.quote(declared)}"


def _explain_value(word: str, problem: str, config: DictConfig) -> str:
    """Return that a value has another type than its key, and a value to type."""
    key, _, value = word.partition("=")
    section = key.rpartition(".")[0]
    of_section = OmegaConf.select(config, section, throw_on_resolution_failure=False)
    if isinstance(of_section, bool | int | float | str):
        return (
            f"'{key}' is not in the configuration: {section} is a value.\nType:"
            f" {shlex.quote(f'{section}={value}')}"
        )
    match = _NO_NUMBER.fullmatch(problem)
    if match and (advice := advise_number(key, match[1], match[2] == "Integer")):
        unit = unit_of(key)
        kind = _TYPES[match[2]][0] + (f" of {UNITS[unit]}" if unit else "")
        return f"{word}: it must be {kind}.\n{advice}"
    return f"{word}: {problem}{advise_list(word) or _advise_type(word, problem, config)}"


def _explain_key(key: str, to_add: str, config: DictConfig) -> str:
    """Return that a key is not in the configuration, or is there in another way, and what to
    type."""
    value = to_add.partition("=")[2]
    if key not in keys(config):
        chosen = [
            f" with {group}={choice}"
            for group, choice in _choices(config).items()
            if key.startswith(f"{group}.")
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
    return _advise_near_setting(key, value, config) or _advise_new(key, to_add, config)


def _advise_near_setting(key: str, value: str, config: DictConfig) -> str:
    """Return the setting of another section or launcher that was likely meant; empty if none is
    near."""
    section, _, last = key.rpartition(".")
    if section and not difflib.get_close_matches(section, _SECTIONS, cutoff=0.8):
        return ""
    near = near_setting(last)
    return f" Did you mean '{near}'?{_advise_section(near, value, config)}" if near else ""


def _advise_new(key: str, to_add: str, config: DictConfig) -> str:
    """Return how to add a key, if its section is not one of ours; and the section's keys."""
    is_closed = key.startswith(("hydra.launcher.", "hydra.sweeper.")) and "param" not in key
    add = "" if is_closed else f"\nTo add a new key: {shlex.quote(to_add)}"
    return advise_key(key, config) + add


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


def _explain_double(key: str, to_set: str) -> str:
    """Return that a key to add exists already, perhaps only with some choices of a swept group."""
    return (
        f"'{key}' is in the configuration already, and one plus only adds new keys.\nType:"
        f" {shlex.quote(to_set)}"
    )


def _sweeps_choices(typed: Sequence[str], config: DictConfig) -> bool:
    """Return whether choices of a group are swept, so that two plus signs set a key with each of
    them."""
    choices = _choices(config)
    names = keys(config)
    for override in OverridesParser.create().parse_overrides([*typed]):
        group = override.key_or_group
        if override.is_sweep_override() and (group in choices or group not in names):
            return True
    return False


def _explain_hydra_sweep(typed: str) -> str:
    """Return that all trials share a setting of Hydra, and how trials get different jobs."""
    advice = "Type one value"
    if typed.startswith("hydra.launcher."):
        advice = (
            "For several kinds of jobs, write one file for each kind and sweep the files:"
            " cluster=plain,power9"
        )
    return f"{typed}: all trials share a setting of Hydra.\n{advice}"


def _explain_launcher(lines: list[str]) -> str:
    """Return that a file has a setting of the SLURM launcher, and another launcher is chosen; empty
    if none has."""
    match = _OF_ANOTHER_LAUNCHER.search("\n".join(lines))
    if match is None or match[2] not in SlurmLauncherConf.__dataclass_fields__:
        return ""
    group, _, name = match[1].rpartition("/")
    choice = f"{group}={name}" if group else f"{name}.yaml"
    problem = (
        f"{choice}: hydra.launcher.{match[2]} is a setting of hydra/launcher=slurm, and another one"
        " is chosen"
    )
    return (
        f"{problem}.\nType hydra/launcher=slurm too, or remove"
        f" {choice if group else f'it from {choice}'}"
    )


def _explain_choice(lines: list[str]) -> str:
    """Return that a group has several choices where it has one, or that a key is no group; empty if
    the error is another."""
    problem = lines[0]
    if problem.startswith("Override ") and "@" in problem:
        word = problem.removeprefix("Override ").partition(" looks like ")[0]
        key = word.partition("@")[0]
        return f"{word}: {key} is no group.\nType: {key}={word.partition('=')[2]}"
    if lines[0].startswith("Multiple values for "):
        chosen = lines[0].rpartition("override ")[2].strip("'").replace(": ", "=")
        return (
            f"{chosen.partition('=')[0]} is part of the configuration: leave out the plus.\nType:"
            f" {chosen}"
        )
    if lines[0].startswith("Ambiguous value for argument"):
        key = lines[0].split("'")[1]
        as_list = key.replace("=", "=[", 1) + "]"
        return (
            f"{key}: several values make a sweep; add -m to run it.\nFor one value that is a list:"
            f" {as_list}"
        )
    return ""


def _shorten(error: Exception, lines: list[str], config: DictConfig) -> str:
    """Return the key that an error is about, and the first two lines of its message."""
    full_keys = [line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")]
    key = next(iter(full_keys), "") or getattr(error, "full_key", None)
    message = [line for line in lines if line and not line.startswith(_NOTES)] or [
        type(error).__name__
    ]
    if message[0].startswith("Interpolation key '"):
        message[0] += "." + advise_key(message[0].split("'")[1], config)
    if match := _OUT_OF_RANGE.fullmatch("\n".join(message)):
        message += [*filter(None, [advise_number(match[1], match[2], match[3] == "whole number")])]
    elif match := _NO_LIST.fullmatch("\n".join(message)):
        message.append(f"Type: {shlex.quote(f'{match[1]}=[{match[2]}]')}")
    elif deletion := _deletion_of(message[0]):
        message = [message[0].rstrip(".") + ".", f"Remove {deletion}"]
    return (f"{key}: " if key else "") + "\n".join(message[:2])[:_MOST_LETTERS]


def _deletion_of(problem: str) -> str:
    """Return the typed word that deletes a key which the problem names; empty if there is none."""
    names = re.findall(r"[\w/]+", problem)
    for word in sys.argv[1:]:
        if word.startswith("~") and word[1:] in names:
            return word
    return ""


def _advise_type(typed: str, problem: str, config: DictConfig) -> str:
    """Return what a key of a list or a number takes; empty for other types."""
    key, _, value = typed.partition("=")
    if "is not a ListConfig" in problem:
        return f"\nType a list: {shlex.quote(f'{key}=[{value}]')}"
    if "is not a valid bool" in problem:
        return f".\nType {key}=true or {key}=false"
    values = "" if key.startswith("hydra.") else _values_to_sweep(value)
    if values:
        sweep = shlex.quote(f"{key}={values}")
        return f".\nTo sweep these values, type: {sweep_flag(sys.argv)}{sweep}"
    if kinds := _kind_of_gpus(key, value, config):
        return f".\nType: {kinds}"
    return _advise_kind(key, value, problem, config)


def _advise_kind(key: str, value: str, problem: str, config: DictConfig) -> str:
    """Return a value of the kind that the key has, as an example; empty if the kind is unknown."""
    current = OmegaConf.select(config, key.lstrip("+"), throw_on_resolution_failure=False)
    if isinstance(current, DictConfig) and len(current):
        first = str(next(iter(current)))
        return f".\nType one of its keys, as in {key}.{first}={shlex.quote(value)}"
    kind, example = _TYPES.get(problem.rpartition(" could not be converted to ")[2], ("", ""))
    if "is not Optional" in problem and current is not None:
        return f".\nType a value, as in {key}={current}"
    usual = _IN_UNITS.get(unit_of(key), example)
    example = str(current) if isinstance(current, int | float) else usual
    return f".\nType {kind}, as in {key}={example}" if kind else ""


def _values_to_sweep(value: str) -> str:
    """Return the values of a list, a range or a row of numbers as a sweep of them; empty for other
    values."""
    if ends := re.fullmatch(r"(\d+)(?:-|:|\.\.+)(\d+)", value):
        first, last = map(int, ends.groups())
        return f"range({first},{last + 1})" if first < last else ""
    if value.startswith("["):
        return value.strip("[] ")
    values = [part for part in re.split(r"[\s|;]+", value) if part]
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
    name = re.split("[./]", key)[-1]
    if key in keys(config) and (followed := source(config, key)) != key:
        kinds = _kind_of_gpus(followed, value, config)
        typed = kinds or f"{followed}={shlex.quote(value)}"
        return f" Did you mean '{followed}'?\nType: {typed}"
    is_of_sweeper = re.match(r"hydra[./]sweeper\W", suggestion)
    owner = suggestion.split()[0] if " " in suggestion else "the launcher"
    owner = "the sweeper" if is_of_sweeper else owner
    # not of another tool
    typed = f"{key}={shlex.quote(in_unit_of(name, value))}"
    return f" It is a setting of {owner}.\nType: {sweep_flag(sys.argv)}{typed}"


def _choices(config: DictConfig) -> dict[str, Any]:
    """Return the chosen option of each group of a configuration."""
    choices: dict[str, Any] = OmegaConf.select(config, "hydra.runtime.choices", default={})
    return choices
