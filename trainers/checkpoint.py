"""The newest state of a training on disk: one file, complete or not there, and the one before it."""

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
    """How far a training is. Epochs count from 1."""

    epoch: int = 0  # the last one that ended
    best_epoch: int = 0  # 0 = none yet
    best: dict[str, float] = field(default_factory=dict)  # metrics of best_epoch
    phase: int = 1  # of trainers/phases.py: which of the variables an optimizer has
    history: list[list[float]] = field(default_factory=list)  # of each epoch: what it is judged by, and its seconds


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read."""

    path: Path
    progress: Progress
    arrays: list[np.ndarray]
    best: list[np.ndarray] | None
    """The weights of the best epoch, if they are kept."""

    def assign_to(self, model: keras.Model) -> None:
        """Put it into the model and its optimizer. Raises ValueError if it is one of another model."""
        variables = _variables(model)
        there, here = [a.shape for a in self.arrays], [tuple(v.shape) for v in variables]
        if there != here:
            raise ValueError(
                f"{self.path} belongs to another model or optimizer: its variables have shapes {there}, not {here}\n"
                f"To start this trial anew, delete {self.path.parent}"
            )
        for variable, array in zip(variables, self.arrays, strict=True):
            variable.assign(array)


def save(folder: Path, progress: Progress, model: keras.Model, best: Sequence[np.ndarray] | None = None) -> None:
    """Write every variable of the model, its optimizer and its dropout seeds, without pickle, and `best` weights."""
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
    """The newest readable checkpoint, or None if there is none at all. Raises ValueError if all are unreadable."""
    problems = []
    for path in (folder / NEWEST, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            return _read(path)
        except UNREADABLE as error:
            problems.append(f"{path} cannot be read ({type(error).__name__}: {error})")
            log.warning("%s; trying the one before it", problems[-1])
    if problems:
        raise ValueError("; ".join(problems) + f"\nTo start this trial anew, delete {folder}")
    return None


def _read(path: Path) -> Saved:
    with np.load(path, allow_pickle=False) as file:
        progress = Progress(**json.loads(str(file["progress"])))
        kept = {kind: sum(name.startswith(kind) for name in file.files) for kind in ("variable_", "best_")}
        arrays, best = ([file[f"{kind}{i}"] for i in range(count)] for kind, count in kept.items())
        return Saved(path, progress, arrays, best or None)


def _variables(model: keras.Model) -> list[keras.Variable]:
    # model.variables holds the states of dropout's seed generators too.
    return [*model.variables, *model.optimizer.variables]
