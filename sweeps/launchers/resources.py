"""What a study asks for and would cost, without starting any of it."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from sweeps.trial.job import Request


def table(requests: Sequence[Request]) -> Table:
    """One line for the trials that ask for the same."""
    shown = Table("trials", "GPUs each", "CPU cores each", "memory (GB) each", "timeout (min)")
    for wanted, count in Counter(requests).items():
        cells = (wanted.cores, wanted.mem_gb, wanted.timeout_min)
        shown.add_row(str(count), str(wanted.gpus), *("not set" if cell is None else f"{cell:g}" for cell in cells))
    return shown


def cost(requests: Sequence[Request]) -> str:
    """At most how many hours, if every trial ran into its timeout."""
    hours = [(one.gpus, one.timeout_min / 60) for one in requests if one.timeout_min is not None]
    if len(hours) < len(requests):
        return "Without a timeout there is no bound on the cost; set one with hydra.launcher.timeout_min=30"
    trial_hours, gpu_hours = sum(h for _, h in hours), sum(gpus * h for gpus, h in hours)
    return f"At most {trial_hours:.4g} trial-hours and {gpu_hours:.4g} GPU-hours, if every trial ran into its timeout"
