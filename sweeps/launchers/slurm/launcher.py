"""The SLURM launcher: trials as jobs of their own, or in warm workers."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.files import RateLimit
from sweeps.launchers.contract import TrialLauncher
from sweeps.launchers.slurm import environment
from sweeps.launchers.slurm.following import FollowedJobs
from sweeps.launchers.slurm.jobs import JobTrials
from sweeps.launchers.slurm.preview import preview
from sweeps.launchers.slurm.queue import choose_cluster
from sweeps.launchers.slurm.request import request
from sweeps.launchers.slurm.workers import WorkerTrials, check_request
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import Job, Outcome, Request

_TICK_S, _WARM_TICK_S = 0.2, 0.05  # the second with workers, because their trials are short


class SlurmTrials(TrialLauncher):
    """The SLURM launcher (`sweeps.launchers.contract.TrialLauncher`)."""

    name = "slurm"
    survives = True

    def __init__(self, settings: SlurmLauncherConf, study: Path) -> None:
        choose_cluster(study, settings.clusters)
        self.detach = settings.detach
        self.keep_on_interrupt = settings.keep_on_interrupt
        self.max_timeouts = settings.max_num_timeout
        self.slurm = FollowedJobs(settings)
        self.jobs = JobTrials(self.slurm, settings)
        self.workers = WorkerTrials(self.slurm, settings, study / "workers")
        self._way = self.workers if _needs_workers(settings) else self.jobs
        self._study = study
        self._previewed: dict[str, DictConfig] = {}  # settings of the requests, equal settings once
        self._looks = RateLimit()  # of the files of trials and workers

    def request(self, config: DictConfig) -> Request:
        settings = read(config.hydra.launcher, SlurmLauncherConf)
        requested = request(settings)
        if _needs_workers(settings):
            check_request(settings)
        self._previewed.setdefault(repr(settings), config.hydra.launcher)
        environment.check(settings)
        return requested

    def preview(self) -> Iterator[str]:
        return preview(self._study, list(self._previewed.values()))

    def open(self) -> None:
        """Start the watcher, and adopt the workers of an earlier driver. Raises UserError if commands are missing."""
        for command in ("sbatch", "squeue", "scancel"):
            if shutil.which(command) is None:
                problem = f"hydra/launcher=slurm: this machine has no {command} command."
                raise UserError(f"{problem}\nRun the command on a login node, or use hydra/launcher=local")
        self.slurm.watcher.start()
        self.workers.open()

    def has_room(self, ahead: bool = False) -> bool:
        return self._way.has_room(ahead)

    def submit(self, job: Job) -> bool:
        return self._way.submit(job)

    def adopt(self, job: Job) -> bool:
        """Take over the attempt, which an earlier driver may have submitted in either way."""
        return self.workers.adopt(job) or self.jobs.adopt(job)

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        deadline = time.monotonic() + timeout_s
        self._observe()
        while not self.slurm.over and time.monotonic() < deadline:
            time.sleep(min(_WARM_TICK_S if self.workers.trials else _TICK_S, timeout_s))
            self._observe()
        over = list(self.slurm.over)
        self.slurm.over.clear()
        return over

    def _observe(self) -> None:
        if self._looks.due(len(self.jobs.trials) + len(self.workers.trials) + len(self.workers.jobs)):
            self.jobs.observe()
            self.workers.observe()
        self.workers.adjust()

    def notes(self) -> list[str]:
        return self.slurm.notes()

    def cancel_pending(self) -> None:
        self.jobs.cancel(only_pending=True)
        self.workers.cancel_pending()

    def close(self, keep: bool = False) -> None:
        self.jobs.close(keep)
        self.workers.close(keep)
        self.slurm.close()


def _needs_workers(settings: SlurmLauncherConf) -> bool:
    return settings.trials_per_job != 1 or settings.trials_per_gpu > 1
