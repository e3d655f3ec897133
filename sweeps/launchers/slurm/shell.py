"""The variables of SLURM in the driver's shell: which of them a job may get, and which none may.

Options of a job are #SBATCH lines, over which sbatch's variables would win: sbatch(1), INPUT
ENVIRONMENT VARIABLES.
"""

import os
import re
from collections.abc import Iterator, Mapping

OF_JOBS = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "PMI")
_OF_QUERIES = ("SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_")
_OF_THE_SITE = (
    "CONF",
    "CONF_SERVER",
    "CLUSTERS",
    "JWT",
    "HOME",
    "ROOT",
    "PREFIX",
    "PATH",
    "BIN",
    "SYSCONFDIR",
)
"""Variables with SLURM_ that describe how SLURM is reached, or where it is installed."""

_NAMES = {"cpu-freq": "CPU_FREQ_REQ", "bb": "BURST_BUFFER", "mem-bind": "MEM_BIND"}
_HABITS = (
    "account acctg-freq bb cluster-constraint comment constraint core-spec cpu-freq delay-boot"
    " exclusive gpu-bind gpu-freq gres-flags hint licenses mem-bind network partition power prefer"
    " profile qos reservation threads-per-core thread-spec use-min-nodes wckey"
)
"""Options that may come from the shell if they are not typed.

Not the size and the time of a request, which differ among trials, nor options by which we follow a
job.
"""
HABITS = {
    f"SBATCH_{_NAMES.get(option, option.replace('-', '_').upper())}": option
    for option in _HABITS.split()
}
HABITS |= {"SBATCH_REQ_SWITCH": "switches", "SBATCH_WAIT4SWITCH": "switches"}
"""Options by the variables that set them."""

_EXCLUSIVE = {"hint": ("threads-per-core", "ntasks-per-core", "ntasks-per-socket", "cpu-bind")}
"""Options that sbatch does not accept together."""


def is_in_job() -> bool:
    """Return whether this process runs in a job, whose variables are no habits of the user."""
    return "SLURM_JOB_ID" in os.environ


def habits(script: str) -> dict[str, str]:
    """Return the variables of the shell that set an option which the batch script lacks."""
    if is_in_job():
        return {}
    typed = set(_typed_options(script))
    return {
        name: os.environ[name]
        for name, option in HABITS.items()
        if name in os.environ and not typed & {option, *_EXCLUSIVE.get(option, ())}
    }


def left_out(script: str) -> list[str]:
    """Return the names of SLURM's variables that no job of this script gets, and that no command of
    SLURM may see."""
    used = habits(script)
    return [name for name in os.environ if name not in used and _is_left_out(name)]


def describe(script: str) -> Iterator[str]:
    """Yield which variables of the shell set an option of this job, and which of them are not
    used."""
    for name, value in habits(script).items():
        yield f"of the shell: {name}={value}"
    if is_in_job():
        return
    unused = [name for name in left_out(script) if name.startswith(OF_JOBS)]
    if unused:
        yield f"of the shell, not used: {', '.join(sorted(unused))}"


def for_queries() -> Mapping[str, str]:
    """Return the environment of commands that ask or change the queue, without variables that
    filter or format it."""
    filters = (*_OF_QUERIES, "SLURM_TIME_FORMAT")
    return {name: value for name, value in os.environ.items() if not name.startswith(filters)}


def _typed_options(script: str) -> Iterator[str]:
    """Yield the options of a script; a key of submitit's own is no option that the user typed."""
    for option, value in re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script, re.MULTILINE):
        if (option, value) != ("wckey", "submitit"):
            yield option


def _is_left_out(name: str) -> bool:
    if name.startswith("PMI"):
        return is_in_job()  # because outside a job they are settings of the user's MPI
    of_the_site = name.startswith("SLURM_") and name.removeprefix("SLURM_") in _OF_THE_SITE
    return name.startswith((*OF_JOBS, *_OF_QUERIES)) and not of_the_site
