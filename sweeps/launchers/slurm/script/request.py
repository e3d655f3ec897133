"""The resources that a trial or a worker requests from SLURM."""

import hashlib
import math
import re
import shlex
import signal
from pathlib import Path
from typing import Any

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.local.gpus import gpus_on_node
from sweeps.launchers.slurm import environment
from sweeps.launchers.slurm.queue import ELEMENTS, name_of
from sweeps.launchers.slurm.script.script import lines_before_srun
from sweeps.trial.job import Request
from sweeps.trial.run import copies

WARNING = signal.SIGUSR1  # signal before the time limit
PRIVATE = "slurm"  # the job's folder of mode 0700, in the folder of its attempt or worker
_IGNORE_SIGNALS = f'trap "" {WARNING.name} TERM'  # until Python has its handlers
_MEM_GB = 4.0
_UNITS = {"K": 2**-20, "": 2**-10, "M": 2**-10, "G": 1.0, "T": 1024.0}
_PLAIN = ["nodes", "mem_per_cpu", "partition", "qos", "account", "constraint", "exclude", "comment"]


def request(settings: SlurmLauncherConf) -> Request:
    """Return the resources of a trial over all its nodes.

    Raises UserError if an amount of memory is malformed, or if two settings request memory.
    """
    tasks = settings.nodes * settings.tasks_per_node
    gpus = settings.nodes * gpus_on_node(settings, _gpus_per_node(settings))
    cores = settings.cpus_per_task and tasks * settings.cpus_per_task
    if gpus and settings.cpus_per_gpu:
        cores = math.ceil(gpus * settings.cpus_per_gpu)
    _refuse_two_amounts(settings, has_gpus=gpus > 0)
    memory_gb = _memory_gb(settings, gpus, cores or tasks)
    minutes = settings.timeout_min
    return Request(
        gpus, cores, memory_gb or None, minutes, settings.nodes, tasks, settings.co2_g_per_kwh
    )


def _refuse_two_amounts(settings: SlurmLauncherConf, has_gpus: bool) -> None:
    """Raise UserError if two settings request memory."""
    names = ["mem_gb", "mem_per_cpu"]
    if has_gpus:
        names.append("mem_per_gpu")
    typed = [name for name in names if getattr(settings, name) is not None]
    if len(typed) < 2:
        return

    name = typed[0]
    other = typed[1]
    amount = getattr(settings, name)
    text = f"{amount:g}" if name == "mem_gb" else amount
    other_text = getattr(settings, other)
    raise UserError(
        f"hydra.launcher.{name}={text} and {other}={other_text} conflict: a job has one amount of"
        f" memory.\nType hydra.launcher.{name}=null or hydra.launcher.{other}=null"
    )


def _memory_gb(settings: SlurmLauncherConf, gpus: float, cores: float) -> float:
    """Return the memory of a trial over all its nodes; 0 if the site decides."""
    if gpus and settings.mem_per_gpu:
        return gpus * _gigabytes(settings.mem_per_gpu)
    if settings.mem_per_cpu:
        return cores * _gigabytes(settings.mem_per_cpu)
    return (_mem_gb(settings) or 0.0) * settings.nodes


def pool_of(folder: Path, settings: SlurmLauncherConf, trials_per_gpu: int = 1) -> Path:
    """Return the folder, in `folder`, of the trials that can share a job or an array: their
    requests are equal."""
    requested = parameters(folder, settings)
    lines = (settings.setup, settings.preload)
    key = repr((requested, trials_per_gpu, *lines, copies.in_use()))
    return folder / hashlib.blake2s(key.encode(), digest_size=4).hexdigest()


def place_of(folder: Path, array: str = "") -> str:
    """Return the folder of a job's files as a shell's word; for an array, the folder of the element
    that runs it."""
    if array:
        return f"{shlex.quote(str(folder / ELEMENTS))}/$SLURM_ARRAY_TASK_ID"
    return shlex.quote(str(folder))


def parameters(
    folder: Path, settings: SlurmLauncherConf, trials: int = 1, array: str = ""
) -> dict[str, Any]:
    """Return the parameters of submitit's SlurmExecutor for a job with `trials` side by side.

    `array` are the indices of a job array, as --array. The arguments of srun end with the command
    that starts Python, which is part of the request.
    """
    has_gpus = _gpus_per_node(settings) > 0
    private = f"{place_of(folder, array)}/{PRIVATE}"
    log = str(folder / (f"{ELEMENTS}/%a/log" if array else "log"))
    resources = _resources(folder, settings, trials)
    srun_args = [
        *_step_options(settings, log, trials),
        *environment.pyxis_options(settings, folder),
        *(settings.srun_args or []),
        *environment.python_command(settings, folder, has_gpus, _IGNORE_SIGNALS),
    ]

    options: dict[str, Any] = {}
    if has_gpus and settings.cpus_per_gpu:
        # not through submitit, because it warns about GPUs counted by node
        options["cpus-per-gpu"] = settings.cpus_per_gpu
    if settings.clusters:
        options["clusters"] = settings.clusters
    options |= settings.additional_parameters
    if array:
        options["array"] = array
    options["output"] = log
    options["no-requeue"] = True  # because a lost trial resumes in a new attempt, as a new job
    options["signal"] = f"{WARNING.name.removeprefix('SIG')}@{settings.signal_delay_s}"

    all_typed = {**resources, **settings.additional_parameters}
    return {
        **resources,
        "stderr_to_stdout": True,
        "srun_args": srun_args,
        "setup": lines_before_srun(settings, private, all_typed),
        "additional_parameters": options,
    }


