"""The program that a user started, as `__main__` in the process of each trial.

A trial runs the program's statements again up to the one that started the study, without what
Python runs only in a program: `if __name__ == "__main__":`. So its functions and classes are sent
by name, and module-level statements have their effect in each trial, as for processes that
multiprocessing spawns.
"""

import ast
import builtins
import linecache
import os
import subprocess
import symtable
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from sweeps.hydra.parts import HydraStarted, hydra_refused

_MAIN = "__main__"
_SPAWNED = "__mp_main__"  # what multiprocessing calls the program in a process that it spawned
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = _FUNCTIONS | ast.Lambda


@dataclass(frozen=True)
class Program:
    """The program of this process: its file, its source when the study started, and the words that
    were typed."""

    file: str
    spec: ModuleSpec | None  # of `python -m`, of a folder and of an archive; None for a file
    source: str
    line: int  # where the program started the study
    argv: list[str]  # as it was when the program started
    folder: str  # the working folder when the program started

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, because the pickle needs nothing that is computed from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _parts(self) -> "_Parts":
        return _Parts(ast.parse(self.source, self.file), self.line)

    @cached_property
    def own_names(self) -> set[str]:
        """Return the names that the user's process may have set to other objects than the trials'
        processes have."""
        declared: set[str] = set()
        for node in ast.walk(self._parts.tree):
            if isinstance(node, ast.Global):
                declared.update(node.names)
        return declared.union(*map(_bound_names, self._parts.left_out))

    def missing_names(self, task_name: str) -> set[str]:
        """Return the names that a function uses, and that the left out statements set or may have
        changed.

        They may also have changed what the functions use that they call, except the task function,
        which trials call.
        """
        functions = {
            part.name: part for part in self._parts.tree.body if isinstance(part, _FUNCTIONS)
        }
        functions.pop(task_name, None)
        changed = set(self.own_names)
        to_look_at: list[ast.stmt] = [*self._parts.left_out]
        while to_look_at:
            part = to_look_at.pop()
            mentioned = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
            changed |= mentioned
            to_look_at += [functions.pop(name) for name in mentioned.intersection(functions)]

        table = symtable.symtable(self.source, self.file, "exec")
        return changed.intersection(_global_names(table))

    def run(self) -> None:
        """Make the program this process's `__main__`. Raises what its statements raise."""
        sys.argv[:] = self.argv
        module = sys.modules[_MAIN] = self._make_module()
        # because spawned processes send objects of the program's classes by this name
        sys.modules[_SPAWNED] = module
        self._show_source()
        code = compile(self._parts.kept, self.file, "exec", dont_inherit=True)
        try:
            # because a program may change to a relative folder, as the study's process has done
            with chdir(self.folder), hydra_refused():
                exec(code, module.__dict__)  # noqa: S102 - the user's own program
        except HydraStarted:
            # because the program starts Hydra before the line that started the study
            pass
        _of_this_process[:] = [(module, self)]

    def _make_module(self) -> ModuleType:
        module = ModuleType(_MAIN)
        module.__file__ = self.file
        module.__builtins__ = builtins  # type: ignore[attr-defined]
        if self.spec:
            module.__spec__ = self.spec
            module.__package__ = self.spec.parent
            module.__loader__ = self.spec.loader
            if self.spec.parent:
                import_module(self.spec.parent)
        else:
            module.__package__ = None
            module.__loader__ = SourceFileLoader(_MAIN, self.file)
        return module

    def _show_source(self) -> None:
        """Let tracebacks and `inspect.getsource` show the lines that run, although the file may
        change."""
        lines = self.source.splitlines(keepends=True)
        linecache.cache[self.file] = len(self.source), None, lines, self.file


class _Parts:
    """The statements of a program that a trial runs (`kept`), and those that it leaves out."""

    def __init__(self, tree: ast.Module, line: int) -> None:
        self.tree = tree
        earlier = [statement for statement in tree.body if (statement.end_lineno or 0) < line]
        guards = _Guards()
        self.kept = ast.Module([guards.visit(statement) for statement in earlier], type_ignores=[])
        self.left_out = [*guards.left_out, *tree.body[len(earlier) :]]


