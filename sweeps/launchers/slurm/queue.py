"""What SLURM knows of our jobs: one squeue for all, and sacct for what squeue does not tell."""

import re
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_SQUEUE = ["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%j"]
_SACCT = ["sacct", "--noheader", "--parsable2", "--format=JobID,State,JobName"]
_TIMEOUT_S = 20  # with the controller away they would try for minutes
_SACCT_PAUSE_S = 5.0
_ABSENT_S = 30.0
_CANCEL_AT_ONCE = 500

# Not AssocMaxJobsLimit and its like, which the end of another job lifts, nor nodes that are down for a while.
_STUCK = re.compile(
    "[Hh]eld|BadConstraints|NeverSatisfied|Partition(Down|Inactive|NodeLimit|TimeLimit)|PerJob|PerNode|"
    "Not(Allowed|Satisfied)|Invalid(Account|QOS)"
)
"""In the reasons that say so: https://slurm.schedmd.com/job_reason_codes.html"""

GONE = "GONE"
"""Not SLURM's word: it has no record of the job."""

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


@dataclass(frozen=True)
class JobInfo:
    """A job as SLURM last described it."""

    id: str
    state: str
    """SLURM's own word."""
    reason: str = ""
    """Why it is pending."""
    by: str | None = None
    """The user (a number) who cancelled it, which sacct alone knows; empty if it will not tell, None before it has."""

    @property
    def stuck(self) -> bool:
        """Whether it waits and will not start by itself."""
        return self.state == "PENDING" and _STUCK.search(self.reason) is not None


class Watcher:
    """Asks SLURM in a thread of its own, so that a slow or absent SLURM keeps nobody waiting.

    Jobs are known by name: it is there before the id is.
    """

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._ids: dict[str, str | None] = {}
        self._known: dict[str, JobInfo] = {}
        self._absent_since: dict[str, float] = {}
        self._sacct_at = -_SACCT_PAUSE_S
        self._no_account = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.problem = ""
        """Why SLURM's last answer is missing; empty if it is not."""

    def watch(self, name: str, job_id: str | None) -> None:
        """Follow this job from now on. Its id may still be unknown."""
        with self._lock:
            self._ids[name] = job_id
        if not self._thread.ident:
            self._thread.start()

    def forget(self, name: str) -> None:
        with self._lock:
            for of_name in (self._ids, self._known, self._absent_since):
                of_name.pop(name, None)

    def info(self, name: str) -> JobInfo | None:
        """None as long as SLURM has not said anything of the job."""
        with self._lock:
            return self._known.get(name)

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident:
            self._thread.join(timeout=1.0)

    def _watch(self) -> None:
        while not self._stop.wait(self._poll_s):
            try:
                self.ask()
            except Exception as error:  # whatever it is: without this thread no job would ever be over
                self.problem = f"SLURM could not be asked: {error!r}"

    def ask(self) -> None:
        """Bring what is known up to date. No answer changes nothing: it means unknown, not over."""
        with self._lock:
            ids, known = dict(self._ids), dict(self._known)
        listed = squeue()
        if isinstance(listed, str):
            self.problem = listed
            return
        jobs = {name: info for name, info in listed.items() if name in ids}
        for name in jobs.keys() & known.keys():
            jobs[name] = replace(jobs[name], by=known[name].by)
        unclear = {name: job_id for name, job_id in ids.items() if name not in jobs}
        unclear |= {name: one.id for name, one in jobs.items() if one.state == "CANCELLED" and one.by is None}
        jobs |= self._account_for(unclear, jobs)
        self.problem = self._no_account if unclear else ""
        with self._lock:
            for name in self._ids.keys() & ids.keys():
                self._update(name, jobs.get(name), ids[name])

    def _update(self, name: str, info: JobInfo | None, job_id: str | None) -> None:
        if info:
            self._known[name] = info
            self._absent_since.pop(name, None)
        elif time.monotonic() - self._absent_since.setdefault(name, time.monotonic()) > _ABSENT_S:
            self._known[name] = JobInfo(job_id or "", GONE)

    def _account_for(self, unclear: dict[str, str | None], jobs: dict[str, JobInfo]) -> dict[str, JobInfo]:
        """What the accounting has on jobs that squeue does not list, or lists as cancelled by nobody knows whom."""
        ids = [job_id for job_id in unclear.values() if job_id]
        if not ids or time.monotonic() - self._sacct_at < _SACCT_PAUSE_S:
            return {}
        self._sacct_at = time.monotonic()
        found = sacct(ids)
        self._no_account = found if isinstance(found, str) else ""
        if isinstance(found, str):  # without accounting a job that squeue forgot is GONE
            return {name: replace(jobs[name], by="") for name in unclear if name in jobs}
        return {name: info for name, info in found.items() if name not in jobs or info.by is not None}


def squeue() -> dict[str, JobInfo] | str:
    """This user's jobs by name, also those that ended within minutes (MinJobAge); or why that failed."""
    answer = _ask(_SQUEUE)
    if isinstance(answer, str):
        return answer
    jobs: dict[str, JobInfo] = {}
    for job_id, state, reason, name in (row for line in answer if len(row := line.split("|", 3)) == 4):
        if name not in jobs or jobs[name].state in ENDED:
            jobs[name] = JobInfo(job_id, state, reason)
    return jobs


def sacct(ids: Iterable[str]) -> dict[str, JobInfo] | str:
    """The jobs with these ids by name, from the accounting; or why that failed."""
    answer = _ask([*_SACCT, f"--jobs={','.join(ids)}"])
    if isinstance(answer, str):
        return answer
    jobs: dict[str, JobInfo] = {}
    names: dict[str, str] = {}
    for step_id, state, name in (row for line in answer if len(row := line.split("|", 2)) == 3):
        job_id, _, step = step_id.partition(".")
        words = state.split()  # CANCELLED by 0
        if not step and words:
            names[job_id] = name
            jobs[name] = JobInfo(job_id, words[0], by=words[2] if len(words) == 3 else None)
        elif words == ["OUT_OF_MEMORY"] and job_id in names:  # which stands on the step alone
            jobs[names[job_id]] = JobInfo(job_id, words[0])
    return jobs


def cancel(ids: Sequence[str], pending_only: bool = False) -> str:
    """Cancel jobs, or those among them that have not begun. Returns what went wrong, or an empty text.

    A job that is already over is no mistake.
    """
    command = ["scancel", *(["--state=PENDING"] if pending_only else [])]
    parts = (ids[i : i + _CANCEL_AT_ONCE] for i in range(0, len(ids), _CANCEL_AT_ONCE))
    return "; ".join(problem for part in parts if (problem := _cancel([*command, *part])))


def _cancel(command: list[str]) -> str:
    done = _run(command)
    if isinstance(done, str):
        return done
    over = ("Job/step already completing or completed", "Invalid job id specified")
    lines = [line for line in done.stderr.splitlines() if not any(text in line for text in over)]
    return "; ".join(lines) if done.returncode else ""


def _ask(command: list[str]) -> list[str] | str:
    done = _run(command)
    if isinstance(done, str):
        return done
    if done.returncode:
        return done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
    return done.stdout.splitlines()


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | str:
    """The command that ended; or why it did not."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} took longer than {_TIMEOUT_S} s"
    except OSError as error:  # it is not installed here, or no process can be started now
        return f"{command[0]} cannot be run: {error}"
