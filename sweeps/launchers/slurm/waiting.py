"""A trial in the queue of warm workers, which is a folder: the driver adds to it, and each worker takes the oldest."""

import hashlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from sweeps.files import Unreadable, write_whole
from sweeps.launchers.slurm.request import parameters
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import End, Job, State

_GONE_S = 90.0  # how long a renamed file may be in neither of two folders, as an NFS client sees them


def token_of(job: Job) -> str:
    """The name of a trial's file: in the queue's order, and known without reading any file."""
    return f"{job.number:07}.{job.attempt:04}.job"


@dataclass
class Waiting:
    """A trial that is queued, or that a worker runs."""

    job: Job
    pool: Path
    """The folder of the queue and the workers that trials share which ask for the same resources."""
    gone_since: float | None = None
    """Since when it is seen neither in the queue nor with a worker."""

    @classmethod
    def queue(cls, job: Job, pools: Path) -> "Waiting":
        """Put it into the queue of its pool."""
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        asked = repr((parameters(pools, settings), settings.preload))
        waiting = cls(job, pools / hashlib.blake2s(asked.encode(), digest_size=4).hexdigest())
        waiting.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(waiting.file, cloudpickle.dumps(job))
        return waiting

    @classmethod
    def find(cls, job: Job, pools: Path) -> "Waiting | None":
        """Where an earlier driver queued it, perhaps under other settings; whether or not a worker has it now."""
        places = (f"*/queue/{token_of(job)}", f"*/*/claimed/{token_of(job)}")
        found = next((file for place in places for file in pools.glob(place)), None)
        return cls(job, pools / found.relative_to(pools).parts[0]) if found else None

    @property
    def file(self) -> Path:
        return self.pool / "queue" / token_of(self.job)

    def end(self, seen: Collection[str]) -> End | None:
        """How it ended, if it did; `seen` are the names of the files in the queue and in the hands of the workers.

        Raises:
            Unreadable: its end is damaged, and it runs: it will write it again.
        """
        placed, now = self.file.name in seen, time.monotonic()
        self.gone_since = None if placed else self.gone_since or now
        try:
            end = self.job.attempt_folder.end()
        except Unreadable as error:
            if placed:
                raise
            return End(State.LOST, str(error))
        if not end and self.gone_since and now - self.gone_since > _GONE_S:
            end = End(State.LOST, f"{self.file} is gone, and no worker has it: deleted, or damaged (see their logs)")
        return end
