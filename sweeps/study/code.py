"""The code that a study's trials run: the app's own modules as they were when it began, kept in its folder.

    code/1/code.json      the commit, what is not known and why, and a digest of each module (`Code`)
    code/1/diff.patch     what was changed since that commit, of what git tracks; not there if nothing was
    code/1/packages.txt   what was installed
    code/1/.source/       the modules, in the places that they have below `Code.top`

code/2 is there if the study was extended under other code: the highest number is what new attempts run.
"""

import hashlib
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import sweeps
from sweeps.errors import UserError
from sweeps.files import CorruptFile, quarantine, read_json, write_whole
from sweeps.secrets import without_password
from sweeps.trial.copies import Copies

RECORD, DIFF, PACKAGES, SOURCE = "code.json", "diff.patch", "packages.txt", ".source"
_MOST_FILES = 2000
_MOST_MB = 20.0
_GIT_S = 5.0
_ENGINE = Path(sweeps.__file__).parent
_TESTS = {"tests", "test", "docs"}  # nobody trains with these: they may be edited while a study is open
_OF_OTHERS = {"site-packages", "dist-packages", "node_modules", "__pycache__"}
_OF_A_HOOK = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}  # they would name another repository


@dataclass(frozen=True)
class Code:
    """One state of an app's code. Paths are relative to the working tree of git that the app is in, or to its folder if
    it is in none.
    """

    app: str = ""  # the app's own file
    files: dict[str, str] = field(default_factory=dict)
    """Digests of the modules, by path. Empty if none are kept: trials then run what the files hold when they start."""
    commit: str = ""
    trouble: str = ""  # why no modules are kept, or what git did not tell


def keep(study: Path, task_function: Any, extend: bool, again: str) -> tuple[Copies | None, str]:
    """Keep the app's code in the study's folder; or, if it has some, check that the app still is that. `again` is what
    to type to go on with the study.

    Returns what the trials are to use, and what had to be mended or cannot be kept, in words. Raises UserError if the
    app's code is another one, unless the study is being extended: then that is kept too.
    """
    folder, file, said = study / "code", _file_of(task_function), ""
    number = max((int(one.name) for one in folder.glob("[0-9]*") if one.name.isdecimal()), default=0)
    try:
        known = _read(folder / str(number) / RECORD) if number else None
    except CorruptFile as error:
        said = f"{error}. The code is taken for what it is now ({quarantine(folder / str(number)).name} is kept)"
        number, known = number - 1, None
    if known and file:
        top, kept = file.parents[known.app.count("/")], folder / str(number) / SOURCE
        others = [path for path, digest in known.files.items() if _is_another(top / path, digest, kept / path)]
        if others and not extend:
            shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            raise UserError(
                f"study {study.name} was started with other code: {shown}; as it was: {kept}\n"
                f"Undo that, or let the trials that are left run the new code: {again} hydra.sweeper.extend=true"
            )
        known = None if others else known
    if known is None:
        number += 1
        known, top, diff = take(file)
        _write(folder, number, known, top, diff)
        if not known.files:
            why = f"the app's code is not kept: {known.trouble}"
            said = said or f"{why}. Trials run what its files hold when they start"
    if not (known.files and file):
        return None, said
    kept = folder / str(number) / SOURCE
    _copy(top, kept, [path for path in known.files if _digest(kept / path) != _digest(top / path)])
    return Copies(str(top), str(kept.resolve())), said


def take(file: Path | None) -> tuple[Code, Path, str]:
    """The code of the app in this file as it is now, where its paths begin, and what git calls its diff."""
    if file is None:
        return Code(trouble="the app has no file of its own"), Path(), ""
    told = dict.fromkeys(_ASKED, "")
    tree = next((one for one in file.parents if (one / ".git").exists()), None)
    trouble = "" if tree else "the app is in no git repository"
    if tree:
        try:
            told = {what: _git(tree, *words) for what, words in _ASKED.items()}
        except (OSError, subprocess.SubprocessError) as error:
            trouble = f"git: {getattr(error, 'stderr', '') or error}".strip()
    top, paths = tree or file.parent, told["modules"].split("\0")
    if file.relative_to(top).as_posix() not in paths:  # no git, or one that does not see the app
        top = file.parent
        paths = list(_walk(top))
    paths = sorted(path for path in set(paths) if path and _is_ours(top / path, top, file.parent))
    if len(paths) > _MOST_FILES or sum((top / path).stat().st_size for path in paths) > _MOST_MB * 1e6:
        paths, trouble = [], f"beside it are more than {_MOST_FILES} modules or {_MOST_MB:g} MB of them"
    digests = {path: _digest(top / path) for path in paths}
    app, diff = file.relative_to(top).as_posix(), without_password(told["diff"])
    return Code(app, digests, told["commit"].strip(), trouble), top, diff


