"""What SLURM knows of our jobs: one squeue for all, and sacct for what squeue does not tell.

The files by which the driver and a job find each other, in the attempt's own folder or in a worker's:

    job.json          which SLURM job this is, once sbatch has said so                     (driver)
    slurm/call.pkl    what the job is to run; only its owner may look into slurm/          (driver)
    slurm/set_up      there once every line of `setup` has succeeded                       (job)
    slurm/errno.<n>   which error of the disk the job ended of, whose log may be on that disk too   (job)
    slurm/*.sh        the batch script, as submitit makes it                               (driver)
    rank<r>.json      why a rank above 0 failed, as an `Outcome`                               (that rank)
"""

import hashlib
import json
import math
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sweeps.errors import UserError
from sweeps.files import CorruptFile, read_json, write_whole

_SQUEUE = ["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%j"]
_SACCT = ["sacct", "--noheader", "--parsable2", "--format=JobID,State,JobName"]
_TIMEOUT_S = 20  # with the controller away they would try for minutes
_ABSENT_S = 30.0
_RUNAWAY_S = 300.0
"""For a job whose end the accounting never heard of, and which so runs there for ever: sacctmgr(1), RunawayJobs."""

GONE = "GONE"  # not SLURM's word: it has no record of the job

ENDED = {
    "BOOT_FAIL": "its node failed to boot",
    "CANCELLED": "it was cancelled with scancel",
    "COMPLETED": "its process ended",
    "DEADLINE": "it reached its deadline",
    "FAILED": "its process failed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "PREEMPTED": "it was preempted",
    "REVOKED": "SLURM revoked it",
    "TIMEOUT": "it reached its time limit",
    GONE: "SLURM no longer knows it",
}
"""The states from which a job does not come back: https://slurm.schedmd.com/squeue.html (job state codes)."""


def name_of(folder: Path) -> str:
    """The name of the SLURM job with its files in `folder`, such as study-trial.attempt-hash. No other job has it."""
    whole = folder.resolve()
    shown = "-".join(re.sub(r"[^\w.-]", "_", part)[:60] for part in (whole.parents[2].name, whole.parents[1].name))
    unique = hashlib.blake2s(bytes(whole), digest_size=4).hexdigest()
    return f"{shown}.{whole.name}-{unique}"


def note_id(folder: Path, job_id: str) -> None:
    write_whole(folder / "job.json", json.dumps({"name": name_of(folder), "id": job_id}), sync=False)


def noted_id(folder: Path) -> str | None:
    """None if none was written, it cannot be read, or the folder is a copy of that of another job."""
    with suppress(OSError, CorruptFile):
        note = read_json(folder / "job.json") or {}
        if note.get("name") == name_of(folder) and str(note.get("id")).isdecimal():
            return str(note["id"])
    return None


class SlurmError(UserError):
    """A command of SLURM failed, or did not answer: says why."""


@dataclass(frozen=True)
class JobInfo:
    """A job as SLURM last described it."""

    id: str
    state: str  # SLURM's own word
    reason: str = ""  # why it is pending
    by: str | None = None  # who cancelled it, which sacct alone knows: a user (a number), or "SLURM"


@dataclass
class Followed:
    """A SLURM job of ours that is queued, or runs, or may. It is known by its name, which is there before its id."""

    folder: Path
    name: str
    id: str | None = None  # None as long as neither sbatch nor squeue has told: SLURM may not have it
    warn_at: float = math.inf  # when to tell that it will not start by itself. Times are those of time.monotonic().
    info: JobInfo | None = None  # None as long as SLURM has not said anything of it
    absent_since: float | None = None  # since when squeue does not know it, nor sacct its end
    accounted: bool = False  # whether sacct has said meanwhile that it lives
    ended_at: float | None = None
    cancel_at: float | None = None
    """When to cancel it once more, should it still be pending; None if it was not cancelled."""

    @property
    def never_was(self) -> bool:
        """Whether sbatch, which did not answer, has submitted nothing."""
        return self.id is None and self.info is not None and self.info.state == GONE


