"""Checks that a `_target_` can be imported and takes its settings, without importing anything."""

import ast
import difflib
import importlib.util
import pkgutil
import symtable
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec

_SEARCHED = "Modules are searched beside sweep.py, in PYTHONPATH and in this Python's site-packages"
_INSTALL = dict.fromkeys(
    ("keras", "tensorflow"), "Install TensorFlow: pip install -c constraints.txt -e '.[keras]'"
)
"""What to type for a module that this project installs only if asked."""


@dataclass(frozen=True)
class _Source:
    """What the source of a module defines."""

    names: set[str]
    # of its functions, and of its classes that have an __init__
    signatures: dict[str, ast.arguments]
    of_keras: dict[str, str]  # modules of Keras from which names are imported
    is_dynamic: bool  # whether the module may define more names as it runs


@lru_cache
def check(key: str, target: object) -> None:
    """Check that `target`, a dotted name such as `keras.optimizers.Adam`, can be imported.

    Its packages are searched one by one, and its last name in the source of the module that should
    define it. A module without source, or that defines names as it runs, passes. `key` is the
    config key, for the message. Raises ValueError with the missing part and its nearest names.
    """
    if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")):
        shown = "missing" if target is None else f"{target!r}"
        raise ValueError(
            f"{key} is {shown}; it must be the dotted name of a callable, such as my_module.f"
        )
    _source_of(key, target)


@lru_cache
def check_settings(
    section: str, target: str, settings: tuple[str, ...], arguments: tuple[str, ...] = ()
) -> None:
    """Raise ValueError for the first of `settings` that is no parameter of the function or class
    `target`.

    `arguments` are parameters that the trainer fills in. A target that is no plain function or
    class of its module, or takes any keyword, passes.
    """
    source = _source_of(section, target)
    name = target.rpartition(".")[2]
    while source and name in source.of_keras:
        source = _source_of(section, f"{source.of_keras[name]}.{name}")
    if source is None or name not in source.signatures:
        return
    signature = source.signatures[name]
    if signature.kwarg is not None:
        return

    named = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    parameters = [parameter.arg for parameter in named if parameter.arg not in arguments]
    for setting in settings:
        if setting not in parameters:
            hint = suggest(setting, parameters)
            names = ", ".join(f"{section}.{parameter}" for parameter in parameters)
            raise ValueError(
                f"{section}.{setting} is no setting of {target}{hint}\n"
                f"Remove it; its settings: {names or 'none'}"
            )


@lru_cache
def names_in(package: str, module: str) -> set[str]:
    """Return the names that the source of a module in a package defines; none if there is no such
    module."""
    outer = importlib.util.find_spec(package)
    inner = _find_inside(outer, module) if outer else None
    source = _read(inner) if inner else None
    return source.names if source else set()


def _source_of(key: str, target: str) -> _Source | None:
    """Return the source of the module that defines `target`, if it has any. Raises ValueError if
    the module or the name is missing."""
    setting = f"{key}={target}"
    first, *inner_names = target.split(".")
    if not inner_names:
        raise ValueError(f"{setting}: name its module too, as in my_module.{target}")

    # __main__ is the program that checks, not the one that trains
    module = None if first == "__main__" else importlib.util.find_spec(first)
    if module is None:
        hint = suggest(first, _modules(None))
        remedy = _INSTALL.get(first, _SEARCHED)
        raise ValueError(f"{setting}: there is no module {first!r}{hint}\n{remedy}")

    for name in inner_names:
        inner = _find_inside(module, name)
        if inner is None:
            return _source_with(setting, module, name)
        module = inner
    raise ValueError(
        f"{setting}: is a module; name a function or class of the module, such as {target}.f"
    )


def _find_inside(package: ModuleSpec, name: str) -> ModuleSpec | None:
    """Return a module of a package. Unlike importlib's find_spec, this does not import the
    package."""
    path = f"{package.name}.{name}"
    portions: list[str] = []
    for folder in package.submodule_search_locations or []:
        finder = pkgutil.get_importer(folder)
        spec = finder.find_spec(path) if finder else None
        if spec is None:
            continue
        if spec.loader is not None:
            return spec
        portions += spec.submodule_search_locations or []

    if not portions:
        return None
    namespace = ModuleSpec(path, loader=None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _source_with(setting: str, module: ModuleSpec, name: str) -> _Source | None:
    """Return the source of a module; None if it has no source. Raises ValueError if the module does
    not define the name."""
    try:
        source = _read(module)
    except SyntaxError as error:
        raise ValueError(f"{setting}: {error.filename}, line {error.lineno}: {error.msg}") from None

    if source is not None:
        names = source.names
        is_dynamic = source.is_dynamic
    else:
        names = set(dir(sys.modules.get(module.name)))
        is_dynamic = module.origin is not None and module.name not in sys.modules
    if name in names or is_dynamic:
        return source

    modules = _modules(module.submodule_search_locations or [])
    hint = suggest(name, names.union(modules))
    raise ValueError(f"{setting}: there is no {name!r} in {module.name}{hint}")


def _read(module: ModuleSpec) -> _Source | None:
    """Return what the source of a module defines; None if it has no source. Raises SyntaxError."""
    path = module.origin
    get_data = getattr(module.loader, "get_data", None)
    if path is None or get_data is None or not path.endswith(".py"):
        return None

    text = get_data(path)
    tree = ast.parse(text, path)
    is_keras = module.name.partition(".")[0] == "keras"
    signatures = {
        statement.name: signature
        for statement in tree.body
        if (signature := _signature(statement, is_keras)) is not None
    }
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imports_all = any(node.names[0].name == "*" for node in imports)
    table = symtable.symtable(text, path, "exec")
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    is_dynamic = imports_all or "__getattr__" in names or "globals" in table.get_identifiers()
    return _Source(names, signatures, _of_keras(imports), is_dynamic)


def _of_keras(imports: Iterable[ast.ImportFrom]) -> dict[str, str]:
    """Return the module of Keras from which each name is imported."""
    modules: dict[str, str] = {}
    for node in imports:
        plain = [alias.name for alias in node.names if alias.asname in (None, alias.name)]
        if str(node.module).startswith("keras."):
            modules |= dict.fromkeys(plain, str(node.module))
    return modules


def _signature(statement: ast.stmt, is_keras: bool) -> ast.arguments | None:
    """Return the parameters of a function, or of a class with an `__init__`; None for other
    statements, and for a class that a decorator or a metaclass may change."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return statement.args
    if not isinstance(statement, ast.ClassDef):
        return None
    if not is_keras and (statement.decorator_list or statement.keywords):
        return None
    for method in statement.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            method.args.args = method.args.args[1:]
            if is_keras:  # because Keras refuses keywords without a name
                method.args.kwarg = None
            return method.args
    return None


def _modules(folders: Sequence[str] | None) -> list[str]:
    return [info.name for info in pkgutil.iter_modules(folders)]


def suggest(name: str, names: Iterable[str]) -> str:
    """Return the question whether one of the nearest `names` was meant; "" if none is near."""
    close = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
