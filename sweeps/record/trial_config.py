"""The configuration of a trial as Hydra wrote it, and its settings by their dotted names."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from sweeps.base.files import read_text
from sweeps.base.secrets import mask_value
from sweeps.hydra import plain
from sweeps.record.study import StudySnapshot, parameters
from sweeps.space.space import text_of

# the innermost reference; leading dots are relative
_LINK = re.compile(r"\$\{(\.*)([\w-]+(?:\.[\w-]+)*)\}")
_CHOICES = re.compile(r"^    choices:\n(?:      .*\n)+", re.MULTILINE)  # as Hydra writes them
_CONFIG = Path(".hydra/config.yaml")
_HYDRA = Path(".hydra/hydra.yaml")
_MOST_LINKS = 50  # of a value, because a reference may lead back to itself
Keys = tuple[Any, ...]
_LONGEST = 500  # characters of a value, which MLflow and a table can show


def read_config(folder: Path) -> DictConfig:
    """Read the config of the trial in `folder`, with Hydra's own; empty if the trial never began.

    Raises OSError, ValueError, yaml.YAMLError or OmegaConfBaseException if a file cannot be read.
    """
    return OmegaConf.create(_read_files(folder))


def _read_files(folder: Path) -> dict[Any, Any]:
    return _read_file(folder / _CONFIG) | _read_file(folder / _HYDRA)


def _read_file(file: Path) -> dict[Any, Any]:
    """Return the content of a YAML file; {} if there is none."""
    return (plain.load(read_text(file)) or {}) if file.exists() else {}


def _read_choices(folder: Path) -> Any:
    """Return the choices of config groups, from their lines alone, because the whole file takes
    four times as long."""
    file = folder / _HYDRA
    if file.exists() and (lines := _CHOICES.search(read_text(file))):
        return plain.load(lines[0])["choices"]
    return _select(_read_file(file), ("hydra", "runtime", "choices"))


def read_overrides(folder: Path) -> list[str]:
    """Return the overrides with which Hydra composed the trial in `folder`; none if their file
    cannot be read."""
    with suppress(OSError, yaml.YAMLError, ValueError):
        words = yaml.safe_load(read_text(folder / ".hydra" / "overrides.yaml"))
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            return words
    return []


def config_folders(folder: Path) -> list[Path]:
    """Return the folders from which Hydra composed the trial in `folder`; none if its files are
    damaged."""
    with suppress(OSError, yaml.YAMLError, ValueError, TypeError, KeyError):
        sources = _read_files(folder)["hydra"]["runtime"]["config_sources"]
        return [Path(source["path"]) for source in sources if source["schema"] == "file"]
    return []


def settings(config: DictConfig) -> dict[str, str]:
    """Return the choice of each config group, and each value of the app by its dotted name; null as
    `null`.

    References to other keys are followed. Results of resolvers are omitted, because oc.env may
    return a secret.
    """
    content = plain.content(config)
    return {name: _text(value) for name, value in _values(content).items()}


def repeated_settings(config: DictConfig) -> dict[str, str]:
    """Return the setting that each setting repeats, by name: `lr` for `optimizer.learning_rate:
    ${lr}`."""

    def walk(node: dict[Any, Any], path: Keys) -> Iterator[tuple[str, str]]:
        for key, value in node.items():
            if isinstance(value, dict):
                yield from walk(value, (*path, key))
            elif isinstance(value, str) and (link := _LINK.fullmatch(value)) and not link[1]:
                yield ".".join(map(str, (*path, key))), link[2]

    content = plain.content(config)
    return dict(walk({key: value for key, value in content.items() if key != "hydra"}, ()))


def read_values(folder: Path) -> dict[str, Any]:
    """Return the `settings` of the trial in `folder` as numbers, texts and lists; none if a file is
    damaged."""
    with suppress(Exception):  # because a damaged file may hold anything
        content = _read_file(folder / _CONFIG)  # not through OmegaConf, which takes 60 ms
        return _values(content | {"hydra": {"runtime": {"choices": _read_choices(folder)}}})
    return {}


def read_launcher(folder: Path) -> dict[str, Any]:
    """Return the settings of the launcher of the trial in `folder`; none if a file is damaged."""
    with suppress(Exception):  # because a damaged file may hold anything
        return dict(_read_files(folder)["hydra"]["launcher"])
    return {}


def read_groups(folder: Path) -> dict[str, str]:
    """Return the choice of each config group of the trial in `folder`; none if a file is
    damaged."""
    with suppress(Exception):  # because a damaged file may hold anything
        return dict(_pairs(_read_choices(folder)))
    return {}


def read_memory_axes(folder: Path) -> list[str]:
    """Return the keys that memory grows with, of the study of the trial in `folder`; none if a file
    is damaged."""
    with suppress(Exception):  # because a damaged file may hold anything
        axes = OmegaConf.select(read_config(folder), "hydra.sweeper.memory_axes")
        return [str(axis) for axis in axes or []]
    return []


def shared_settings(study: StudySnapshot) -> dict[str, str]:
    """Return the settings of all trials: those that no param or config group of the sweep changes,
    no references."""
    swept = {
        name.partition(" under ")[0].lstrip("+") for name in (*study.space, *parameters(study.rows))
    }
    sections = tuple(f"{name}." for name in swept)
    return {
        name: value
        for name, value in study.fixed.items()
        if name not in swept and not name.startswith(sections) and "${" not in value
    }


def _values(content: dict[Any, Any]) -> dict[str, Any]:
    choices = _select({"hydra": content.pop("hydra", None)}, ("hydra", "runtime", "choices"))
    pairs: list[tuple[str, Any]] = [*_pairs(choices), *_leaves(content, content, ())]
    return {name: mask_value(name, value) for name, value in pairs}


def _pairs(choices: Any) -> list[tuple[str, str]]:
    """Return the groups of the app, and the choice of each."""
    pairs = []
    for name, choice in choices.items() if isinstance(choices, dict) else ():
        is_of_app = not str(name).startswith("hydra/")
        if is_of_app and isinstance(choice, str) and "${" not in choice:
            pairs.append((str(name), choice))
    return pairs


def _text(value: Any) -> str:
    return (text_of(value) if value is None or isinstance(value, list) else str(value))[:_LONGEST]


def _leaves(root: Mapping[Any, Any], node: Any, path: Keys) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each key below `path` that has a value."""
    for key, written in node.items():
        try:
            value = _follow(root, path, written, iter(range(_MOST_LINKS)))
        except LookupError:  # because a value that is missing, or a resolver's result, is omitted
            continue
        if isinstance(value, dict):
            # A reference to a section is not repeated, because the section may refer back to it.
            yield from _leaves(root, value, (*path, key)) if value is written else ()
        else:
            yield ".".join(map(str, (*path, key))), value


