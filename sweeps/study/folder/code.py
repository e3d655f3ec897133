"""The code that a study's trials run: the app's modules, saved in the study's folder when it began.

    code/1/code.json      the commit, a digest of each module, and why something is missing (`Code`)
    code/1/diff.patch     the changes since that commit to files that git tracks; omitted if there
                          are none
    code/1/packages.txt   the installed packages
    code/1/.source/       the modules, at their paths below `Code.top`

code/2 exists if the study was extended under other code. New attempts run the code with the highest
number.
"""

import hashlib
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import sweeps
from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, open_regular, quarantine, read_json, write_whole
from sweeps.base.secrets import without_password
from sweeps.trial.run.copies import Copies

RECORD = "code.json"
DIFF = "diff.patch"
PACKAGES = "packages.txt"
SOURCE = ".source"
_MOST_FILES = 2000
_MOST_MB = 20.0
_GIT_S = 5.0
_ENGINE = Path(sweeps.__file__).parent
# folders that may be edited while a study is open, because no trial imports them
_TESTS = {"tests", "test", "docs"}
_OF_OTHERS = {"site-packages", "dist-packages", "node_modules", "__pycache__"}
# Variables that git sets for its hooks, and that would name another repository.
_OF_A_HOOK = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}


@dataclass(frozen=True)
class Code:
    """One state of an app's code, with paths below the app's git working tree, or below its folder
    without git."""

    app: str = ""  # the app's own file
    files: dict[str, str] = field(default_factory=dict)
    """Digests of the modules, by path. Empty if no code is saved: trials then run the present
    files."""
    commit: str = ""
    trouble: str = ""  # why no modules are saved, or which error git reported

    def top(self, file: Path) -> Path:
        """Return the folder that the paths are below, if the app's own file is this one."""
        return file.parents[self.app.count("/")]


def keep(study: Path, task_function: Any, extend: bool, resume: str) -> tuple[Copies | None, str]:
    """Save the app's code in the study's folder, or check that the app still has the saved code.

    Returns the copies for the trials, and a note if the saved code was damaged or no code can be
    saved. `resume` is the command that resumes the study. Raises UserError if the app's code has
    changed, unless `extend` saves it too.
    """
    file = _file_of(task_function)
    note = ""
    saved = _newest(study)
    code = None
    if saved:
        try:
            code = _read(saved)
            if file and _has_changed(code, file, saved, extend, resume):
                code = None
        except CorruptFile as error:
            old = quarantine(saved)
            note = f"{error}. The app's present code is saved instead (old folder: {old.name})"
    if saved is None or code is None:
        saved, code = _save(study, file)
        if not code.files:
            present = "Each trial runs the app's files as they are when the trial starts"
            note = f"the app's code is not saved: {code.trouble}. {present}"
    if file is None or not code.files:
        return None, note
    return _repair(saved, code, file), note


def check(study: Path, task_function: Any, extend: bool, resume: str) -> None:
    """Raise UserError if the app's code has changed since the study saved it, unless `extend` saves
    it too."""
    file = _file_of(task_function)
    saved = _newest(study)
    if file and saved:
        with suppress(CorruptFile):  # because the app's present code would be saved instead
            _has_changed(_read(saved), file, saved, extend, resume)


def _newest(study: Path) -> Path | None:
    """Return the folder of a study's newest saved code; None if there is none."""
    folders = [path for path in (study / "code").glob("[0-9]*") if path.name.isdecimal()]
    return max(folders, key=lambda path: int(path.name), default=None)


def _has_changed(code: Code, file: Path, saved: Path, extend: bool, resume: str) -> bool:
    """Return whether the app's code has changed. Raises UserError if it has, and does not `extend`
    the study."""
    top = code.top(file)
    copies = saved / SOURCE
    changed = [
        path
        for path, digest in code.files.items()
        # because either of the two may be damaged
        if _digest(top / path) not in {digest, _digest(copies / path)}
    ]
    if changed and not extend:
        names = ", ".join(changed[:3])
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        began = f"study {saved.parents[1].name} was started with other code: {names}{more}"
        raise UserError(
            f"{began}. The code at its start: {copies}\nUndo the change, or run the remaining"
            f" trials with the new code: {resume} hydra.sweeper.extend=true"
        )
    return bool(changed)


