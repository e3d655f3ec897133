"""Checkpoints of a training: the newest and the previous one, each a file that is complete or absent."""

import json
import logging
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import keras
import numpy as np

log = logging.getLogger(__name__)

NEWEST, PREVIOUS = "newest.npz", "previous.npz"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass
class Progress:
    """How far a training has come. Epochs count from 1."""

    epoch: int = 0  # the last complete one
    best_epoch: int = 0  # 0 = none yet
    best: dict[str, float] = field(default_factory=dict)  # metrics of best_epoch
    phase: int = 1  # number in trainers/phases.py, which decides which variables the optimizer has
    history: list[list[float]] = field(default_factory=list)  # per epoch: the value it is judged by, its seconds


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read."""

    path: Path
    progress: Progress
    arrays: list[np.ndarray]
    best: list[np.ndarray] | None
    """The weights of the best epoch, if they are saved."""

    def assign_to(self, model: keras.Model) -> None:
        """Assign the arrays to a model and its optimizer. Raises ValueError if their shapes differ."""
        variables = _variables(model)
        saved_shapes, shapes = [a.shape for a in self.arrays], [tuple(v.shape) for v in variables]
        if saved_shapes != shapes:
            raise ValueError(
                f"{self.path} belongs to another model or optimizer: its shapes are {saved_shapes}, not {shapes}\n"
                f"To restart this trial, delete {self.path.parent}"
            )
        for variable, array in zip(variables, self.arrays, strict=True):
            variable.assign(array)


def save(folder: Path, progress: Progress, model: keras.Model, best: Sequence[np.ndarray] | None = None) -> None:
    """Write all variables of the model and its optimizer, dropout seeds included, and the `best` weights; no pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / "writing.npz"
    arrays = {f"variable_{i}": v.numpy() for i, v in enumerate(_variables(model))}
    arrays |= {f"best_{i}": array for i, array in enumerate(best or ())}
    with aside.open("wb") as file:
        np.savez(file, progress=np.array(json.dumps(asdict(progress))), **arrays)
        file.flush()
        os.fsync(file.fileno())
    newest = folder / NEWEST
    if newest.exists():
        newest.replace(folder / PREVIOUS)
    aside.replace(newest)


def newest(folder: Path) -> Saved | None:
    """Return the newest readable checkpoint; None if there is no file. Raises ValueError if no file is readable."""
    problems = []
    for path in (folder / NEWEST, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            return _read(path)
        except UNREADABLE as error:
            problems.append(f"{path} cannot be read ({type(error).__name__}: {error})")
            log.warning("%s; trying the previous checkpoint", problems[-1])
    if problems:
        raise ValueError("; ".join(problems) + f"\nTo restart this trial, delete {folder}")
    return None


def _read(path: Path) -> Saved:
    with np.load(path, allow_pickle=False) as file:
        progress = Progress(**json.loads(str(file["progress"])))
        counts = {prefix: sum(name.startswith(prefix) for name in file.files) for prefix in ("variable_", "best_")}
        arrays, best = ([file[f"{prefix}{i}"] for i in range(count)] for prefix, count in counts.items())
        return Saved(path, progress, arrays, best or None)


def _variables(model: keras.Model) -> list[keras.Variable]:
    """Return all variables; model.variables contains the states of dropout's seed generators too."""
    return [*model.variables, *model.optimizer.variables]
