"""The keys in the YAML files of any Hydra app, and their comments, which explain them.

The comment of a key is on its line, or else on the lines right above, with the key's indentation.
The comment at the top of a file explains the file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import yaml
from omegaconf import DictConfig

from sweeps.hydra.config_files import files_of, package_of
from sweeps.hydra.followed import followed

_ON_LINE = re.compile(r"(?::(?:\s*[&!]\S+)*\s*[|>]?[-+\d]*)?\s+#+\s*(.*)")
_NOT_KEYS = ("defaults", "hydra")
"""The parts of a file that are for Hydra."""


@dataclass(frozen=True)
class Key:
    """A key of a file: its dotted name, its value as written, and its comment."""

    name: str
    value: str
    comment: str

    @property
    def meaning(self) -> str:
        """Return the comment, or else the key that it follows; empty without both."""
        target = followed(self.value)
        return self.comment or (f"follows {target}" if target else "")


@dataclass(frozen=True)
class File:
    """A file of a group, which is a choice of that group."""

    choice: str
    comment: str
    keys: list[Key]
    parents: list[str]  # names of files in its defaults list, relative to its group

    @property
    def title(self) -> str:
        """Return the first sentence of the comment."""
        return first_sentence(self.comment)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=[^.][.?]) ", text, maxsplit=1)[0]


def read(path: Path, group: str = "") -> File:
    """Return a file of a group, or the primary file of an app, without keys if it is no YAML."""
    content = path.read_text(encoding="utf-8-sig", errors="replace")
    header = [
        line for line in _comment_lines(content.split("\n"), 0) if not line.startswith("@package")
    ]
    root = None
    with suppress(yaml.YAMLError):
        root = yaml.compose(content, yaml.CSafeLoader)
    keys = [*_keys(root, package_of(content, group), content)]
    return File(path.stem, " ".join(header).strip(), keys, _parents(root))


def read_group(folder: Path, group: str) -> list[File]:
    """Return the choices of a group in a folder of an app's files, by name."""
    return [read(path, group) for path in sorted((folder / group).glob("*.yaml"))]


def groups(folder: Path) -> list[str]:
    """Return the app's own groups in a folder of its files."""
    parents = {path.parent.relative_to(folder).as_posix() for path in folder.rglob("*.yaml")}
    return sorted(group for group in parents if group != "." and group.split("/")[0] != "hydra")


def meanings(config: DictConfig) -> dict[str, str]:
    """Return the meaning of each key that has one, by its name, from the files of a composed
    configuration.

    The first file that explains a key counts, because the comment of a later one may be about its
    own value.
    """
    explained: dict[str, str] = {}
    for path, group in files_of(config):
        for file in _with_parents(path, group):
            for key in file.keys:
                if key.meaning:
                    explained.setdefault(key.name, key.meaning)
    return explained


def _with_parents(path: Path, group: str) -> Iterator[File]:
    """Yield the files that a file extends, and the file."""
    file = read(path, group)
    for name in file.parents:
        parent = path.with_name(f"{name}.yaml")
        if parent.is_file() and parent != path:
            yield from _with_parents(parent, group)
    yield file


def _parents(root: yaml.Node | None) -> list[str]:
    """Return the names in a file's defaults list that are no choice of a group."""
    entries = root.value if isinstance(root, yaml.MappingNode) else []
    lists = [value for key, value in entries if key.value == "defaults"]
    items = lists[0].value if lists else []
    names = [item.value for item in items if isinstance(item, yaml.ScalarNode)]
    return [name for name in names if name != "_self_"]


def _keys(node: yaml.Node | None, section: Sequence[str], content: str) -> Iterator[Key]:
    """Yield the keys of a block mapping that hold a value, those of its sections included."""
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        return
    for key, value in node.value:
        name = str(key.value)
        is_of_hydra = name in _NOT_KEYS and key.start_mark.column == 0
        if is_of_hydra or name.startswith("_"):
            continue
        names = [*section, name]
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _keys(value, names, content)
        else:
            comment = _comment(key, value, content.split("\n"))
            yield Key(".".join(names), _written(value, content), comment)


def _written(value: yaml.Node, content: str) -> str:
    """Return a value as written, or in one line if it has several."""
    if isinstance(value, yaml.SequenceNode) and not value.flow_style:
        return f"[{', '.join(_written(item, content) for item in value.value)}]"
    text = content[value.start_mark.index : value.end_mark.index]
    return " ".join(text.split()) or "null"


def _comment(key: yaml.Node, value: yaml.Node, lines: Sequence[str]) -> str:
    is_block = not getattr(value, "flow_style", True) or getattr(value, "style", "") in ("|", ">")
    end = key.end_mark if is_block else value.end_mark
    column = key.start_mark.column
    if on_line := _ON_LINE.match(lines[end.line], end.column):
        hash_at = lines[end.line].index("#", end.column)
        below = _comment_lines(lines[end.line + 1 :], hash_at) if hash_at > column else []
        return " ".join([on_line[1].strip(), *below])

    above = _comment_lines(reversed(lines[: key.start_mark.line]), column)
    is_top = len(above) == key.start_mark.line
    return "" if is_top else " ".join(reversed(above))


def _comment_lines(lines: Iterable[str], column: int) -> list[str]:
    """Return the texts of the first lines that are comments at a column."""
    comments = (re.fullmatch(rf"\s{{{column}}}#+\s*(.*)", line) for line in lines)
    return [match[1].strip() for match in takewhile(bool, comments) if match]
