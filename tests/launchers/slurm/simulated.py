"""A SLURM with a simulated clock, which runs trials and workers without processes and counts its calls."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sweeps.base import looks
from sweeps.launchers.slurm import launcher, queue
from sweeps.launchers.slurm.follow import following, jobs, watcher
from sweeps.launchers.slurm.script import limits
from sweeps.launchers.slurm.script.submit import BusyError, RefusedError
from sweeps.launchers.slurm.trials import arrays, workers
from sweeps.trial.folder import AttemptFolder, TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job

_IDLE_S = 60.0


@dataclass
class SimulatedJob:
    """A job or an element of an array. Times are seconds of the simulated clock."""

    id: str
    name: str
    folder: Path
    throttle: float
    state: str = "PENDING"
    started: float = math.inf
    ended: float = math.inf
    claimed: Path | None = None  # the trial that a worker runs
    busy_until: float = math.inf  # end of the trial

    @property
    def is_worker(self) -> bool:
        return "workers" in self.folder.parts

    @property
    def never_ran(self) -> bool:
        return self.state == "CANCELLED" and self.started == math.inf

    @property
    def array(self) -> str:
        return self.id.partition("_")[0]


class SimulatedSlurm:
    """The controller, its nodes and its clock; in the modules of the launcher it also is the module `time`."""

    def __init__(self, slots: int, trial_s: float, step_s: float = 5.0) -> None:
        self.now, self.slots, self.trial_s, self.step_s = 1000.0, slots, trial_s, step_s
        self.jobs: dict[str, SimulatedJob] = {}
        self.calls: list[tuple[float, str]] = []  # times and names of the commands
        self.array_limit, self.submit_limit = 1001, math.inf
        self.lost_answers = 0  # submissions that are accepted without an answer
        self.is_silent = False

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, self.step_s)  # coarse, because each step takes real time
        self._advance()

    def times(self, command: str) -> list[float]:
        return [at for at, name in self.calls if name == command]

    def submit(self, folder: Path, requested: Mapping[str, Any]) -> str:
        """Take a job or an array, as `submit.submit` does."""
        self.calls.append((self.now, "sbatch"))
        indices, _, throttle = str(requested["additional_parameters"].get("array", "")).partition("%")
        count = int(indices.partition("-")[2]) + 1 if indices else 1
        if count >= self.array_limit:
            raise RefusedError("Batch job submission failed: Invalid job array specification")
        if count + sum(job.ended == math.inf for job in self.jobs.values()) > self.submit_limit:
            raise BusyError("AssocMaxSubmitJobLimit")
        job_id = str(len({job.array for job in self.jobs.values()}) + 1)
        for index in range(count):
            name, own = f"{job_id}_{index}" if indices else job_id, folder / "elements" / str(index)
            self.jobs[name] = SimulatedJob(
                name, requested["job_name"], own.resolve() if indices else folder, float(throttle or math.inf)
            )
        if self.lost_answers:
            self.lost_answers -= 1
            raise following.UnansweredError("Socket timed out on send/recv operation")
        queue.write_job_id(folder, job_id)
        return job_id

    def answer(self, command: list[str]) -> str:
        """Return the output of a command, as `queue.answer` does."""
        name, *words = command
        self.calls.append((self.now, name))
        if self.is_silent or name in ("sacct", "sacctmgr"):
            raise queue.SlurmError(f"{name} cannot be run")
        if name == "squeue":
            rows = [(job.array if job.never_ran else job.id, job.state, job.name) for job in self.jobs.values()]
            return "".join(f"{job_id}|{state}|Priority|{name}\n" for job_id, state, name in dict.fromkeys(rows))
        if name == "scancel":
            for job in (self.jobs[job_id] for word in words if word[0] != "-" for job_id in queue._elements(word)):
                if job.ended == math.inf and not (words[0] == "--state=PENDING" and job.state != "PENDING"):
                    job.state, job.ended = "CANCELLED", self.now
        if name == "scontrol" and words[0] == "update":
            for job in self.jobs.values():
                if job.array == words[1].removeprefix("JobId="):
                    job.throttle = float(words[2].removeprefix("ArrayTaskThrottle="))
        return f"MaxArraySize = {self.array_limit}\n"

    def _advance(self) -> None:
        running = Counter(job.array for job in self.jobs.values() if job.state == "RUNNING")
        for job in self.jobs.values():
            if job.state == "PENDING" and running.total() < self.slots and running[job.array] < job.throttle:
                job.state, job.started = "RUNNING", self.now
                running[job.array] += 1
                if not job.is_worker:
                    self._begin(job, _attempt_in(job.folder))
            elif job.state == "RUNNING":
                self._work(job) if job.is_worker else self._run(job)

    def _begin(self, job: SimulatedJob, attempt: AttemptFolder) -> None:
        attempt.begin(self.now)
        job.busy_until = self.now + self.trial_s

    def _run(self, job: SimulatedJob) -> None:
        if self.now >= job.busy_until:
            _attempt_in(job.folder).close(Outcome(State.COMPLETED), self.now)
            job.state, job.ended = "COMPLETED", self.now

    def _work(self, job: SimulatedJob) -> None:
        if job.claimed and self.now >= job.busy_until:
            _load(job.claimed).attempt_folder.close(Outcome(State.COMPLETED), self.now)
            job.claimed.unlink()
            job.claimed, job.busy_until = None, self.now + _IDLE_S
        if job.claimed is None:
            queued = sorted((job.folder.parent / "queue").glob("*.job"))
            (job.folder / "claimed").mkdir(exist_ok=True)
            if queued:
                job.claimed = queued[0].rename(job.folder / "claimed" / queued[0].name)
                self._begin(job, _load(job.claimed).attempt_folder)
            elif self.now >= job.busy_until or (job.folder / "dismissed").exists():
                job.state, job.ended = "COMPLETED", self.now


def _attempt_in(folder: Path) -> AttemptFolder:
    return TrialFolder(folder.parents[1]).attempt(int(folder.name))


def _load(file: Path) -> Job:
    job: Job = cloudpickle.loads(file.read_bytes())
    return job


@contextmanager
def simulated_slurm(**settings: Any) -> Iterator[SimulatedSlurm]:
    """Yield a SLURM that the launcher's modules use instead of the commands and the real clock."""
    slurm = SimulatedSlurm(**settings)
    with pytest.MonkeyPatch.context() as patch:
        for module in (arrays, following, jobs, launcher, looks, watcher, workers):
            patch.setattr(module, "time", slurm)
        patch.setattr(jobs, "now", slurm.time)
        for module in (arrays, limits, queue):
            patch.setattr(module, "answer", slurm.answer)
        patch.setattr(following, "submit", slurm.submit)
        yield slurm
