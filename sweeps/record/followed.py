"""Which key of an app a setting takes its value from: an app that has that key need not say it twice."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

GROUPS = Path(__file__).parents[1] / "conf" / "hydra"
_FOLLOWS = re.compile(r"\$\{(?:oc\.select:)?(\w[\w.]*)(?:,.*)?\}")


def written(config: DictConfig, key: str) -> Any:
    """Return what stands at a key, before its interpolations are resolved. Raises KeyError if it is not there."""
    section, _, name = key.rpartition(".")
    try:
        parent = OmegaConf.select(config, section) if section else config
    except OmegaConfBaseException as error:  # it is an interpolation of what is not there
        raise KeyError(key) from error
    node: Any = parent._get_node(name, validate_access=False) if isinstance(parent, DictConfig) else None
    if node is None:
        raise KeyError(key)
    value = node._value()
    return OmegaConf.to_container(node, resolve=False) if isinstance(value, list | dict) else value


def followed(written: Any) -> str:
    """Return the key that this interpolation is for; empty if it is none, or more than that."""
    found = _FOLLOWS.fullmatch(str(written))
    return found[1] if found else ""


def source(config: DictConfig, key: str) -> str:
    """Return the key that this one takes its value from in the end: itself, if it follows none that is there."""
    seen = [key]
    while following := followed(written(config, seen[-1])):
        try:
            written(config, following)
        except KeyError:
            break
        if following in seen:  # it follows itself
            break
        seen.append(following)
    return seen[-1]


@cache
def by_default(group: str, setting: str) -> str:
    """Return the key of an app that a setting of `launcher/local`, or of another such file, follows unless typed."""
    settings = yaml.safe_load((GROUPS / f"{group}.yaml").read_text())
    return followed(settings[setting])
