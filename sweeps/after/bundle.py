"""A bundle: one zip with a study's results and all that is needed to run the study again on another
machine.

NAME/bundle.json      the command, and the folder below app/ in which it is typed
NAME/README.md        the methods of the study in words
NAME/packages.txt     the packages that were installed
NAME/app/             the app's modules and its configuration files
NAME/figures/         the figures for print
NAME/study/NAME/      the study's record, without logs, checkpoints and models
"""

import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, product
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from sweeps.after.best import key
from sweeps.base.errors import UserError
from sweeps.base.files import MALFORMED, CorruptFile, read_json
from sweeps.record.definition import Definition
from sweeps.record.inside import is_inside
from sweeps.record.study import StudySnapshot
from sweeps.record.trial_config import config_folders
from sweeps.space.space import quoted
from sweeps.study.folder import code
from sweeps.study.folder.code import Code

_FILE = "bundle.json"
_APP = "app"
_STUDY = "study"
_OF_STUDY = (
    "*.json",
    "*.jsonl",
    "*.yaml",
    "*.csv",
    "done",
    "code/*/code.json",
    "code/*/diff.patch",
)
_OF_TRIAL = (
    "*.json",
    "*.jsonl",
    ".hydra/*.yaml",
    "attempts/*/started",
    "attempts/*/*.json",
    "attempts/*/*.jsonl",
)
_OF_THIS_MACHINE = {"tracking.json", "driver_status.json"}
_MOST_BYTES = 2_000_000  # of a file other than a module
_MOST_OF_RECORD = 100_000_000  # bytes of a file of the study's record, or of a module
_MOST_UNPACKED = 10_000_000_000  # bytes of all files
_LEFT_OUT = (
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.sweeper.storage",
    "hydra.sweeper.extend",
)
"""Settings that lead out of the bundle's folder, or to the former study."""


@dataclass(frozen=True)
class Bundle:
    """How to run the bundle's study."""

    name: str
    command: list[str]
    folder: str = "."  # where the command is typed, below app/


def pack(
    study: StudySnapshot, definition: Definition, others: Mapping[str, Path | str], output: Path
) -> list[str]:
    """Write the bundle of a study, and `others`: files or texts by their paths in the bundle.
    Return what it lacks.

    Raises UserError if the study's code was not saved, or its app is no longer in its place.
    """
    source, saved = code.read_newest(study.folder)
    top = _find_top(definition, saved)
    contents: dict[str, Path | str] = {}
    for path in saved.files:
        contents[f"{_APP}/{path}"] = source / path

    files, problems = _files_beside(study, definition, top, top / saved.app)
    began = (source.parent / code.RECORD).stat().st_mtime
    for file in files:
        place = f"{_APP}/{file.relative_to(top).as_posix()}"
        if place not in contents:
            contents[place] = file
            if file.stat().st_mtime > began:
                problems.append(f"{file} was changed after the study began")

    for path, file in _record_of(study).items():
        contents[path_in_study(study.name, path)] = file
    contents["packages.txt"] = source.parent / code.PACKAGES
    problems += _leave_out(contents, [study.folder, top])
    contents |= others
    contents[_FILE] = json.dumps(asdict(_describe(definition, saved, top)), indent=1)
    _write(output, study.name, contents)
    return problems


def _write(output: Path, top: str, contents: Mapping[str, Path | str]) -> None:
    """Write the zip file of these contents, below the folder `top`, whole or not at all."""
    aside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as bundle:
            for path, content in sorted(contents.items()):
                if isinstance(content, str):
                    bundle.writestr(f"{top}/{path}", content)
                else:
                    bundle.write(content, f"{top}/{path}")
        aside.replace(output)
    finally:
        aside.unlink(missing_ok=True)


def path_in_study(name: str, path: str) -> str:
    """Return the path in the bundle of a file of the study `name`."""
    return f"{_STUDY}/{name}/{path}"


def _leave_out(contents: dict[str, Path | str], folders: Sequence[Path]) -> list[str]:
    """Remove the files that are outside of all folders, by a link, or too large. Return why, in
    words."""
    problems = []
    for path, file in [*contents.items()]:
        if not isinstance(file, Path):
            continue
        problem = ""
        if not any(is_inside(file, folder) for folder in folders):
            problem = "a link leads out of the study"
        elif file.is_file() and file.stat().st_size > _MOST_OF_RECORD:
            problem = f"the file exceeds {_MOST_OF_RECORD / 1e6:g} MB"
        if problem:
            del contents[path]
            problems.append(f"{file} is not in the bundle, because {problem}")
    return problems


