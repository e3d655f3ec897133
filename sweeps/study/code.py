"""The code that a study's trials run: the app's own source as it was at the start, kept in the study's folder.

    code/1/code.json      what it is: the commit, and the digest of each file (`Code`)
    code/1/diff.patch     what was changed since that commit, of what git tracks; not there if nothing was
    code/1/packages.txt   what was installed
    code/1/.source/       the files; what lies beside them, such as data and compiled modules, is linked

code/2 is there if the study was extended under other code: the highest number is what new attempts run. Each is made
aside and renamed. The tree is hidden from tools that look for tests and modules below the working folder.
"""

import hashlib
import inspect
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader

import sweeps
from sweeps.errors import UserError
from sweeps.files import Unreadable, read_json, set_aside, write_whole
from sweeps.study import git

RECORD, DIFF, PACKAGES, SOURCE = "code.json", "diff.patch", "packages.txt", ".source"
_MOST_FILES = 2000
_MOST_MB = 20.0
_WALK_S = 3.0
_ENGINE = Path(sweeps.__file__).parent
_TESTS = {"tests", "test", "docs"}  # nobody trains with these: they may be edited while a study is open
_OF_OTHERS = {"site-packages", "dist-packages", "node_modules", "__pycache__"}


@dataclass(frozen=True)
class Code:
    """One state of the app's code. Paths are relative to `top`, the working tree that the app is in."""

    top: str = ""
    app: str = "."  # the folder that the app is imported from
    files: dict[str, str] = field(default_factory=dict)
    """Digests of the source, by path. Empty if none is kept: trials then run what the files hold when they start."""
    commit: str = ""
    branch: str = ""
    remote: str = ""
    dirty: bool = False
    trouble: str = ""  # why no source is kept, or what git did not tell
    since: float = 0.0  # seconds since 1970

    @property
    def digest(self) -> str:
        return _digest(json.dumps(sorted(self.files.items())).encode())


@dataclass(frozen=True)
class App:
    """Where the running app's own source lies."""

    top: Path  # of git's working tree, or else the app's folder
    folder: Path  # that it is imported from
    file: Path
    roots: tuple[str, ...]  # the folders on sys.path in the same tree, the app's first, from the top
    confs: tuple[str, ...]  # the folders that Hydra reads, from the top


class Kept:
    """The code of a study, in its folder."""

    def __init__(self, folder: Path, code: Code, app: App | None) -> None:
        self.folder, self.code, self._app = folder, code, app

    def tags(self) -> dict[str, str]:
        """What git knows of it, by MLflow's names without their prefix; nothing if git told of no commit."""
        code = self.code
        found = {"commit": code.commit, "branch": code.branch, "repoURL": code.remote, "dirty": str(code.dirty).lower()}
        return {name: value for name, value in found.items() if value} if code.commit else {}

    @contextmanager
    def in_place(self, loader: ConfigLoader) -> Iterator[None]:
        """Let what is imported and composed from now on, here and in the processes that get this one's sys.path, come
        from the kept source. What was imported stays as it is.
        """
        assert isinstance(loader, ConfigLoaderImpl)
        before, elements = list(sys.path), loader.config_search_path.get_path()
        paths = [element.path for element in elements]
        if self.code.files and self._app:
            here = _up(self._app.folder, self.code.app)
            # The original stays behind: the engine and what came later are found there.
            sys.path[:] = [e for entry in before for e in (*self._kept(Path(entry or "."), here), entry)]
            for element in elements:
                if (conf := _conf_folder(element.path)) and (kept := self._kept(conf, here)):
                    element.path = f"file://{kept[0]}"
            loader.repository.initialize_sources(loader.config_search_path)
        try:
            yield
        finally:
            sys.path[:] = before
            for element, path in zip(elements, paths, strict=True):
                element.path = path
            loader.repository.initialize_sources(loader.config_search_path)

    def _kept(self, folder: Path, top: Path) -> list[str]:
        """The folder's counterpart in the kept source, if it has one that is no link."""
        folder = folder.resolve()
        if not folder.is_relative_to(top):
            return []
        inside = folder.relative_to(top)
        own = any(PurePosixPath(path).is_relative_to(inside.as_posix()) for path in self.code.files)
        return [str(self.folder / SOURCE / inside)] if own else []


