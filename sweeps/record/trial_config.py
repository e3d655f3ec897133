"""The configuration of a trial as Hydra wrote it, and its settings by their dotted names."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from sweeps.record.space import text_of
from sweeps.secrets import mask_value

_LINK = re.compile(r"\$\{([\w.]+)\}")
_MOST_LINKS = 20  # because a reference may lead back to itself
_LONGEST = 500  # characters of a value, which MLflow and a table can show


def read_config(folder: Path) -> DictConfig:
    """Read the config of the trial in `folder`, with Hydra's own; empty if the trial never began.

    Raises OSError, yaml.YAMLError or OmegaConfBaseException if a file cannot be read.
    """
    config: dict[str, Any] = {}
    for file in (folder / ".hydra" / "config.yaml", folder / ".hydra" / "hydra.yaml"):
        if file.exists():
            config |= yaml.load(file.read_text(), yaml.CSafeLoader) or {}
    return OmegaConf.create(config)


def settings(config: DictConfig) -> dict[str, str]:
    """Return the choice of each config group, and each value of the app by its dotted name.

    References to other keys are followed. Results of resolvers are omitted, because oc.env may return a secret.
    """
    content: Any = OmegaConf.to_container(config, enum_to_str=True)
    choices = _select({"hydra": content.pop("hydra", None)}, "hydra.runtime.choices") or {}
    pairs = [(str(name), _follow({}, choice)) for name, choice in choices.items()]
    pairs = [(name, choice) for name, choice in pairs if not name.startswith("hydra/")]
    pairs += _leaves(content, content)
    return {name: _text(mask_value(name, value)) for name, value in pairs if value is not None}


def _text(value: Any) -> str:
    return (text_of(value) if isinstance(value, list) else str(value))[:_LONGEST]


def _leaves(root: Mapping[Any, Any], node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each key that has a value."""
    for key, written in node.items():
        name, value = f"{prefix}{key}", _follow(root, written)
        if isinstance(value, dict):
            # A reference to a section is not repeated, because the section may refer back to it.
            yield from _leaves(root, value, f"{name}.") if value is written else ()
        elif not isinstance(value, list) or "${" not in str(value):
            yield name, value


def _follow(root: Mapping[Any, Any], value: Any) -> Any:
    """Return a value after following references to other keys; None for a missing value or a resolver's result."""
    for _ in range(_MOST_LINKS):
        if not isinstance(value, str) or "${" not in value:
            return None if value == "???" else value
        link = _LINK.fullmatch(value)
        value = _select(root, link[1]) if link else None
    return None


def _select(root: Mapping[Any, Any], name: str) -> Any:
    value: Any = root
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
