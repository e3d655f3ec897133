"""The folder of a study in the commands that resume it, start another study, or look for one by its
name."""

import difflib
import shlex
from itertools import count
from pathlib import Path

from sweeps.record.definition import NAME, Definition
from sweeps.space.space import quoted

_DIR = "hydra.sweep.dir"
_SHOWN = 10


def resume_line(definition: Definition, folder: Path) -> str:
    """Return the command that resumes the study in `folder`, also if hydra.sweep.dir contains the
    time of a start."""
    left_out = ("hydra.sweeper.extend=true", *filter(_is_sweep_dir, definition.command))
    words = [word for word in definition.command if word not in left_out]
    words.append(f"{NAME}={quoted(definition.name)}")

    working = Path(definition.working_folder)
    place = folder.resolve()
    typed = definition.sweep_dir
    if typed is not None and (working / typed).resolve() == place:
        words.append(f"{_DIR}={quoted(typed)}")
    elif not is_usual(definition) or place != (working / "multirun" / definition.name).resolve():
        words.append(f"{_DIR}={quoted(str(folder))}")
    return shlex.join(words)


def is_usual(definition: Definition) -> bool:
    """Return whether the study began in multirun/<name>."""
    return definition.sweep_dir is None and not any(map(_is_sweep_dir, definition.command))


def _is_sweep_dir(word: str) -> bool:
    return word.lstrip("+").startswith(f"{_DIR}=")


def another_study(definition: Definition, folder: Path) -> str:
    """Return the word that makes another study of a command, as typed in a shell."""
    if is_usual(definition):
        return "another hydra.sweeper.study_name"
    numbers = (folder.with_name(f"{folder.name}_{number}") for number in count(2))
    free = next(path for path in numbers if not path.exists())
    working = Path(definition.working_folder)
    place = free.relative_to(working) if free.is_relative_to(working) else free
    return f"another folder: {shlex.quote(f'{_DIR}={quoted(str(place))}')}"


def unpack_line(packed: Path) -> str:
    """Return the command that unpacks an archived study."""
    return shlex.join(["tar", "-xzf", str(packed), "-C", str(packed.parent.parent)])


def newest_first(root: Path) -> list[str]:
    """Return the names of all studies, the newest first."""
    files = sorted(root.glob("*/study.json"), key=lambda file: -file.stat().st_mtime)
    return [file.parent.name for file in files]


def suggest_study(name: str, root: Path) -> str:
    """Return a sentence with the study of a similar name or at this path, or with all studies,
    newest first."""
    path = Path(name).absolute().resolve()
    if (path / "study.json").exists():
        place = [] if path.parent == Path("multirun").resolve() else ["--root", str(path.parent)]
        return f"Type the study's name: {shlex.join([path.name, *place])}"
    names = newest_first(root)
    if not names:
        return "There are no studies yet. Start one with sweep.py -m"
    if near := difflib.get_close_matches(name, names, 1):
        return f"Did you mean {near[0]}?"
    more = f" and {len(names) - _SHOWN} more: sweepyard list" if len(names) > _SHOWN else ""
    return f"Studies: {', '.join(names[:_SHOWN])}{more}"