@contextmanager
def watching(loader: ConfigLoader) -> Iterator[set[str]]:
    """The names of the configs that are read meanwhile, such as optimizer/adam."""
    assert isinstance(loader, ConfigLoaderImpl)
    repository, read = loader.repository, set()

    def load_config(config_path: str) -> Any:
        read.add(config_path.strip("/").removesuffix(".yaml"))
        return type(repository).load_config(repository, config_path)

    vars(repository)["load_config"] = load_config
    try:
        yield read
    finally:
        del vars(repository)["load_config"]


def keep(
    study: Path, task_function: Any, loader: ConfigLoader, extend: bool, read: Collection[str]
) -> tuple[Kept, str]:
    """Keep the app's code in the study's folder; or, if it has some, check that the app still is that: of the YAML
    files those that were `read`.

    Returns it, and what had to be mended or cannot be kept, in words. Raises UserError if the app's code is another
    one, unless the study is being extended: then that is kept too.
    """
    app, folder, said = find_app(task_function, loader), study / "code", ""
    number, known = 0, None
    try:
        number, known = newest(study)
    except Unreadable as error:
        aside = set_aside(folder / str(number := _numbers(folder)[-1]))
        number, said = number - 1, f"{error}. The code is taken for what it is now ({aside.name} is kept)"
    if known and not (extend and app):
        if differs := _others(app, known, read) if app else [*known.files]:
            shown = ", ".join(differs[:3]) + (f" and {len(differs) - 3} more" if len(differs) > 3 else "")
            raise UserError(
                f"study {study.name} was started with other code: {shown}; as it was: {folder / str(number) / SOURCE}\n"
                "Undo that, or let the trials that are left run the new code: add hydra.sweeper.extend=true"
            )
        own = folder / str(number)
        if app and _differing(own / SOURCE, known):
            top, aside = _up(app.folder, known.app), set_aside(own)
            said = f"the kept code was damaged and is made anew ({aside.name} is kept)"
            contents, _ = _read(top, known.files)
            known = replace(known, files={path: _digest(content) for path, content in contents.items()})
            _write(folder, number, known, contents, _text(aside / DIFF), top)
        return Kept(own, known, app), said
    code, contents, diff = take(app)
    if known and code.digest == known.digest:
        return Kept(folder / str(number), known, app), said
    number += 1
    try:
        _write(folder, number, code, contents, diff, Path(code.top))
    except OSError as error:
        code = replace(code, files={}, trouble=f"{error}")
        _write(folder, number, code, {}, diff, Path(code.top))
    if app and not code.files:
        said = f"the app's code is not kept: {code.trouble}. Trials run what its files hold when they start"
    return Kept(folder / str(number), code, app), said


def newest(study: Path) -> tuple[int, Code | None]:
    """The code that new attempts run, and its number; (0, None) if the study has none. Raises Unreadable."""
    if not (numbers := _numbers(study / "code")):
        return 0, None
    file = study / "code" / str(numbers[-1]) / RECORD
    try:
        code = Code(**(read_json(file) or {}))
        files = {PurePosixPath(path).as_posix(): digest for path, digest in code.files.items()}
        return numbers[-1], replace(code, files=files, app=PurePosixPath(code.app).as_posix())
    except (TypeError, AttributeError) as error:
        raise Unreadable(file, error) from error


def find_app(task_function: Any, loader: ConfigLoader) -> App | None:
    """Where the app lies that has this function. None if it has no file, or is installed: it is a package then."""
    function = inspect.unwrap(task_function)
    module = sys.modules.get(getattr(function, "__module__", None) or "__main__")
    names = getattr(function, "__globals__", None) or getattr(module, "__dict__", {})
    file = Path(names.get("__file__") or os.devnull).resolve()
    if not file.is_file() or _OF_OTHERS.intersection(file.parts):
        return None
    package = names.get("__package__") or ""
    folder = file.parents[package.count(".") + 1 if package else 0]
    top = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
    python = [one for one in map(Path, {sys.prefix, sys.base_prefix}) if one.is_relative_to(top)]
    roots = {folder.relative_to(top).as_posix(): None}
    for entry in (Path(entry or ".").resolve() for entry in sys.path):
        if entry.is_relative_to(top) and entry.is_dir() and not any(map(entry.is_relative_to, python)):
            roots[entry.relative_to(top).as_posix()] = None
    assert isinstance(loader, ConfigLoaderImpl)
    confs = [conf for element in loader.config_search_path.get_path() if (conf := _conf_folder(element.path))]
    inside = [conf for conf in confs if conf.is_relative_to(top) and not conf.is_relative_to(_ENGINE)]
    return App(top, folder, file, tuple(roots), tuple(conf.relative_to(top).as_posix() for conf in inside))


