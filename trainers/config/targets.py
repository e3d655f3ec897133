"""Checks that a `_target_` can be imported and takes its settings, without importing anything."""

import difflib
import dis
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType

_SEARCHED = "Modules are searched beside sweep.py, in PYTHONPATH and in this Python's site-packages"
_INSTALL = dict.fromkeys(
    ("keras", "tensorflow"), "Install TensorFlow: pip install -c constraints.txt -e '.[keras]'"
)
"""What to type for a module that this project installs only if asked."""


@lru_cache
def check(key: str, target: object) -> None:
    """Check that `target`, a dotted name such as `keras.optimizers.Adam`, can be imported.

    Its packages are searched one by one, and its last name in the code of the module that should
    define it. A module without code, or that defines names as it runs, passes. `key` is the config
    key, for the message. Raises ValueError with the missing part and its nearest names.
    """
    if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")):
        shown = "missing" if target is None else f"{target!r}"
        raise ValueError(
            f"{key} is {shown}; it must be the dotted name of a callable, such as my_module.f"
        )
    _code_of(key, target)


@lru_cache
def check_settings(
    section: str, target: str, settings: tuple[str, ...], arguments: tuple[str, ...] = ()
) -> None:
    """Raise ValueError for the first of `settings` that is no parameter of the function `target`.

    `arguments` are parameters that the trainer fills in. A target that is no plain function of its
    module, or takes any keyword, passes.
    """
    code = _code_of(section, target)
    name = target.rpartition(".")[2]
    inner = [
        part
        for part in (code.co_consts if code else ())
        if isinstance(part, CodeType) and part.co_name == name
    ]
    # a class body is not optimized
    functions = [part for part in inner if part.co_flags & inspect.CO_OPTIMIZED]
    if not functions or functions[0].co_flags & inspect.CO_VARKEYWORDS:
        return
    parameters = [name for name in inspect.getargs(functions[0]).args if name not in arguments]
    for setting in settings:
        if setting not in parameters:
            names = ", ".join(f"{section}.{name}" for name in parameters) or "none"
            problem = f"{section}.{setting} is no setting of {target}{suggest(setting, parameters)}"
            raise ValueError(f"{problem}\nRemove it; its settings: {names}")


def _code_of(key: str, target: str) -> CodeType | None:
    """Return the code of the module that defines `target`, if it has code. Raises ValueError if it
    is missing."""
    parts = target.split(".")
    if len(parts) == 1:
        raise ValueError(f"{key}={target}: name its module too, as in my_module.{target}")
    spec = _find(parts[0], None)
    if spec is None:
        problem = (
            f"{key}={target}: there is no module {parts[0]!r}{suggest(parts[0], _modules(None))}"
        )
        raise ValueError(f"{problem}\n{_INSTALL.get(parts[0], _SEARCHED)}")
    for depth, name in enumerate(parts[1:], start=1):
        folders = spec.submodule_search_locations
        inner = _find(f"{'.'.join(parts[:depth])}.{name}", folders) if folders is not None else None
        if inner is None:
            return _code_with(f"{key}={target}", spec, name)
        spec = inner
    raise ValueError(
        f"{key}={target}: is a module; name a function or class of the module, such as {target}.f"
    )


def _find(name: str, folders: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, folders)
        except KeyError:
            # Because Python finds a folder without __init__.py only once its parent is imported.
            spec = ModuleSpec(name, loader=None, is_package=True)
            leaf = name.rpartition(".")[2]
            spec.submodule_search_locations = [str(Path(folder) / leaf) for folder in folders or []]
        if spec is not None:
            return spec
    return None


def _code_with(setting: str, spec: ModuleSpec, name: str) -> CodeType | None:
    """Return the code of a module; None if it has no code. Raises ValueError if the module does not
    bind the name."""
    try:
        code = _code(spec)
    except SyntaxError as error:
        raise ValueError(f"{setting}: {error.filename}, line {error.lineno}: {error.msg}") from None
    if code is not None:
        names = _bound(code)
        is_dynamic = (
            "__getattr__" in names or "globals" in code.co_names or ("*",) in code.co_consts
        )
    else:
        names = set(dir(sys.modules.get(spec.name)))
        is_dynamic = spec.origin is not None and spec.name not in sys.modules
    if name in names or is_dynamic:
        return code
    names |= set(_modules(spec.submodule_search_locations or []))
    raise ValueError(f"{setting}: there is no {name!r} in {spec.name}{suggest(name, names)}")


@lru_cache
def names_in(package: str, module: str) -> set[str]:
    """Return the names that the code of a module in a package binds; none if there is no such
    module."""
    outer = _find(package, None)
    inner = _find(f"{package}.{module}", outer.submodule_search_locations) if outer else None
    code = _code(inner) if inner else None
    return _bound(code) if code else set()


def _code(spec: ModuleSpec) -> CodeType | None:
    get_code = getattr(spec.loader, "get_code", None)
    return get_code(spec.name) if get_code else None


def _bound(code: CodeType) -> set[str]:
    return {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_NAME"}


def _modules(folders: Sequence[str] | None) -> list[str]:
    return [info.name for info in pkgutil.iter_modules(folders)]


def suggest(name: str, names: Iterable[str]) -> str:
    """Return the question whether one of the nearest `names` was meant; "" if none is near."""
    close = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
