"""A Hydra app whose task function returns nothing."""

import hydra
from omegaconf import DictConfig


@hydra.main(version_base="1.3", config_path=None)
def main(cfg: DictConfig) -> None:
    print("x is", cfg.x)


if __name__ == "__main__":
    main()
