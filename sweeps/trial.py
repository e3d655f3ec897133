"""What a task function sees of its own trial."""

import math
import time
from collections.abc import Mapping
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from sweeps.trial_folder import MetricsLine, State, TrialFolder


class Diverged(ArithmeticError):
    """The trial's objective became NaN or infinite."""


class Trial:
    """One trial, seen from inside its own process.

    The whole contract of a training function:

        def train(cfg, trial):
            for epoch in range(cfg.epochs):
                ...
                trial.report({"val_accuracy": accuracy}, step=epoch)
                if trial.should_stop():
                    break
            return accuracy
    """

    def __init__(self, folder: Path) -> None:
        self._folder = TrialFolder(folder)

    @property
    def checkpoint_folder(self) -> Path:
        """Where the newest state of the training belongs. It may not exist yet; what is in it outlives an attempt."""
        return self._folder.checkpoint

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Record the metrics of one step, usually an epoch: they reach the dashboard and the pruner within seconds."""
        values = {name: float(value) for name, value in metrics.items()}
        self._folder.append_metrics(MetricsLine(step, time.time(), values))
        print(f"step {step}  " + "  ".join(f"{name}={value:.5g}" for name, value in values.items()), flush=True)

    def should_stop(self) -> bool:
        """True once the driver wants this trial to end after the current epoch: it was pruned or cancelled."""
        return self.stop_reason() is not None

    def stop_reason(self) -> State | None:
        return self._folder.stop_requested()


def current_trial() -> Trial:
    """The trial that this process runs, from inside any Hydra task function."""
    return Trial(Path(HydraConfig.get().runtime.output_dir))


def check_finite(objective: Mapping[str, float]) -> None:
    """Raises Diverged if a value is NaN or infinite."""
    for name, value in objective.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value}")
