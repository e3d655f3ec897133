"""Mistakes in the YAML files of a configuration: the file, the line, and what to write there."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from omegaconf import (
    BooleanNode,
    DictConfig,
    FloatNode,
    IntegerNode,
    ListConfig,
    OmegaConf,
    read_write,
)
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from sweeps.base.errors import UserError
from sweeps.hydra.mistakes import must_be
from sweeps.hydra.near import closest
from sweeps.hydra.typed_names import SECTIONS, text_settings
from sweeps.hydra.units import advise_number

_SCHEME = "file://"
_IN_FILE = re.compile(r"In '([^']+)': ")
_PACKAGE = re.compile(r"\A\s*#\s*@package\s+(\S+)")
_ADVICE = {
    "found character '\\t'": "YAML is indented by spaces: replace the tab",
    "mapping values are not allowed": "A text with a colon needs quotes",
    "found duplicate key": "Remove one of the two",
    "expected ',' or": "Close the bracket, or put a text with brackets or a colon into quotes",
}
"""What to do about a problem that PyYAML or OmegaConf names, by its first words."""


def explain_file(error: BaseException, loader: ConfigLoader) -> str:
    """Return what is wrong in a file of the configuration, and what to write; empty if the error is
    about something else."""
    folders = _folders(loader)
    for cause in _causes(error):
        if isinstance(cause, yaml.MarkedYAMLError) and cause.problem_mark is not None:
            return _explain_syntax(cause, cause.problem_mark)
        if isinstance(cause, UnicodeDecodeError | yaml.reader.ReaderError):
            return _explain_encoding(folders)

    file = _named_file(error, folders)
    if file is None:
        return ""
    for cause in _causes(error):
        if isinstance(cause, OmegaConfBaseException) and (cause.full_key or not cause.key):
            return _explain_content(cause, file)
    return ""


def _named_file(error: BaseException, folders: Sequence[Path]) -> Path | None:
    match = _IN_FILE.match(str(error))
    return _file_of(match[1], folders) if match else None


def keep_written(config: DictConfig) -> None:
    """Set each setting that is a name to its text in the app's files, because YAML reads 2024_11_26
    as 20241126.

    Raises UserError for a time such as 8:30, which YAML reads in base 60.
    """
    settings = _own_settings()
    for file, group in files_of(config):
        for setting, line, text in _plain_scalars(file, group):
            value = _as_yaml(text)
            if setting not in settings or isinstance(value, str) or value is None:
                continue
            current = OmegaConf.select(config, setting, throw_on_resolution_failure=False)
            # not a value that the app left untyped, because it gets that value as from Hydra
            if setting in text_settings() and current == str(value):
                with read_write(config), read_write(config.hydra):
                    OmegaConf.update(config, setting, text)
            elif ":" in text:
                name = setting.rpartition(".")[2]
                advice = _as_written(name, advise_number(setting, text, whole=False))
                raise UserError(
                    f"{file}:{line}: {name}: {text}: YAML reads it as {value}"
                    f".\n{advice or f'Write: {name}: {value}'}"
                )


def _own_settings() -> set[str]:
    """Return the settings of the sweeper and the launchers, and the experiment."""
    names = {f"{section}.{setting.name}" for section, kind in SECTIONS for setting in fields(kind)}
    return names | {"tracking.experiment"}


def own_folders(config: DictConfig) -> list[Path]:
    """Return the folders with the app's own files of a composed configuration."""
    sources = config.hydra.runtime.config_sources
    return [Path(source.path) for source in sources if source.schema == "file"]


def files_of(config: DictConfig) -> Iterator[tuple[Path, str]]:
    """Yield the app's own files of a composed configuration, and the group of each: the primary
    one, which has none, and those of the chosen options."""
    folders = own_folders(config)
    names = {str(config.hydra.job.config_name): ""}
    for group_at, choice in config.hydra.runtime.choices.items():
        group = group_at.partition("@")[0]
        names[f"{group}/{choice}"] = group
    for name, group in names.items():
        file = _file_of(name, folders)
        if file is not None:
            yield file, group


def _plain_scalars(file: Path, group: str) -> Iterator[tuple[str, int, str]]:
    """Yield the full key, the line and the text of each scalar of a file that is not in quotes."""
    content = file.read_text(encoding="utf-8")
    start = package_of(content, group)
    for keys, node in _entries(yaml.compose(content, yaml.SafeLoader), start):
        if isinstance(node, yaml.ScalarNode) and node.style is None:
            yield ".".join(keys), node.start_mark.line + 1, node.value


def package_of(content: str, group: str) -> tuple[str, ...]:
    """Return the section that the keys of a group's file are in, as the parts of its name."""
    header = _PACKAGE.search(content)
    package = header[1] if header else "_group_"
    package = package.replace("_group_", group.replace("/", ".")).replace("_global_", "")
    return tuple(part for part in package.split(".") if part)