def _follow(root: Mapping[Any, Any], path: Keys, value: Any, links: Iterator[int]) -> Any:
    """Return a value of the section at `path` after following references to other keys, at most one
    for each link.

    Raises LookupError for a missing value and for a resolver's result.
    """
    if isinstance(value, list):
        items = [_follow(root, (*path, "[]"), item, links) for item in value]
        if "${" in str(items):  # because a section in a list is not followed
            raise LookupError
        return items
    if not isinstance(value, str) or "${" not in value:
        if value == "???":
            raise LookupError
        return value
    link = _LINK.search(value)
    if link is None or next(links, None) is None:
        raise LookupError
    target = _target(link, path)
    followed = _follow(root, target[:-1], _select(root, target), links)
    if link[0] == value:
        return followed
    if isinstance(followed, dict | list):
        raise LookupError
    return _follow(root, path, value[: link.start()] + str(followed) + value[link.end() :], links)


def _target(link: re.Match[str], path: Keys) -> Keys:
    """Return the key that a reference in the section at `path` is to. Raises LookupError if it
    leads out of the configuration."""
    dots, name = link.groups()
    levels = len(path) + 1 - len(dots)
    if levels < 0:
        raise LookupError
    section = path[:levels] if dots else ()
    return (*section, *name.split("."))


def _select(root: Mapping[Any, Any], path: Keys) -> Any:
    """Return the value of a key; `???`, a missing value, if there is none."""
    value: Any = root
    for part in path:
        value = value.get(part, "???") if isinstance(value, dict) else "???"
    return value
