"""Imports of an app's modules from its study's copies, even if the originals were edited or removed
since."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from sweeps.base.files import is_private


@dataclass(frozen=True)
class Copies:
    """Copies of the modules below `top`, at the same relative paths below `folder`; both absolute,
    without links."""

    top: str
    folder: str


class _Finder(MetaPathFinder):
    """Finds a module's copy just before its original, and loads it if the original has changed.

    The module's `__file__` stays the original's path, so that data files, extensions and generated
    modules beside it are found. Tracebacks show the copy.
    """

    def __init__(self, copies: Copies) -> None:
        self.copies = copies

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = self.copies.top
        places: list[str] = []
        for folder in sys.path if path is None else path:
            real = os.path.realpath(folder)
            if f"{real}/".startswith(f"{top}/"):
                places.append(self.copies.folder + real.removeprefix(top))
            places.append(folder)
        spec = PathFinder.find_spec(name, places, target)
        if spec is None or not spec.has_location:
            return None
        copy = spec.origin or ""
        if not copy.startswith(f"{self.copies.folder}/"):
            return spec
        file = top + copy.removeprefix(self.copies.folder)
        if _stamp(copy) == _stamp(file):
            return None  # because the normal import finds the same code
        _check_private(copy)
        return spec_from_file_location(name, file, loader=_CopyLoader(name, copy))


class _CopyLoader(SourceFileLoader):
    """Compiles a copy at each import, because another user may have put bytecode beside a copy."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


def use(copies: Copies | None) -> None:
    """Load the copies at each later import of this process; None loads the original files."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    if copies:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder(copies))


def in_use() -> Copies | None:
    """Return the argument of `use` with which another process imports the same modules."""
    return next((finder.copies for finder in sys.meta_path if isinstance(finder, _Finder)), None)


def _check_private(copy: str) -> None:
    """Raise ImportError if another user could have changed this copy."""
    status = os.stat(copy)  # noqa: PTH116
    if is_private(status):
        return
    advice = "Resume the study as the user who started it"
    if status.st_uid == os.getuid():
        advice = f"Type: chmod go-w {copy}"
    raise ImportError(f"{copy}: another user could have changed this module. {advice}")


def _stamp(file: str) -> tuple[int, int] | None:
    """Return a file's modification time and size, by which Python matches bytecode to its
    source."""
    try:
        # because pathlib costs more than the call, at each import
        status = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
