"""Composing as sweep.py does, without the engine's plugins."""

from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from conf.schema import Config

CONF = Path(__file__).parents[2] / "conf"


def compose(*overrides: str) -> DictConfig:
    with hydra.initialize_config_dir(str(CONF), version_base=None):
        return hydra.compose("config", ["hydra/sweeper=basic", "hydra/launcher=basic", *overrides])


def check(*overrides: str) -> Config:
    config = OmegaConf.to_object(compose(*overrides))
    assert isinstance(config, Config)
    return config
