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
from sweeps.launchers.fork_server import Start
from sweeps.launchers.local import LocalTrials, _Slot
from sweeps.launchers.slurm_attempt import Notice, job_start
from sweeps.launchers.slurm_files import OwnEnd

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
        self._slots = _Slots(plan, folder / "fork_server.log")
        self._notice = Notice([], plan.warned_after_s)
        self._running: dict[int, tuple[str, TrialJob]] = {}
        self._taken = 0

    def run(self) -> None:
        (self._folder / "claimed").mkdir(exist_ok=True)
        # SLURM tells every process of a job to end; the fork server must not, while its trials save their state.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._slots.open()
        self._notice.listen()
        busy_at = time.monotonic()
        while True:
            if self._may_take() and self._slots.has_room():
                self._take()
            for over in self._slots.poll(_TICK_S):
                self._end(over)
            self._cancel()
            if self._running:
                busy_at = time.monotonic()
            elif not self._may_take() or time.monotonic() - busy_at > self._plan.idle_s:
                break
        self._slots.close()

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
            self._slots.submit(job)
            return

    def _end(self, over: Exit) -> None:
        _, job = self._running.pop(over.number)
        self._notice.folders.remove(job.folder)
        result = job.folder.read_result()
        OwnEnd(*((result.state, result.error) if result else (over.state, over.error))).write(job.attempt)

    def _cancel(self) -> None:
        """End the trials that the driver gave up here: it wrote so, or it began a newer attempt elsewhere."""
        for number, (token, job) in self._running.items():
            newer = job.attempt.with_name(str(int(job.attempt.name) + 1))
            if (self._folder / "cancel" / token).exists() or newer.exists():
                self._slots.cancel(number)


class _Slots(LocalTrials):
    """The slots of this job: what SLURM gave it, shared out evenly; SLURM itself confines it to its cores."""

    def __init__(self, plan: Plan, log: Path) -> None:
        super().__init__(plan.preload, log)
        self._plan = plan
        self._gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]

    def has_room(self) -> bool:
        return self._ready and len(self._slots) < self._plan.at_once

    def submit(self, job: TrialJob) -> bool:
        gpus = [self._gpus.pop(0) for _ in range(self._plan.gpus)]
        self._slots[job.number] = _Slot(job, [], gpus, 0.0, float("inf"))
        environment = {
            **job.environment,
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
            "OMP_NUM_THREADS": str(self._plan.cpus),
        }
        payload = cloudpickle.dumps((job, time.time()))
        self._server.send(Start(job.number, payload, str(job.attempt / "log"), [], environment))
        return True
