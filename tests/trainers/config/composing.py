"""Composing as sweep.py does, checked."""

from omegaconf import OmegaConf

from tests.composing import CONF, compose
from trainers.config.schema import Config

__all__ = ["CONF", "check", "compose"]


def check(*overrides: str) -> Config:
    config = OmegaConf.to_object(compose(*overrides))
    assert isinstance(config, Config)
    return config