def _files_beside(
    study: StudySnapshot, definition: Definition, top: Path, app: Path
) -> tuple[list[Path], list[str]]:
    """Return the app's configuration, files that git tracks or that the command names, and what is
    left out."""
    problems = []
    files = code.tracked_files(top, app)
    if not files:
        problems.append("other files than modules and YAML are left out, because git tracks none")
    files = [*files, *_typed_files(definition, top, app)]

    folders = config_folders(study.rows[0].folder) if study.rows else []
    for folder in sorted(set(folders)):
        if folder.is_relative_to(top):
            files += configuration(folder, top, study.folder.parent)
        else:
            problems.append(
                f"{folder} is not in the bundle, because the folder is outside of {top}"
            )

    large = [file for file in files if file.stat().st_size > _MOST_BYTES]
    for file in large:
        problem = f"the file exceeds {_MOST_BYTES / 1e6:g} MB"
        problems.append(f"{file} is not in the bundle, because {problem}")
    if earlier := definition.search.get("learn_from"):
        lacking = f"the studies of hydra.sweeper.learn_from are not in the bundle: {earlier}."
        problems.append(f"{lacking} To reproduce without them, add 'hydra.sweeper.learn_from=[]'")
    return [file for file in files if file not in large], problems


def _typed_files(definition: Definition, top: Path, app: Path) -> list[Path]:
    """Return the files below `top`, but the app, that the study's command names."""
    values = [word.rpartition("=")[2] for word in definition.command[2:]]
    files = [Path(definition.working_folder, value).resolve() for value in values]
    inside = [file for file in files if file.is_relative_to(top) and file != app]
    return [file for file in inside if file.is_file()]


def configuration(folder: Path, top: Path, studies: Path) -> Iterator[Path]:
    """Yield the YAML files of a configuration folder that are not hidden, ignored by git, or links
    out of the app."""
    listed = code.listed_files(top)
    for file in sorted(folder.rglob("*.y*ml")):
        parts = file.relative_to(folder).parts
        if file.is_relative_to(studies) or any(part.startswith(".") for part in parts):
            continue
        is_listed = listed is None or file in listed
        if is_listed and file.is_file() and file.resolve().is_relative_to(top):
            yield file


def _record_of(study: StudySnapshot) -> dict[str, Path]:
    """Return the files of the study's record by their paths below its folder."""
    top = study.folder
    folders = [trial.folder for trial in study.rows if trial.folder.is_relative_to(top)]
    patterns = [*product([top], _OF_STUDY), *product(folders, _OF_TRIAL)]
    files = chain.from_iterable(folder.glob(pattern) for folder, pattern in patterns)
    portable = [file for file in files if file.is_file() and file.name not in _OF_THIS_MACHINE]
    return {file.relative_to(top).as_posix(): file for file in portable}


def _find_top(definition: Definition, saved: Code) -> Path:
    """Return the folder that the paths of the saved code are below. Raises UserError if the app is
    not there."""
    working = Path(definition.working_folder).resolve()
    typed = [(working / word).resolve() for word in definition.command if word.endswith(".py")]
    tops = [
        path.parents[saved.app.count("/")]
        for path in typed
        if path.as_posix().endswith(f"/{saved.app}")
    ]
    for top in [*tops, working, *working.parents]:
        if (top / saved.app).is_file():
            return top
    raise UserError(
        f"study {definition.name}: its app {saved.app} is no longer in {working}, with the"
        " configuration files.\nPut the app back, and repeat this command"
    )


def _describe(definition: Definition, saved: Code, top: Path) -> Bundle:
    """Return the command with paths below the top folder."""
    working = Path(definition.working_folder).resolve()
    folder = working.relative_to(top) if working.is_relative_to(top) else Path()
    app = top / saved.app
    words = ["python"]
    for word in definition.command[1:]:
        if word.endswith(".py") and (working / word).resolve() == app:
            words.append(os.path.relpath(app, top / folder))
        elif key(word) not in _LEFT_OUT:
            words.append(word)
    return Bundle(
        definition.name,
        [*words, f"hydra.sweeper.study_name={quoted(definition.name)}"],
        folder.as_posix(),
    )


