"""Checkpoints of a training: the newest and the previous one, each a file that is complete or
absent."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import keras
import numpy as np

from sweeps.trial import assign_arrays, newest_checkpoint, put_checkpoint


@dataclass
class Progress:
    """How far a training has come. Epochs count from 1."""

    epoch: int = 0  # the last complete one
    best_epoch: int = 0  # 0 = none yet
    best: dict[str, float] = field(default_factory=dict)  # metrics of best_epoch
    phase: int = 1  # number in trainers/phases.py, which decides which variables the optimizer has
    # per epoch: the value it is judged by, its seconds
    history: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read."""

    path: Path
    progress: Progress
    arrays: list[np.ndarray]
    best: list[np.ndarray] | None
    """The weights of the best epoch, if they are saved."""

    def assign_to(self, model: keras.Model) -> None:
        """Assign the arrays to a model and its optimizer. Raises ValueError if their shapes
        differ."""
        assign_arrays(self.path, self.arrays, _variables(model))


def save(
    folder: Path, progress: Progress, model: keras.Model, best: Sequence[np.ndarray] | None = None
) -> None:
    """Write all variables of the model and its optimizer, dropout seeds included, and the `best`
    weights; no pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / "writing.npz"
    arrays = {f"variable_{i}": v.numpy() for i, v in enumerate(_variables(model))}
    arrays |= {f"best_{i}": array for i, array in enumerate(best or ())}
    np.savez(aside, progress=np.array(json.dumps(asdict(progress))), **arrays)
    put_checkpoint(aside)


def newest(folder: Path) -> Saved | None:
    """Return the newest readable checkpoint; None if there is no file. Raises ValueError if no file
    is readable."""
    path = newest_checkpoint(folder, ".npz")
    return _read(path) if path else None


def _read(path: Path) -> Saved:
    with np.load(path, allow_pickle=False) as file:
        progress = Progress(**json.loads(str(file["progress"])))
        counts = {
            prefix: sum(name.startswith(prefix) for name in file.files)
            for prefix in ("variable_", "best_")
        }
        arrays, best = (
            [file[f"{prefix}{i}"] for i in range(count)] for prefix, count in counts.items()
        )
        return Saved(path, progress, arrays, best or None)


def _variables(model: keras.Model) -> list[keras.Variable]:
    """Return all variables; model.variables contains the states of dropout's seed generators
    too."""
    return [*model.variables, *model.optimizer.variables]
