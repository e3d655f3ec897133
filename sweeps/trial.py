"""What a task function sees of its own trial."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from sweeps.trial_folder import MetricsLine, State, TrialFolder


class Diverged(ArithmeticError):
    """What the trial is judged by, its objective or its loss, became NaN or infinite."""


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

    def __init__(self, folder: Path, objective: Sequence[str] = ()) -> None:
        self._folder = TrialFolder(folder)
        self._objective = objective
        self._reported_before = self._folder.mend_metrics()

    @property
    def checkpoint_folder(self) -> Path:
        """Where the newest state of the training belongs. It may not exist yet; what is in it outlives an attempt."""
        return self._folder.checkpoint

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Record the metrics of one step, usually an epoch: they reach the dashboard and the pruner within seconds.

        A step that an earlier attempt reported is recorded once, with the values of that attempt.

        Raises:
            Diverged: the objective is NaN or infinite.
        """
        values = {name: float(value) for name, value in metrics.items()}
        print(
            f"step {step}  " + "  ".join(f"{name}={value:.5g}" for name, value in values.items()), flush=True
        )
        if self._reported_before is None or step > self._reported_before:
            self._folder.append_metrics(MetricsLine(step, time.time(), values))
        check_finite({name: values[name] for name in self._objective if name in values}, f"at step {step}")

    def should_stop(self) -> bool:
        """True once the driver wants this trial to end after the current epoch: it was pruned or cancelled."""
        global stop_heard  # noqa: PLW0603 - a process runs one trial, and its end depends on whether it listened
        stop_heard = stop_heard or self._folder.stop_requested()
        return stop_heard is not None


stop_heard: State | None = None
"""Why this process was told to stop, once the task function has asked. One that never asks runs to its end."""


def current_trial() -> Trial:
    """The trial that this process runs, from inside any Hydra task function."""
    hydra: Any = HydraConfig.get()
    objective = OmegaConf.select(hydra, "sweeper.objective")
    names = [objective] if isinstance(objective, str) else objective or []
    return Trial(Path(hydra.runtime.output_dir), list(names))


def check_finite(objective: Mapping[str, float], where: str = "") -> None:
    """Raises Diverged if a value is NaN or infinite."""
    for name, value in objective.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value} {where}".rstrip())