def take(app: App | None) -> tuple[Code, dict[str, bytes], str]:
    """The app's code as it is now, what its files hold, and what git calls its diff."""
    now = time.time()
    if app is None:
        return Code(trouble="the app has no files of its own: nothing is kept of its code", since=now), {}, ""
    engine = _ENGINE.relative_to(app.top).as_posix() if _ENGINE.is_relative_to(app.top) else None
    told = git.Told(trouble="the app is in no git repository")
    if (app.top / ".git").exists():
        patterns = [git.under(root, ".py") for root in app.roots] + [git.under(conf, ".yaml") for conf in app.confs]
        told = git.ask(app.top, patterns)
    paths = select(told.tracked, _not_made(app.top, told.untracked), app.roots, app.confs, engine)
    if app.file.relative_to(app.top).as_posix() not in paths:  # no git, or one that ignores the app
        found = _not_made(app.top, _walk(app))
        paths = sorted({*paths, *select([], found, app.roots, app.confs, engine)})
    contents, trouble = _read(app.top, paths)
    digests = {path: _digest(content) for path, content in contents.items()}
    inside, trouble = app.folder.relative_to(app.top).as_posix(), trouble or told.trouble
    code = Code(str(app.top), inside, digests, told.commit, told.branch, told.remote, told.dirty, trouble, now)
    return code, contents, told.diff


def select(
    tracked: Iterable[str],
    untracked: Iterable[str],
    roots: Sequence[str],
    confs: Sequence[str],
    engine: str | None = None,
) -> list[str]:
    """The source among these files: what can be imported from one of the `roots`, and what Hydra reads in `confs`.
    Neither the `engine`'s own, nor tests; of what git does not track no packages of others.
    """
    ours = set(tracked)
    return sorted(
        path
        for path in {*ours, *untracked}
        if _is_source(PurePosixPath(path), roots, confs)
        and (path in ours or not _OF_OTHERS.intersection(PurePosixPath(path).parts))
        and not (engine and PurePosixPath(path).is_relative_to(engine))
    )


def _is_source(path: PurePosixPath, roots: Sequence[str], confs: Sequence[str]) -> bool:
    among = {".py": roots, ".yaml": confs}.get(path.suffix, [])
    root = max((root for root in among if path.is_relative_to(root)), key=len, default=None)
    if root is None:
        return False
    folders = path.relative_to(root).parts[:-1]
    tests = _TESTS.intersection(folders) or path.name.startswith("test_") or path.name == "conftest.py"
    return not (path.suffix == ".py" and tests) and not any(folder.startswith(".") for folder in folders)


def _not_made(top: Path, paths: Iterable[str]) -> list[str]:
    """Those that are in no folder of a run or a study."""
    made = {".": False}

    def is_made(folder: PurePosixPath) -> bool:
        if str(folder) not in made:
            own = any((top / folder / mark).exists() for mark in (".hydra", "study.json"))
            made[str(folder)] = own or is_made(folder.parent)
        return made[str(folder)]

    return [path for path in paths if not is_made(PurePosixPath(path).parent)]


def _walk(app: App) -> list[str]:
    """Without git: the *.py in the roots, and below them as far as each folder has some; the YAML that Hydra reads."""
    found: list[str] = []
    deadline, roots = time.monotonic() + _WALK_S, {app.top / root for root in app.roots}
    waiting = [(root, ".py") for root in roots] + [(app.top / conf, ".yaml") for conf in app.confs]
    for folder, suffix in waiting:  # which grows
        if time.monotonic() > deadline or len(found) > _MOST_FILES:
            break  # `_read` then finds too many, or what is not found is not kept
        with suppress(OSError):
            entries = list(os.scandir(folder))
            own = [one.path for one in entries if one.name.endswith(suffix)]
            found += [Path(path).relative_to(app.top).as_posix() for path in own]
            if own or suffix == ".yaml" or folder in roots:
                below = (one for one in entries if one.is_dir(follow_symlinks=False))
                waiting += [(Path(one.path), suffix) for one in below if one.name not in _OF_OTHERS]
    return found