def _is_another(file: Path, digest: str, copy: Path) -> bool:
    """Whether the file is neither what was noted of it nor its copy, of which either may be damaged."""
    now = _digest(file)
    return now not in {digest, _digest(copy)}


_ASKED = {
    "modules": ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"],
    "commit": ["rev-parse", "--verify", "--quiet", "HEAD"],
    "diff": ["diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--", ":(exclude,glob)**/.env*"],
}


def _git(top: Path, *words: str) -> str:
    """Raises OSError or SubprocessError: there is no git, it refuses, or takes too long."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    done = subprocess.run(
        ["git", "-C", str(top), *words],
        check=words[0] == "ls-files",  # before the first commit the others have nothing to tell
        capture_output=True,
        env=environment,
        timeout=_GIT_S,
        encoding="utf-8",
        errors="surrogateescape",
    )
    return done.stdout if done.returncode == 0 else ""


def _file_of(task_function: Any) -> Path | None:
    """The app's file; None if it has none, or is installed: it is a package then."""
    try:
        file = Path(inspect.getfile(inspect.unwrap(task_function))).resolve()
    except TypeError:  # an object of a class that has a __call__
        return None
    return file if file.is_file() and not _OF_OTHERS.intersection(file.parts) else None


def _is_ours(file: Path, top: Path, beside: Path) -> bool:
    """Whether trials may import it: no test, not of this engine or of other people, and in no hidden folder, unless the
    app itself is there.
    """
    folders = file.parent.relative_to(beside if file.is_relative_to(beside) else top).parts
    is_test = _TESTS.intersection(folders) or file.name.startswith("test_") or file.name == "conftest.py"
    hidden = _OF_OTHERS.intersection(folders) or any(folder.startswith(".") for folder in folders)
    return not (is_test or hidden) and not file.is_relative_to(_ENGINE) and file.is_file()


def _walk(top: Path) -> Iterable[str]:
    """Without git: the modules beside the app, and below as far as each folder has some."""
    waiting = [top]
    for folder in waiting:  # which grows
        with suppress(OSError):
            own = [file.relative_to(top).as_posix() for file in folder.glob("*.py")]
            yield from own
            if own:
                waiting += [one for one in folder.iterdir() if one.is_dir() and not one.is_symlink()]


def _read(file: Path) -> Code:
    """Raises CorruptFile."""
    try:
        code = Code(**(read_json(file) or {"files": None}))
        if any({"..", "/"}.intersection(PurePosixPath(path).parts) for path in (code.app, *code.files)):
            raise ValueError("a path in it leads elsewhere")
    except (TypeError, ValueError) as error:
        raise CorruptFile(file, error) from error
    return code


def _write(folder: Path, number: int, code: Code, top: Path, diff: str) -> None:
    """Make `folder`/`number`, whole. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / ".gitignore", "*\n", sync=False)
    aside = folder / f".{number}"
    shutil.rmtree(aside, ignore_errors=True)  # left by a driver that was killed
    aside.mkdir()
    _copy(top, aside / SOURCE, code.files)
    if diff:
        (aside / DIFF).write_text(diff, encoding="utf-8", errors="surrogateescape")
    (aside / PACKAGES).write_text(packages())
    write_whole(aside / RECORD, json.dumps(asdict(code), indent=1))
    aside.rename(folder / str(number))


def _copy(top: Path, kept: Path, paths: Iterable[str]) -> None:
    for path in paths:
        (kept / path).parent.mkdir(parents=True, exist_ok=True)
        (kept / path).unlink(missing_ok=True)
        shutil.copy2(top / path, kept / path)  # with its time, by which it is known to be the same


def packages() -> str:
    """What is installed, a line each, by the names of the folders that say so: reading each takes a tenth of a second.

    https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    found: dict[str, str] = {}
    for entry in sys.path:
        with suppress(OSError):
            for folder in Path(entry or ".").iterdir():
                package, _, version = folder.stem.partition("-")
                if folder.suffix in {".dist-info", ".egg-info"} and version:
                    found.setdefault(package, version.partition("-py")[0])
    lines = [f"{name}=={version}" for name, version in sorted(found.items(), key=lambda item: item[0].lower())]
    return "\n".join([f"# Python {sys.version.split()[0]}", *lines, ""])


def _digest(file: Path) -> str:
    """Of what the file holds; empty if it cannot be read."""
    with suppress(OSError):
        return hashlib.blake2s(file.read_bytes(), digest_size=8).hexdigest()
    return ""
