"""The app of the studies in tests/data/old_studies.tar.xz. They know its digest: never edit it, nor format it anew."""

import os
import time
from dataclasses import dataclass
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

OFFSETS = {"adam": 0.0, "sgd": 0.3, "it's, so": 0.1}


class TooWide(ValueError):
    """The engine takes a point with such an error for one that cannot run here."""

    infeasible = True


@dataclass
class Config:
    """What the studies sweep."""

    optimizer: str = "adam"
    beta: float = 0.9
    lr: float = 0.1
    width: int = 8
    x: float = 0.0
    z: int = 1
    epochs: int = 0
    two: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.width > 64:
            raise TooWide(f"width={self.width} is too wide for this machine")


def space(cfg: DictConfig, trial: Any) -> None:
    trial.suggest_int("z", 1, 3)


def is_meant(variable: str) -> bool:
    """Whether the environment's variable lists the number of this trial: "3,7"."""
    return str(HydraConfig.get().job.num) in os.environ.get(variable, "").split(",")


def loss(cfg: Any) -> float:
    """Lower is better; the best of a seed is near lr=0.03 width=16 optimizer=adam beta=0.95."""
    value = abs(cfg.lr - 0.03) + abs(cfg.width - 16) / 64 + OFFSETS[cfg.optimizer] + abs(cfg.beta - 0.95)
    return float(value + cfg.x**2 + cfg.z / 100 + (cfg.seed * 37 % 11) / 1000)


@hydra.main(version_base="1.3", config_path=None, config_name="old_app")
def main(cfg: DictConfig) -> Any:
    if is_meant("OLD_APP_FAILS"):
        raise RuntimeError("this trial was told to fail")
    if is_meant("OLD_APP_HANGS"):
        time.sleep(float(os.environ.get("OLD_APP_SECONDS", "600")))
    if cfg.epochs:
        from sweeps.trial import current_trial

        trial = current_trial()
        for epoch in range(cfg.epochs):
            trial.report({"objective": loss(cfg) + 1 / (epoch + 1)}, step=epoch)
            time.sleep(0.3)
            if trial.should_stop():
                break
    return (loss(cfg), cfg.width / 10 + cfg.lr) if cfg.two else loss(cfg)


ConfigStore.instance().store("old_app", Config)

if __name__ == "__main__":
    main()
