"""The former Python modules of conf/, such as `conf.plan`, which old studies and programs still import.

An import returns the present module, never a second copy: trainers.config.targets.FORMER. A study's own copy of the
former code comes first: sweeps/trial/copies.py.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from trainers.config.targets import FORMER

__path__ = [__file__.removesuffix(".py")]


class _Former(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        is_package = name == "conf.checks"
        return ModuleSpec(name, self, is_package=is_package) if is_package or name in FORMER else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation to Python."""

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in FORMER:
            sys.modules[module.__name__] = import_module(FORMER[module.__name__])


sys.meta_path.append(_Former())
