"""What became of an attempt that left no end of its own, by SLURM's word for its job and the last lines of its log."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.files import last_lines
from sweeps.launchers.slurm.queue import ENDED, JobInfo
from sweeps.trial.folder import SYSTEM_METRICS, AttemptFolder
from sweeps.trial.job import Job, Outcome, State
from sweeps.trial.ranks import said

# Of jobacct_gather's OverMemoryKill, cgroups, C++, Python and TensorFlow.
_MEMORY = re.compile(
    "exceeded (job )?memory limit|oom[-_]kill|std::bad_alloc|MemoryError|ResourceExhausted|OOM when allocating"
)
_STATES = {
    "CANCELLED": State.CANCELLED,
    "DEADLINE": State.TIMED_OUT,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "TIMEOUT": State.TIMED_OUT,
}
_TASK_ENDED = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
_TASK_STATES = {
    f"Exited with exit code {os.EX_IOERR}": (State.REFUSED, "its files could not be written"),
    "Exited with exit code": (State.FAILED, "its process ended without a result"),
    "Killed": (State.LOST, "its process was killed from outside"),
    "Terminated": (State.LOST, "its process was killed from outside"),
    "": (State.FAILED, "its process crashed"),
}
"""By how srun's word for it begins."""
_USAGE = "system/memory_usage_megabytes"


def end_of(info: JobInfo, folder: Path) -> Outcome:
    """The end of a job that is over, whose files lie in `folder`."""
    job = f"SLURM job {info.id}"
    if info.by and info.by != str(os.getuid()):
        who = f"user {info.by}" if info.by.isdecimal() else info.by
        return Outcome(State.LOST, f"it was cancelled by {who} ({job}: CANCELLED)")
    if info.state not in ("COMPLETED", "FAILED"):
        return Outcome(_STATES.get(info.state, State.LOST), f"{ENDED[info.state]} ({job}: {info.state})")
    lines = last_lines(folder / "log", 20)
    # Theirs may stand in the middle of a line: srun does not wait for the end of it.
    own = [words for line in lines if (words := re.split("srun: |slurmstepd", line)[0]).strip("0123456789: ")]
    said = f"({job}): {own[-1]}" if own else f"({job})"
    if any(map(_MEMORY.search, lines)):
        return Outcome(State.OUT_OF_MEMORY, f"{ENDED['OUT_OF_MEMORY']} {said}")
    if why := _why_not_begun(folder):
        return Outcome(State.REFUSED, f"{why} {said}")
    if info.state == "COMPLETED":
        state, words = State.FAILED, "its process ended without a result"
    elif task := next(filter(None, map(_TASK_ENDED.search, lines)), None):  # srun then kills the other tasks
        node, rank, word = task.groups()
        state, what = next(known for start, known in _TASK_STATES.items() if word.startswith(start))
        words = f"{what}, task {rank} on {node}: {word}"
    else:  # the batch script and its srun died too
        state, words = State.LOST, "its job was killed from outside"
    return Outcome(state, f"{words} {said}")


def _why_not_begun(folder: Path) -> str:
    """What kept a job from running, or from writing its own end; empty if nothing did."""
    for note in folder.glob("slurm/errno.*"):
        number = int(note.suffix[1:])
        return str(OSError(number, os.strerror(number), str(folder)))
    if (folder / "slurm" / "set_up").exists():
        return ""
    if not (folder / "log").exists():  # which SLURM makes before all else; if it cannot: JobLaunchFailure
        return f"its node has not made {folder / 'log'}, as on a disk that is full, read-only or not mounted there"
    return "it ended before its processes started; a setup line failed"


def end_of_attempt(info: JobInfo, attempt: AttemptFolder) -> Outcome:
    """The end of a job that ran one attempt."""
    end = end_of(info, attempt.path)
    if end.state is State.REFUSED and attempt.began() is not None:  # and could not write its own end
        return replace(end, state=State.LOST)
    told = said(attempt)
    if told and end.state in (State.FAILED, State.LOST):  # who said so then had the others killed
        return Outcome(told.state, f"{told.error} (SLURM job {info.id})")
    if end.state is not State.FAILED:
        return end
    if attempt.heard() is State.LOST:
        return Outcome(State.LOST, f"it was told to end, and saved its state (SLURM job {info.id})")
    if attempt.began() is None:
        return Outcome(State.REFUSED, f"it ended before the trial began; {end.error}")
    return end


def ends_in_worker(info: JobInfo, end: Outcome, jobs: Sequence[Job]) -> list[tuple[int, Outcome]]:
    """The ends of the trials that a worker was running when it ended so itself: what it failed of is not their fault.

    Of a worker that was killed for its memory, one trial alone may have used too much: the one that used most.
    """
    if info.state == "COMPLETED":
        end = Outcome(State.LOST, f"its worker was told to end, and it saved its state (SLURM job {info.id})")
    elif end.state in (State.FAILED, State.REFUSED):
        end = Outcome(State.LOST, f"its worker ended: {end.error}")
    if end.state is not State.OUT_OF_MEMORY or len(jobs) <= 1:
        return [(job.number, end) for job in jobs]
    over = {job.number: _memory_gb(job) - (job.request.mem_gb or math.inf) for job in jobs}
    lost = Outcome(State.LOST, f"its worker was killed for the memory of its trials (SLURM job {info.id})")
    greediest = max(over, key=over.__getitem__)
    return [(number, end if number == greediest and more > 0 else lost) for number, more in over.items()]


def _memory_gb(job: Job) -> float:
    """What an attempt told last of its memory, in units of 2**30 bytes as SLURM counts."""
    began = job.attempt_folder.began() or math.inf
    lines = [one for one in job.folder.read_metrics(name=SYSTEM_METRICS).values if one.time >= began]
    return lines[-1].metrics.get(_USAGE, 0.0) * 1e6 / 2**30 if lines else 0.0