def _as_yaml(text: str) -> Any:
    """Return the value that OmegaConf reads from a text without quotes."""
    with suppress(yaml.YAMLError, OmegaConfBaseException):
        content: Any = OmegaConf.create(f"value: {text}")
        return content.value
    return text


def _folders(loader: ConfigLoader) -> list[Path]:
    elements = loader.get_search_path().get_path()
    paths = [element.path.removeprefix(_SCHEME) for element in elements if element.path]
    return [Path(path) for path in paths if "://" not in path]


def _file_of(name: str, folders: Sequence[Path]) -> Path | None:
    files = [folder / f"{name.removesuffix('.yaml')}.yaml" for folder in folders]
    return next((file for file in files if file.is_file()), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _explain_syntax(error: yaml.MarkedYAMLError, mark: yaml.Mark) -> str:
    """Return the problem of a file that is no YAML, with the line where it was noticed."""
    problem = str(error.problem)
    advice = "Correct the line, or put its text into quotes"
    for start, words in _ADVICE.items():
        if problem.startswith(start):
            advice = words
    line = ""
    with suppress(OSError, ValueError, IndexError):
        line = Path(mark.name).read_text(encoding="utf-8").splitlines()[mark.line].strip()
    place = f"{mark.name}:{mark.line + 1}" + (f": {line}" if line else "")
    return f"{place}: {problem}.\n{advice}"


def _explain_encoding(folders: Sequence[Path]) -> str:
    """Return which file is not in UTF-8."""
    for folder in folders:
        for file in sorted(folder.rglob("*.yaml")):
            try:
                file.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                return f"{file}: byte {error.start} is not UTF-8.\nSave the file in UTF-8"
            except OSError:
                continue
    return ""


def _explain_content(error: OmegaConfBaseException, file: Path) -> str:
    """Return which line of a file has an unknown key or a value of another type."""
    problem = str(error.msg or error).splitlines()[0]
    if not error.full_key:
        if "ListConfig" in problem:
            return f"{file}: it is a list; a configuration is a mapping.\nWrite: key: value"
        return ""

    full_key = str(error.full_key)
    section, _, name = full_key.rpartition(".")
    line, text = _locate(file, full_key)
    place = f"{file}:{line}: {name}"
    if word := next((word for word in sys.argv if f"@{full_key}=" in word), ""):
        group, _, choice = word.lstrip("+").replace(f"@{full_key}", "").partition("=")
        return (
            f"{word}: the configuration has no section {full_key}.\nType:"
            f" {shlex.quote(f'{group}={choice}')}"
        )
    if isinstance(error, ConfigKeyError):
        names = sorted(map(str, error.parent_node or ()))
        near = closest(name, names)
        advice = f"Write: {near}: {text}".rstrip() if near else f"Choose one of: {', '.join(names)}"
        return f"{place}: {section or 'the configuration'} has no such setting.\n{advice}"
    place = ": ".join(filter(None, (place, text)))
    return f"{place}: {_explain_type(error, problem, full_key, text)}"


def _explain_type(error: OmegaConfBaseException, problem: str, full_key: str, text: str) -> str:
    """Return which type the value of a key must have, and what to write."""
    name = full_key.rpartition(".")[2]
    if isinstance(error.child_node, FloatNode | IntegerNode) and error.value is not None:
        is_whole = isinstance(error.child_node, IntegerNode)
        advice = _as_written(name, advise_number(full_key, text, is_whole))
        return must_be(error, name) + (f".\n{advice}" if advice else "")
    is_null = "is not Optional" in problem
    if isinstance(error.child_node, ListConfig) and not is_null:
        return f"it must be a list.\nWrite: {name}: ['{text}']"
    if isinstance(error.child_node, BooleanNode):
        return f"it must be true or false.\nWrite: {name}: true"
    return problem


def _as_written(name: str, advice: str) -> str:
    """Return advice on a command line as advice on a line of a file."""
    typed = re.compile(rf"[\w.]*\b{re.escape(name)}=")
    return typed.sub(f"{name}: ", advice.replace("Type", "Write", 1))


def _locate(file: Path, full_key: str) -> tuple[int, str]:
    """Return the line of a key in a file, whose package may be any part of the key, and the text of
    its value; line 1 if the key is not found."""
    with suppress(OSError, ValueError, yaml.YAMLError):
        root = yaml.compose(file.read_text(encoding="utf-8"), yaml.SafeLoader)
        for keys, node in _entries(root, ()):
            if full_key == ".".join(keys) or full_key.endswith("." + ".".join(keys)):
                text = node.value if isinstance(node, yaml.ScalarNode) else ""
                return node.start_mark.line + 1, text
    return 1, ""


def _entries(node: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = (*keys, *str(key.value).split("."))
            yield path, value
            yield from _entries(value, path)
