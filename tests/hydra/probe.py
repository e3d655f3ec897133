"""What a job of a Hydra app sees, as JSON in the job's output folder. Apps of the cases import this module."""

import json
import logging
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

SEEN = "seen.json"
CALLED = "called.jsonl"
log = logging.getLogger("probe")


def show(cfg: Any, **more: Any) -> float:
    """Write what this job sees, with what its app adds, say three lines, and return an objective."""
    hydra: Any = HydraConfig.instance().cfg
    facts = {
        "config": _values(cfg),
        "types": _types(cfg),
        "flags": {"struct": OmegaConf.is_struct(cfg), "read-only": OmegaConf.is_readonly(cfg)},
        "hydra": _values(hydra.hydra),
        "argv": sys.argv,
        "main": _main(),
        "path": sys.path[0],
        "working folder": str(Path.cwd()),
        "environment": {name: value for name, value in os.environ.items() if name.startswith("PROBE_")},
        "variables": dict.fromkeys(sorted(os.environ), "is set"),
        "logging": _logging(),
        "more": {name: repr(value) for name, value in more.items()},
    }
    folder = Path(hydra.hydra.runtime.output_dir)
    (folder / SEEN).write_text(json.dumps(facts, indent=1))
    print("says: printed")
    log.info("says: info")
    log.debug("says: debug")
    return 1.0


def call(event: str, **more: Any) -> None:
    """Add a line about a call of the app to the file of the folder where the command was typed."""
    folder = Path(HydraConfig.get().runtime.cwd) if HydraConfig.initialized() else Path.cwd()
    with (folder / CALLED).open("a") as file:
        file.write(json.dumps({"event": event, **more}) + "\n")


class Watch(Callback):
    """A callback that notes when Hydra called it, and with what."""

    def __init__(self, label: str = "watch") -> None:
        self.label = label

    def on_multirun_start(self, config: DictConfig, **named: Any) -> None:
        call("multirun start", label=self.label, named=sorted(named), mode=str(config.hydra.mode))

    def on_multirun_end(self, config: DictConfig, **named: Any) -> None:
        call("multirun end", label=self.label, named=sorted(named), mode=str(config.hydra.mode))

    def on_job_start(self, config: DictConfig, **named: Any) -> None:
        task = named["task_function"]
        function = [task.__module__, task.__qualname__]
        call("job start", job=config.hydra.job.num, label=self.label, named=sorted(named), function=function)

    def on_job_end(self, config: DictConfig, job_return: Any, **named: Any) -> None:
        returned = {
            "status": job_return.status.name,
            "value": repr(job_return._return_value),
            "overrides": list(job_return.overrides),
            "working_dir": job_return.working_dir,
            "task_name": job_return.task_name,
        }
        call("job end", job=config.hydra.job.num, label=self.label, named=sorted(named), returned=returned)


def _values(config: Any) -> dict[str, Any]:
    """Return each leaf of a config by its full key: its type and its value, or the name of the error."""
    values: dict[str, Any] = {}

    def read(node: Any, key: str) -> None:
        names: Sequence[Any] = list(node) if isinstance(node, DictConfig) else range(len(node))
        if not names:
            values[key] = "{}" if isinstance(node, DictConfig) else "[]"
        for name in names:
            full_key = f"{key}.{name}" if key else str(name)
            try:
                value = node[name]
            except OmegaConfBaseException as error:
                values[full_key] = type(error).__name__
                continue
            if isinstance(value, ListConfig) and not _has_nodes(value):
                values[full_key] = [_text(value, place) for place in range(len(value))]
            elif isinstance(value, DictConfig | ListConfig):
                read(value, full_key)
            else:
                values[full_key] = f"{type(value).__name__} {value!r}"

    if isinstance(config, DictConfig | ListConfig):
        read(config, "")
    return values


def _has_nodes(values: ListConfig) -> bool:
    nodes = [values._get_node(place) for place in range(len(values))]
    return any(isinstance(node, DictConfig | ListConfig) for node in nodes)


def _text(node: Any, name: Any) -> str:
    """Return the type and the value of a leaf, or the name of the error."""
    try:
        value = node[name]
    except OmegaConfBaseException as error:
        return type(error).__name__
    return f"{type(value).__name__} {value!r}"


def _types(config: Any) -> dict[str, str]:
    """Return the type of each structured node of a config, by its full key."""
    types: dict[str, str] = {}

    def read(node: Any, key: str) -> None:
        kind = OmegaConf.get_type(node)
        if kind not in (dict, list):
            types[key or "."] = f"{kind.__module__}.{kind.__qualname__}"
        for name in node:
            if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name):
                continue
            if isinstance(node[name], DictConfig):
                read(node[name], f"{key}.{name}".lstrip("."))

    if isinstance(config, DictConfig):
        read(config, "")
    return types


def _main() -> dict[str, Any]:
    main = sys.modules["__main__"]
    facts: dict[str, Any] = {
        "name": main.__name__,
        "file": getattr(main, "__file__", None),
        "package": getattr(main, "__package__", None) or None,  # runpy sets an empty text
        "spec": getattr(getattr(main, "__spec__", None), "name", None),
        "has main": hasattr(main, "main"),
    }
    for name, value in sorted(vars(main).items()):
        if isinstance(value, type) and value.__module__ == "__main__":
            facts[f"pickles {name}"] = _pickles(value)
    return facts


def _pickles(value: object) -> str:
    try:
        return str(pickle.loads(pickle.dumps(value)) is value)  # noqa: S301 - this process wrote it
    except (pickle.PicklingError, AttributeError) as error:
        return type(error).__name__


def _logging() -> dict[str, Any]:
    facts: dict[str, Any] = {"disabled": logging.root.manager.disable}
    for name in ("root", "probe", "__main__", "hydra", "noisy"):
        logger = logging.getLogger() if name == "root" else logging.getLogger(name)
        handlers = [_handler(handler) for handler in logger.handlers if not _of_pytest(handler)]
        facts[name] = {"level": logging.getLevelName(logger.level), "disabled": logger.disabled, "handlers": handlers}
    return facts


def _of_pytest(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("_pytest")


def _handler(handler: logging.Handler) -> Mapping[str, Any]:
    stream = getattr(handler, "stream", None)
    return {
        "class": type(handler).__qualname__,
        "level": logging.getLevelName(handler.level),
        "format": getattr(handler.formatter, "_fmt", None),
        "file": getattr(handler, "baseFilename", None),
        "stream": next((name for name in ("stdout", "stderr") if getattr(sys, name) is stream), None),
    }
