"""The newest state of a training on disk: one file, complete or not there, and the one before it."""

import json
import logging
import os
import zipfile
import zlib
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


def save(folder: Path, progress: Progress, model: keras.Model) -> None:
    """Write every variable of the model, its optimizer and its dropout seeds, without pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / "writing.npz"
    arrays = {f"variable_{i}": v.numpy() for i, v in enumerate(_variables(model))}
    with aside.open("wb") as file:
        np.savez(file, progress=np.array(json.dumps(asdict(progress))), **arrays)
        file.flush()
        os.fsync(file.fileno())
    newest = folder / NEWEST
    if newest.exists():
        newest.replace(folder / PREVIOUS)
    aside.replace(newest)


def restore(folder: Path, model: keras.Model) -> Progress:
    """Put the newest readable checkpoint, if there is one, into the model and its optimizer.

    Returns how far it is. Raises ValueError if there are only unreadable ones, or one of another model.
    """
    problems = []
    for path in (folder / NEWEST, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            progress, arrays = _read(path)
        except UNREADABLE as error:
            problems.append(f"{path} cannot be read ({type(error).__name__}: {error})")
            log.warning("%s; trying the one before it", problems[-1])
            continue
        _assign(path, arrays, model)
        return progress
    if problems:
        raise ValueError("; ".join(problems) + f"\nTo start this trial anew, delete {folder}")
    return Progress()


def _read(path: Path) -> tuple[Progress, list[np.ndarray]]:
    with np.load(path, allow_pickle=False) as file:
        progress = Progress(**json.loads(str(file["progress"])))
        return progress, [file[f"variable_{i}"] for i in range(len(file.files) - 1)]


def _assign(path: Path, arrays: list[np.ndarray], model: keras.Model) -> None:
    variables = _variables(model)
    there, here = [a.shape for a in arrays], [tuple(v.shape) for v in variables]
    if there != here:
        raise ValueError(
            f"{path} belongs to another model or optimizer: its variables have shapes {there}, not {here}\n"
            f"To start this trial anew, delete {path.parent}"
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _variables(model: keras.Model) -> list[keras.Variable]:
    # model.variables holds the states of dropout's seed generators too.
    return [*model.variables, *model.optimizer.variables]