class _Guards(ast.NodeTransformer):
    """Makes each module-level test of `__name__` come out as in a module that is imported."""

    def __init__(self) -> None:
        self.left_out: list[ast.stmt] = []

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _SCOPES | ast.ClassDef):
            return node
        return super().visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        comparisons = _Comparisons()
        test = comparisons.visit(node.test)
        if not comparisons.any:
            return self.generic_visit(node)
        self.left_out += [*node.body, *node.orelse]
        body = [self.visit(statement) for statement in node.body]
        orelse = [self.visit(statement) for statement in node.orelse]
        return ast.copy_location(ast.If(test, body, orelse), node)


class _Comparisons(ast.NodeTransformer):
    """Replaces comparisons of `__name__` with "__main__" by their results in a module that is
    imported."""

    def __init__(self) -> None:
        self.any = False

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sides = [node.left, *node.comparators]
        has_name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
        has_main = any(
            isinstance(part, ast.Constant) and part.value == _MAIN for part in ast.walk(node)
        )
        if not (has_name and has_main):
            return node
        self.any = True
        is_true = isinstance(node.ops[0], ast.NotEq | ast.NotIn | ast.IsNot)
        return ast.copy_location(ast.Constant(is_true), node)


def _bound_names(part: ast.stmt) -> set[str]:
    """Return the names that a statement sets, and some that its functions set for themselves."""
    names: set[str] = set()
    for node in ast.walk(part):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name.partition(".")[0])
    return names


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the global names that functions and classes use."""
    for child in table.get_children():
        yield from (symbol.get_name() for symbol in child.get_symbols() if symbol.is_global())
        yield from _global_names(child)


def interpreter_options() -> list[str]:
    """Return the options with which this Python was started, such as -O, for the processes of
    trials.

    Those of warnings are left out, because the filters are sent with the app.
    """
    # as multiprocessing has it
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    options = [flag for flag in flags if not flag.startswith("-W")]
    for name, value in sys._xoptions.items():
        setting = name if value is True else f"{name}={value}"
        if setting not in options:  # because Python leaves out the names that it does not know
            options += ["-X", setting]
    return options


_of_this_process: list[tuple[ModuleType, Program | None]] = []


def current_program() -> Program | None:
    """Return the program of this process; None if it has no source, such as in a notebook."""
    module = sys.modules[_MAIN]
    # Only once, because the trials of a second study must not run the line that started the first.
    if not _of_this_process or _of_this_process[0][0] is not module:
        _of_this_process[:] = [(module, _read(module))]
    return _of_this_process[0][1]


def _read(module: ModuleType) -> Program | None:
    file = getattr(module, "__file__", None)
    line = _running_line(module)
    if not file or line is None:
        return None
    source = "".join(linecache.getlines(file, vars(module)))
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):  # because the file is no longer what runs
        return None
    if not source:  # because it is compiled, or was removed
        return None
    spec = module.__spec__
    argv = _typed_argv(spec.name if spec else "")
    # because Python joins the working folder and the typed path
    started = [file.removesuffix(f"/{word}") for word in sys.orig_argv if file.endswith(f"/{word}")]
    folder = (started or [os.getcwd()])[0]  # noqa: PTH109
    return Program(str(Path(file).absolute()), spec, source, line, argv, folder)


def _typed_argv(module: str) -> list[str]:
    """Return the `sys.argv` with which this process started, because the program may have changed
    it since."""
    for start in (sys.argv[0], module, module.removesuffix(f".{_MAIN}")):
        if start and start in sys.orig_argv:
            position = sys.orig_argv.index(start)
            return [sys.argv[0], *sys.orig_argv[position + 1 :]]
    return list(sys.argv)


def _running_line(module: ModuleType) -> int | None:
    """Return the line that the module's own code has reached; None if its code does not run."""
    main_thread = sys._current_frames().get(threading.main_thread().ident or 0)
    for newest in (sys._getframe(), main_thread):
        frame = newest
        while frame:
            if frame.f_globals is module.__dict__ and frame.f_code.co_name == "<module>":
                return frame.f_lineno
            frame = frame.f_back
    return None
