"""Errors of Hydra and OmegaConf about a command line, in two lines at most: the problem, and what
to type."""

import difflib
import re
import shlex
import sys
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf

from sweeps.hydra.followed import source
from sweeps.hydra.foreign_names import PACKAGES
from sweeps.hydra.functions import FUNCTIONS, ZIP
from sweeps.hydra.near import advise_key, keys, near_choice, near_key
from sweeps.hydra.settings import SlurmLauncherConf, suggest_setting
from sweeps.hydra.shell_words import join_split, sweep_flag
from sweeps.hydra.units import UNITS, advise_number, in_unit_of, unit_of

CONDITIONS = "hydra.sweeper.conditional_params"
_GRAMMAR = (
    "Type key=value, or with -m key=a,b or 'key=interval(0.1, 1)'; other letters need quotes, as in"
    " 'key=\"é\"'. All keys are in --help"
)
_OF_ANOTHER_LAUNCHER = re.compile(
    r"In '([^']+)': \w+ raised while composing.*\nKey '(\w+)' not in '\w*LauncherConf'"
)
_NO_SUCH_CHOICE = re.compile(
    r"Could not find '(.*)'\s+Available options in '(.*)':\n([^:]*)\nConfig search path"
)
# lines that OmegaConf adds below its message
_NOTES = ("full_key: ", "object_type=", "reference_type=")
_MOST_LETTERS = 600
_LISTS = {
    "hydra.sweeper.exclude": ("texts in quotes", '["lr<0.001 and batch_size=64"]'),
    "hydra.sweeper.also": ("texts in quotes", '["optimizer=adam lr=0.001,0.01"]'),
    "hydra.sweeper.start": ("points in braces", "[{lr: 0.001, batch_size: 64}]"),
}
_TYPES = {"Float": ("a number", "0.1"), "Integer": ("a whole number", "1")}  # OmegaConf's names
_IN_UNITS = {"gb": "8", "min": "60", "hours": "8", "s": "60"}
"""Examples for keys with a unit."""
_NO_NUMBER = re.compile(
    r"Value '(.*)' of type '(?:str|float)' could not be converted to (Float|Integer)"
)
_NO_LIST = re.compile(r"([\w.]+)=([\w,. ]+): must be a list of .*")
_OUT_OF_RANGE = re.compile(r"([\w.]+)=(.+): must be a (whole number|number)\b.*")
_FOREIGN_FUNCTIONS = {
    **dict.fromkeys(("loguniform", "log_uniform"), "tag(log, interval({}))"),
    "uniform": "interval({})",
    "randint": "int(interval({}))",
}
"""What Hydra's grammar has in place of the functions of other tools, with their two numbers."""
_CASTS = {"bool", "float", "int", "str"}


def explain(error: Exception, config: DictConfig, typed: Sequence[str] = ()) -> str:
    """Return the problem, with the nearest key or choice; or the first lines of the error's own
    message.

    If choices of a group are among the words that were `typed`, only some of them may have a key
    that others lack.
    """
    if isinstance(error, OverrideParseException):
        return _explain_unreadable(error, config)
    lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines()]
    if lines[0].startswith("Could not override '"):
        to_add = lines[1].split(" use ")[-1]
        to_add = f"+{to_add}" if _sweeps_choices(typed, config) else to_add
        return _explain_key(lines[0].split("'")[1], to_add, config)
    if lines[0].startswith("Could not append to config. An item is already at '"):
        return _explain_double(lines[0].split("'")[1], lines[2].split(": ", 1)[1].strip("'"))
    if lines[0].startswith("Error merging override"):
        word = lines[0].removeprefix("Error merging override ")
        return _explain_value(word, lines[1], config)
    if lines[0].startswith("Sweeping over Hydra's configuration"):
        return _explain_hydra_sweep(lines[0].split("'", 2)[2].strip(" :'"))
    return _explain_launcher(lines) or _explain_choice(lines) or _shorten(error, lines, config)


def _explain_unreadable(error: OverrideParseException, config: DictConfig) -> str:
    """Return why Hydra's grammar does not allow a word, and what to type."""
    reasons = [line for line in error.message.splitlines() if " while evaluating " in line]
    reason = f": {reasons[0].partition(' while evaluating ')[2]}" if reasons else ""
    word = str(error.override)
    problem = f"'{word}' cannot be read{reason}"
    if section := _advise_section(word, config):
        return f"{problem}.{section}"

    if joined := join_split(word, sys.argv[1:], config):
        return f"'{word}' cannot be read, because a space begins a new word.\nType: {joined}"
    advice = (
        _advise_list(word)
        or _advise_zip(word, reason, config)
        or _advise_function(error.message, word)
    )
    return problem + (advice or f"\n{_GRAMMAR}")


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
    key = word.partition("=")[0]
    match = _NO_NUMBER.fullmatch(problem)
    if match and (advice := advise_number(key, match[1], match[2] == "Integer")):
        unit = unit_of(key)
        kind = _TYPES[match[2]][0] + (f" of {UNITS[unit]}" if unit else "")
        return f"{word}: it must be {kind}.\n{advice}"
    return f"{word}: {problem}{_advise_list(word) or _advise_type(word, problem, config)}"


