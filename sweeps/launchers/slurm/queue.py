"""What SLURM knows of our jobs: one squeue for all, and sacct for those that squeue no longer lists."""

import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SQUEUE = ["squeue", "--me", "--noheader", "--states=all", "--format=%i|%j|%T|%r"]
_SACCT = ["sacct", "--noheader", "--parsable2", "--format=JobID,State"]
_TIMEOUT_S = 20  # with the controller away they would try for minutes
_SACCT_PAUSE_S = 10.0
_ABSENT_S = 30.0
_CANCEL_AT_ONCE = 500

GONE = "GONE"
"""Not SLURM's word: it has no record of the job any more."""

ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
    GONE,
}
"""The states from which a job does not come back: https://slurm.schedmd.com/squeue.html (job state codes)."""


@dataclass(frozen=True)
class JobInfo:
    """A job as SLURM last described it. `state` is SLURM's word, `reason` why it is pending."""

    id: str
    state: str
    reason: str = ""


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
        self._sacct_at = 0.0
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
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._poll_s):
            self.ask()

    def ask(self) -> None:
        """Bring what is known up to date. No answer changes nothing: it means unknown, not over."""
        with self._lock:
            ids = dict(self._ids)
        listed = squeue()
        if isinstance(listed, str):
            self.problem = listed
            return
        self.problem = ""
        missing = {name: job_id for name, job_id in ids.items() if name not in listed}
        found = self._account_for(missing) if missing else {}
        with self._lock:
            for name in self._ids.keys() & ids.keys():
                self._update(name, listed.get(name) or found.get(ids[name] or ""), ids[name])

    def _update(self, name: str, info: JobInfo | None, job_id: str | None) -> None:
        if info:
            self._known[name] = info
            self._absent_since.pop(name, None)
        elif time.monotonic() - self._absent_since.setdefault(name, time.monotonic()) > _ABSENT_S:
            self._known[name] = JobInfo(job_id or "", GONE)

    def _account_for(self, missing: dict[str, str | None]) -> dict[str, JobInfo]:
        ids = [job_id for job_id in missing.values() if job_id]
        if not ids or time.monotonic() - self._sacct_at < _SACCT_PAUSE_S:
            return {}
        self._sacct_at = time.monotonic()
        found = sacct(ids)
        return found if isinstance(found, dict) else {}  # without accounting a job that squeue forgot is GONE


def squeue() -> dict[str, JobInfo] | str:
    """This user's jobs by name, also those that ended within minutes (MinJobAge); or why that failed."""
    answer = _ask(_SQUEUE)
    if isinstance(answer, str):
        return answer
    rows = [line.split("|", 3) for line in answer]
    return {name: JobInfo(job_id, state, reason) for job_id, name, state, reason in rows}


def sacct(ids: Iterable[str]) -> dict[str, JobInfo] | str:
    """The jobs with these ids by id, from the accounting; or why that failed."""
    answer = _ask([*_SACCT, f"--jobs={','.join(ids)}"])
    if isinstance(answer, str):
        return answer
    found: dict[str, JobInfo] = {}
    for line in answer:
        row, state = line.split("|", 1)
        job_id, _, step = row.partition(".")
        state = state.split()[0]  # "CANCELLED by 0"
        if not step or state == "OUT_OF_MEMORY":  # which stands on the step alone
            found[job_id] = JobInfo(job_id, state)
    return found


def cancel(ids: Sequence[str], pending_only: bool = False) -> str:
    """Cancel jobs, or those among them that have not begun. Returns what went wrong, or an empty text.

    A job that is already over is no mistake.
    """
    command = ["scancel", *(["--state=PENDING"] if pending_only else [])]
    problems = (
        _cancel([*command, *ids[i : i + _CANCEL_AT_ONCE]]) for i in range(0, len(ids), _CANCEL_AT_ONCE)
    )
    return "; ".join(problem for problem in problems if problem)


def _cancel(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"scancel took longer than {_TIMEOUT_S} s"
    over = ("Job/step already completing or completed", "Invalid job id specified")
    lines = [line for line in done.stderr.splitlines() if not any(text in line for text in over)]
    return "; ".join(lines) if done.returncode else ""


def _ask(command: list[str]) -> list[str] | str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{command[0]} took longer than {_TIMEOUT_S} s"
    if done.returncode:
        return done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
    return done.stdout.splitlines()
