"""What a study would ask for and cost, without starting any of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from omegaconf import DictConfig
from rich.table import Table


@dataclass(frozen=True)
class Request:
    """What one trial asks its launcher for. None where it sets no bound."""

    gpus: int
    cpus: int | None
    mem_gb: float | None
    timeout_min: float | None


def request(config: DictConfig) -> Request:
    """The request of a composed trial, over all its nodes."""
    launcher = config.hydra.launcher
    nodes = int(launcher.get("nodes") or 1)
    cpus, memory = launcher.get("cpus_per_task"), launcher.get("mem_gb")
    tasks = nodes * int(launcher.get("tasks_per_node") or 1)
    return Request(
        gpus=nodes * _gpus_per_node(launcher),
        cpus=None if cpus is None else tasks * int(cpus),
        mem_gb=None if memory is None else nodes * float(memory),
        timeout_min=launcher.get("timeout_min"),
    )


def _gpus_per_node(launcher: DictConfig) -> int:
    """By whichever of the three ways a site counts them: --gpus-per-node, --gpus-per-task or --gres."""
    if launcher.get("gpus_per_node"):
        return int(launcher.gpus_per_node)
    if launcher.get("gpus_per_task"):
        return int(launcher.gpus_per_task) * int(launcher.tasks_per_node)
    asked = (item.split(":") for item in (launcher.get("gres") or "").split(","))
    return sum(int(words[-1]) if words[-1].isdecimal() else 1 for words in asked if words[0] == "gpu")


def table(requests: Iterable[Request]) -> Table:
    """One line for the trials that ask for the same."""
    shown = Table("trials", "GPUs each", "CPU cores each", "memory (GB) each", "timeout (min)")
    for wanted, count in Counter(requests).items():
        cells = (wanted.cpus, wanted.mem_gb, wanted.timeout_min)
        shown.add_row(
            str(count), str(wanted.gpus), *("not set" if cell is None else f"{cell:g}" for cell in cells)
        )
    return shown


def cost(requests: Iterable[Request]) -> str:
    """At most how many hours, if every trial ran into its timeout."""
    wanted = list(requests)
    if any(one.timeout_min is None for one in wanted):
        return "Without a timeout there is no bound on the cost; set one with hydra.launcher.timeout_min=30"
    trial_hours = sum((one.timeout_min or 0) / 60 for one in wanted)
    gpu_hours = sum(one.gpus * (one.timeout_min or 0) / 60 for one in wanted)
    return f"At most {trial_hours:.4g} trial-hours and {gpu_hours:.4g} GPU-hours, if every trial ran into its timeout"
