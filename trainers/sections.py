"""What a section of the configuration describes, made."""

from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from trainers.config.ranges import passed_on


def make(name: str, section: DictConfig, **given: Any) -> Any:
    """Call the `_target_` of the section of that name with what is `given` and the settings that it is to have."""
    settings: Any = OmegaConf.to_container(section, resolve=True)  # a copy of a part would not know what ${lr} is
    own = [key for key in settings if str(key).startswith("_")]
    return instantiate({key: settings[key] for key in [*own, *passed_on(name, settings)]}, **given, _convert_="all")
