"""The GPUs of a trial: their names in CUDA_VISIBLE_DEVICES, and the trial's part of the memory of a
shared GPU."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Any

import pynvml

SHARE = "SWEEPYARD_GPU_SHARE"
"""Variable with the part (0 to 1) of its GPU's memory that a trial may use; absent if the trial has
whole GPUs."""

# of each process, because CUDA's context and libraries are outside of a framework's memory
_RESERVE_BYTES = 0.6e9
_ROUNDED_1 = 1.01  # because the peaks are rounded
_JAX = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")  # JAX refuses both at once


def names_in(visible: str) -> list[str]:
    """Return the names in a value of CUDA_VISIBLE_DEVICES, which CUDA reads up to the first invalid
    name."""
    names = map(str.strip, visible.split(","))
    return list(takewhile(re.compile(r"\d+$|GPU-|MIG-").match, names))


def names_here() -> list[str]:
    """Return the names of this machine's GPUs: numbers, or the UUIDs of MIG slices. Raises
    NVMLError."""
    pynvml.nvmlInit()
    names: list[str] = []
    for index in map(str, range(pynvml.nvmlDeviceGetCount())):
        names += list(_slices(handle(index))) or [index]
    return names


def _slices(gpu: Any) -> Iterator[str]:
    """Yield the UUIDs of the MIG slices into which a GPU is divided."""
    with suppress(pynvml.NVMLError):  # because most GPUs cannot be divided
        is_divided, _ = pynvml.nvmlDeviceGetMigMode(gpu)
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if is_divided else 0):
            with suppress(pynvml.NVMLError):  # because fewer slices may exist
                part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
                yield str(pynvml.nvmlDeviceGetUUID(part))


def handle(name: str) -> Any:
    """Return NVML's handle of a GPU or a MIG slice, by its number or UUID. Raises NVMLError."""
    pynvml.nvmlInit()
    if name.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(name)
    except pynvml.NVMLError:  # because CUDA, unlike NVML, takes the first characters of a UUID
        gpus = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        for gpu in gpus:
            if pynvml.nvmlDeviceGetUUID(gpu).startswith(name):
                return gpu
        raise


def uuid(name: str) -> str:
    """Return the UUID of a GPU. Raises NVMLError."""
    return str(pynvml.nvmlDeviceGetUUID(handle(name)))


def share() -> float:
    """Return the part (0 to 1) of its GPU's memory that this trial may use; 1 if the trial has
    whole GPUs."""
    return float(os.environ.get(SHARE, "1"))


def memory_bytes() -> float:
    """Return the memory of this trial's first GPU. Raises NVMLError if it is not known."""
    first = names_in(os.environ.get("CUDA_VISIBLE_DEVICES", "0"))[0]
    return float(pynvml.nvmlDeviceGetMemoryInfo(handle(first)).total)


def memory_fraction() -> float | None:
    """Return the part (0 to 1) of a shared GPU's memory that a framework may allocate; None for
    whole GPUs.

    It is the trial's share, less a reserve for CUDA.
    """
    if share() == 1:
        return None
    try:
        reserve = _RESERVE_BYTES / memory_bytes()
    except pynvml.NVMLError:
        reserve = 0.1 * share()
    return max(share() - reserve, share() / 2)


def fitting(trials: int, peak: float) -> int:
    """Return how many of `trials` fit on a GPU, at least 1, if each uses up to `peak` (0 to 1) of
    its memory."""
    return max(1, min(trials, int(_ROUNDED_1 / peak))) if peak else trials


def limit_jax() -> None:
    """Set JAX's variable for the memory of a shared GPU, unless the user has set the variable."""
    fraction = memory_fraction()
    if fraction and not any(name in os.environ for name in _JAX):
        os.environ[_JAX[0]] = f"{fraction:.4f}"
