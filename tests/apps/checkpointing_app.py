"""An app whose trials report epochs of 0.1 s, resume from a checkpoint, and wait while a file `hold` exists."""

import os
import signal
import time
from pathlib import Path

import hydra

from sweeps.trial import current_trial


@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    if cfg.get("how") is not None and cfg.x == 1:
        os._exit(3)
    if cfg.get("how") is not None and cfg.x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    trial = current_trial()
    epoch_file = trial.checkpoint_folder / "epoch"
    # An empty file counts as no checkpoint, because a process may be killed while it writes the file.
    done = int(epoch_file.read_text() or 0) if epoch_file.exists() else 0
    for epoch in range(done + 1, cfg.epochs + 1):
        time.sleep(0.1)
        while Path("hold").exists():
            time.sleep(0.1)
        trial.report({"objective": cfg.x}, step=epoch)
        if trial.world.is_chief:
            epoch_file.parent.mkdir(exist_ok=True)
            epoch_file.write_text(str(epoch))
        if trial.should_stop():
            break
    return cfg.x


if __name__ == "__main__":
    main()
