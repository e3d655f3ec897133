"""Replace NVML on a machine without a GPU: FAKE_NVML_GPUS (default 4) GPUs, each with different measurements.

FAKE_NVML=none has no driver. FAKE_NVML=no_power has GPUs without a power measurement.
"""

# ruff: noqa: N802 - the names are NVML's

import os
from types import SimpleNamespace


class NVMLError(Exception):
    pass


def nvmlInit() -> None:
    if os.environ.get("FAKE_NVML") == "none":
        raise NVMLError("NVML Shared Library Not Found")


def nvmlShutdown() -> None:
    pass


def nvmlDeviceGetCount() -> int:
    return int(os.environ.get("FAKE_NVML_GPUS", "4"))


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    if index >= 4:
        raise NVMLError("Invalid Argument")
    return index


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    return int(uuid.removeprefix("GPU-"))


def nvmlDeviceGetUtilizationRates(gpu: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=10 * (gpu + 1))


def nvmlDeviceGetMemoryInfo(gpu: int) -> SimpleNamespace:
    return SimpleNamespace(used=(gpu + 1) * 8_000_000_000, total=80_000_000_000)


def nvmlDeviceGetName(gpu: int) -> str:
    return "NVIDIA Fake"


def nvmlDeviceGetPowerUsage(gpu: int) -> int:
    if os.environ.get("FAKE_NVML") == "no_power":
        raise NVMLError("Not Supported")
    return 100_000 * (gpu + 1)