def unpack(file: Path, folder: Path | None) -> tuple[Bundle, Path]:
    """Unpack a bundle into a folder, by default NAME_reproduced, unless it is there already. Return
    both.

    Raises UserError if the file is no bundle, or the folder holds something else.
    """
    try:
        with zipfile.ZipFile(file) as packed:
            names = [name for name in packed.namelist() if not name.endswith("/")]
            bundle = _read_bundle(packed, names)
            folder = folder or Path(f"{bundle.name}_reproduced")
            if _read_described(folder) == bundle:
                return bundle, folder
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                other = f"--folder {folder}_2"
                raise UserError(
                    f"{folder}: the folder holds something else.\nChoose another folder: {other}"
                )
            _extract(packed, names, bundle.name, folder)
            return bundle, folder
    except (zipfile.BadZipFile, zlib.error, RuntimeError, *MALFORMED) as error:
        # RuntimeError if it is encrypted
        example = "sweepyard bundle NAME"
        raise UserError(
            f"{file}: not a bundle ({error}).\nMake one from a study: {example}"
        ) from error


def _extract(packed: zipfile.ZipFile, names: Sequence[str], top: str, folder: Path) -> None:
    """Write the files below `top` into a new or empty folder, all or none."""
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
        unpacked = Path(aside) / "unpacked"
        for name in names:
            target = unpacked / PurePosixPath(name).relative_to(top)
            target.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(name) as content, target.open("wb") as file:
                shutil.copyfileobj(content, file)
        (unpacked / ".gitignore").write_text("*\n")  # or it would be code of the app around it
        unpacked.replace(folder)


def _read_bundle(packed: zipfile.ZipFile, names: Sequence[str]) -> Bundle:
    """Return the description of a bundle. Raises an error of MALFORMED if it is none, or leads out
    of its folder."""
    if sum(packed.getinfo(name).file_size for name in names) > _MOST_UNPACKED:
        raise ValueError(f"its files have more than {_MOST_UNPACKED / 1e9:g} GB")
    (described,) = [name for name in names if PurePosixPath(name).parts[1:] == (_FILE,)]
    if packed.getinfo(described).file_size > _MOST_BYTES:
        raise ValueError(f"its {_FILE} is too large")
    content = json.loads(packed.read(described))
    bundle = Bundle(**content)
    texts = [bundle.name, bundle.folder, *bundle.command]
    if not all(isinstance(text, str) and "\0" not in text for text in texts) or not bundle.command:
        raise ValueError("its command cannot be typed")
    _check_paths(bundle, names)
    return bundle


def _check_paths(bundle: Bundle, names: Sequence[str]) -> None:
    """Raise ValueError if a file of a bundle, or its app, is outside of its folder."""
    if PurePosixPath(bundle.folder).is_absolute():
        raise ValueError(f"it has the path {bundle.folder}")
    for path in map(PurePosixPath, [*names, f"{bundle.name}/{bundle.folder}"]):
        if path.parts[0] != bundle.name or ".." in path.parts:
            raise ValueError(f"it has the path {path}")


def _read_described(folder: Path) -> Bundle | None:
    """Return the bundle that was unpacked here; None if there is none, or not a whole one."""
    with suppress(CorruptFile, TypeError, OSError):
        if content := read_json(folder / _FILE):
            return Bundle(**content)
    return None


def app_folder(bundle: Bundle, folder: Path) -> Path:
    """Return the folder in which the bundle's command is typed."""
    return folder / _APP / bundle.folder


def describe_package_differences(folder: Path) -> list[str]:
    """Return a line for each package whose version differs here from the bundle's, and for
    Python's."""
    recorded: dict[str, str] = {}
    with suppress(OSError, UnicodeDecodeError):
        recorded = _parse_packages((folder / "packages.txt").read_text())
    here = _parse_packages(code.packages())
    return [
        f"{name} {here.get(name, 'is missing')} (was {version})"
        for name, version in recorded.items()
        if here.get(name) != version
    ]


def _parse_packages(text: str) -> dict[str, str]:
    packages = {}
    for line in text.splitlines():
        name, sign, version = line.removeprefix("# ").replace(" ", "==", 1).partition("==")
        if sign:
            packages[name] = version
    return packages
