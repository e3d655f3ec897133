"""The name and the folder of a study, by hydra.sweeper.study_name and hydra.sweep.dir."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from omegaconf import DictConfig, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile
from sweeps.hydra.followed import written
from sweeps.hydra.parts import pin_folder
from sweeps.hydra.settings import SweeperConf
from sweeps.record.definition import as_typed
from sweeps.record.study_file import ARCHIVE, read

# the default of Hydra, which multirun/<name> replaces
_HYDRA_SWEEP_DIR = "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"
_KEY = re.compile(r"\$\{([\w.]+)\}")
_CALL = re.compile(r"\$\{\s*([\w.]+)\s*:")
_NOW = re.compile(r"\$\{\s*now\s*:")
_CONSTANT = ("hydra", "python_version", "oc.select", "oc.decode", "oc.create", "oc.deprecated")
"""Resolvers that return the same for the same command line, unless an argument varies."""
_MOST_KEYS = 50  # because an interpolation may be circular


@dataclass(frozen=True)
class Naming:
    """Where a study is."""

    name: str
    folder: Path  # absolute
    sweep_dir: str | None  # hydra.sweep.dir as this start resolved it; None for multirun/<name>


def name_study(config: DictConfig, settings: SweeperConf) -> Naming:
    """Return the study's name and folder, and set this folder in the configuration of all trials.

    The same name always has the same folder, also if hydra.sweep.dir contains the time of the
    start. Raises UserError if the name is no folder's name, or reserved.
    """
    name = settings.study_name
    sweep_dir = None
    if as_typed(config, "hydra.sweep.dir") != _HYDRA_SWEEP_DIR:
        folder = Path(config.hydra.sweep.dir)
        if name:
            folder = next(_find_former(config, folder, name), folder)
        sweep_dir = str(folder)
        name = name or _name_of(folder)
    else:
        # With the process id, because two studies may start in the same second.
        name = name or f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{os.getpid()}"
        folder = Path("multirun", name)
    is_name = name and Path(name).name == name and not name.startswith((".", "-"))
    if not is_name or len(os.fsencode(name)) > 200:
        raise UserError(
            f"hydra.sweeper.study_name={name[:200]}: not a folder's name.\n"
            "Choose a name of at most 200 letters, without / and without a first dot or dash"
        )
    if name == ARCHIVE:
        raise UserError(
            f"hydra.sweeper.study_name={name}: '{name}' is reserved.\nChoose another study_name"
        )
    pin_folder(config, str(folder))
    return Naming(name, _absolute(folder), sweep_dir)


def _absolute(folder: Path) -> Path:
    return Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() follows links


def _name_of(folder: Path) -> str:
    """Return the name of a study that has only a folder; empty for the root of all folders, which
    is none."""
    name = _absolute(folder).name
    return name.lstrip(".-") or (name and "study")


def _find_former(config: DictConfig, folder: Path, name: str) -> Iterator[Path]:
    """Yield the folders of studies of this name, newest first, which other starts may have
    resolved.

    They are below the part of hydra.sweep.dir that each start resolves to the same, and as deep as
    `folder`.
    """
    stable = None
    with suppress(OmegaConfBaseException):
        stable = _stable_part(config)
    depth = 0 if stable is None else len(folder.parts) - len(stable.parts)
    if stable is None or depth < 1:
        return
    files = stable.glob(f"{'*/' * depth}study.json")
    for file in sorted(files, key=lambda file: -file.stat().st_mtime):
        is_hidden = "/." in f"/{file.relative_to(stable)}"
        with suppress(CorruptFile, OSError):
            if not is_hidden and read(file.parent).name == name:
                yield file.parent


def _stable_part(config: DictConfig) -> Path | None:
    """Return the folder above the first part of hydra.sweep.dir that varies between starts; None if
    none varies."""
    text = _expand(config, str(written(config, "hydra.sweep.dir")))
    for call in _CALL.finditer(text):
        if _varies(config, call[1], text[call.start() : _end_of(text, call.start())]):
            top = "/" if text.startswith("/") else "."
            return Path(_resolve(config, text[: call.start()]).rpartition("/")[0] or top)
    return None


def _expand(config: DictConfig, text: str) -> str:
    """Return hydra.sweep.dir with the keys that it interpolates replaced by what is written
    there."""
    position = 0
    for _ in range(_MOST_KEYS):
        match = _KEY.search(text, position)
        if match is None:
            break
        try:
            value = written(config, match[1])
        except KeyError:
            value = None
        if isinstance(value, str) and "${" in value:
            text = text[: match.start()] + value + text[match.end() :]
        else:
            position = match.end()
    return text


def _end_of(text: str, start: int) -> int:
    """Return the index after the brace that closes the interpolation which begins at `start`."""
    depth = 0
    for brace in re.finditer("[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start + brace.end()
    return len(text)


def _varies(config: DictConfig, resolver: str, call: str) -> bool:
    """Return whether another start may resolve a call of a resolver to something else."""
    if _NOW.search(call):
        return True
    # A path is a place, such as that of the project: the variables and functions that name it stay.
    return resolver not in _CONSTANT and "/" not in _resolve(config, call)


def _resolve(config: DictConfig, text: str) -> str:
    """Return what hydra.sweep.dir would be with this text. Raises an exception of OmegaConf."""
    typed = written(config, "hydra.sweep.dir")
    with read_write(config.hydra), open_dict(config.hydra):
        try:
            config.hydra.sweep.dir = text
            return str(config.hydra.sweep.dir)
        finally:
            config.hydra.sweep.dir = typed
