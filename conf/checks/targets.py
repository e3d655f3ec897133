"""Whether a `_target_` can be imported, and takes what it is given, found out without importing anything."""

import ast
import difflib
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path


@lru_cache
def check(key: str, target: object) -> None:
    """Check that `target`, a dotted name such as `keras.optimizers.Adam`, is there to be imported.

    Its packages are looked up one by one and the name is looked for in the source of the module that should
    hold it; a module without source, or one that makes its names as it runs, gets the benefit of the doubt.
    Raises ValueError with the missing part and its nearest names; `key` is the config key, for the message.
    """
    if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")):
        shown = "missing" if target is None else f"{target!r}"
        raise ValueError(f"{key} is {shown}; it must be the dotted name of a callable, such as my_module.f")
    _source_of(key, target)


@lru_cache
def check_settings(section: str, target: str, settings: tuple[str, ...], given: tuple[str, ...] = ()) -> None:
    """Check that the function `target` has parameters of these names, beside those that it is `given` by us.

    Raises ValueError with the first that it has not. What is no plain function of its module, or takes any keyword,
    gets the benefit of the doubt.
    """
    tree, name = _source_of(section, target), target.rpartition(".")[2]
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name] if tree else []
    if not found or found[0].args.kwarg:
        return
    arguments = found[0].args
    takes = [one.arg for one in arguments.args + arguments.kwonlyargs if one.arg not in given]
    for setting in settings:
        if setting not in takes:
            near = _near(setting, takes)
            known = f"its settings: {', '.join(f'{section}.{one}' for one in takes)}" if takes else "it has none"
            raise ValueError(f"{section}.{setting} is no setting of {target}{near}\nLeave it out; {known}")


def _source_of(key: str, target: str) -> ast.Module | None:
    """The source of the module that holds it, if it has one. Raises ValueError if it is not there to be imported."""
    parts = target.split(".")
    if len(parts) == 1:
        raise ValueError(f"{key}={target}: name the module too, as in my_module.{target}")
    spec = _find(parts[0], None)
    if spec is None:
        raise ValueError(
            f"{key}={target}: there is no module {parts[0]!r}{_near(parts[0], _modules(None))}\n"
            "Modules are looked for beside sweep.py, in PYTHONPATH and in this Python's site-packages"
        )
    for depth, name in enumerate(parts[1:], start=1):
        module = ".".join(parts[:depth])
        folders = spec.submodule_search_locations
        inner = _find(f"{module}.{name}", folders) if folders is not None else None
        if inner is None:
            return _check_name(f"{key}={target}", module, spec, name)
        spec = inner
    raise ValueError(f"{key}={target}: is a module; name a function or class in it, such as {target}.f")


def _find(name: str, folders: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, folders)
        except KeyError:
            # A folder without __init__.py: Python describes it only once its parent is imported.
            spec = ModuleSpec(name, loader=None, is_package=True)
            leaf = name.rpartition(".")[2]
            spec.submodule_search_locations = [str(Path(folder) / leaf) for folder in folders or []]
        if spec is not None:
            return spec
    return None


def _check_name(what: str, module: str, spec: ModuleSpec, name: str) -> ast.Module | None:
    names: set[str] = set()
    if spec.origin is not None:
        if not spec.origin.endswith(".py"):
            if hasattr(sys.modules.get(module), name) or module not in sys.modules:
                return None
            raise ValueError(f"{what}: there is no {name!r} in {module}{_near(name, dir(sys.modules[module]))}")
        try:
            source, tree = _parsed(spec.origin)
        except SyntaxError as error:
            raise ValueError(f"{what}: {spec.origin}, line {error.lineno}: {error.msg}") from None
        names = set(_bound(tree.body))
        if name in names or names & {"*", "__getattr__"} or "globals()" in source:
            return tree
    near = _near(name, names | set(_modules(spec.submodule_search_locations or [])))
    raise ValueError(f"{what}: there is no {name!r} in {module}{near}")


@lru_cache
def _parsed(file: str) -> tuple[str, ast.Module]:
    source = Path(file).read_text(encoding="utf-8")
    return source, ast.parse(source)


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that the statements of a module bind, those inside if, try, with and loops included."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0]
        else:
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.stmt):
                    yield from _bound([inner])
                elif isinstance(inner, ast.ExceptHandler | ast.match_case):
                    yield from _bound(inner.body)
                else:
                    yield from (
                        leaf.id
                        for leaf in ast.walk(inner)
                        if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)
                    )


def _modules(folders: Sequence[str] | None) -> list[str]:
    return [info.name for info in pkgutil.iter_modules(folders)]


def _near(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
