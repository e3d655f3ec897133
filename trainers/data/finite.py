"""Values that no network can train on: NaN, infinity, and what is too large for float32."""

from collections.abc import Iterable, Sequence

import numpy as np

_LARGEST = float(np.finfo(np.float32).max)
_BLOCK = 2**22  # values that are checked at once


def check(source: str, name: str, array: np.ndarray) -> None:
    """Raise ValueError, with the array, the first position and the count, unless all values are
    finite."""
    if array.dtype.kind == "f":
        flat = array.reshape(-1)
        blocks = (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
        check_blocks(source, name, array.shape, blocks)


def check_blocks(
    source: str,
    name: str,
    shape: Sequence[int],
    blocks: Iterable[np.ndarray],
    is_fortran: bool = False,
) -> None:
    """Raise ValueError as `check` does, of an array that comes in blocks of consecutive values."""
    first = 0
    value = 0.0
    count = 0
    total = 0
    for block in blocks:
        positions = _wrong_positions(block)
        if len(positions) and not count:
            first = total + int(positions[0])
            value = float(block[positions[0]])
        count += len(positions)
        total += len(block)
    if not count:
        return

    index = np.unravel_index(first, tuple(shape), order="F" if is_fortran else "C")
    problem = f"{name}[{', '.join(map(str, index))}] is {value:g}"
    remedy = f"Remove these rows, or replace the values, as numpy.nan_to_num({name}) does"
    if np.isfinite(value):
        problem += ", too large for float32"
        remedy = f"Scale the values of {name}, or remove these rows"
    if count > 1:
        problem += f", as are {count:,} of its {total:,} values"
    raise ValueError(f"{source}: {problem}.\n{remedy}")


def _wrong_positions(block: np.ndarray) -> np.ndarray:
    """Return the positions of the values that are not finite in float32."""
    with np.errstate(invalid="ignore"):
        # because float16 cannot hold the limit
        wide = block.astype(np.promote_types(block.dtype, np.float32), copy=False)
        return np.flatnonzero(~(np.abs(wide) <= _LARGEST))
