"""Whether a `_target_` can be imported, and takes what it is given, found out without importing anything."""

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

FORMER = {
    "conf.schema": "trainers.config.schema",
    "conf.plan": "trainers.schedules",
    "conf.parallel": "trainers.parallel",
    "conf.checks.image_folder": "trainers.data.listing",
    **{f"conf.checks.{name}": f"trainers.data.{name}" for name in ("download", "examples", "labels", "npz")},
    **{f"conf.checks.{name}": f"trainers.config.{name}" for name in ("augment", "largest_batch", "networks")},
    **{f"conf.checks.{name}": f"trainers.config.{name}" for name in ("ranges", "targets", "training")},
}
"""Where modules are now that older studies name; conf.py makes them importable."""


def current_name(target: str) -> str:
    """Return the name that a `_target_` has now."""
    module, _, name = target.rpartition(".")
    return f"{FORMER[module]}.{name}" if module in FORMER else target


@lru_cache
def check(key: str, target: object) -> None:
    """Check that `target`, a dotted name such as `keras.optimizers.Adam`, is there to be imported.

    Its packages are looked up one by one and the name is looked for in the code of the module that should
    hold it; a module without code, or one that makes its names as it runs, gets the benefit of the doubt.
    Raises ValueError with the missing part and its nearest names; `key` is the config key, for the message.
    """
    if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")):
        shown = "missing" if target is None else f"{target!r}"
        raise ValueError(f"{key} is {shown}; it must be the dotted name of a callable, such as my_module.f")
    _code_of(key, target)


@lru_cache
def check_settings(section: str, target: str, settings: tuple[str, ...], given: tuple[str, ...] = ()) -> None:
    """Check that the function `target` has parameters of these names, beside those that it is `given` by us.

    Raises ValueError with the first that it has not. What is no plain function of its module, or takes any keyword,
    gets the benefit of the doubt.
    """
    code, name = _code_of(section, target), target.rpartition(".")[2]
    inner = [part for part in (code.co_consts if code else ()) if isinstance(part, CodeType) and part.co_name == name]
    functions = [part for part in inner if part.co_flags & inspect.CO_OPTIMIZED]  # a class's body has not
    if not functions or functions[0].co_flags & inspect.CO_VARKEYWORDS:
        return
    takes = [argument for argument in inspect.getargs(functions[0]).args if argument not in given]
    for setting in settings:
        if setting not in takes:
            meant = near(setting, takes)
            names = ", ".join(f"{section}.{argument}" for argument in takes)
            takes_these = f"its settings: {names}" if takes else "it has none"
            raise ValueError(f"{section}.{setting} is no setting of {target}{meant}\nLeave it out; {takes_these}")


def _code_of(key: str, target: str) -> CodeType | None:
    """The code of the module that holds it, if it has some. Raises ValueError if it is not there to be imported."""
    parts = current_name(target).split(".")
    if len(parts) == 1:
        raise ValueError(f"{key}={target}: name the module too, as in my_module.{target}")
    spec = _find(parts[0], None)
    if spec is None:
        raise ValueError(
            f"{key}={target}: there is no module {parts[0]!r}{near(parts[0], _modules(None))}\n"
            "Modules are looked for beside sweep.py, in PYTHONPATH and in this Python's site-packages"
        )
    for depth, name in enumerate(parts[1:], start=1):
        folders = spec.submodule_search_locations
        inner = _find(f"{'.'.join(parts[:depth])}.{name}", folders) if folders is not None else None
        if inner is None:
            return _holding(f"{key}={target}", spec, name)
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


def _holding(what: str, spec: ModuleSpec, name: str) -> CodeType | None:
    """The code of a module, if it has some. Raises ValueError if it does not bind the name."""
    try:
        code = _code(spec)
    except SyntaxError as error:
        raise ValueError(f"{what}: {error.filename}, line {error.lineno}: {error.msg}") from None
    if code is not None:
        names = _bound(code)
        made_as_it_runs = "__getattr__" in names or "globals" in code.co_names or ("*",) in code.co_consts
    else:
        names = set(dir(sys.modules.get(spec.name)))
        made_as_it_runs = spec.origin is not None and spec.name not in sys.modules
    if name in names or made_as_it_runs:
        return code
    names |= set(_modules(spec.submodule_search_locations or []))
    raise ValueError(f"{what}: there is no {name!r} in {spec.name}{near(name, names)}")


@lru_cache
def names_in(package: str, module: str) -> set[str]:
    """The names that the code of a module in a package binds; none if there is no such module."""
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


def near(name: str, names: Iterable[str]) -> str:
    """Ask whether one of the nearest `names` was meant; "" if none is near."""
    close = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
