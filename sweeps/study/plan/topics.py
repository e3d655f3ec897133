"""The answers to `--help`: an overview on two screens, and all about one topic, as in `--help all`.

A topic is a group, a key, a section of keys, a word of their meanings, or `all`. The meaning of a
key is the comment in the app's YAML file. conf/hydra/help/sweepyard.yaml calls `overview` through
OmegaConf's resolver `sweepyard.help`.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.config_files import own_folders
from sweeps.hydra.followed import GROUPS
from sweeps.hydra.near import closest
from sweeps.hydra.plain import content
from sweeps.study.plan.comments import File, first_sentence, groups, meanings, read_group
from sweeps.study.plan.help import Entry, as_typed, at_once, settings

_WIDTH = 100
_COLUMN = 46
_SHORT_COLUMN = 33
_MOST_KEYS = 20
_MOST_LINES = 2  # of the choices of a group, in the overview
OUR_GROUPS = ("hydra/sweeper", "hydra/launcher", "hydra/sweeper/sampler", "hydra/sweeper/pruner")
_COMMON = (
    "hydra.sweeper.study_name",
    "hydra.sweeper.n_trials",
    "hydra.sweeper.n_jobs",
    "hydra.sweeper.max_hours",
    "hydra.sweeper.extend",
    "hydra.sweeper.preview",
)
"""The settings that are typed most."""


def overview(*, _root_: DictConfig) -> str:
    """Return the groups, the keys of the first level and the common settings under a composed
    configuration, with dollars doubled for string.Template."""
    choices = _groups(_root_)
    keys = [entry for entry in _keys(_root_) if "." not in entry.key and entry.key not in choices]
    shown = keys[:_MOST_KEYS]
    of_sweeps = [entry for entries in settings(_root_).values() for entry in entries]
    common = [entry for entry in of_sweeps if entry.key in _COMMON]
    lines = ["Groups: group=choice. Of a sweep, with -m, also group=choice,choice"]
    for group, files in choices.items():
        if group.count("/") < 2:
            lines += _list_choices(_chosen(_root_, group), files)
    lines += ["", "Keys: key=value. Of a sweep, with -m, also key=value,value"]
    lines += _first_sentences(shown)
    if len(keys) > len(shown):
        lines.append(f"  and {len(keys) - len(shown)} more")
    lines += ["", "Settings of a sweep:", *_first_sentences(common)]
    lines += textwrap.wrap(at_once(_root_), _WIDTH)
    lines += ["", "All keys and settings, with their meanings: --help all"]
    lines += [
        "Those of a group, a section, a key or a word: --help TOPIC, as in --help hydra/sweeper"
    ]
    return "\n".join(lines).replace("$", "$$")


def explain(config: DictConfig, topics: Sequence[str]) -> str:
    """Return the choices, the keys and the settings of topics. Raises UserError if there is no such
    topic."""
    sections: list[str] = []
    for topic in topics:
        choices = {
            group: files for group, files in _groups(config).items() if topic in ("all", group)
        }
        entries = _entries(config)
        parts = [*_describe_choices(config, choices), *_sections(entries, topic, _is_of)]
        parts = parts or _sections(entries, topic, _says)
        if not parts:
            raise UserError(_explain_missing(config, topic))
        sections += parts
    return "\n\n".join(sections)


def _sections(
    entries: Mapping[str, Sequence[Entry]], topic: str, fits: Callable[[Entry, str], bool]
) -> list[str]:
    """Return the sections of the entries that fit a topic."""
    fitting = {
        title: [entry for entry in of if fits(entry, topic)] for title, of in entries.items()
    }
    return [_section(title, chosen) for title, chosen in fitting.items() if chosen]


def _says(entry: Entry, word: str) -> bool:
    """Return whether the meaning of an entry has a word, or one that begins like it."""
    return re.search(rf"\b{re.escape(word)}", entry.meaning, re.IGNORECASE) is not None


def _is_of(entry: Entry, topic: str) -> bool:
    """Return whether an entry is about a topic: all, its key, or any part of its key's name."""
    name = topic.replace("/", ".")
    is_typed = name == entry.typed.partition("=")[0]
    return name == "all" or is_typed or f".{name}." in f".{entry.key}."


