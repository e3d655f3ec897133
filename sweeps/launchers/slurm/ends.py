"""What became of an attempt, from SLURM's word for its job's state and the last lines of its log."""

import re
from pathlib import Path

from sweeps.launchers.slurm.queue import GONE
from sweeps.trial.folder import State, last_lines

_MEMORY_WORDS = (
    "exceeded memory limit",  # jobacct_gather's OverMemoryKill
    "exceeded job memory limit",
    "oom-kill",  # cgroups
    "oom_kill",
    "std::bad_alloc",
    "MemoryError",
    "ResourceExhausted",
    "OOM when allocating",
)
_TASK_ENDED = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
_STARTED = "Starting with JobEnvironment"  # submitit's first line
_FROM_OUTSIDE = ("Killed", "Terminated")
_SIMPLE = {
    "TIMEOUT": (State.TIMED_OUT, "it reached its time limit"),
    "DEADLINE": (State.TIMED_OUT, "it reached its deadline"),
    "OUT_OF_MEMORY": (State.OUT_OF_MEMORY, "it used more memory than it had asked for"),
    "NODE_FAIL": (State.LOST, "its node failed"),
    "BOOT_FAIL": (State.LOST, "its node failed to boot"),
    "PREEMPTED": (State.LOST, "it was preempted"),
    "REVOKED": (State.LOST, "SLURM revoked it"),
    "CANCELLED": (State.LOST, "it was cancelled from outside"),
    GONE: (State.LOST, "SLURM no longer knows it"),
}


def end_of(slurm_state: str, job_id: str, log: Path) -> tuple[State, str]:
    """The state and the error of an attempt that left no word of its own."""
    job = f"SLURM job {job_id}"
    if slurm_state in _SIMPLE:
        state, error = _SIMPLE[slurm_state]
        return state, f"{error} ({job}: {slurm_state})"
    lines = last_lines(log, 20)
    last = "\n".join(lines)
    if any(word in last for word in _MEMORY_WORDS):
        return State.OUT_OF_MEMORY, f"it used more memory than it had asked for ({job}: {slurm_state})"
    own = [line for line in lines if not line.startswith(("srun: ", "slurmstepd"))]
    said = f": {own[-1]}" if own else ""
    if slurm_state == "COMPLETED":
        return State.FAILED, f"its process ended without a result ({job}){said}"
    tasks = _TASK_ENDED.findall(last)
    if tasks:
        node, task, word = tasks[0]  # srun then kills the other tasks
        return _end_of_task(word, f"task {task} on {node}: {word} ({job})", said)
    if any(_STARTED in line for line in last_lines(log, 1_000_000)):  # the batch script and its srun died too
        return State.LOST, f"its job was killed from outside ({job})"
    return State.FAILED, f"it ended before its processes started; a setup line failed ({job}){said}"


def _end_of_task(word: str, where: str, said: str) -> tuple[State, str]:
    if word.startswith("Exited with exit code"):
        return State.FAILED, f"its process ended without a result, {where}{said}"
    if word.startswith(_FROM_OUTSIDE):
        return State.LOST, f"its process was killed from outside, {where}"
    return State.FAILED, f"its process crashed, {where}"
