"""What Hydra or OmegaConf found wrong with a command line, in two lines at most: what is wrong, and what to type."""

import difflib
import re
import shlex
from typing import Any

from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf

from sweeps.record.followed import source
from sweeps.settings import FOREIGN_NAMES, suggest_setting

_GRAMMAR = (
    "Write key=value, or with -m key=a,b or 'key=interval(0.1, 1)'; other letters need quotes, as in 'key=\"é\"'. "
    "All keys are in --help"
)
_NO_SUCH_CHOICE = re.compile(r"Could not find '(.*)'\s+Available options in '(.*)':\n([^:]*)\nConfig search path")
_NOTES = ("full_key: ", "object_type=", "reference_type=")  # OmegaConf's, below its message
_MOST_LETTERS = 600


def explain(error: Exception, config: DictConfig) -> str:
    """Return what is wrong, with the nearest key or choice that exists; else in the error's own words."""
    if isinstance(error, OverrideParseException):
        why = f": {error.message.splitlines()[0]}" if "while evaluating" in error.message else ""
        return f"'{error.override}' cannot be read{why}{_at_home(error.override, config) or chr(10) + _GRAMMAR}"
    lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines()]
    if lines[0].startswith("Could not override '"):
        return _no_such_key(lines[0].split("'")[1], lines[1].split(" use ")[-1], config)
    if lines[0].startswith("Error merging override"):
        return f"{lines[0].removeprefix('Error merging override ')}: {lines[1]}"
    return _wrong_choice(lines) or _own_words(error, lines, config)


def _no_such_key(key: str, to_add: str, config: DictConfig) -> str:
    if key not in keys(config):
        closed = key.startswith(("hydra.launcher.", "hydra.sweeper.")) and "param" not in key
        add = "" if closed else f"\nTo add a new key: {to_add}"
        return f"'{key}' is not in the configuration.{_at_home(key, config) or _nearest(key, config) + add}"
    if to_add.partition("=")[2].startswith("{"):
        return f"'{key}' is in the configuration, without these parts\nTo add them: {shlex.quote(to_add)}"
    lost = "is not in the configuration. Another value that is typed takes its place"
    return f"'{key}' {lost}\nLeave one of the two out"


def _wrong_choice(lines: list[str]) -> str:
    """Of a choice that does not exist, or several; empty if it is something else."""
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
    return ""


def _own_words(error: Exception, lines: list[str], config: DictConfig) -> str:
    """The first two lines, after the key that they are about."""
    where = [line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")]
    where = where or [key for key in [getattr(error, "full_key", None)] if key]
    said = [line for line in lines if line and not line.startswith(_NOTES)]
    if said[0].startswith("Interpolation key '"):
        said[0] += "." + _nearest(said[0].split("'")[1], config)
    return "".join(f"{key}: " for key in where[:1]) + "\n".join(said[:2])[:_MOST_LETTERS]


def _at_home(word: str, config: DictConfig) -> str:
    """Where a setting of the sweeper or of a launcher belongs, if it was typed elsewhere."""
    if not (typed := suggest_setting(word)):
        return ""
    key = typed.removesuffix("=...")
    if key in keys(config) and (own := source(config, key)) != key:
        return f" Did you mean '{own}'?"
    owner = "the sweeper" if ".sweeper." in typed else typed.split()[0] if " " in typed else "the launcher"
    return f" It is a setting of {owner}.\nType: -m {typed}"


def _nearest(key: str, config: DictConfig) -> str:
    """The key that was likely meant, or all that stand beside it; empty if neither is known."""
    known = [one for one in keys(config) if one.startswith("hydra.") == key.startswith("hydra.")]
    section, _, name = key.rpartition(".")
    beside = [one for one in known if section and one.rpartition(".")[0] == section]
    # Beside what exists the last part alone is wrong: what all have in common makes none of them near.
    names = {one.rpartition(".")[2]: one for one in beside} or {one: one for one in known}
    wrong = name if beside else key
    same = [one for one in known if one.lower() == wrong.lower()]  # at the top, or in other letters
    near = [FOREIGN_NAMES[wrong]] if FOREIGN_NAMES.get(wrong) in names else difflib.get_close_matches(wrong, names, 1)
    if same or near:
        return f" Did you mean '{same[0] if same else source(config, names[near[0]])}'?"
    return f" Known here: {', '.join(beside)}." if beside else ""


def keys(config: DictConfig) -> list[str]:
    """Return all keys of a configuration, its sections among them, by their dotted names."""
    return _keys(OmegaConf.to_container(config))


def _keys(node: Any, prefix: str = "") -> list[str]:
    found = []
    for key, value in node.items() if isinstance(node, dict) else ():
        if not str(key).startswith("_"):
            found += [f"{prefix}{key}", *_keys(value, f"{prefix}{key}.")]
    return found
