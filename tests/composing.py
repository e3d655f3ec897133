"""Compose configs as sweep.py does, in milliseconds."""

from functools import cache
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, open_dict

import trainers.config.schema  # noqa: F401 - registers the schema that conf/config.yaml starts from
from sweeps.study.plan.compose import Composer

CONF = Path(__file__).parents[1] / "conf"


def compose(*overrides: str) -> DictConfig:
    """Return the config of a trial without the hydra node. Raises UserError if the config cannot be composed."""
    config = _composer().compose(overrides, 0)
    with open_dict(config):
        del config["hydra"]
    return config


@cache
def _composer() -> Composer:
    with hydra.initialize_config_dir(str(CONF), version_base=None):
        master = hydra.compose("config", return_hydra_config=True)
        return Composer(GlobalHydra.instance().config_loader(), master)