def _explain_key(key: str, to_add: str, config: DictConfig) -> str:
    """Return that a key is not in the configuration, or is there in another way, and what to
    type."""
    value = to_add.partition("=")[2]
    if key not in keys(config):
        choices = OmegaConf.select(config, "hydra.runtime.choices", default={})
        chosen = [
            f" with {group}={choice}"
            for group, choice in choices.items()
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
    if advice := _advise_section(key, config):
        word = re.split("[./]", key)[-1]
        # not of another tool
        return advice.replace(f"{word}=...", f"{word}={shlex.quote(in_unit_of(word, value))}")
    if near := near_key(key, config):
        word = f"{near}={in_unit_of(near, value)}"
        return f" Did you mean '{near}'?\nType: {shlex.quote(word)}"
    is_closed = key.startswith(("hydra.launcher.", "hydra.sweeper.")) and "param" not in key
    add = "" if is_closed else f"\nTo add a new key: {shlex.quote(to_add)}"
    return advise_key(key, config) + add


def _explain_double(key: str, to_set: str) -> str:
    """Return that a key to add exists already, perhaps only with some choices of a swept group."""
    return (
        f"'{key}' is in the configuration already, and one plus only adds new keys.\nType:"
        f" {shlex.quote(to_set)}"
    )


def _sweeps_choices(typed: Sequence[str], config: DictConfig) -> bool:
    """Return whether choices of a group are swept, so that two plus signs set a key with each of
    them."""
    choices = OmegaConf.select(config, "hydra.runtime.choices", default={})
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
    """Return the problem with the choice of a group: it does not exist, or there are several; empty
    if neither."""
    if match := _NO_SUCH_CHOICE.search("\n".join(lines)):
        group = match[2]
        choices = [name for name in match[3].split() if not name.startswith("sweepyard_")]
        name = match[1].removeprefix(f"{group}/")
        if group == "hydra/sweeper":  # because Hydra's own sweeper, basic, runs without a study
            choices = [choice for choice in choices if choice != "basic"]
        near = near_choice(group, name.lower().removeprefix("submitit_"), choices)
        hint = f" Did you mean {near}?" if near else ""
        package = PACKAGES.get(name, "") if group in ("hydra/sweeper", "hydra/launcher") else ""
        install = f", or type: pip install {package}" if package else ""
        return f"{group}={name} does not exist.{hint}\nChoose one of: {', '.join(choices)}{install}"
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
    return (f"{key}: " if key else "") + "\n".join(message[:2])[:_MOST_LETTERS]


def _advise_list(typed: str) -> str:
    """Return how to type a list of texts or points; empty for other settings."""
    key = typed.partition("=")[0]
    if key == "hydra.launcher.additional_parameters":
        return f"\nType each option alone, as in +{key}.reservation=course"
    items, example = _LISTS.get(key, ("", ""))
    return f"\nType a list of {items}, as in {shlex.quote(f'{key}={example}')}" if items else ""


def _advise_zip(typed: str, reason: str, config: DictConfig) -> str:
    """Return how to type zip(...); empty if the reason is another."""
    name = typed.partition("=")[0]
    name = f"{name}_and_more" if name in keys(config) else name  # because that key would not be set
    return f".\nType, for example: '{name}={ZIP}'" if " zip(...)" in reason else ""


def _advise_function(problem: str, typed: str) -> str:
    """Return the value with a function that exists; empty if no function is missing, or none is
    near."""
    match = re.fullmatch(r"([^=]+)=(\w+)\(([^()]*)\)", typed)
    if (
        not match
        or f"Unknown function '{match[2]}'" not in problem
        or match[1].startswith("hydra.")
    ):
        return ""
    key, name, arguments = match.groups()
    names = sorted({*FUNCTIONS, *_FOREIGN_FUNCTIONS} - _CASTS)
    near = next(iter(difflib.get_close_matches(name.lower(), names, 1, cutoff=0.8)), "")
    form = _FOREIGN_FUNCTIONS.get(near, near and f"{near}({{}})")
    if near in _FOREIGN_FUNCTIONS:
        try:
            low, high = map(float, arguments.split(","))
        except ValueError:
            return ""
        if low >= high or (low <= 0 and "log" in form):
            return ""
    return f".\nType: {shlex.quote(f'{key}={form.format(arguments)}')}" if form else ""


def _advise_type(typed: str, problem: str, config: DictConfig) -> str:
    """Return what a key of a list or a number takes; empty for other types."""
    key, _, value = typed.partition("=")
    if "is not a ListConfig" in problem:
        return f"\nType a list: {shlex.quote(f'{key}=[{value}]')}"
    if "is not a valid bool" in problem:
        return f".\nType {key}=true or {key}=false"
    if "of type 'list' could" in problem and (values := value.strip("[] ")):
        return (
            ".\nTo sweep these values, type:"
            f" {sweep_flag(sys.argv)}{shlex.quote(f'{key}={values}')}"
        )
    kinds = re.fullmatch(r"([a-z]\w*):(\d+)", value)
    if (
        kinds
        and key.rpartition(".")[2] in ("gpus", "gpus_per_node")
        and "hydra.launcher.gres" in keys(config)
    ):
        return f".\nType: {key}={kinds[2]} hydra.launcher.gres=gpu:{kinds[1]}"
    kind, example = _TYPES.get(problem.rpartition(" could not be converted to ")[2], ("", ""))
    current = OmegaConf.select(config, key, throw_on_resolution_failure=False)
    usual = _IN_UNITS.get(unit_of(key), example)
    example = str(current) if isinstance(current, int | float) else usual
    return f".\nType {kind}, as in {key}={example}" if kind else ""


def _advise_section(word: str, config: DictConfig) -> str:
    """Return where to type a setting of the sweeper or of a launcher; empty if it is none, or in
    its place."""
    if not (typed := suggest_setting(word)):
        return ""
    key = typed.removesuffix("=...")
    if key in keys(config) and (followed := source(config, key)) != key:
        return f" Did you mean '{followed}'?"
    sweeper = re.match(r"hydra[./]sweeper\W", typed)
    owner = "the sweeper" if sweeper else typed.split()[0] if " " in typed else "the launcher"
    return f" It is a setting of {owner}.\nType: -m {typed}"
