"""The lines of the batch script before srun: the environment of a job, and the record of a line
that fails."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm import environment

# the setup lines, which may contain secrets of the environment; removed when they are read
SETUP = "setup.sh"
SET_UP = "set_up"  # created when every line has succeeded
# the status, the line of SETUP, and the place of the command by which the script ended before
FAILED = "set_up_failed"
_TRACE = (
    "trap '((LINENO == 1)) || sweepyard_line=$LINENO' DEBUG; trap"
    " 'sweepyard_at=${BASH_SOURCE[0]}:$LINENO' ERR"
)
"""The first line of SETUP, which notes the lines from 2 on; the trap at the end of the script has
the line 1."""

# srun(1), INPUT ENVIRONMENT VARIABLES, and the variables that describe the allocation.
_OF_SRUN = (
    "ACCOUNT ACCTG_FREQ ARBITRARY_NODELIST BCAST BCAST_EXCLUDE BURST_BUFFER CLUSTER_CONSTRAINT"
    " COMPRESS CONSTRAINT CONTAINER CONTAINER_ID CORE_SPEC CPUS_ON_NODE CPUS_PER_GPU CPUS_PER_TASK"
    " CPU_BIND CPU_BIND_LIST CPU_BIND_TYPE CPU_BIND_VERBOSE CPU_FREQ_REQ DEBUG DELAY_BOOT"
    " DEPENDENCY DISABLE_STATUS DISTRIBUTION DIST_PLANESIZE EPILOG EXACT EXCLUSIVE EXIT_ERROR"
    " EXIT_IMMEDIATE EXPORT_ENV GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK GPU_BIND GPU_FREQ"
    " GRES GRES_FLAGS HINT HOSTFILE JOBID JOB_CPUS_PER_NODE JOB_ID JOB_NODELIST JOB_NUM_NODES"
    " KILL_BAD_EXIT LABELIO MEM_BIND MEM_BIND_LIST MEM_BIND_TYPE MEM_PER_CPU MEM_PER_GPU"
    " MEM_PER_NODE MPI_TYPE NCORES_PER_SOCKET NETWORK NNODES NODELIST NO_KILL NPROCS"
    " NSOCKETS_PER_NODE NTASKS NTASKS_PER_CORE NTASKS_PER_GPU NTASKS_PER_NODE NTASKS_PER_SOCKET"
    " NTASKS_PER_TRES OPEN_MODE OVERCOMMIT OVERLAP PARTITION POWER PROFILE PROLOG QOS RELATIVE"
    " REMOTE_CWD REQ_SWITCH RESERVATION RESV_PORTS SEND_LIBS SIGNAL SPREAD_JOB SRUN_MULTI"
    " STDERRMODE STDINMODE STDOUTMODE STEP_GRES STEP_KILLED_MSG_NODE_ID TASKS_PER_NODE TASK_EPILOG"
    " TASK_PROLOG TEST_EXEC THREADS THREADS_PER_CORE THREAD_SPEC TIMELIMIT TRES_BIND TRES_PER_TASK"
    " UNBUFFEREDIO USE_MIN_NODES WAIT WAIT4SWITCH WCKEY WORKING_DIR"
)
_VARIABLES = f"SLURM_{{{_OF_SRUN.replace(' ', ',')}}}"
_RESTORE = (
    f"for sweepyard_name in ${{!SRUN_*}} {_VARIABLES}; do [[ -z ${{!sweepyard_name+x}} ||"
    ' $sweepyard_slurm == *"$(declare -p "$sweepyard_name")"* ]] || { echo "$sweepyard_name of a'
    ' setup line is not passed to srun: type hydra.launcher.srun_args"; unset $sweepyard_name; };'
    " done"
)
_MEMORY = {
    "mem": "SLURM_MEM_PER_NODE",
    "mem-per-cpu": "SLURM_MEM_PER_CPU",
    "mem-per-gpu": "SLURM_MEM_PER_GPU",
}


def setup_text(lines: Iterable[str]) -> str:
    """Return the content of SETUP for the lines of `setup`."""
    return "".join(f"{line}\n" for line in [_TRACE, *lines])


def entry_of(number: int, lines: Iterable[str]) -> int | None:
    """Return the index of the entry of `setup` that has the line `number` of SETUP."""
    last = 1
    for index, line in enumerate(lines):
        last += 1 + line.count("\n")
        if 1 < number <= last:
            return index
    return None


def lines_before_srun(
    settings: SlurmLauncherConf, private: str, options: Mapping[str, Any]
) -> list[str]:
    """Return the lines of the batch script before srun, for a job with these options of sbatch.

    srun gets its options from the request and from `srun_args`: the variables of SLURM as the job
    found them, without those that a setup line or an rc file sets, because these may contradict the
    request.
    """
    setup = f"{private}/{SETUP}"
    requested = {name.replace("_", "-") for name in options}
    contrary = [
        variable
        for option, variable in _MEMORY.items()
        if requested & {*_MEMORY} and option not in requested
    ]
    record = (
        'printf "%s\\n" "$sweepyard_status" "${sweepyard_line-}" "${sweepyard_at-}" >'
        f" {private}/{FAILED}"
    )
    at_exit = f"sweepyard_status=$?; [ -e {private}/{SET_UP} ] || {record}"
    return [
        "set -e",
        f"trap {shlex.quote(at_exit)} EXIT",
        f"unset SLURM_CLUSTERS SLURM_EXPORT_ENV ${{!SRUN_*}} {' '.join(contrary)}",
        f"sweepyard_slurm=$(declare -p {_VARIABLES} 2>/dev/null || true)",
        "export SWEEPYARD_JOB_START=$(date +%s.%N)",
        *environment.module_lines(settings, private),
        # because another user may have replaced a folder of a study that several users write to
        *([f"[ -O {setup} ]", f". {setup}", f"rm {setup}"] if settings.setup else []),
        *environment.path_lines(settings),
        *environment.container_lines(settings),
        _RESTORE,
        'eval "$sweepyard_slurm"',
        f"touch {private}/{SET_UP}",
    ]
