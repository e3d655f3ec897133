"""A trial that records the reported metrics, and a configuration to train."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from sweeps.trial.confusion import Confusion
from sweeps.trial.job import World
from tests import composing


def compose(*overrides: str) -> DictConfig:
    cfg = composing.compose(*overrides)
    OmegaConf.to_object(cfg)  # raises ValueError unless valid
    return cfg


class Recorder:
    """A trial that stops after the reported step `stop_after`."""

    def __init__(self, folder: Path, stop_after: int | None = None) -> None:
        self.folder, self.checkpoint_folder = folder, folder / "checkpoint"
        self.stop_after = stop_after
        self.reported: list[dict[str, float]] = []
        self.steps: list[int] = []
        self.notes: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self.world = World()

    def note(self, subject: str, note: Any) -> None:
        self.notes[subject] = note

    def record_settings(self, settings: dict[str, Any]) -> None:
        self.settings |= settings

    def record_confusion(self, subset: str, classes: Sequence[str], matrix: Sequence[Sequence[int]]) -> None:
        self.confusion = Confusion(subset, [*classes], [[*row] for row in matrix])

    def report(self, metrics: dict[str, float], step: int, partial: bool = False) -> None:
        self.reported.append(metrics)
        self.steps.append(step)

    def limit_gpu_memory(self) -> None: ...

    def should_stop(self) -> bool:
        return self.steps[-1] == self.stop_after

    def checkpoint(self) -> dict[str, np.ndarray]:
        with np.load(self.checkpoint_folder / "newest.npz", allow_pickle=False) as file:
            return dict(file)


TIMES = ("epoch_time", "images_per_second")


def without_times(metrics: dict[str, float]) -> dict[str, float]:
    return {n: value for n, value in metrics.items() if n not in TIMES and not n.startswith("time_to_")}
