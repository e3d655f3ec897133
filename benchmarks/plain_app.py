"""The product's configuration and trainer as a plain Hydra app, for somebody else's sweeper and launcher."""

import sys
from pathlib import Path

import hydra
from hydra.utils import get_method
from omegaconf import DictConfig

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

import trainers.config.schema  # noqa: E402, F401 - registers the schema that conf/config.yaml starts from
from sweeps.trial import current_trial  # noqa: E402


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig) -> dict[str, float]:
    sys.path[:0] = [str(ROOT)]  # a joblib worker starts with its own
    return get_method(cfg.trainer._target_)(cfg, current_trial())


if __name__ == "__main__":
    main()
