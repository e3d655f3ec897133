"""What a dataset's .npz holds, from the headers of its arrays. No array is read and nothing is unpickled."""

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def training_rows(path: str | None) -> int:
    """Rows of x_train in the .npz file `path`.

    Raises ValueError, for the user, if there is no such file, if it is no .npz, if one of `ARRAYS` is
    missing, holds pickled objects, or has not as many rows as its partner.
    """
    if path is None:
        raise ValueError("dataset.path is null: name a .npz file, as in dataset.path=my.npz")
    file = Path(path)
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise ValueError(f"dataset.path={path} {what} (seen from {Path.cwd()}); it must be a .npz file")
    return _training_rows(path, file.stat().st_mtime_ns)


@lru_cache
def _training_rows(path: str, mtime_ns: int) -> int:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            missing = [name for name in ARRAYS if name not in names]
            if missing:
                held = ", ".join(sorted(names)) or "nothing"
                raise ValueError(
                    f"dataset.path={path} lacks {', '.join(missing)}; it holds {held}\n"
                    f"Write it with numpy.savez(path, {', '.join(f'{n}={n}' for n in ARRAYS)})"
                )
            rows = {name: _rows(archive, name, path) for name in ARRAYS}
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"dataset.path={path} is no .npz file ({error}); numpy.savez writes one") from error
    for x, y in (("x_train", "y_train"), ("x_test", "y_test")):
        if rows[x] != rows[y]:
            raise ValueError(f"dataset.path={path}: {x} has {rows[x]} rows, but {y} has {rows[y]}")
    return rows["x_train"]


def _rows(archive: zipfile.ZipFile, name: str, path: str) -> int:
    with archive.open(f"{name}.npy") as file:
        try:
            shape, dtype = _header(file)
        except ValueError as error:
            raise ValueError(f"dataset.path={path}: {name} is no numpy array ({error})") from error
    if dtype.hasobject:
        raise ValueError(
            f"dataset.path={path}: {name} holds pickled objects, which are never loaded; store numbers in it"
        )
    if not shape or shape[0] == 0:
        raise ValueError(f"dataset.path={path}: {name} is empty; it needs one row an example")
    return shape[0]


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = npy.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = npy.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = npy.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the .npy format holds no plain numbers")
    return shape, dtype
