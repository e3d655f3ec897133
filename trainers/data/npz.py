"""The content of a dataset's .npz file, from the headers of its arrays and its labels. Nothing is
unpickled."""

import zipfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from trainers.data import finite, labels

Headers = dict[str, tuple[tuple[int, ...], np.dtype]]
"""Shape and type of each array."""
READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
BLOCK_VALUES = 2**20
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_DAMAGES = (zipfile.BadZipFile, zlib.error, OSError, EOFError)


def describe(path: str | None, classes: bool = False) -> Headers:
    """Return the headers of the .npz file `path`.

    Raises ValueError, for the user, if the file is missing or no .npz; if one of `ARRAYS` is
    missing, contains pickled objects or texts, or differs in shape from its partner; or, with
    `classes`, if the labels are no classes.
    """
    if path is None:
        raise ValueError("dataset.path is null. Choose a .npz file, such as dataset.path=my.npz")
    file = Path(str(path))
    if not file.is_file():
        problem = "is a folder" if file.is_dir() else "does not exist"
        raise ValueError(
            f"dataset.path={path} {problem} (working directory: {Path.cwd()}). Choose a .npz file"
        )
    return _describe(str(path), classes, file.stat().st_mtime_ns)


@lru_cache
def _describe(path: str, classes: bool, mtime_ns: int) -> Headers:
    headers = _read_headers(path, classes)
    for part in ("train", "test"):
        rows = headers[f"x_{part}"][0][0]
        labelled = headers[f"y_{part}"][0][0]
        if rows != labelled:
            raise ValueError(
                f"dataset.path={path}: x_{part} has {rows} rows, but y_{part} has {labelled}"
            )
    _check_inputs(path, headers)
    if classes:
        labels.read(f"dataset.path={path}", *_read_labels(path))
    return headers


def _read_headers(path: str, classes: bool) -> Headers:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            missing = [name for name in ARRAYS if name not in names]
            if missing:
                present = ", ".join(sorted(names)) or "nothing"
                raise ValueError(
                    f"dataset.path={path} lacks {', '.join(missing)}; it contains {present}\n"
                    f"Write it with numpy.savez(path, {', '.join(f'{n}={n}' for n in ARRAYS)})"
                )
            return {name: _header(archive, name, path, classes) for name in ARRAYS}
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(
            f"dataset.path={path} is no .npz file ({error}). Write one with numpy.savez"
        ) from None


def _read_labels(path: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["y_train"], arrays["y_test"]
    except _DAMAGES as error:
        raise ValueError(
            f"dataset.path={path} is damaged: its labels cannot be read ({error})"
        ) from None


def _check_inputs(path: str, headers: Headers) -> None:
    """Raise ValueError unless the examples of x_train and x_test are alike."""
    (rows, *shape), dtype = headers["x_train"]
    (_, *test_shape), test_dtype = headers["x_test"]
    if shape != test_shape:
        raise ValueError(
            f"dataset.path={path}: an example of x_train has shape {tuple(shape)}, but of x_test"
            f" {tuple(test_shape)}"
        )
    if not shape:
        raise ValueError(
            f"dataset.path={path}: x_train has shape ({rows},), and no axis of inputs.\n"
            "Store x_train[:, None] and x_test[:, None]"
        )
    pixels = "x_train" if dtype == np.uint8 else "x_test"
    other = "x_test" if pixels == "x_train" else "x_train"
    if (dtype == np.uint8) != (test_dtype == np.uint8):
        raise ValueError(
            f"dataset.path={path}: {pixels} is uint8, whose values are divided by 255, but {other}"
            f" is {headers[other][1]}, whose values are not.\nStore both as uint8, or both as"
            " float32 of one scale"
        )


def check_values(path: str) -> None:
    """Raise ValueError if an array of the .npz file `path` contains NaN, infinity, or what float32
    cannot hold."""
    _check_values(path, Path(path).stat().st_mtime_ns)


@lru_cache
def _check_values(path: str, mtime_ns: int) -> None:
    with zipfile.ZipFile(path) as archive:
        for name in ARRAYS:
            with archive.open(f"{name}.npy") as file:
                shape, is_fortran, dtype = READERS[npy.read_magic(file)](file)
                if dtype.kind == "f":
                    finite.check_blocks(
                        f"dataset.path={path}",
                        name,
                        shape,
                        _read_blocks(file, dtype, path),
                        is_fortran,
                    )


def _read_blocks(file: IO[bytes], dtype: np.dtype, path: str) -> Iterator[np.ndarray]:
    """Yield the values of an array, a block at a time, because the array may be larger than the
    memory."""
    try:
        while content := file.read(BLOCK_VALUES * dtype.itemsize):
            whole = len(content) - len(content) % dtype.itemsize
            yield np.frombuffer(content[:whole], dtype)
    except _DAMAGES as error:
        raise ValueError(
            f"dataset.path={path} is damaged: its values cannot be read ({error})"
        ) from None


def _header(
    archive: zipfile.ZipFile, name: str, path: str, classes: bool
) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(f"{name}.npy") as file:
        try:
            shape, _, dtype = READERS[npy.read_magic(file)](file)
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"dataset.path={path}: {name} is no numpy array of plain numbers ({error})"
            ) from None
    if dtype.hasobject:
        raise ValueError(
            f"dataset.path={path}: {name} contains pickled objects, which are never loaded. Store"
            " numbers"
        )
    if dtype.kind not in "buif" and not (classes and name.startswith("y_")):
        raise ValueError(f"dataset.path={path}: {name} is {dtype}. Store numbers")
    if not shape or shape[0] == 0:
        raise ValueError(f"dataset.path={path}: {name} is empty. Store one row per example")
    return shape, dtype
