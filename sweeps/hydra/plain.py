"""The values of any Hydra app's config as numbers, texts, lists and dicts, whatever types they have
there."""

from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath, PurePosixPath
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

_PATH = "object/apply:pathlib."  # the start of the YAML tag of pathlib.PosixPath and its like


def content(config: DictConfig) -> dict[Any, Any]:
    """Return the content of a config in plain values. Its interpolations are not resolved."""
    values: Any = OmegaConf.to_container(config)
    return {_plain_key(key): plain(value) for key, value in values.items()}


def plain(value: Any) -> Any:
    """Return a value with text in place of an Enum (its name), a path, bytes and an object (its
    class)."""
    if isinstance(value, DictConfig | ListConfig):
        value = OmegaConf.to_container(value)
    if isinstance(value, Mapping):
        return {_plain_key(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Enum):  # first, because it may be a number or a text, too
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PurePath | bytes):
        return str(value)
    # not its own text, because that may contain an address in memory, which differs in the next
    # process
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _plain_key(key: Any) -> Any:
    return key.name if isinstance(key, Enum) else str(key) if isinstance(key, bytes) else key


def load(text: str) -> Any:
    """Return the content of a YAML file of Hydra in plain values. Raises yaml.YAMLError if it is
    damaged."""
    return yaml.load(text, _Loader)  # noqa: S506 - it makes no object


class _Loader(yaml.CSafeLoader):
    """Reads the tags of Python's types as text, because making their objects could run any code."""


def _read_tag(loader: Any, tag: str, node: yaml.Node) -> Any:
    if tag.startswith(_PATH) and isinstance(node, yaml.SequenceNode):
        parts = loader.construct_sequence(node)
        return str(PurePosixPath(*map(str, parts)))
    if isinstance(node, yaml.SequenceNode) and tag == "tuple":
        return loader.construct_sequence(node, deep=True)
    return tag.rpartition(":")[2]


def _read_binary(loader: Any, node: yaml.ScalarNode) -> str:
    return str(yaml.SafeLoader.construct_yaml_binary(loader, node))


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", _read_tag)
_Loader.add_constructor("tag:yaml.org,2002:binary", _read_binary)
