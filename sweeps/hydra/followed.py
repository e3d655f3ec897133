"""The key of an app that a setting takes its value from, so that a user sets the value once."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweeps.base.errors import UserError

GROUPS = Path(__file__).parents[1] / "conf" / "hydra"
_FOLLOWS = re.compile(r"\$\{(?:oc\.select:)?(\w[\w.]*)(?:,.*)?\}")


def written(config: DictConfig, key: str) -> Any:
    """Return the value of a key before its interpolations are resolved. Raises KeyError if the key
    is missing."""
    section, _, name = key.rpartition(".")
    try:
        parent = OmegaConf.select(config, section) if section else config
    except OmegaConfBaseException as error:  # because the section interpolates a missing key
        raise KeyError(key) from error
    node: Any = (
        parent._get_node(name, validate_access=False) if isinstance(parent, DictConfig) else None
    )
    if node is None:
        raise KeyError(key)
    value = node._value()
    return OmegaConf.to_container(node, resolve=False) if isinstance(value, list | dict) else value


def followed(written: Any) -> str:
    """Return the key that a value interpolates; empty if the value is anything but one
    interpolation."""
    match = _FOLLOWS.fullmatch(str(written))
    return match[1] if match else ""


def source(config: DictConfig, key: str) -> str:
    """Return the last existing key in the chain of interpolations from `key`; `key` itself without
    interpolation."""
    chain = [key]
    while following := followed(written(config, chain[-1])):
        try:
            written(config, following)
        except KeyError:
            break
        if following in chain:  # because an interpolation may be circular
            break
        chain.append(following)
    return chain[-1]


@cache
def by_default(group: str, setting: str) -> str:
    """Return the key of an app that a setting of a group file, such as `launcher/local`,
    interpolates by default."""
    settings = yaml.safe_load((GROUPS / f"{group}.yaml").read_text())
    return followed(settings[setting])


def resolved(url: str) -> str:
    """Return an URL with its interpolations of the environment resolved, such as
    `${oc.env:NAME}`."""
    try:
        return str(OmegaConf.create({"url": url}).url)
    except OmegaConfBaseException as error:
        raise UserError(f"{url} cannot be resolved: {str(error).splitlines()[0]}") from error
