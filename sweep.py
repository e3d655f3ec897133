"""Train one configuration, or with -m a study of many. Try: python sweep.py -m optimizer=adam,sgd lr=0.001,0.01"""

import sys
from pathlib import Path

import hydra
from hydra.utils import get_method
from omegaconf import DictConfig

ROOT = Path(__file__).parent
sys.path.append(str(ROOT / "sweeps"))  # where Hydra finds the namespace hydra_plugins

import conf.schema  # noqa: E402, F401 - registers the schema that conf/config.yaml starts from
from sweeps.app import answer_mistakes  # noqa: E402
from sweeps.compose import check  # noqa: E402
from sweeps.trial import current_trial  # noqa: E402


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> float | dict[str, float]:
    """Train what `cfg` describes; returns the trial's metrics."""
    check(cfg)
    train = get_method(cfg.trainer._target_)
    return train(cfg, current_trial())


if __name__ == "__main__":
    with answer_mistakes(ROOT / "conf"):
        main()
