"""Train one configuration, or with -m a sweep. Try: python train.py -m lr=0.1,0.01"""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from sweeps import current_trial
from sweeps.app import answer_mistakes


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> dict[str, float]:
    """Train a weight towards 3, in place of your own training, and return the last loss."""
    trial = current_trial()
    saved = trial.checkpoint_folder / "weight.txt"
    epoch, w = 0, 0.0
    if saved.exists():
        epoch, w = int(saved.read_text().split()[0]), float(saved.read_text().split()[1])
    while epoch < cfg.epochs and not trial.should_stop():
        epoch, w = epoch + 1, w - cfg.lr * 2 * (w - 3)
        trial.report({"loss": (w - 3) ** 2}, step=epoch, last=epoch == cfg.epochs)
        saved.parent.mkdir(exist_ok=True)
        saved.with_suffix(".new").write_text(f"{epoch} {w!r}")
        saved.with_suffix(".new").replace(saved)
    return {"loss": (w - 3) ** 2}


if __name__ == "__main__":
    with answer_mistakes(Path(__file__).parent / "conf"):
        main()
