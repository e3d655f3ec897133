"""Words of a command line that a space split, and flags that were typed in place of keys."""

import difflib
import re
import shlex
from collections.abc import Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from sweeps.hydra.near import closest, keys, near_key
from sweeps.hydra.settings import suggest_setting

_HAS_KEY = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=.*", re.DOTALL)
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)
_OPEN = (",", "=", "[", "{", "(", ":")
_CLOSING = (",", "=", "]", "}", ")", ":")
_MULTIRUN = ("-m", "--multirun")
_FIRST = (*_MULTIRUN, "--help", "-h")
_PROGRAM = 2  # words before the overrides and flags: the interpreter and the script
_FLAGS_WITH_VALUE = {
    "--config-name",
    "-cn",
    "--config-path",
    "-cp",
    "--config-dir",
    "-cd",
    "--package",
    "-p",
    "--cfg",
    "-c",
}


def join_split(word: str, words: Sequence[str], config: DictConfig) -> str:
    """Return the word that a space split in two or more, as typed in a shell; empty if no space
    split it.

    `word` is the part that cannot be read.
    """
    if word not in words:
        return ""
    first, end = _bounds(words, words.index(word), config)
    parts = [part for part in words[first:end] if part]
    joined = parts[0]
    for part in parts[1:]:
        separator = _separator(joined, part, config)
        if separator is None:
            return ""
        joined += separator + part
    joined = _with_choices(joined.strip(","), config)
    if len(parts) < 2 or not _HAS_KEY.fullmatch(joined):
        return ""
    try:
        override = OverridesParser.create().parse_override(joined)
    except HydraException:
        return ""
    flag = sweep_flag(words) if override.is_sweep_override() else ""
    return f"{flag}{shlex.quote(joined)}"


def explain_flag(flag: str, words: Sequence[str], config: DictConfig) -> str:
    """Return that a program has no such flag, and what to type: a key, or Hydra's flag for a
    sweep."""
    name, sign, value = flag.lstrip("-").partition("=")
    name = name.replace("-", "_")
    problem = f"{flag}: there is no such flag"
    joined = name.replace("_", "")
    if name.lower() == "m" or difflib.get_close_matches(joined, ["multirun", "sweep"]):
        return f"{problem}.\nFor a sweep, type: -m"
    if difflib.get_close_matches(name, ["help"]):
        return f"{problem}.\nFor all settings, type: --help all"
    after = words[words.index(flag) + 1 :]
    if not sign and after and not after[0].startswith("-") and not _HAS_KEY.fullmatch(after[0]):
        value = after[0]
    typed = _as_key(name, value, config)
    if not typed:
        return f"{problem}.\nKeys are typed without dashes, as in lr=0.1; all are in --help all"
    sweep = sweep_flag(words) if typed.startswith(("hydra.", "hydra/")) else ""
    return f"{flag}: a key is typed without dashes\nType: {sweep}{typed}"


def sweep_flag(words: Sequence[str]) -> str:
    """Return the flag that a sweep needs, with a space after it; empty if it was typed."""
    return "" if any(flag in words for flag in _MULTIRUN) else "-m "


def flags_first(command: Sequence[str]) -> list[str]:
    """Return a command with the flags behind its overrides moved before them.

    A word can then be appended: Hydra reads overrides from one side of a flag alone.
    """
    end = len(command)
    while end > _PROGRAM and (
        command[end - 1].startswith("-") or command[end - 2] in _FLAGS_WITH_VALUE
    ):
        end -= 1

    first = end
    while first > _PROGRAM and re.match(f"~|{_HAS_KEY.pattern}$", command[first - 1], re.DOTALL):
        first -= 1

    return [*command[:first], *command[end:], *command[first:end]]


def explain_order(word: str, line: Sequence[str]) -> str:
    """Return that overrides are on both sides of a flag, which Hydra refuses, and the line with the
    flag first."""
    flags = [flag for flag in line if flag in _FIRST][:1]
    others = [other for other in line[1:] if other not in _FIRST]
    typed = shlex.join(["python", line[0], *flags, *others])
    return f"{word}: all keys are typed on one side of a flag.\nType: {typed}"


def _as_key(name: str, value: str, config: DictConfig) -> str:
    """Return the key that a flag of this name was likely meant for, with the value; empty if there
    is none."""
    if name in ("launcher", "sweeper"):
        return f"hydra/{name}={value}"
    if name in ("dry_run", "dryrun"):
        return "hydra.sweeper.preview=true"
    names = [key for key in keys(config) if not key.startswith("hydra.")]
    setting = "" if name in names else suggest_setting(name)
    key = setting.removesuffix("=...") or near_key(name, config)
    if not key:
        return ""
    current = OmegaConf.select(config, key, throw_on_resolution_failure=False)
    default = "true" if isinstance(current, bool) else "..."
    return f"{key}={shlex.quote(value or default)}"


def _bounds(words: Sequence[str], index: int, config: DictConfig) -> tuple[int, int]:
    """Return the range of the words that belong together with the word of this index."""
    first = index
    if not _begins_value(words, index, config):
        while first > 0 and not _HAS_KEY.fullmatch(words[first]):
            first -= 1
    end = index + 1
    while end < len(words) and not _begins_another(words[end], words[end - 1]):
        end += 1
    return first, end


def _begins_value(words: Sequence[str], index: int, config: DictConfig) -> bool:
    """Return whether a word is a key, and no part of a value that a space split."""
    before = words[index - 1] if index else ""
    if before.endswith(_OPEN) or _takes_text(before, config):
        return False
    return bool(difflib.get_close_matches(words[index], keys(config), 1, cutoff=0.8))


def _takes_text(word: str, config: DictConfig) -> bool:
    """Return whether the value of a key may be a text, in which a space is part of the value."""
    key, sign, _ = word.partition("=")
    if not sign or key in OmegaConf.select(config, "hydra.runtime.choices", default={}):
        return False
    value = OmegaConf.select(config, key.lstrip("+"), throw_on_resolution_failure=False)
    return value is None or isinstance(value, str)


def _begins_another(word: str, before: str) -> bool:
    if word.startswith("-") and not _NUMBER.fullmatch(word.rstrip(",")):
        return True
    return bool(_HAS_KEY.fullmatch(word)) and not before.endswith(("{", "["))


def _separator(before: str, after: str, config: DictConfig) -> str | None:
    """Return what a space between two parts of a word stands for; None if it ends the word."""
    if before.endswith(_OPEN) or after.startswith(_CLOSING):
        return ""
    key, sign, value = before.partition("=")
    if not sign:
        return "="
    ends = [value.rpartition(",")[2], after.rstrip(",")]
    if key in OmegaConf.select(config, "hydra.runtime.choices", default={}):
        return "," if _are_choices(key, after) else None
    if all(map(_NUMBER.fullmatch, ends)):
        return ","
    return " " if _takes_text(before, config) else None


def _are_choices(group: str, text: str) -> bool:
    """Return whether each word of a text is near a choice of a group."""
    names = _options(group)
    return all(closest(word.lower(), names) for word in text.strip(", ").split(","))


def _with_choices(word: str, config: DictConfig) -> str:
    """Return a word with the near choices of its group; of a key that is no group, the word."""
    group, _, text = word.partition("=")
    if group not in OmegaConf.select(config, "hydra.runtime.choices", default={}):
        return word
    names = _options(group)
    choices = [closest(choice.lower(), names) or choice for choice in text.split(",")]
    return f"{group}={','.join(choices)}"


def _options(group: str) -> Sequence[str]:
    options: list[str] = GlobalHydra.instance().config_loader().get_group_options(group)
    return options
