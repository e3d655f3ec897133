"""What became of an attempt that left no end of its own, by SLURM's word for its job and the last lines of its log."""

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from sweeps.files import last_lines
from sweeps.launchers.slurm.queue import ENDED, JobInfo
from sweeps.trial.folder import SYSTEM_METRICS, AttemptFolder
from sweeps.trial.job import End, Job, State

# Of jobacct_gather's OverMemoryKill, cgroups, C++, Python and TensorFlow.
_MEMORY = re.compile(
    "exceeded (job )?memory limit|oom[-_]kill|std::bad_alloc|MemoryError|ResourceExhausted|OOM when allocating"
)
_TASK_ENDED = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
_FROM_OUTSIDE = ("Killed", "Terminated")
_STATES = {
    "CANCELLED": State.CANCELLED,
    "DEADLINE": State.TIMED_OUT,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "TIMEOUT": State.TIMED_OUT,
}
_USAGE = "system/memory_usage_megabytes"


def end_of(info: JobInfo, folder: Path) -> End:
    """The end of a job that is over, whose files lie in `folder`."""
    job = f"SLURM job {info.id}"
    if info.state == "CANCELLED" and info.by not in (None, "", str(os.getuid())):
        return End(State.LOST, f"it was cancelled by user {info.by} ({job}: CANCELLED)")
    if info.state not in ("COMPLETED", "FAILED"):
        return End(_STATES.get(info.state, State.LOST), f"{ENDED[info.state]} ({job}: {info.state})")
    try:
        lines, set_up = last_lines(folder / "log", 20), (folder / "slurm" / "set_up").exists()
    except OSError as error:
        return End(State.LOST, f"how it ended cannot be read: {error} ({job}: {info.state})")
    # Theirs may stand in the middle of a line: srun does not wait for the end of it.
    own = [words for line in lines if (words := re.split("srun: |slurmstepd", line)[0])]
    said = f"({job}): {own[-1]}" if own else f"({job})"
    if any(map(_MEMORY.search, lines)):
        end = End(State.OUT_OF_MEMORY, f"{ENDED['OUT_OF_MEMORY']} {said}")
    elif not set_up:
        end = End(State.REFUSED, f"it ended before its processes started; a setup line failed {said}")
    elif info.state == "COMPLETED":
        end = End(State.FAILED, f"its process ended without a result {said}")
    elif task := next(filter(None, map(_TASK_ENDED.search, lines)), None):  # srun then kills the other tasks
        end = _end_of_task(task[3], f"task {task[2]} on {task[1]}: {task[3]} {said}")
    else:  # the batch script and its srun died too
        end = End(State.LOST, f"its job was killed from outside ({job})")
    return end


def end_of_attempt(info: JobInfo, attempt: AttemptFolder) -> End:
    """The end of a job that ran one attempt."""
    end = end_of(info, attempt.path)
    if end.state is State.FAILED and attempt.heard() is State.LOST:
        return End(State.LOST, f"it was told to end, and saved its state (SLURM job {info.id})")
    if end.state is State.FAILED and attempt.began() is None:
        return End(State.REFUSED, f"it ended before the trial began; {end.error}")
    return end


def ends_in_worker(info: JobInfo, end: End, jobs: Sequence[Job]) -> list[tuple[int, End]]:
    """The ends of the trials that a worker was running when it ended so itself: what it failed of is not their fault.

    Of a worker that was killed for its memory, one trial alone may have used too much: the one that used most.
    """
    if info.state == "COMPLETED":
        end = End(State.LOST, f"its worker was told to end, and it saved its state (SLURM job {info.id})")
    elif end.state in (State.FAILED, State.REFUSED):
        end = End(State.LOST, f"its worker ended: {end.error}")
    if end.state is not State.OUT_OF_MEMORY or len(jobs) == 1:
        return [(job.number, end) for job in jobs]
    over = {job.number: _memory_gb(job) - (job.request.mem_gb or math.inf) for job in jobs}
    most = max(over, key=lambda number: over[number], default=None)
    guilty = most if most is not None and over[most] > 0 else None
    lost = End(State.LOST, f"its worker was killed for the memory of its trials (SLURM job {info.id})")
    return [(job.number, end if job.number == guilty else lost) for job in jobs]


def _memory_gb(job: Job) -> float:
    """What an attempt told last of its memory, in units of 2**30 bytes as SLURM counts."""
    try:
        began = job.attempt_folder.began() or math.inf
        lines = [one for one in job.folder.read_metrics(name=SYSTEM_METRICS).values if one.time >= began]
    except OSError:
        return 0.0
    return max((line.metrics.get(_USAGE, 0.0) for line in lines[-1:]), default=0.0) * 1e6 / 2**30


def _end_of_task(word: str, where: str) -> End:
    if word.startswith("Exited with exit code"):
        return End(State.FAILED, f"its process ended without a result, {where}")
    if word.startswith(_FROM_OUTSIDE):
        return End(State.LOST, f"its process was killed from outside, {where}")
    return End(State.FAILED, f"its process crashed, {where}")
