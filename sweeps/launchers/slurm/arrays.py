"""Job arrays: trials with equal requests that one sbatch submits.

An array's folder is `arrays/<pool>/<n>` in the study's folder, private to its owner: slurm/ and job.json as for any job
(see queue.py), and elements/<i>, a link to the folder of the attempt that element i runs.
"""

import logging
import math
import shutil
import time
from pathlib import Path

from sweeps.files import NO_ROOM, make_private
from sweeps.launchers.slurm import limits
from sweeps.launchers.slurm.following import FollowedJobs
from sweeps.launchers.slurm.in_job import run_attempt
from sweeps.launchers.slurm.queue import ELEMENTS, SlurmError, Ticket, answer, write_element
from sweeps.launchers.slurm.request import parameters, pool_of
from sweeps.launchers.slurm.submit import RefusedError, write_call, write_setup
from sweeps.launchers.slurm.watcher import FollowedJob
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import Job, Outcome, State

log = logging.getLogger(__name__)

_ADJUST_S = 30.0  # time between changes of an array's throttle
_CHUNK = 100  # trials that are collected between two polls, because the driver also has to observe ends

Submitted = list[tuple[Job, FollowedJob]]


class Arrays:
    """Collects trials until no further one comes, and sends them as arrays."""

    def __init__(self, slurm: FollowedJobs, settings: SlurmLauncherConf, folder: Path) -> None:
        self._slurm = slurm
        self._settings = settings
        self._folder = folder
        self._collected: list[tuple[Path, Job]] = []  # trials, each with the folder of its pool
        self._count = 0  # trials collected since the last poll
        self._slice = limits.MOST  # maximum size of the next array; halved if SLURM accepts no array of that size
        self._max_array: int | None = None
        self._max_submitted: dict[tuple[str | None, str | None], float] = {}
        self._throttles: dict[Path, tuple[float, float]] = {}  # by array: its throttle, and when it was set

    @property
    def jobs(self) -> list[Job]:
        """Return the trials that were not sent yet."""
        return [job for _, job in self._collected]

    @property
    def is_full(self) -> bool:
        return self._count >= _CHUNK and not self._settings.detach

    def add(self, job: Job, settings: SlurmLauncherConf) -> bool:
        """Add a trial to those to send, and return True. Raises OSError if its files cannot be written."""
        write_call(job.attempt_folder.path, settings, run_attempt, job)
        self._collected.append((pool_of(self._folder, settings), job))
        self._count += 1
        return True

    def clear(self) -> list[Job]:
        """Drop the trials that were not sent, and return them."""
        jobs = self.jobs
        self._collected.clear()
        return jobs

    def is_complete(self) -> bool:
        """Return whether no trial was collected since the last call, which each poll makes once."""
        added, self._count = self._count > 0, 0
        return not added

    def send(self) -> Submitted:
        """Send the next trials with equal requests, and return them; none if SLURM accepts no jobs now.

        They wait until fewer than array_parallelism jobs are queued or running, because no throttle may be 0.
        """
        room = self._settings.array_parallelism - len(self._slurm.jobs)
        if not self._collected or room <= 0 or not self._slurm.may_send():
            return []
        pool, first = self._collected[0]
        settings = read(first.config.hydra.launcher, SlurmLauncherConf)
        group = [job for other, job in self._collected if other == pool]
        group = group[: self._size(settings, len(group))]
        if not group:
            return []
        sent: Submitted = []
        try:
            is_alone = len(group) == 1 and settings.array != "always"
            sent = self._send_alone(first, settings) if is_alone else self._send_array(pool, group, settings, room)
            if not sent:
                return []
        except RefusedError as error:
            if len(group) > 1 and "array" in str(error):  # because the site allows only smaller arrays, or none
                self._slice = len(group) // 2
                return []
            self._refuse(group, error.outcome)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._refuse(group, Outcome(State.REFUSED, f"its files cannot be written: {error}"))
        numbers = {job.number for job in group}
        self._collected = [(other, job) for other, job in self._collected if job.number not in numbers]
        return sent

    def _refuse(self, jobs: list[Job], end: Outcome) -> None:
        for job in jobs:
            self._slurm.report(job.number, end)

    def _size(self, settings: SlurmLauncherConf, count: int) -> int:
        """Return how many of `count` trials to send now: within the size of an array, and the limits of the user."""
        if count == 1:
            return 1
        if self._max_array is None:
            self._max_array = limits.max_array()
        key = settings.account, settings.qos
        if key not in self._max_submitted:
            self._max_submitted[key] = limits.max_submitted(settings)
        limit = self._max_submitted[key]
        count = min(count, self._slice, self._max_array)
        room = max(0, limit - len(self._slurm.jobs))
        # Not a few at a time, because each is an sbatch.
        return 0 if room < min(count, math.ceil(limit / 4) if limit < math.inf else 0) else int(min(count, room))

    def _send_alone(self, job: Job, settings: SlurmLauncherConf) -> Submitted:
        sent = self._slurm.send(job.attempt_folder.path, settings, run_attempt, job)
        return [(job, sent)] if sent else []

    def _send_array(self, pool: Path, jobs: list[Job], settings: SlurmLauncherConf, throttle: int) -> Submitted:
        """Write the array and its elements, then submit it, so that the next driver could adopt it at any moment."""
        numbers = [int(folder.name) for folder in pool.glob("*") if folder.name.isdecimal()]
        folder = pool / str(1 + max(numbers, default=0))
        make_private(self._folder)
        make_private(folder)
        (folder / ELEMENTS).mkdir()
        tickets: list[Ticket] = []
        for index, job in enumerate(jobs):
            write_setup(job.attempt_folder.path, settings.setup)
            tickets.append(write_element(folder, index, job.attempt_folder.path))
        running = f"%{throttle}" if throttle < len(jobs) else ""
        try:
            is_sent, array_id = self._slurm.sbatch(
                folder, parameters(folder, settings, array=f"0-{len(jobs) - 1}{running}")
            )
        except RefusedError:
            shutil.rmtree(folder)
            raise
        if not is_sent:
            shutil.rmtree(folder)
            self._slice = max(1, len(jobs) // 2) if "MaxSubmit" in self._slurm.busy else self._slice
            return []
        self._slice = min(limits.MOST, 2 * self._slice)
        self._throttles[folder] = throttle if running else math.inf, time.monotonic()
        ids = [array_id and f"{array_id}_{index}" for index in range(len(jobs))]
        return [
            (job, self._slurm.follow(job.attempt_folder.path, Ticket(ticket.name, element_id, folder)))
            for job, ticket, element_id in zip(jobs, tickets, ids, strict=True)
        ]

    def adjust_throttles(self) -> None:
        """Set the throttles of the living arrays, which share array_parallelism with all other jobs."""
        now, left = time.monotonic(), self._settings.array_parallelism
        arrays: dict[Path, list[FollowedJob]] = {}
        for job in list(self._slurm.jobs.values()):
            if job.array:
                arrays.setdefault(job.array, []).append(job)
            else:
                left -= 1
        for array, elements in arrays.items():
            share = max(1, min(left, len(elements)))
            left -= share
            throttle, set_at = self._throttles.get(array, (0, -math.inf))
            pending = any(job.info is None or job.info.state == "PENDING" for job in elements)
            is_wrong = share > throttle or share < min(throttle, len(elements))
            array_id = next((job.id for job in elements if job.id), None)
            if pending and is_wrong and array_id and now - set_at > _ADJUST_S:
                self._set_throttle(array, array_id.partition("_")[0], share)

    def _set_throttle(self, array: Path, array_id: str, throttle: int) -> None:
        self._throttles[array] = throttle, time.monotonic()
        try:
            answer(["scontrol", "update", f"JobId={array_id}", f"ArrayTaskThrottle={throttle}"])
        except SlurmError as error:
            log.warning("the throttle of SLURM's array %s stays as it is: %s", array_id, error)
