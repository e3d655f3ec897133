"""The search for the largest batch: its requirements, and its answers, by which larger batches are
refused.

Each answer is one JSON file, for one hardware and one configuration without the settings that take
no memory.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from trainers import parallel, schedules
from trainers.config import ranges
from trainers.data.listing import cache_folder

FINDS = "trainers.batch.largest_batch.find"
HERE = "hydra_plugins.sweepyard.LocalLauncher"
"""The launcher whose trials run on the machine of the command."""
SLURM = "hydra_plugins.sweepyard.SlurmLauncher"
NODES = ("partition", "constraint", "exclude", "gres", "additional_parameters")
MEMORY = ("mem_per_gpu", "mem_per_cpu", "cpus_per_task", "cpus_per_gpu")
"""Settings of a SLURM request that decide which nodes a trial gets, and how much of their
memory."""
OF_NO_SIZE = {
    name: {
        "weights",
        *(key for key, setting in ranges.reserved(name).items() if not setting.takes_memory),
    }
    for name in ("model", "dataset")
}
"""Settings that take no memory. A data set's selections are among them, because all its arrays are
in memory."""


class TooLarge(ValueError):
    """A batch that does not fit here according to a search, in a configuration without other
    errors."""

    infeasible = True
    """Because a study skips such a trial and continues: sweeps/study/plan/compose.py."""


def check(cfg: Any, rows: int | None) -> None:
    """Raise ValueError if a search for the largest batch is impossible, and TooLarge if a batch
    does not fit.

    rows: number of training examples, None if unknown.
    """
    if cfg.trainer.get("_target_") == FINDS:
        _check_search(cfg)
    elif cfg.trainer.get("_target_") == parallel.KERAS_TRAINER:
        _check_size(cfg, rows)


def memory_limit_gb() -> float | None:
    """Return the memory limit of a trial, in GB; None without a limit."""
    limit = _launcher().get("mem_gb")
    return None if limit is None else float(limit)


def machine(gpus: int, mem_gb: float | None) -> str | None:
    """Return the type of this machine: its GPUs, or else its CPU, and the limit; None if the GPUs
    are unknown."""
    device = _gpus(os.environ.get("CUDA_VISIBLE_DEVICES")) if gpus else _cpu()
    limits = {"trials_per_gpu": gpus and _sharers(), "mem_gb": mem_gb and f"{mem_gb:g}"}
    return device and ", ".join(
        [device, *(f"{name}={limit}" for name, limit in limits.items() if limit)]
    )


def hardware(gpus: int) -> str | None:
    """Return the hardware for which an answer is valid: this type of machine, or the nodes of the
    same SLURM request.

    Returns None if it is unknown where trials run.
    """
    launcher = _launcher()
    mem_gb = memory_limit_gb()
    if launcher.get("_target_") == HERE:
        device = machine(gpus, mem_gb)
        return device and f"this machine ({device})"
    if launcher.get("_target_") != SLURM or (
        HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN
    ):
        return None
    request = {name: launcher.get(name) for name in NODES + MEMORY}
    request["mem_gb"] = mem_gb and f"{mem_gb:g}"
    request["trials_per_gpu"] = _sharers()
    words = ", ".join(f"{name}={value}" for name, value in request.items() if value)
    return f"a SLURM node ({words or 'any'})"


def configuration(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings (trainers/config/schema.py) that take memory, except the batch, as
    JSON."""
    sections = {
        name: {k: v for k, v in cfg[name].items() if k not in skip}
        for name, skip in OF_NO_SIZE.items()
    }
    if path := sections["dataset"].get("path"):
        sections["dataset"]["path"] = str(Path(path).expanduser().absolute())
    settings = {
        **sections,
        # because it freezes BatchNormalization
        "pretrained": cfg["model"].get("weights") not in (None, "random"),
        "loss": cfg["loss"].get("_target_"),
        # As bool, because memory depends on whether there is momentum, not on its value.
        "optimizer": {
            k: bool(v) if isinstance(v, int | float) else v for k, v in cfg["optimizer"].items()
        },
        "gpus": cfg["gpus"],
        "mixed_precision": cfg["mixed_precision"],
    }
    as_json: dict[str, Any] = json.loads(json.dumps(settings, sort_keys=True, default=str))
    return as_json


def answer_file(cfg: Mapping[str, Any], where: str) -> Path:
    """Return the file of the answer for a configuration and a `hardware`."""
    key = json.dumps([where, configuration(cfg)], sort_keys=True)
    name = hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
    return _folder(cfg["dataset"]) / f"{name}.json"


