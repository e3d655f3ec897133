"""The GPUs of this machine, as NVML counts them."""

import os

import pynvml


def visible_gpus() -> list[str]:
    """The ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. None without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    count = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return [str(index) for index in range(count)]
    # CUDA reads the list up to the first invalid entry, and -1 is how one hides every GPU.
    ids = [entry.strip() for entry in allowed.split(",")]
    return ids[: next((i for i, entry in enumerate(ids) if entry in {"", "-1"}), len(ids))]
