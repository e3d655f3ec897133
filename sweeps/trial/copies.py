"""Imports an app's modules as they were when its study began, also where they have been edited or removed since."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType


@dataclass(frozen=True)
class Copies:
    """Copies of the modules below `top`, in the same places below `kept`. Both are absolute, and no links."""

    top: str
    kept: str


class _Finder(MetaPathFinder):
    """Takes a module from its copy if the file is another one now. The module's `__file__` stays the path of the
    original, so that data beside it are found; its code's file, which tracebacks show, is the copy.
    """

    def __init__(self, copies: Copies) -> None:
        self.copies = copies

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        last, top = name.rpartition(".")[2], self.copies.top
        for folder in map(os.path.realpath, sys.path if path is None else path):
            if not f"{folder}/".startswith(f"{top}/"):
                continue
            for file in (f"{folder}/{last}/__init__.py", f"{folder}/{last}.py"):
                copy = self.copies.kept + file.removeprefix(top)
                if (then := _stamp(copy)) is None:
                    continue
                found = None if then == _stamp(file) else PathFinder.find_spec(name, path)
                is_other = found is not None and os.path.realpath(found.origin or "") != file
                if then == _stamp(file) or is_other:  # the import finds the same, or one that comes first
                    return None
                return spec_from_file_location(name, file, loader=SourceFileLoader(name, copy))
        return None


def use(copies: Copies | None) -> None:
    """Let all that is imported from now on in this process be the copies; None for what the files hold."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    if copies:
        sys.meta_path.insert(0, _Finder(copies))


def in_use() -> Copies | None:
    """What another process must `use` to import the same."""
    return next((finder.copies for finder in sys.meta_path if isinstance(finder, _Finder)), None)


def _stamp(file: str) -> tuple[int, int] | None:
    """When the file was written and its size, by which Python tells whether bytecode is that of a source."""
    try:
        known = os.stat(file)  # noqa: PTH116 - at each import, where pathlib costs more than the call
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size
