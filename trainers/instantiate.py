"""Objects described by sections of the configuration."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.trial import call_target
from trainers.config.ranges import passed_on


def make(name: str, section: DictConfig, **extra: Any) -> Any:
    """Call the `_target_` of the section `name` with the settings of the section that apply, and
    with `extra`."""
    # resolved, because a partial copy cannot know ${lr}
    settings: Any = OmegaConf.to_container(section, resolve=True)
    hydra_keys = [key for key in settings if str(key).startswith("_")]
    keys = [*hydra_keys, *passed_on(name, settings)]
    return call_target({key: settings[key] for key in keys}, **extra, _convert_="all")