def _repair(saved: Path, code: Code, file: Path) -> Copies:
    """Return the copies of saved code. A damaged copy is made anew."""
    top = code.top(file)
    copies = saved / SOURCE
    damaged = [path for path in code.files if _digest(copies / path) != _digest(top / path)]
    _copy(top, copies, damaged)
    for path in code.files:
        _protect(copies / path)
    return Copies(str(top), str(copies.resolve()))


def read_newest(study: Path) -> tuple[Path, Code]:
    """Return the folder of the modules of the newest saved code, and its record.

    Raises UserError if the study has no saved code, or its record is damaged.
    """
    saved = _newest(study)
    try:
        code = _read(saved) if saved else Code(trouble="the study has none")
    except CorruptFile as error:
        raise UserError(f"study {study.name}: {error}") from error
    if saved is None or not code.files:
        raise UserError(
            f"study {study.name}: its code is not saved ({code.trouble}).\n"
            "See docs/background/code.md"
        )
    return saved / SOURCE, code


def take(file: Path | None) -> tuple[Code, str]:
    """Return the present code of the app in this file, and git's diff."""
    if file is None:
        return Code(trouble="the app has no file of its own"), ""
    top = next((folder for folder in file.parents if (folder / ".git").exists()), None)
    modules: list[str] = []
    commit = diff = ""
    trouble = "the app is in no git repository"
    if top:
        try:
            modules = _list(top, *_LISTED, "--", "*.py")
            commit = _git(top, "rev-parse", "--verify", "--quiet", "HEAD").strip()
            diff = without_password(_git(top, *_DIFF, "--", ":(exclude,glob)**/.env*"))
            trouble = ""
        except (OSError, subprocess.SubprocessError) as error:
            modules = []
            commit = ""
            trouble = f"git: {getattr(error, 'stderr', '') or error}".strip()
    # because there is no git, or git ignores the app
    if top is None or file.relative_to(top).as_posix() not in modules:
        top = file.parent
        modules = list(_walk(top))
    ours = [path for path in sorted({*modules}) if _is_ours(top / path, top, file.parent)]
    if _is_too_large([top / path for path in ours]):
        trouble = f"its folder has more than {_MOST_FILES} modules or {_MOST_MB:g} MB of modules"
        ours = []
    digests = {path: _digest(top / path) for path in ours}
    return Code(file.relative_to(top).as_posix(), digests, commit, trouble), diff


def _is_too_large(files: Sequence[Path]) -> bool:
    bytes_ = sum(file.stat().st_size for file in files)
    return len(files) > _MOST_FILES or bytes_ > _MOST_MB * 1e6


def tracked_files(top: Path, app: Path) -> list[Path]:
    """Return the files of the app's kind that git tracks below `top`, hidden files omitted; none
    without git.

    A file that git does not track may hold a secret.
    """
    files = listed_files(top, "ls-files", "-z", "--cached") or set()
    return sorted(file for file in files if file.name[0] != "." and _is_ours(file, top, app.parent))


def listed_files(top: Path, *command: str) -> set[Path] | None:
    """Return the files below `top` that git does not ignore, or those that `command` lists; None
    without git."""
    if not (top / ".git").exists():
        return None
    try:
        return {top / path for path in _list(top, *(command or _LISTED))}
    except (OSError, subprocess.SubprocessError):
        return None


_LISTED = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
_DIFF = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color")


def _list(top: Path, *command: str) -> list[str]:
    """Return the paths that this command of git lists."""
    return [path for path in _git(top, *command).split("\0") if path]


def _git(top: Path, *words: str) -> str:
    """Return the output of git; empty if a command other than ls-files fails.

    Raises OSError or SubprocessError if git is missing or hangs, or ls-files fails.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    process = subprocess.run(
        ["git", "-C", str(top), *words],
        check=words[0] == "ls-files",  # because before the first commit the other commands fail
        capture_output=True,
        env=environment,
        timeout=_GIT_S,
        encoding="utf-8",
        errors="surrogateescape",
    )
    return process.stdout if process.returncode == 0 else ""


def _file_of(task_function: Any) -> Path | None:
    """Return the app's file; None if it has no file, or is an installed package."""
    try:
        file = Path(inspect.getfile(inspect.unwrap(task_function))).resolve()
    except TypeError:  # because it is an object with a __call__
        return None
    return file if file.is_file() and not _OF_OTHERS.intersection(file.parts) else None