class Watcher(threading.Thread):
    """Asks SLURM for `jobs`, by name, in a thread of its own: a slow or absent SLURM keeps nobody waiting."""

    def __init__(self, jobs: dict[str, Followed], poll_s: float) -> None:
        super().__init__(daemon=True)
        self._jobs = jobs
        self._poll_s = poll_s
        self._stopped = threading.Event()
        self.problem = ""  # why SLURM's last answer is missing; empty if it is not

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.wait(self._poll_s):
            try:
                self.ask()
            except Exception as error:  # whatever it is: without this thread no job would ever be over
                self.problem = f"SLURM could not be asked: {error}"

    def ask(self) -> None:
        """Bring what is known up to date. No answer means unknown, not over. Raises SlurmError if squeue gives none."""
        jobs = [job for job in list(self._jobs.values()) if not (job.info and job.info.by)]
        listed = squeue() if jobs or self.problem else {}  # that it is over, no silence of ours may say
        for job in jobs:  # at once: sacct may take long
            if info := listed.get(job.name):
                job.info, job.absent_since = info, None
        unclear = [job for job in jobs if job.name not in listed or listed[job.name].state == "CANCELLED"]
        told, problem = {}, ""
        if ids := [job.id for job in unclear if job.id]:
            try:
                told = sacct(ids)
            except SlurmError as error:  # without accounting a job that squeue forgot is GONE
                problem = str(error)
        self.problem = problem
        now = time.monotonic()
        for job in unclear:
            if (info := told.get(job.name)) and (info.by or job.name not in listed):
                if info.state == "CANCELLED" and not info.by:  # by a controller that has lost its memory of all jobs
                    info = replace(info, by="SLURM")
                job.info = info
            if job.name in listed or (info and info.state in ENDED):
                job.absent_since = None
                continue
            job.absent_since, job.accounted = job.absent_since or now, job.accounted or info is not None
            if now - job.absent_since > (_RUNAWAY_S if job.accounted else _ABSENT_S):
                job.info = JobInfo(job.id or "", GONE)


def squeue() -> dict[str, JobInfo]:
    """This user's jobs by name, also those that ended within minutes (MinJobAge). Raises SlurmError."""
    jobs: dict[str, JobInfo] = {}
    for job_id, state, reason, name in _rows(_SQUEUE, 4):
        if name not in jobs or jobs[name].state in ENDED:
            jobs[name] = JobInfo(job_id, state, reason)
    return jobs


def sacct(ids: Iterable[str]) -> dict[str, JobInfo]:
    """The jobs with these ids by name, from the accounting. Raises SlurmError."""
    jobs: dict[str, JobInfo] = {}
    names: dict[str, str] = {}
    for step_id, state, name in _rows([*_SACCT, f"--jobs={','.join(ids)}"], 3):
        job_id, _, step = step_id.partition(".")
        words = state.split()  # CANCELLED by 0
        if not step and words:
            names[job_id] = name
            jobs[name] = JobInfo(job_id, words[0], by=words[2] if len(words) == 3 else None)
        elif words == ["OUT_OF_MEMORY"] and job_id in names:  # which stands on the step alone
            jobs[names[job_id]] = JobInfo(job_id, words[0])
    return jobs


def cancel(jobs: Sequence[str], pending_only: bool = False) -> None:
    """Cancel jobs, by ids or `--name=NAME`, or those of them that have not begun. Raises SlurmError if any may live."""
    try:
        _run(["scancel", *(["--state=PENDING"] if pending_only else []), *jobs])
    except SlurmError as error:
        over = ("Job/step already completing or completed", "Invalid job id specified")
        if lines := [line for line in str(error).splitlines() if not any(text in line for text in over)]:
            raise SlurmError("; ".join(lines)) from error


def living_jobs(study: Path, unfinished: Iterable[Path]) -> list[JobInfo]:
    """The jobs of the study's `unfinished` trials and workers that are queued or run. Raises SlurmError."""
    folders = [folder for trial in unfinished for folder in trial.glob("attempts/[0-9]*/slurm")]
    names = {name_of(folder.parent) for folder in [*folders, *study.glob("workers/*/[0-9]*/slurm")]}
    return [info for name, info in squeue().items() if name in names and info.state not in ENDED] if names else []


def take_back(study: Path, jobs: list[JobInfo]) -> None:
    """Cancel those of the study's jobs that are still pending, and empty its workers' queues. Raises SlurmError."""
    for queued in study.glob("workers/*/queue/*.job"):
        queued.unlink(missing_ok=True)  # a worker may be quicker
    if pending := [job.id for job in jobs if job.state == "PENDING"]:
        cancel(pending, pending_only=True)


def _rows(command: list[str], fields: int) -> list[list[str]]:
    """The table that the command prints; a line of a site's own is left out. Raises SlurmError if it prints no text."""
    lines = [line.split("|", fields - 1) for line in _run(command).splitlines()]
    if any(len(line) != fields and "\N{REPLACEMENT CHARACTER}" in line[0] for line in lines):
        raise SlurmError(f"what {command[0]} printed cannot be read")
    return [line for line in lines if len(line) == fields]


def _run(command: list[str]) -> str:
    """What the command prints. Raises SlurmError if it fails."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{command[0]} took longer than {_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        raise SlurmError(error.stderr.strip() or f"{command[0]} ended with {error.returncode}") from error
    except OSError as error:  # it is not installed here, or no process can be started now
        raise SlurmError(f"{command[0]} cannot be run: {error}") from error
    return done.stdout
