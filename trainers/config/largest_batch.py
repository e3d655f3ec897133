"""What a search for the largest batch needs, and what such searches have found: batches that no trial need try.

An answer is kept as one JSON file for a place and a configuration, without what takes no memory.
"""

import hashlib
import json
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

FINDS = "trainers.largest_batch.find"
HERE = "hydra_plugins.sweepyard.LocalLauncher"
"""The launcher whose trials surely run on the machine of whoever asks."""
SLURM = "hydra_plugins.sweepyard.SlurmLauncher"
NODES = ("partition", "constraint", "exclude", "gres", "additional_parameters")
MEMORY = ("mem_per_gpu", "mem_per_cpu", "cpus_per_task", "cpus_per_gpu")
"""What of a request decides which nodes may come, and how much of their memory."""
OF_NO_SIZE = {
    name: {"weights", *(key for key, setting in ranges.reserved(name).items() if not setting.takes_memory)}
    for name in ("model", "dataset")
}
"""Settings that take no memory: of a dataset all arrays are held, whatever is chosen of them."""


class TooLarge(ValueError):
    """A batch that is known not to fit here, in a configuration that has no other fault."""

    infeasible = True
    """A study goes on without it: sweeps/study/compose.py."""


def check(cfg: Any, rows: int | None) -> None:
    """Raise ValueError if the largest batch cannot be searched for, and TooLarge if a batch is known not to fit.

    rows: examples for training, None if unknown.
    """
    if cfg.trainer.get("_target_") == FINDS:
        _check_search(cfg)
    elif cfg.trainer.get("_target_") == parallel.KERAS_TRAINER:
        _check_known(cfg, rows)


def memory_limit_gb() -> float | None:
    """What a trial may hold in memory, in GB; None without a limit."""
    limit = _launcher().get("mem_gb")
    return None if limit is None else float(limit)


def machine(gpus: int, mem_gb: float | None) -> str | None:
    """The type of this machine: its GPUs, or else its CPU, and the limit. None if it is not known."""
    device = _gpus(os.environ.get("CUDA_VISIBLE_DEVICES")) if gpus else _cpu()
    return device if device is None or mem_gb is None else f"{device}, mem_gb={mem_gb:g}"


def hardware(gpus: int) -> str | None:
    """What an answer holds for, in words: this type of machine, or the nodes that SLURM gives for the same request.
    None if it is not known where trials run.
    """
    launcher, mem_gb = _launcher(), memory_limit_gb()
    if launcher.get("_target_") == HERE:
        here = machine(gpus, mem_gb)
        return here and f"this machine ({here})"
    if launcher.get("_target_") != SLURM or (HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN):
        return None
    asked = {name: launcher.get(name) for name in NODES + MEMORY} | {"mem_gb": mem_gb and f"{mem_gb:g}"}
    return f"a SLURM node ({', '.join(f'{name}={value}' for name, value in asked.items() if value) or 'any'})"