def _is_ours(file: Path, top: Path, beside: Path) -> bool:
    """Return whether a file is a module of the app: no test, not installed, not of this engine, and
    not hidden.

    Folders above the app do not count, so that an app among tests has modules too.
    """
    folders = file.parent.relative_to(beside if file.is_relative_to(beside) else top).parts
    is_test = (
        _TESTS.intersection(folders) or file.name.startswith("test_") or file.name == "conftest.py"
    )
    hidden = _OF_OTHERS.intersection(folders) or any(folder.startswith(".") for folder in folders)
    return not (is_test or hidden) and not file.is_relative_to(_ENGINE) and file.is_file()


def _walk(top: Path) -> Iterable[str]:
    """Yield the modules below a folder, from each folder whose parent has modules too."""
    folders = [top]
    for folder in folders:  # the list grows meanwhile
        with suppress(OSError):
            modules = [file.relative_to(top).as_posix() for file in folder.glob("*.py")]
            yield from modules
            if modules:
                entries = folder.iterdir()
                folders += [path for path in entries if path.is_dir() and not path.is_symlink()]


def _read(saved: Path) -> Code:
    """Read the record of saved code. Raises CorruptFile if it is damaged."""
    file = saved / RECORD
    try:
        code = Code(**(read_json(file) or {"files": None}))
        for path in (code.app, *code.files):
            if {"..", "/"}.intersection(PurePosixPath(path).parts):
                raise ValueError("a path in it leads elsewhere")
    except (TypeError, ValueError) as error:
        raise CorruptFile(file, error) from error
    return code


def _save(study: Path, file: Path | None) -> tuple[Path, Code]:
    """Save the app's present code as the study's newest, all or nothing. Return its folder, and its
    record.

    Raises OSError if the disk cannot be written.
    """
    code, diff = take(file)
    folder = study / "code"
    newest = _newest(study)
    number = int(newest.name) + 1 if newest else 1
    saved = folder / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / ".gitignore", "*\n", sync=False)
    _protect(folder)  # because nobody else can then replace what is inside
    aside = folder / f".{saved.name}"
    shutil.rmtree(aside, ignore_errors=True)  # because a killed driver may leave it
    aside.mkdir()
    if file:
        _copy(code.top(file), aside / SOURCE, code.files)
    if diff:
        (aside / DIFF).write_text(diff, encoding="utf-8", errors="surrogateescape")
    (aside / PACKAGES).write_text(packages())
    write_whole(aside / RECORD, json.dumps(asdict(code), indent=1))
    aside.rename(saved)
    return saved, code


def _protect(path: Path) -> None:
    """Remove the right of other users to write, because trials execute the copies."""
    with suppress(OSError):  # because the file may belong to a colleague
        if (mode := path.stat().st_mode) & 0o022:
            path.chmod(mode & ~0o022)


def _copy(top: Path, copies: Path, paths: Iterable[str]) -> None:
    for path in paths:
        copy = copies / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        # with its time, because `Copies` compares the times
        shutil.copy2(top / path, copy)
        _protect(copy)
    for folder in (copies.parent, copies, *copies.rglob("*/")):
        _protect(folder)


def packages() -> str:
    """Return the installed packages, a line each, by the names of their metadata folders, because
    these read fastest.

    https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    versions: dict[str, str] = {}
    for entry in sys.path:
        with suppress(OSError):
            for folder in Path(entry or ".").iterdir():
                package, _, version = folder.stem.partition("-")
                if folder.suffix in {".dist-info", ".egg-info"} and version:
                    versions.setdefault(package, version.partition("-py")[0])
    names = sorted(versions, key=str.lower)
    lines = [f"{name}=={versions[name]}" for name in names]
    return "\n".join([f"# Python {sys.version.split()[0]}", *lines, ""])


def _digest(file: Path) -> str:
    """Return the digest of a file's content; empty if the file cannot be read, or is a pipe."""
    with suppress(OSError), open_regular(file) as content:
        return hashlib.blake2s(content.read(), digest_size=8).hexdigest()
    return ""
