"""A Hydra app on its way to the processes of its trials: what `Program.run` alone does not restore
there."""

import multiprocessing
import sys
import warnings
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from omegaconf.basecontainer import BaseContainer

from sweeps.base.errors import UserError
from sweeps.hydra.parts import call_target
from sweeps.trial.packing import pack
from sweeps.trial.run.program import Program, current_program

_RESOLVERS = "omegaconf_resolvers"


@dataclass(frozen=True)
class PackedApp:
    """An app as a pickle, which may be read once `program` has run."""

    program: Program | None  # None if its process has no program: code is then pickled by value
    content: bytes

    def restore(self, config: DictConfig) -> tuple[TaskFunction, HydraContext]:
        """Restore the app in this process for a trial with this config. Return what runs the
        trial."""
        task_function, hydra_context, singletons, state = cloudpickle.loads(self.content)
        setup_globals()
        # because Hydra would search all plugins again
        singletons["instances"][Plugins] = Plugins.instance()
        # Also those that the program registered here, because some cannot be pickled.
        singletons[_RESOLVERS] = BaseContainer._resolvers | singletons[_RESOLVERS]
        Singleton.set_state(singletons)
        state.restore()
        _remake_callbacks(hydra_context, config)
        return task_function, hydra_context


@dataclass(frozen=True)
class _ProcessState:
    """What a program has set in its process before it started the study, and what would not be set
    in a trial's."""

    values: dict[str, Any]  # global names of the program
    unpicklable: dict[str, str]  # why other global names cannot be sent
    start_method: str | None = field(
        default_factory=lambda: multiprocessing.get_start_method(allow_none=True)
    )
    filters: list[Any] = field(default_factory=lambda: list(warnings.filters))
    warning_options: list[str] = field(default_factory=lambda: list(sys.warnoptions))
    argv: list[str] = field(default_factory=lambda: list(sys.argv))

    def restore(self) -> None:
        """Set the state in this process."""
        sys.argv[:] = self.argv  # of `python -c`, too, whose source is unknown
        sys.warnoptions[:] = self.warning_options  # which spawned processes get
        vars(sys.modules["__main__"]).update(self.values)
        _reasons.update(self.unpicklable)
        if self.start_method:
            multiprocessing.set_start_method(self.start_method, force=True)
        # of preloaded modules
        own = [entry for entry in warnings.filters if entry not in self.filters]
        warnings.resetwarnings()  # because this tells Python that the filters change
        warnings.filters[:] = [*self.filters, *own]  # type: ignore[index]


_reasons: dict[str, str] = {}
"""Why global names of the program are not set in this process."""


def explain_missing(error: BaseException | None) -> None:
    """Add the reason to an error about a global name that could not be sent to this process."""
    if isinstance(error, NameError) and (reason := _reasons.get(error.name or "")):
        error.add_note(
            f"the program sets {error.name} where trials do not run it, and it cannot be sent:"
            f" {reason}"
        )


@dataclass(frozen=True)
class _Remade:
    """Stands for a callback that cannot be pickled. The trial makes it anew from its config."""

    index: int


def pack_app(task_function: TaskFunction, hydra_context: HydraContext) -> PackedApp:
    """Return the task function, Hydra's context and singletons, and the state of the program, as a
    pickle.

    Raises UserError if the task function refers to an object that cannot be pickled.
    """
    program = current_program()
    state = _process_state(program, getattr(task_function, "__name__", ""))
    _check(task_function, state)
    singletons = Singleton.get_state()
    with suppress(Exception):  # because the __reduce__ of a user's object may raise anything
        return PackedApp(program, pack((task_function, hydra_context, singletons, state)))
    notifier = copy(hydra_context.callbacks)
    notifier.callbacks = [
        callback if _why_not(callback) is None else _Remade(i)
        for i, callback in enumerate(notifier.callbacks)
    ]
    hydra_context = replace(hydra_context, callbacks=notifier)
    resolvers = singletons[_RESOLVERS]
    singletons[_RESOLVERS] = {
        name: value for name, value in resolvers.items() if _why_not(value) is None
    }
    try:
        return PackedApp(program, pack((task_function, hydra_context, singletons, state)))
    except Exception as error:
        problem = f"Hydra's state cannot be sent to another process: {error}"
        raise UserError(f"{problem}\nRemove such objects from the ConfigStore") from error


def _check(task_function: TaskFunction, state: "_ProcessState") -> None:
    """Raise UserError if the task function cannot be sent to another process."""
    try:
        pack(task_function)
        if state.unpicklable:
            # by value, because this follows the global names that it uses
            cloudpickle.dumps(task_function)
    except Exception as error:
        advice = "Create files, locks and sessions inside the function"
        raise UserError(
            f"the task function cannot be sent to another process: {error}\n{advice}"
        ) from error


def _process_state(program: Program | None, task_name: str) -> _ProcessState:
    """Return the state of this process, with the global names that a trial's own run of the program
    does not set."""
    values: dict[str, Any] = {}
    unpicklable: dict[str, str] = {}
    if program is None:
        return _ProcessState(values, unpicklable)
    for name in program.missing_names(task_name).intersection(vars(sys.modules["__main__"])):
        value = getattr(sys.modules["__main__"], name)
        is_own = name in program.own_names
        if name.startswith("__") or (
            isinstance(value, FunctionType | type | ModuleType) and not is_own
        ):
            continue
        reason = _why_not(value)
        if reason is None:
            values[name] = value
        elif is_own:
            unpicklable[name] = reason
    return _ProcessState(values, unpicklable)


def _why_not(content: Any) -> str | None:
    """Return why this cannot be pickled; None if it can."""
    try:
        pack(content)
    except Exception as error:
        return str(error)
    return None


def _remake_callbacks(hydra_context: HydraContext, config: DictConfig) -> None:
    """Make the callbacks anew that could not be pickled."""
    callbacks = hydra_context.callbacks.callbacks
    settings = list((config.hydra.get("callbacks") or {}).values())
    for place, callback in enumerate(callbacks):
        if isinstance(callback, _Remade):
            callbacks[place] = call_target(settings[callback.index])