def _resources(folder: Path, settings: SlurmLauncherConf, trials: int) -> dict[str, Any]:
    """Return what a job with `trials` side by side requests, by the parameters of submitit."""
    gpu_factor = math.ceil(trials / settings.trials_per_gpu)
    requested = {key: getattr(settings, key) for key in _PLAIN}
    requested["job_name"] = name_of(folder)
    requested["time"] = settings.timeout_min
    requested["ntasks_per_node"] = settings.tasks_per_node
    requested["cpus_per_task"] = _cpus_per_task(settings, trials)

    requested |= _gpu_options(settings, gpu_factor)
    mem_gb = _mem_gb(settings)
    if mem_gb is not None:
        requested["mem"] = _megabytes(mem_gb * trials)
    if _gpus_per_node(settings):
        requested["mem_per_gpu"] = settings.mem_per_gpu
    return {key: value for key, value in requested.items() if value is not None}


def _gpu_options(settings: SlurmLauncherConf, factor: int) -> dict[str, Any]:
    """Return the options for `factor` times the GPUs of a trial; None instead of 0, because sites
    without GPUs refuse a request for 0 GPUs."""
    gres = []
    per_node = (settings.gpus_per_node or 0) * factor
    for item in _gres(settings):
        kind, gpus = _split(item)
        if gpus is None:
            gres.append(item)
        elif gpus:
            gres.append(f"{kind}:{gpus * factor}")
            per_node = 0  # because gres counts them
    per_task = (settings.gpus_per_task or 0) * factor
    return {
        "gres": ",".join(gres) or None,
        "gpus_per_node": per_node or None,
        "gpus_per_task": per_task or None,
    }


def _cpus_per_task(settings: SlurmLauncherConf, trials: int) -> int | None:
    """Return the cores of each task of `trials` side by side; None if GPUs or the site decide."""
    by_gpu = _gpus_per_node(settings) and settings.cpus_per_gpu
    cpus = settings.cpus_per_task or (None if by_gpu or trials == 1 else 1)
    return cpus and cpus * trials


def _step_options(settings: SlurmLauncherConf, log: str, trials: int) -> list[str]:
    """Return srun's options of output and cores."""
    options = [
        "--output",
        log,
        "--open-mode=append",
        "--kill-on-bad-exit=1",
        "--distribution=block",
    ]
    if settings.nodes * settings.tasks_per_node > 1:
        options += ["--label"]  # because each line of the log then names its rank
    if cpus := _cpus_per_task(settings, trials):
        # because since SLURM 22.05 a step does not inherit the option
        options += [f"--cpus-per-task={cpus}"]
    return options


def _mem_gb(settings: SlurmLauncherConf) -> float | None:
    """Return the memory on each node in GB; None if another setting requests the memory."""
    by_gpu = settings.mem_per_gpu and _gpus_per_node(settings)
    elsewhere = any(name.startswith("mem") for name in settings.additional_parameters)
    if settings.mem_gb is not None:
        return settings.mem_gb
    return None if by_gpu or settings.mem_per_cpu or elsewhere else _MEM_GB


def _megabytes(memory_gb: float) -> str:
    """Return an amount for --mem; 0 requests all memory of the node."""
    return f"{round(memory_gb * 1024)}MB" if memory_gb else "0"


def _gpus_per_node(settings: SlurmLauncherConf) -> int:
    """Return the number of GPUs on each node, by whichever setting requests GPUs."""
    by_gres = sum(_split(item)[1] or 0 for item in _gres(settings))
    by_task = (settings.gpus_per_task or 0) * settings.tasks_per_node
    return settings.gpus_per_node or by_task or by_gres


def _gres(settings: SlurmLauncherConf) -> list[str]:
    """Return the items of --gres, where gpus_per_node is the number of a kind of GPU without a
    number.

    Raises UserError if both have a number, and the numbers differ.
    """
    items = (settings.gres or "").split(",")
    count = settings.gpus_per_node
    if count is None:
        return items

    counted = [item for item in items if _split(item)[0] != item]
    total = sum(_split(item)[1] or 0 for item in counted)
    if counted and count not in (0, total):
        raise UserError(
            f"hydra.launcher.gres={settings.gres} and {count} GPUs on each node (gpus or"
            " gpus_per_node) conflict.\nLeave the number out:"
            f" hydra.launcher.gres={_split(counted[0])[0]}"
        )
    return [f"{item}:{count}" if _split(item) == (item, 1) else item for item in items]


def _split(item: str) -> tuple[str, int | None]:
    """Return the kind and the number of GPUs in an item of --gres: gpu, gpu:2 or gpu:v100:2; no
    number for another resource."""
    if item.partition(":")[0] != "gpu":
        return item, None
    kind, _, number = item.rpartition(":")
    return (kind, int(number)) if number.isdecimal() else (item, 1)


def _gigabytes(memory: str) -> float:
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", str(memory).upper())
    if match is None:
        raise UserError(
            f"hydra.launcher: '{memory}' is not an amount of memory.\nUse an amount such as 16G"
        )
    return int(match[1]) * _UNITS[match[2]]
