"""The trials of a grid that wait until no further one comes, so that one array has them all."""

from pathlib import Path

from sweeps.base.files import NO_ROOM
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm.follow.following import FollowedJobs
from sweeps.launchers.slurm.follow.watcher import FollowedJob
from sweeps.launchers.slurm.inside.in_job import call_of
from sweeps.launchers.slurm.script.request import pool_of
from sweeps.launchers.slurm.script.submit import RefusedError, write_call
from sweeps.launchers.slurm.trials.arrays import Arrays
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job

# trials that are collected between two polls, because the driver also has to observe ends
_CHUNK = 100


class CollectedTrials:
    """Collects trials, and sends those with equal requests together."""

    def __init__(
        self, slurm: FollowedJobs, settings: SlurmLauncherConf, arrays: Arrays, folder: Path
    ) -> None:
        self._slurm = slurm
        self._settings = settings
        self._arrays = arrays
        self._folder = folder
        self._collected: list[tuple[str, Job]] = []  # trials, each with the name of its pool
        self._count = 0  # trials collected since the last poll

    @property
    def jobs(self) -> list[Job]:
        """Return the trials that were not sent yet."""
        return [job for _, job in self._collected]

    @property
    def is_full(self) -> bool:
        return self._count >= _CHUNK and not self._settings.detach

    def add(self, job: Job, settings: SlurmLauncherConf) -> bool:
        """Add a trial to those to send, and return True. Raises OSError if its files cannot be
        written."""
        write_call(job.attempt_folder.path, settings, *call_of(job, settings))
        self._collected.append((pool_of(self._folder, settings).name, job))
        self._count += 1
        return True

    def clear(self) -> list[Job]:
        """Drop the trials that were not sent, and return them."""
        jobs = self.jobs
        self._collected.clear()
        return jobs

    def is_complete(self) -> bool:
        """Return whether no trial was collected since the last call, which each poll makes once."""
        added = self._count > 0
        self._count = 0
        return not added

    def send(self) -> list[tuple[Job, FollowedJob]]:
        """Send the next trials with equal requests, and return them; none if SLURM accepts no jobs
        now.

        They wait until fewer than array_parallelism jobs are queued or running.
        """
        if not self._collected or self._arrays.room <= 0 or not self._slurm.may_send():
            return []
        pool, first = self._collected[0]
        settings = read(first.config.hydra.launcher, SlurmLauncherConf)
        group = [job for other, job in self._collected if other == pool]
        group = group[: self._arrays.size(settings, len(group))]
        if not group:
            return []
        try:
            sent = self._arrays.send(pool, [job.attempt_folder.path for job in group], settings)
        except RefusedError as error:
            self._refuse(group, error.outcome)
            return []
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._refuse(group, Outcome(State.REFUSED, f"its files cannot be written: {error}"))
            return []
        if not sent:
            return []
        self._drop(group)
        return list(zip(group, sent, strict=True))

    def _refuse(self, jobs: list[Job], end: Outcome) -> None:
        self._drop(jobs)
        for job in jobs:
            self._slurm.report(job.number, end)

    def _drop(self, jobs: list[Job]) -> None:
        numbers = {job.number for job in jobs}
        self._collected = [
            (pool, job) for pool, job in self._collected if job.number not in numbers
        ]
