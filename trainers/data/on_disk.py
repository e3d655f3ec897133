"""An array whose rows are read from its file on demand."""

import os
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


class OnDisk:
    """The array of a .npy file, which may be removed while it is open.

    Rows are read, not mapped, because mapped rows would count as the process's memory, and a
    failing disk would kill the process instead of raising OSError.
    """

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDONLY)
        with os.fdopen(os.dup(self.file), "rb") as file:
            npy.read_magic(file)
            self.shape, _, self.dtype = npy.read_array_header_1_0(file)
            self._start = file.tell()
        self._row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        self.nbytes = self.shape[0] * self._row_bytes
        self.end = self._start + self.nbytes  # size of the whole file in bytes

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return these rows as an array, in order."""
        array = np.empty((len(rows), self._row_bytes), np.uint8)
        offsets = [self._start + row * self._row_bytes for row in rows.tolist()]
        # all before the first read, because a disk serves many requests faster at once
        for offset in offsets:
            os.posix_fadvise(self.file, offset, self._row_bytes, os.POSIX_FADV_WILLNEED)
        for row, offset, target in zip(rows.tolist(), offsets, array, strict=True):
            if os.preadv(self.file, [target.data], offset) != self._row_bytes:
                raise OSError(
                    f"row {row} of {self.shape[0]} is cut off in the cache; the next attempt writes"
                    " it again"
                )
        return array.view(self.dtype).reshape(len(rows), *self.shape[1:])

    def all(self) -> np.ndarray:
        """Return the whole array, in memory."""
        with os.fdopen(os.dup(self.file), "rb") as file:
            file.seek(self._start)
            return np.fromfile(file, self.dtype, self.nbytes // self.dtype.itemsize).reshape(
                self.shape
            )
