"""What trials ask for, what this machine has, and what a study would cost, without starting any of it."""

import os
from collections import Counter
from collections.abc import Iterable

import pynvml
from rich.table import Table

from sweeps.trial.job import Request


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


def table(requests: Iterable[Request]) -> Table:
    """One line for the trials that ask for the same."""
    shown = Table("trials", "GPUs each", "CPU cores each", "memory (GB) each", "timeout (min)")
    for wanted, count in Counter(requests).items():
        cells = (wanted.cores, wanted.mem_gb, wanted.timeout_min)
        shown.add_row(str(count), str(wanted.gpus), *("not set" if cell is None else f"{cell:g}" for cell in cells))
    return shown


def cost(requests: Iterable[Request]) -> str:
    """At most how many hours, if every trial ran into its timeout."""
    wanted = list(requests)
    if any(one.timeout_min is None for one in wanted):
        return "Without a timeout there is no bound on the cost; set one with hydra.launcher.timeout_min=30"
    trial_hours = sum((one.timeout_min or 0) / 60 for one in wanted)
    gpu_hours = sum(one.gpus * (one.timeout_min or 0) / 60 for one in wanted)
    return f"At most {trial_hours:.4g} trial-hours and {gpu_hours:.4g} GPU-hours, if every trial ran into its timeout"