def configuration(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration (trainers/config/schema.py) takes memory, but for the batch, as JSON has it."""
    sections = {name: {k: v for k, v in cfg[name].items() if k not in skip} for name, skip in OF_NO_SIZE.items()}
    if path := sections["dataset"].get("path"):
        sections["dataset"]["path"] = str(Path(path).expanduser().absolute())
    found = {
        **sections,
        "pretrained": cfg["model"].get("weights") not in (None, "random"),  # then BatchNormalization is frozen
        "loss": cfg["loss"].get("_target_"),
        # Whether there is momentum takes memory, how much does not.
        "optimizer": {k: bool(v) if isinstance(v, int | float) else v for k, v in cfg["optimizer"].items()},
        "gpus": cfg["gpus"],
        "mixed_precision": cfg["mixed_precision"],
    }
    as_json: dict[str, Any] = json.loads(json.dumps(found, sort_keys=True, default=str))
    return as_json


def answer_file(cfg: Mapping[str, Any], where: str) -> Path:
    """The file in which the answer for a configuration at a `place` is kept."""
    key = json.dumps([where, configuration(cfg)], sort_keys=True)
    name = hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
    return _folder(cfg["dataset"]) / f"{name}.json"


def answer_json(cfg: Mapping[str, Any], where: str, answer: Mapping[str, Any]) -> str:
    """What is kept of an answer: largest_batch, too_large (a batch that did not fit; None = there was none), memory_gb,
    found.
    """
    return json.dumps({"place": where, "configuration": configuration(cfg), **answer}, indent=1)


def _folder(dataset: Mapping[str, Any]) -> Path:
    return cache_folder(dataset.get("cache")) / "largest_batch"


def _check_search(cfg: Any) -> None:
    if not cfg.gpus and memory_limit_gb() is None:
        raise ValueError(
            "gpus=0: to find the largest batch on a CPU takes a limit; without one the kernel chooses whom it kills\n"
            "Type hydra.launcher.mem_gb=8, the GB of memory that a trial may use, or gpus=1"
        )
    if cfg.nodes * cfg.ranks > 1:
        raise ValueError(
            f"nodes={cfg.nodes} ranks={cfg.ranks}: the largest batch is found for one process; leave them out, and "
            "give each process that much: batch_per_gpu"
        )
    if schedules.builtin_name(cfg.batch_schedule) != "constant_batch":
        raise ValueError("The largest batch is found for one size a training; leave out batch_schedule")


def _check_known(cfg: Any, rows: int | None) -> None:
    if not _folder(cfg.dataset).is_dir() or cfg.nodes * cfg.ranks > 1:
        return
    where = hardware(cfg.gpus)
    if where is None:
        return
    file = answer_file(vars(cfg), where)
    known = _read(file, where, configuration(vars(cfg)))
    size = first = parallel.batch_size(cfg)
    if rows and schedules.builtin_name(cfg.batch_schedule):
        size = max(schedules.plan(cfg, rows).batch_sizes)
    if known is None or size <= known[0]:
        return
    largest, too_large, found = known
    what = f"batch_size={size}" if size == first else f"batch_schedule reaches batch_size={size}, which"
    here = f"on {where} with gpus={cfg.gpus}"
    why = f"does not fit {here}: the largest that fits is {largest}"
    if size < too_large:
        why = f"is above {largest}, the largest that was seen to fit {here} ({too_large} did not)"
    raise TooLarge(f"{what} {why}, found by +find=largest_batch on {found}\nTo forget it: rm {file}")


def _read(file: Path, where: str, asked: Mapping[str, Any]) -> tuple[int, int, str] | None:
    """The largest batch in a file, the smallest that did not fit, and when they were found; None if there is no file,
    or nothing was too large. A file that is damaged or not ours is named and counts for nothing.
    """
    try:
        answer = {**json.loads(file.read_bytes())}
        if (answer["place"], answer["configuration"]) != (where, asked):
            raise ValueError("it is of another place or configuration")
        largest, too_large = int(answer["largest_batch"]), answer["too_large"]
        return None if too_large is None else (largest, int(too_large), str(answer["found"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        _say(f"{file} is ignored, since it holds no largest batch ({error!r}); to be rid of it: rm {file}")
        return None


@lru_cache
def _say(line: str) -> None:
    """Once, to whoever typed the command."""
    print(line, file=sys.stderr, flush=True)


def _launcher() -> Mapping[str, Any]:
    """The settings of the launcher that this trial has; none where Hydra runs no app."""
    settings: Mapping[str, Any] = HydraConfig.get().launcher if HydraConfig.initialized() else {}
    return settings


@lru_cache
def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine


@lru_cache
def _gpus(visible: str | None) -> str | None:
    """Name and memory of the GPUs that `visible`, a value of CUDA_VISIBLE_DEVICES, lets a process see."""
    import pynvml

    try:
        pynvml.nvmlInit()
        every = [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [name.strip() for name in visible.split(",")] if visible is not None else every
        gpus = [
            pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else pynvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
            if name not in ("", "-1")
        ]
        kinds = {f"{pynvml.nvmlDeviceGetName(g)}, {pynvml.nvmlDeviceGetMemoryInfo(g).total / 1e9:.0f} GB" for g in gpus}
    except pynvml.NVMLError:
        return None
    return " and ".join(sorted(kinds)) or None
