"""Pickles for other processes of a study. What a trial's `__main__` has is pickled by name, other
code by value."""

import dataclasses
import io
import pickle
import sys
from types import FunctionType
from typing import Any

import cloudpickle

from sweeps.trial.run.program import Program, current_program

_MAIN = "__main__"
_MOST_WRAPPERS = 20


def pack(content: Any) -> bytes:
    """Return the content as a pickle for a process with this program. Raises what an object's own
    pickling raises."""
    file = io.BytesIO()
    _Pickler(file, current_program()).dump(content)
    return file.getvalue()


_classes_here: dict[int, type] = {}
"""The classes in the pickles of `pack_for_here`."""


def pack_for_here(content: Any) -> bytes:
    """Return the content as a pickle for this process alone. Classes are not copied, wherever they
    were made."""
    file = io.BytesIO()
    _HerePickler(file).dump(content)
    return file.getvalue()


class _HerePickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, type):
            return NotImplemented
        _classes_here[id(obj)] = obj
        return _class_here, (id(obj),)


def _class_here(key: int) -> type:
    return _classes_here[key]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, program: Program | None) -> None:
        # a plain copy, because each of a config's thousand nodes is looked up in it
        self.dispatch_table = dict(cloudpickle.Pickler.dispatch_table)
        super().__init__(file)
        self._names = _names_by_id(program) if program else {}
        self._globals = vars(sys.modules[_MAIN]) if program else None

    def reducer_override(self, obj: Any) -> Any:
        if obj is dataclasses.MISSING:
            return "MISSING"  # by name, because dataclasses compare by identity
        if isinstance(obj, FunctionType | type) and (place := self._names.get(id(obj))):
            return _find, place
        return super().reducer_override(obj)

    def _function_getnewargs(self, func: FunctionType) -> Any:
        code, base_globals, *others = super()._function_getnewargs(func)
        return code, _MainGlobals() if func.__globals__ is self._globals else base_globals, *others

    def _dynamic_function_reduce(self, func: FunctionType) -> Any:
        make, arguments, (state, slots), *others = super()._dynamic_function_reduce(func)
        if func.__globals__ is self._globals:
            slots["__globals__"] = {}  # because the function uses those of the trial's `__main__`
        return make, arguments, (state, slots), *others


class _MainGlobals:
    """Stands for the global names of `__main__` in a pickle."""

    def __reduce__(self) -> Any:
        return _main_globals, ()


def _main_globals() -> dict[str, Any]:
    return vars(sys.modules[_MAIN])


def _find(name: str, depth: int) -> Any:
    """Return what `__main__` has by this name, below so many decorators."""
    value: Any = sys.modules[_MAIN]
    for part in name.split("."):
        value = getattr(value, part)
    for _ in range(depth):
        value = value.__wrapped__
    return value


def _names_by_id(program: Program) -> dict[int, tuple[str, int]]:
    """Return how `_find` finds each function and class of this process's `__main__` in a
    trial's."""
    names: dict[int, tuple[str, int]] = {}
    for name, value in vars(sys.modules[_MAIN]).items():
        if name not in program.own_names and _is_of_main(value):
            _add(names, name, value)
    return names


def _is_of_main(value: Any) -> bool:
    """Return whether no import of another module finds this function or class."""
    if not isinstance(value, FunctionType | type):
        return False
    module = sys.modules.get(value.__module__ or "")
    return value.__module__ == _MAIN or getattr(module, value.__name__, None) is not value


def _add(names: dict[int, tuple[str, int]], name: str, value: Any) -> None:
    """Add the name of a function with what it decorates, or of a class with its members."""
    for depth in range(_MOST_WRAPPERS):
        if not isinstance(value, FunctionType | type) or id(value) in names:
            return
        names[id(value)] = name, depth
        if isinstance(value, type):
            for member_name, member in vars(value).items():
                if isinstance(member, FunctionType | type) and _is_of_main(member):
                    _add(names, f"{name}.{member_name}", member)
            return
        value = getattr(value, "__wrapped__", None)
