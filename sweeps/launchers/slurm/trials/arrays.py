"""Job arrays: jobs with equal requests that one sbatch submits.

An array's folder is `arrays/<pool>/<n>` in the study's folder, private to its owner: slurm/ and
job.json as for any job (see queue.py), and elements/<i>, a link to the folder of the attempt or the
worker that element i runs.
"""

import logging
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from sweeps.base.files import make_private
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.follow.following import FollowedJobs
from sweeps.launchers.slurm.follow.watcher import FollowedJob
from sweeps.launchers.slurm.queue import ELEMENTS, SlurmError, answer, element_of, write_element
from sweeps.launchers.slurm.script import limits
from sweeps.launchers.slurm.script.request import parameters
from sweeps.launchers.slurm.script.submit import RefusedError, write_setup

log = logging.getLogger(__name__)

_ADJUST_S = 30.0  # time between changes of an array's throttle


def next_number(folder: Path) -> int:
    """Return the number of the next numbered folder in a folder."""
    numbers = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return 1 + max(numbers, default=0)


class Arrays:
    """Submits the study's jobs of trials and of workers as arrays, within the limits of the
    site."""

    def __init__(self, slurm: FollowedJobs, settings: SlurmLauncherConf, folder: Path) -> None:
        self._slurm = slurm
        self._settings = settings
        self._folder = folder
        # maximum size of the next array; halved if SLURM accepts no array of that size
        self._slice = limits.MOST
        self._max_array: int | None = None
        self._max_submitted: dict[tuple[str | None, str | None], float] = {}
        # by array: its throttle, and when it was set
        self._throttles: dict[Path, tuple[float, float]] = {}

    @property
    def room(self) -> int:
        """Return how many more jobs may run. Without room no job is sent, because no throttle may
        be 0."""
        return self._settings.array_parallelism - len(self._slurm.jobs)

    def size(self, settings: SlurmLauncherConf, count: int) -> int:
        """Return how many of `count` jobs to send now: within the size of an array, and the limits
        of the user."""
        if count == 1 or settings.array == "never":
            return 1
        self._max_array = self._max_array or limits.max_array()
        key = settings.account, settings.qos
        if key not in self._max_submitted:
            self._max_submitted[key] = limits.max_submitted(settings)
        limit = self._max_submitted[key]
        count = min(count, self._slice, self._max_array)
        room = max(0, limit - len(self._slurm.jobs))
        # Not a few at a time, because each is an sbatch.
        fewest = math.ceil(limit / 4) if limit < math.inf else 0
        if room < min(count, fewest):
            return 0
        return int(min(count, room))

    def send(
        self, pool: str, folders: Sequence[Path], settings: SlurmLauncherConf, trials: int = 1
    ) -> list[FollowedJob]:
        """Submit a job for the call in each of `folders`, and return the jobs; none if SLURM
        accepts no jobs now.

        Raises RefusedError and OSError.
        """
        if len(folders) == 1 and settings.array != "always":
            sent = self._slurm.send(folders[0], settings, trials)
            return [sent] if sent else []
        try:
            return self._send_array(self._folder / pool, folders, settings, trials)
        except RefusedError as error:
            if len(folders) == 1 or "array" not in str(error):
                raise
            self._slice = len(folders) // 2  # because the site allows only smaller arrays, or none
            return []

    def _send_array(
        self, pool: Path, folders: Sequence[Path], settings: SlurmLauncherConf, trials: int
    ) -> list[FollowedJob]:
        """Write the array and its elements, then submit it, so that the next driver could adopt it
        at any moment."""
        array = self._make_array(pool)
        for index, folder in enumerate(folders):
            write_setup(folder, settings.setup)
            write_element(array, index, folder)

        throttle = self.room
        is_throttled = throttle < len(folders)
        indices = f"0-{len(folders) - 1}" + (f"%{throttle}" if is_throttled else "")
        requested = parameters(array, settings, trials, indices)
        try:
            is_sent, array_id = self._slurm.sbatch(array, requested)
        except RefusedError:
            shutil.rmtree(array)
            raise
        if not is_sent:
            shutil.rmtree(array)
            if "MaxSubmit" in self._slurm.busy:
                self._slice = max(1, len(folders) // 2)
            return []

        # because sites count elements that start as submissions
        self._slurm.delay(min(throttle, len(folders)) - 1)
        self._slice = min(limits.MOST, 2 * self._slice)
        self._throttles[array] = throttle if is_throttled else math.inf, time.monotonic()
        return [
            self._slurm.follow(folder, element_of(array, index, array_id))
            for index, folder in enumerate(folders)
        ]

    def _make_array(self, pool: Path) -> Path:
        """Make the folder of the next array in a pool."""
        array = pool / str(next_number(pool))
        make_private(self._folder)
        make_private(array)
        (array / ELEMENTS).mkdir()
        return array

    def adjust_throttles(self) -> None:
        """Set the throttles of the living arrays, which share array_parallelism with all other
        jobs."""
        left = self._settings.array_parallelism
        arrays: dict[Path, list[FollowedJob]] = {}
        for job in list(self._slurm.jobs.values()):
            if job.array:
                arrays.setdefault(job.array, []).append(job)
            else:
                left -= 1
        for array, elements in arrays.items():
            share = max(1, min(left, len(elements)))
            left -= share
            self._adjust_throttle(array, elements, share)

    def _adjust_throttle(self, array: Path, elements: list[FollowedJob], share: int) -> None:
        """Set the throttle of an array to its share, if it is wrong and was not set just now."""
        throttle, set_at = self._throttles.get(array, (0, -math.inf))
        is_wrong = share > throttle or share < min(throttle, len(elements))
        is_settled = time.monotonic() - set_at > _ADJUST_S
        if not is_wrong or not is_settled or not any(job.is_waiting for job in elements):
            return
        ids = [job.id for job in elements if job.id]
        if ids:
            self._set_throttle(array, ids[0].partition("_")[0], share)

    def _set_throttle(self, array: Path, array_id: str, throttle: int) -> None:
        self._throttles[array] = throttle, time.monotonic()
        try:
            answer(["scontrol", "update", f"JobId={array_id}", f"ArrayTaskThrottle={throttle}"])
        except SlurmError as error:
            log.warning("the throttle of SLURM's array %s stays as it is: %s", array_id, error)
