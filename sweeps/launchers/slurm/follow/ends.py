"""The outcome of an attempt without an end.json, from the SLURM state of its job and the end of its
log."""

import errno
import json
import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.base.files import last_lines, write_whole
from sweeps.launchers.slurm.follow.listing import ENDED, JobInfo
from sweeps.launchers.slurm.follow.nodes import node_of
from sweeps.launchers.slurm.script.request import PRIVATE
from sweeps.launchers.slurm.script.script import FAILED, SET_UP, SETUP, entry_of
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import SYSTEM_METRICS
from sweeps.trial.ranks import first_failure
from sweeps.trial.run.sent_job import Job

# Messages of jobacct_gather's OverMemoryKill, cgroups, C++, Python and TensorFlow.
_MEMORY = re.compile(
    "exceeded (job )?memory limit|oom[-_]kill|std::bad_alloc|MemoryError|ResourceExhausted|OOM when"
    " allocating"
)
_STATES = {
    "CANCELLED": State.CANCELLED,
    "DEADLINE": State.TIMED_OUT,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "TIMEOUT": State.TIMED_OUT,
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NODE_FAILED = ("NODE_FAIL", "BOOT_FAIL")
_TASK_ENDED = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
_TASK_STATES = {
    f"Exited with exit code {os.EX_IOERR}": (State.REFUSED, "its files could not be written"),
    "Exited with exit code": (State.FAILED, "its process ended without a result"),
    "Killed": (State.LOST, "its process was killed from outside"),
    "Terminated": (State.LOST, "its process was killed from outside"),
    "": (State.FAILED, "its process crashed"),
}
"""States and errors by the start of srun's message."""
_PROBE_BYTES = 65536  # more than a disk that is full may still accept in the rest of a block
_OF_SRUN = re.compile(r"srun: (?:(?:error|fatal): )?(.+)")
_REFUSES = re.compile(
    r"srun: (?:error|fatal): |srun: (?:unrecognized|invalid|ambiguous) option|srun: option "
)
# Problems that may pass in another job, unlike a wrong option.
_MAY_PASS = re.compile(
    "[Cc]ontact|[Cc]onnect|[Cc]ommunicat|[Tt]imed out|[Tt]imeout|[Nn]ode fail|Node down|NODE"
    " FAIL|[Aa]bort|erminated|Killed|killed|[Cc]ancell?ed|already complet|Expired|Invalid job id|no"
    " longer|temporarily|Zero Bytes|slurmd|Transport"
    " endpoint|[Cc]redential|[Mm]unge|[Pp]rotocol|DNS|No route|I/O|Slurm|invalid user|failed on"
    " node"
)
_NEVER_PASSES = re.compile(
    "^invalid (?!job)|^unrecognized|cpu bind|gres|not permitted", re.IGNORECASE
)
_USAGE = "system/memory_usage_megabytes"


def outcome_of_job(info: JobInfo, folder: Path, launcher: DictConfig | None = None) -> Outcome:
    """Return the outcome of a job that is over, with its files in `folder`, and its node if that
    may be at fault.

    `launcher` are the settings of its trial, if they are known.
    """
    end = _outcome_without_node(info, folder, launcher)
    if info.state in _NODE_FAILED:
        return replace(end, node=node_of(info.id), node_failed=True)
    is_no_start = end.state is State.REFUSED and not end.request_refused
    if not is_no_start or any(folder.glob("slurm/errno.*")) or _is_disk_full(folder):
        return end
    return replace(end, node=node_of(info.id), node_failed=not (folder / "log").exists())


def _is_disk_full(folder: Path) -> bool:
    """Return whether the log of a job names a full disk, or this process cannot write beside the
    log either."""
    log = "".join(last_lines(folder / "log", 20))
    if any(os.strerror(number) in log for number in _FULL):
        return True
    probe = folder / PRIVATE / "probe"
    try:
        write_whole(probe, bytes(_PROBE_BYTES))
        probe.unlink(missing_ok=True)
    except OSError as error:
        return error.errno in _FULL
    return False


def _outcome_without_node(info: JobInfo, folder: Path, launcher: DictConfig | None) -> Outcome:
    job = f"SLURM job {info.id}"
    if info.by and info.by != str(os.getuid()):
        user = f"user {info.by}" if info.by.isdecimal() else info.by
        return Outcome(State.LOST, f"it was cancelled by {user} ({job}: CANCELLED)")
    if info.state not in ("COMPLETED", "FAILED"):
        state = _STATES.get(info.state, State.LOST)
        return Outcome(state, f"{ENDED[info.state]} ({job}: {info.state})")
    return _outcome_by_log(info, folder, launcher)


def _outcome_by_log(info: JobInfo, folder: Path, launcher: DictConfig | None) -> Outcome:
    """Return the outcome of a job whose batch script has ended, by its log and its files."""
    job = f"SLURM job {info.id}"
    lines = last_lines(folder / "log", 20)
    source = _source(job, lines)
    if any(map(_MEMORY.search, lines)):
        return Outcome(State.OUT_OF_MEMORY, f"{ENDED['OUT_OF_MEMORY']} {source}")
    refusal = _refusal(folder, launcher)
    if refusal:
        return Outcome(State.REFUSED, f"{refusal} {source}")
    if info.state == "COMPLETED":
        return Outcome(State.FAILED, f"its process ended without a result {source}")

    refusal = _refusal_of_srun(lines)
    if refusal:
        error = f"{refusal}{_advice_on_srun(launcher)} ({job})"
        return Outcome(State.REFUSED, error, request_refused=True)
    state, error = _end_of_task(lines)
    return Outcome(state, f"{error} {source}")


def _source(job: str, lines: Sequence[str]) -> str:
    """Return the job, and the last line of its log that is not SLURM's."""
    # SLURM's messages may begin in the middle of a line, because srun does not wait for the end of
    # the line.
    starts = [re.split("srun: |slurmstepd", line)[0] for line in lines]
    own = [start for start in starts if start.strip("0123456789: ")]
    return f"({job}): {own[-1]}" if own else f"({job})"


def _end_of_task(lines: Sequence[str]) -> tuple[State, str]:
    """Return how the processes of a failed job ended, by the messages of srun in its log."""
    for line in lines:
        match = _TASK_ENDED.search(line)
        if match:  # the first, because srun kills the others
            node, rank, message = match.groups()
            end = next(start for start in _TASK_STATES if message.startswith(start))
            state, error = _TASK_STATES[end]
            return state, f"{error}, task {rank} on {node}: {message}"
    # because the batch script and its srun died too
    return State.LOST, "its job was killed from outside"


def _refusal(folder: Path, launcher: DictConfig | None) -> str:
    """Return why a job could not run, or could not write its outcome; empty without a reason."""
    for file in folder.glob("slurm/errno.*"):
        number = int(file.suffix[1:])
        return str(OSError(number, os.strerror(number), str(folder)))
    if (folder / PRIVATE / SET_UP).exists():
        return ""
    # because SLURM creates the log first, or ends the job with JobLaunchFailure
    if not (folder / "log").exists():
        return (
            f"its node could not create {folder / 'log'}: its disk may be full, read-only or not"
            " mounted"
        )
    return f"it ended before its processes started; {failed_line(folder / PRIVATE, launcher)}"


def _refusal_of_srun(lines: Sequence[str]) -> str:
    """Return why srun started no process, by the last lines of the log; empty if it started one, or
    if it may later."""
    problem = ""
    for line in lines:
        if _TASK_ENDED.search(line):
            return ""
        match = _OF_SRUN.search(line)
        if match and _REFUSES.search(line):
            problem = match[1].strip().rstrip(".")
    if _MAY_PASS.search(problem) and not _NEVER_PASSES.search(problem):
        return ""
    return problem and f"srun refused to start it: {problem}"


def _advice_on_srun(launcher: DictConfig | None) -> str:
    """Return which setting to change, if options of srun were typed."""
    typed = OmegaConf.select(launcher, "srun_args") if launcher is not None else None
    if not typed:
        return ""
    text = typed if isinstance(typed, str) else json.dumps([str(option) for option in typed])
    return f". Change hydra.launcher.srun_args={text}"


def failed_line(private: Path, launcher: DictConfig | None) -> str:
    """Return which line before srun failed, as typed, with its status, by the record in the job's
    private folder."""
    status, line, place = _read_failure(private / FAILED)
    if not status:
        return "a setup line failed"
    if not line.isdecimal():
        return f"{place or 'a setup line'} failed (status {status})"
    name = "a setup line"
    text = ""
    entry = entry_of(int(line), _entries(launcher, resolve=True))
    if entry is not None:
        name = f"line {entry + 1} of hydra.launcher.setup"
        typed = _entries(launcher, resolve=False)[entry:]
        text = f": {typed[0].strip()}" if typed else ""
    within = f", at {place}" if place and f"/{SETUP}:" not in place else ""
    return f"a setup line failed: {name}, with status {status}{within}{text}"


def _read_failure(file: Path) -> tuple[str, str, str]:
    """Return the status, the line of SETUP and the place of a failed command; empty texts if they
    are not known."""
    lines: list[str] = []
    with suppress(OSError):
        lines = file.read_text(errors="replace").splitlines()
    status, line, place = [*lines, "", "", ""][:3]
    return status, line, place


def _entries(launcher: DictConfig | None, resolve: bool) -> list[str]:
    """Return the entries of `setup`; as typed, because a reference may be a secret, or with
    `resolve` as run."""
    if launcher is None:
        return []
    with suppress(Exception):  # because a resolver may raise anything
        settings: Any = OmegaConf.to_container(launcher, resolve=resolve)
        entries = settings.get("setup")
        return [str(entry) for entry in entries] if isinstance(entries, list) else []
    return []


def outcome_of_attempt(
    info: JobInfo, attempt: AttemptFolder, launcher: DictConfig | None = None
) -> Outcome:
    """Return the outcome of a job that ran one attempt, with these settings of its trial."""
    end = outcome_of_job(info, attempt.path, launcher)
    # because it could not write its own outcome
    if end.state is State.REFUSED and attempt.began() is not None:
        return replace(end, state=State.LOST, request_refused=False)
    failure = first_failure(attempt)
    if failure and end.state in (State.FAILED, State.LOST):
        return Outcome(failure.state, f"{failure.error} (SLURM job {info.id})")
    if end.state is not State.FAILED:
        return end
    if attempt.stop_reason() is State.LOST:
        return Outcome(
            State.LOST, f"SLURM requested its end, and it saved its state (SLURM job {info.id})"
        )
    if attempt.began() is None:
        return Outcome(State.REFUSED, f"it ended before the trial began; {end.error}")
    return end


def outcomes_in_worker(
    info: JobInfo, end: Outcome, jobs: Sequence[Job]
) -> list[tuple[int, Outcome]]:
    """Return the outcomes of the trials that a worker was running when it ended with the outcome
    `end`.

    If the worker was killed for its memory, only the trial furthest above its limit is out of
    memory.
    """
    job = f"(SLURM job {info.id})"
    if info.state == "COMPLETED":
        end = Outcome(State.LOST, f"SLURM requested its worker's end, and it saved its state {job}")
    elif end.state in (State.FAILED, State.REFUSED):
        end = Outcome(State.LOST, f"its worker ended: {end.error}")
    if end.state is not State.OUT_OF_MEMORY or len(jobs) <= 1:
        return [(trial.number, end) for trial in jobs]
    excess_gb = [_memory_gb(trial) - (trial.request.mem_gb or math.inf) for trial in jobs]
    lost = Outcome(State.LOST, f"its worker was killed for the memory of its trials {job}")
    return [
        (trial.number, end if 0 < excess == max(excess_gb) else lost)
        for trial, excess in zip(jobs, excess_gb, strict=True)
    ]


def _memory_gb(job: Job) -> float:
    """Return the last memory sample of the attempt, in SLURM's units of 2**30 bytes."""
    began = job.attempt_folder.began() or math.inf
    samples = job.folder.read_metrics(name=SYSTEM_METRICS).values
    if not samples or samples[-1].time < began:
        return 0.0
    return float(samples[-1].metrics.get(_USAGE, 0.0) * 1e6 / 2**30)
