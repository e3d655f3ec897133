"""Train one configuration, or with -m a study of many. Try: python sweep.py -m optimizer=adam,sgd
lr=0.001,0.01"""

import sys
from pathlib import Path

import hydra
from hydra.utils import get_method
from omegaconf import DictConfig

if sys.flags.safe_path:  # by which Python leaves out the folder of this file
    sys.path.insert(0, str(Path(__file__).parent))

import trainers.config.schema  # noqa: F401 - registers the schema that conf/config.yaml starts from
from sweeps.app import answer_mistakes, run
from sweeps.hydra.parts import VERSION_BASE
from sweeps.trial import Trial


def train(cfg: DictConfig, trial: Trial) -> float | dict[str, float]:
    """Train the configuration, and return the trial's metrics."""
    return get_method(cfg.trainer._target_)(cfg, trial)


@hydra.main(**VERSION_BASE, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> float | dict[str, float]:
    return run(cfg, train)


if __name__ == "__main__":
    with answer_mistakes(Path(__file__).parent / "conf"):
        main()
