"""Rows of an array that stay in their file until they are asked for."""

import os
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


class OnDisk:
    """The array of a .npy file, row by row.

    Rows are read, not mapped: what has been read does not count against the process' memory, and a disk that fails
    raises OSError instead of killing the process. The file may be removed meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDONLY)
        with os.fdopen(os.dup(self.file), "rb") as file:
            npy.read_magic(file)
            self.shape, _, self.dtype = npy.read_array_header_1_0(file)
            self._start = file.tell()
        self._row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        self.end = self._start + self.nbytes  # bytes of the whole file

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Of the whole array."""
        return self.shape[0] * self._row_bytes

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The array of these rows, in their order."""
        found = np.empty((len(rows), self._row_bytes), np.uint8)
        places = [self._start + row * self._row_bytes for row in rows.tolist()]
        for place in places:  # all at once, which a disk serves much faster than one after the other
            os.posix_fadvise(self.file, place, self._row_bytes, os.POSIX_FADV_WILLNEED)
        for row, place, into in zip(rows.tolist(), places, found, strict=True):
            if os.preadv(self.file, [into.data], place) != self._row_bytes:
                raise OSError(f"row {row} of {self.shape[0]} is cut off in the cache; the next attempt makes it anew")
        return found.view(self.dtype).reshape(len(rows), *self.shape[1:])

    def all(self) -> np.ndarray:
        """The whole array, in memory."""
        with os.fdopen(os.dup(self.file), "rb") as file:
            file.seek(self._start)
            return np.fromfile(file, self.dtype, self.nbytes // self.dtype.itemsize).reshape(self.shape)
