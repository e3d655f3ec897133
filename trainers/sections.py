"""What a section of the configuration describes, made."""

from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from conf.schema import passed_on


def make(name: str, section: DictConfig, **given: Any) -> Any:
    """Call the `_target_` of the section of that name with what is `given` and the settings that it is to have."""
    keys = [str(key) for key in section if str(key).startswith("_")] + passed_on(name, section)
    return instantiate(OmegaConf.masked_copy(section, keys), **given, _convert_="all")