def answer_json(cfg: Mapping[str, Any], where: str, answer: Mapping[str, Any]) -> str:
    """Return the content of an answer's file.

    `answer` has largest_batch, too_large (a batch that did not fit; None = there was none),
    memory_gb, found (date).
    """
    return json.dumps({"place": where, "configuration": configuration(cfg), **answer}, indent=1)


def _folder(dataset: Mapping[str, Any]) -> Path:
    return cache_folder(dataset.get("cache")) / "largest_batch"


def _check_search(cfg: Any) -> None:
    if not cfg.gpus and memory_limit_gb() is None:
        raise ValueError(
            "gpus=0: the largest batch on a CPU needs a memory limit, because the kernel may kill"
            " any process.\nType hydra.launcher.mem_gb=8, the memory of a trial in GB, or gpus=1"
        )
    if cfg.nodes * cfg.ranks > 1:
        raise ValueError(
            f"nodes={cfg.nodes} ranks={cfg.ranks}: the largest batch is found for one process."
            " Remove nodes and ranks, then set batch_per_gpu to the result"
        )
    if schedules.builtin_name(cfg.batch_schedule) != "constant_batch":
        raise ValueError(
            "The largest batch is found for a constant batch size. Remove batch_schedule"
        )


def _check_size(cfg: Any, rows: int | None) -> None:
    if not _folder(cfg.dataset).is_dir() or cfg.nodes * cfg.ranks > 1:
        return
    where = hardware(cfg.gpus)
    if where is None:
        return
    file = answer_file(vars(cfg), where)
    answer = _read(file, where, configuration(vars(cfg)))
    size = first = parallel.batch_size(cfg)
    if rows and schedules.builtin_name(cfg.batch_schedule):
        size = max(schedules.plan(cfg, rows).batch_sizes)
    largest, too_large, date = answer
    if size <= largest:
        return
    batch = f"batch_size={size}"
    if size > first:
        batch = f"batch_schedule reaches {batch}, which"
    here = f"on {where} with gpus={cfg.gpus}"
    reason = f"does not fit {here}: the largest batch that fits is {largest}"
    if size < too_large:
        reason = f"is above {largest}, the largest batch that fitted {here} ({too_large} did not)"
    raise TooLarge(
        f"{batch} {reason}, found by +find=largest_batch on {date}\nTo discard this result: rm"
        f" {file}"
    )


def _read(file: Path, where: str, settings: Mapping[str, Any]) -> tuple[float, float, str]:
    """Return the largest batch in a file, the smallest batch that did not fit, and the date of the
    search.

    They are infinite if there is no file, or no batch was too large. A corrupt file is reported and
    ignored.
    """
    unlimited = (math.inf, math.inf, "")
    try:
        answer = {**json.loads(file.read_bytes())}
        if (answer["place"], answer["configuration"]) != (where, settings):
            raise ValueError("it is for other hardware or another configuration")
        largest = int(answer["largest_batch"])
        too_large = answer["too_large"]
        return unlimited if too_large is None else (largest, int(too_large), str(answer["found"]))
    except FileNotFoundError:
        return unlimited
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        _print_once(
            f"{file} is ignored: it contains no largest batch ({error!r}). To delete it: rm {file}"
        )
        return unlimited


@lru_cache
def _print_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _launcher() -> Mapping[str, Any]:
    """Return the settings of this trial's launcher; none if Hydra runs no app."""
    settings: Mapping[str, Any] = HydraConfig.get().launcher if HydraConfig.initialized() else {}
    return settings


def _sharers() -> int | None:
    """Return how many trials share a GPU; None if each has its own."""
    count = int(_launcher().get("trials_per_gpu") or 1)
    return count if count > 1 else None


@lru_cache
def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine


@lru_cache
def _gpus(visible: str | None) -> str | None:
    """Return name and memory of the GPUs in `visible`, a value of CUDA_VISIBLE_DEVICES."""
    import pynvml

    from sweeps.trial.machine import gpus

    try:
        names = gpus.names_here() if visible is None else gpus.names_in(visible)
        own = [gpus.handle(name) for name in names]
        kinds = {
            f"{pynvml.nvmlDeviceGetName(g)}, {pynvml.nvmlDeviceGetMemoryInfo(g).total / 1e9:.0f} GB"
            for g in own
        }
    except pynvml.NVMLError:
        return None
    return " and ".join(sorted(kinds)) or None