def _explain_missing(config: DictConfig, topic: str) -> str:
    names = {entry.key for entries in _entries(config).values() for entry in entries}
    parts = {part for name in names for part in name.split(".")}
    near = closest(topic, sorted({"all", *_groups(config), *names, *parts}))
    return f"--help {topic}: there is no such group or key.\nType: --help {near or 'all'}"


def _entries(config: DictConfig) -> dict[str, list[Entry]]:
    """Return the keys and the settings, each with a title."""
    keys = {"Keys": _keys(config), "The sampler and the pruner": _of_sampler(config)}
    return keys | settings(config)


def _keys(config: DictConfig) -> list[Entry]:
    """Return the app's keys that hold a value. Interpolations are not resolved."""
    values = content(config)
    values.pop("hydra", None)
    return _explained(_values(values), meanings(config))


def _of_sampler(config: DictConfig) -> list[Entry]:
    """Return the keys of the chosen sampler and pruner; none with a foreign sweeper."""
    entries = []
    for group in OUR_GROUPS[2:]:
        section = group.replace("/", ".")
        chosen = OmegaConf.select(config, section)
        files = read_group(GROUPS.parent, group)
        explained = {key.name: key.meaning for file in files for key in file.keys}
        values = content(chosen) if isinstance(chosen, DictConfig) else {}
        entries += _explained(_values(values, f"{section}."), explained)
    return entries


def _explained(values: Iterable[tuple[str, Any]], meanings: Mapping[str, str]) -> list[Entry]:
    return [Entry(name, as_typed(name, value), meanings.get(name, "")) for name, value in values]


def _values(section: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _values(value, f"{prefix}{key}.")
        elif not str(key).startswith("_"):
            yield f"{prefix}{key}", value


def _groups(config: DictConfig) -> dict[str, list[File]]:
    """Return the choices of each group of the app and of sweeps, by the group's name."""
    files: dict[str, dict[str, File]] = {}
    for folder in (*own_folders(config), GROUPS.parent):
        for group in groups(folder):
            for file in read_group(folder, group):
                files.setdefault(group, {}).setdefault(file.choice, file)
    choices = {group: [*files[group].values()] for group in sorted(files)}
    ours = {group: read_group(GROUPS.parent, group) for group in OUR_GROUPS}
    return choices | ours


def _chosen(config: DictConfig, group: str) -> str:
    """Return the choice of a group as typed, with a plus if no defaults list has the group."""
    choices = config.hydra.runtime.choices
    if group not in choices:
        return f"+{group}=..."
    return f"{group}={'null' if choices[group] is None else choices[group]}"


def _list_choices(chosen: str, files: Sequence[File]) -> list[str]:
    """Return the names of a group's choices in a few lines."""
    names = ", ".join(file.choice for file in files)
    width = _WIDTH - _SHORT_COLUMN
    lines = textwrap.wrap(names, width, max_lines=_MOST_LINES, placeholder=" ...")
    return [f"{'' if i else f'  {chosen}':{_SHORT_COLUMN}}{line}" for i, line in enumerate(lines)]


def _describe_choices(config: DictConfig, choices: Mapping[str, Sequence[File]]) -> Iterator[str]:
    """Yield each group, and what each of its choices is."""
    for group, files in choices.items():
        entries = [Entry(file.choice, file.choice, file.title) for file in files]
        yield _section(f"Choices of {group}, {_chosen(config, group)}", entries)


def _section(title: str, entries: Sequence[Entry]) -> str:
    column = _COLUMN if any("=" in entry.typed for entry in entries) else _SHORT_COLUMN
    lines = [line for entry in entries for line in entry.lines(column, _WIDTH)]
    return "\n".join([f"{title}:", *lines])


def _first_sentences(entries: Sequence[Entry]) -> list[str]:
    """Return a line for each entry, with the first sentence of its meaning."""
    lines = []
    for entry in entries:
        sentence = first_sentence(entry.meaning)
        meaning = textwrap.shorten(sentence, _WIDTH - _SHORT_COLUMN, placeholder=" ...")
        lines += Entry(entry.key, entry.typed, meaning).lines(_SHORT_COLUMN, _WIDTH)
    return lines
