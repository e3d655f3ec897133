"""A foreign Hydra app: the config chooses how each trial ends."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig

RETURNED = {
    "returns_nothing": None,
    "returns_nan": float("nan"),
    "returns_text": "many",
    "returns_a_dict": {"objective": {"deep": 1.0}},
    "returns_an_array": np.zeros((2, 3)),
    "returns_a_pair": (1.0, 2.0),
    "returns_metrics": {"accuracy": 0.5},
}
REPORTED = {
    "reports_text": {"accuracy": "high"},
    "reports_an_array": {"accuracy": np.zeros(4)},
    "reports_a_dict": {"accuracy": {"mean": 1.0}},
}


def space(cfg: DictConfig, trial: Any) -> None:
    trial.suggest_int("z", 1, 3)


def end(how: str) -> Any:
    if how == "raises":
        raise RuntimeError("too large")
    if how == "exits":
        sys.exit(3)
    if how == "exits_at_once":
        os._exit(3)
    if how == "exits_well":
        sys.exit()
    if how == "segfaults":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "is_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "eats":
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
        return len(bytearray(2**33))
    if how == "hangs":
        time.sleep(600)
    if how in REPORTED:
        from sweeps.trial import current_trial

        current_trial().report(REPORTED[how], step=1)
    return RETURNED.get(how, 1.0)


@hydra.main(version_base="1.3", config_path=None)
def main(cfg: DictConfig) -> Any:
    if cfg.get("how"):
        return end(cfg.how)
    if cfg.get("spawns"):  # because a process can leave the trial's session, and even the parent
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        subprocess.run(["sh", "-c", "setsid sleep 600 & exit"], check=True)
    if cfg.get("eats_gb"):
        array = np.ones(int(cfg.eats_gb * 1e9 / 8))
        time.sleep(1.2)
        return float(array[0])
    if cfg.get("wants") and not Path(cfg.wants).exists():
        raise FileNotFoundError(cfg.wants)
    if cfg.get("epochs"):
        from sweeps.trial import current_trial

        trial = current_trial()
        for epoch in range(cfg.epochs):
            epoch_times = {"epoch_time": cfg.epoch_time} if cfg.get("epoch_time") else {}
            trial.report({"objective": cfg.x, **epoch_times}, step=epoch)
            time.sleep(cfg.get("sleep", 0.05))
            if trial.should_stop():
                break
        return cfg.x
    if cfg.get("two"):
        return cfg.x**2, (cfg.x - 2) ** 2
    print("own", os.environ.get("CUDA_VISIBLE_DEVICES"), sorted(os.sched_getaffinity(0)), flush=True)
    time.sleep(cfg.get("sleep", 0))
    return cfg.get("x", 0) ** 2 + cfg.get("y", 0) + cfg.get("z", 0)


if __name__ == "__main__":
    main()
