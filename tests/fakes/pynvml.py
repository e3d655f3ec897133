"""Replace NVML on a machine without a GPU: FAKE_NVML_GPUS (default 4) GPUs, each with different measurements.

FAKE_NVML=none has no driver. FAKE_NVML=no_power has GPUs without a power measurement. FAKE_NVML=mig has the first GPU
divided into two slices. FAKE_NVML_OWN_GB is the GPU memory of each process that asks; without it, NVML lists none.
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
    if uuid.startswith("MIG-"):
        return 10 + int(uuid.removeprefix("MIG-"))
    if not uuid.removeprefix("GPU-").isdecimal():
        raise NVMLError("Not Found")
    return int(uuid.removeprefix("GPU-"))


def nvmlDeviceGetUUID(gpu: int) -> str:
    return f"MIG-{gpu - 10}" if gpu >= 10 else f"GPU-{gpu}"


def nvmlDeviceGetMigMode(gpu: int) -> tuple[int, int]:
    if os.environ.get("FAKE_NVML") != "mig":
        raise NVMLError("Not Supported")
    return int(gpu == 0), 0


def nvmlDeviceGetMaxMigDeviceCount(gpu: int) -> int:
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(gpu: int, index: int) -> int:
    if index >= 2:
        raise NVMLError("Not Found")
    return 10 + index


def nvmlDeviceGetComputeRunningProcesses(gpu: int) -> list[SimpleNamespace]:
    own = os.environ.get("FAKE_NVML_OWN_GB")
    used = {1: 30_000_000_000} | ({os.getpid(): int(own) * 1_000_000_000} if own else {})
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in used.items()]


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
