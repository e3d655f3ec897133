"""What runs inside a worker's SLURM job: trials, one after the other, as forks of a warm process.

A worker's folder, beside those of the other workers of the same resource class:

    ../queue/TOKEN       a trial that waits for any worker, as a cloudpickled TrialJob     (driver)
    claimed/TOKEN        the same, once this worker has taken it, by renaming it           (worker)
    cancel/TOKEN         "end this trial now"                                              (driver)
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle

from sweeps.launchers.contract import Exit, TrialJob
from sweeps.launchers.forks import Forks
from sweeps.launchers.slurm.in_job import Notice, job_start
from sweeps.launchers.slurm.ticket import OwnEnd
from sweeps.trial.folder import State

_TICK_S = 0.05


@dataclass(frozen=True)
class Plan:
    """What a worker may do. None trials means as many as its time allows."""

    trials: int | None
    at_once: int
    gpus: int
    cpus: int
    warned_after_s: float
    idle_s: float
    preload: list[str] = field(default_factory=list)


def run_worker(folder: str, path: Sequence[str], plan: Plan) -> None:
    """Run trials until the queue stays empty, the time is nearly over, or as many have run as may."""
    sys.path[:] = path
    Worker(Path(folder), plan).run()


class Worker:
    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._forks = Forks(plan.preload, folder / "fork_server.log")
        # What SLURM gave the job, shared out evenly; SLURM itself confines it to its cores.
        self._gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        self._owned: dict[int, list[str]] = {}
        self._notice = Notice([], plan.warned_after_s)
        self._running: dict[int, tuple[str, TrialJob]] = {}
        self._taken = 0

    def run(self) -> None:
        (self._folder / "claimed").mkdir(exist_ok=True)
        # SLURM tells every process of a job to end; the fork server must not, while its trials save their state.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._forks.open()
        self._notice.listen()
        busy_at = time.monotonic()
        while True:
            if self._may_take() and self._forks.ready and len(self._running) < self._plan.at_once:
                self._take()
            for over in self._forks.poll(_TICK_S):
                self._end(over)
            self._cancel()
            if self._running:
                busy_at = time.monotonic()
            elif not self._may_take() or time.monotonic() - busy_at > self._plan.idle_s:
                break
        self._forks.close()

    def _may_take(self) -> bool:
        enough = self._plan.trials is not None and self._taken >= self._plan.trials
        late = time.time() - job_start() > self._plan.warned_after_s
        return not (enough or late or self._notice.given)

    def _take(self) -> None:
        """Claim the oldest trial in the queue, if there is one that no other worker is quicker to claim."""
        for waiting in sorted((self._folder.parent / "queue").glob("*.job")):
            claimed = self._folder / "claimed" / waiting.name
            try:
                waiting.rename(claimed)
            except FileNotFoundError:
                continue
            job: TrialJob = cloudpickle.loads(claimed.read_bytes())
            self._taken += 1
            self._running[job.number] = waiting.name, job
            self._notice.folders.append(job.folder)
            self._owned[job.number] = [self._gpus.pop(0) for _ in range(self._plan.gpus)]
            self._forks.start(job, [], self._owned[job.number], self._plan.cpus)
            return

    def _end(self, over: Exit) -> None:
        _, job = self._running.pop(over.number)
        self._gpus += self._owned.pop(over.number)
        self._notice.folders.remove(job.folder)
        result = job.folder.read_result()
        OwnEnd(*((result.state, result.error) if result else (over.state, over.error))).write(job.attempt)

    def _cancel(self) -> None:
        """End the trials that the driver gave up here: it wrote so, or it began a newer attempt elsewhere."""
        for number, (token, job) in self._running.items():
            newer = job.attempt.with_name(str(int(job.attempt.name) + 1))
            if (self._folder / "cancel" / token).exists() or newer.exists():
                self._forks.kill(number, State.CANCELLED, "it was cancelled")