def _read(top: Path, paths: Iterable[str]) -> tuple[dict[str, bytes], str]:
    """What the files hold; nothing, and why in words, if they are too many or too large. One that is not there, or may
    not be read, is left out.
    """
    contents: dict[str, bytes] = {}
    size = 0
    for path in paths:
        with suppress(OSError):
            contents[path] = (top / path).read_bytes()
            size += len(contents[path])
        if len(contents) > _MOST_FILES or size > _MOST_MB * 1e6:
            return {}, f"its source is more than {_MOST_FILES} files or {_MOST_MB:g} MB"
    return contents, ""


def _write(folder: Path, number: int, code: Code, contents: dict[str, bytes], diff: str, top: Path) -> None:
    """Make `folder`/`number`, whole. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / ".gitignore", "*\n", sync=False)
    for left in folder.glob(".[0-9]*"):  # by a driver that was killed
        shutil.rmtree(left)
    aside = folder / f".{number}"
    aside.mkdir()
    if contents:
        _plant(aside / SOURCE, top, contents, {_ENGINE, folder.absolute(), *folder.absolute().parents})
    if diff:
        (aside / DIFF).write_text(diff)
    (aside / PACKAGES).write_text(packages())
    write_whole(aside / RECORD, json.dumps(asdict(code), indent=1))
    aside.rename(folder / str(number))


def _plant(tree: Path, top: Path, contents: dict[str, bytes], unlinked: set[Path]) -> None:
    """Write the files, and link what else lies in their folders: `Path(__file__).parent / "data"` is still there."""
    folders = {parent for path in contents for parent in PurePosixPath(path).parents}
    links = 0
    for inside in sorted(folders):
        (tree / inside).mkdir(parents=True, exist_ok=True)
        for entry in os.scandir(top / inside):
            beside = inside / entry.name
            if str(beside) in contents or beside in folders or entry.name in {".git", "__pycache__"}:
                continue
            if Path(entry.path) in unlinked:
                continue
            if (links := links + 1) > _MOST_FILES:
                raise OSError(f"beside its source lie more than {_MOST_FILES} other files")
            (tree / beside).symlink_to(entry.path)
    for path, content in contents.items():
        mode = stat.S_IMODE((top / path).stat().st_mode) & 0o555 | stat.S_IRUSR  # nobody edits it by mistake
        (tree / path).write_bytes(content)
        (tree / path).chmod(mode)


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


def _conf_folder(path: str | None) -> Path | None:
    """The folder behind an element of Hydra's search path."""
    scheme, _, rest = (path or "").rpartition("://")
    if scheme == "pkg":
        with suppress(ImportError, TypeError, ValueError):
            return Path(str(resources.files(rest.replace("/", ".").rstrip(".")).joinpath("_"))).parent.resolve()
    return Path(rest).resolve() if scheme in {"", "file"} and rest else None


def _others(app: App, code: Code, read: Collection[str]) -> list[str]:
    """The files of the code that are others now, but for configs that the study does not read."""
    top = _up(app.folder, code.app)
    roots = [app.top / conf for conf in app.confs]

    def matters(path: Path) -> bool:
        inside = [path.relative_to(root).with_suffix("").as_posix() for root in roots if path.is_relative_to(root)]
        return path.suffix != ".yaml" or any(name in read for name in inside)

    return [path for path in _differing(top, code) if matters(top / path)]


def _differing(top: Path, code: Code) -> list[str]:
    """The files of the code that are others at `top`, or not there."""
    now, _ = _read(top, code.files)
    return [path for path, digest in code.files.items() if path not in now or _digest(now[path]) != digest]


def _up(folder: Path, inside: str) -> Path:
    """The top of the tree in which `folder` is `inside`."""
    for _ in PurePosixPath(inside).parts:
        folder = folder.parent
    return folder


def _numbers(folder: Path) -> list[int]:
    return sorted(int(one.name) for one in folder.glob("[0-9]*") if one.name.isdecimal())


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(errors="replace")
    return ""


def _digest(content: bytes) -> str:
    return hashlib.blake2s(content, digest_size=8).hexdigest()
