"""The SLURM launcher: trials as jobs of their own, or in warm workers."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from omegaconf import DictConfig

from sweeps.base.errors import UserError
from sweeps.base.looks import Looks, RateLimit
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.contract import TrialLauncher
from sweeps.launchers.slurm import environment
from sweeps.launchers.slurm.follow.following import STARTS_PER_MIN, FollowedJobs
from sweeps.launchers.slurm.follow.jobs import JobTrials
from sweeps.launchers.slurm.queue import choose_cluster
from sweeps.launchers.slurm.script.preview import preview
from sweeps.launchers.slurm.script.request import request
from sweeps.launchers.slurm.script.submit import check_commands
from sweeps.launchers.slurm.trials import driver_job
from sweeps.launchers.slurm.trials.arrays import Arrays
from sweeps.launchers.slurm.trials.workers import WorkerTrials, check_request
from sweeps.trial.job import Outcome, Request
from sweeps.trial.run.sent_job import Job

_TICK_S = 0.2
_WARM_TICK_S = 0.05  # with workers, because their trials are short
_JUDGE_S = 1.0
# trials before their length is measured; the last start is that of the first worker
_UNMEASURED = STARTS_PER_MIN - 1


class SlurmTrials(TrialLauncher):
    """The SLURM launcher (`sweeps.launchers.contract.TrialLauncher`)."""

    name = "slurm"
    survives = True

    def __init__(self, settings: SlurmLauncherConf, study: Path) -> None:
        choose_cluster(study, settings.clusters)
        self.detach = settings.detach
        self.keep_on_interrupt = settings.keep_on_interrupt
        self.max_timeouts = settings.max_num_timeout
        self.grid_only = "hydra.launcher.array=always" if settings.array == "always" else ""
        self.slurm = FollowedJobs(settings)
        self.arrays = Arrays(self.slurm, settings, study / "arrays")
        self.jobs = JobTrials(self.slurm, settings, self.arrays, study)
        self.workers = WorkerTrials(
            self.slurm, settings, self.arrays, study / "workers", self._median_s
        )
        self._settings = settings
        self._study = study
        self._previewed: dict[str, DictConfig] = {}  # settings of the requests, equal settings once
        self._is_ahead = False  # whether further trials do not depend on the results of these
        # by GPUs: when, and whether trials are short
        self._judged: dict[float, tuple[float, bool | None]] = {}
        # the newest trial, and its own settings
        self._next: tuple[Job | None, SlurmLauncherConf] = None, settings
        # whether the next trial waits until the length of such trials is measured
        self._is_waiting = False
        self._looks = Looks()  # at the files of trials with a job of their own
        self._worker_looks = RateLimit()  # at the files of workers and of their trials

    def request(self, config: DictConfig) -> Request:
        settings = read(config.hydra.launcher, SlurmLauncherConf)
        requested = request(settings)
        if _needs_workers(settings):
            check_request(settings)
        self._previewed.setdefault(repr(settings), config.hydra.launcher)
        environment.check(settings)
        return requested

    def preview(self) -> Iterator[str]:
        driver = None
        if self._settings.driver == "job":
            driver = driver_job.requested(self._study, self._settings)
        return preview(self._study, list(self._previewed.values()), driver)

    def open(self) -> None:
        """Start the watcher, and adopt the workers of an earlier driver. Raises UserError if
        commands are missing."""
        check_commands()
        self.slurm.lengths.read(self._study)
        self.slurm.watcher.start()
        self.workers.open()

    def has_room(self, ahead: bool = False) -> bool:
        self._is_ahead = ahead
        if _needs_workers(self._settings):
            return self.workers.has_room(ahead)
        if self._settings.trials_per_job == 1:
            return self.jobs.has_room(ahead)
        if ahead:
            return self.jobs.has_room(ahead) or self.workers.has_room(ahead)
        return self.jobs.count + len(self.workers.trials) < self._settings.array_parallelism

    def submit(self, job: Job) -> bool:
        if self._next[0] is not job:  # because the loop submits a trial anew until there is room
            self._next = job, read(job.config.hydra.launcher, SlurmLauncherConf)
        settings = self._next[1]
        if _needs_workers(settings):
            return self.workers.submit(job, settings)
        if settings.trials_per_job == "auto":
            return self._submit_by_length(job, settings)
        return self.jobs.submit(job, settings, self._is_ahead)

    def _submit_by_length(self, job: Job, settings: SlurmLauncherConf) -> bool:
        """Submit the trial to the workers if such trials are short. Before this is measured, few
        trials may run."""
        try:
            check_request(settings)
        except UserError:  # because no worker could run the trial
            return self.jobs.submit(job, settings, self._is_ahead)
        is_short = self._are_short(job.request.gpus, settings)
        self._is_waiting = False
        if is_short:
            return self.workers.submit(job, settings)
        if is_short is False or settings.detach:  # because nobody will be there to measure
            return self.jobs.submit(job, settings, self._is_ahead)
        is_soon = self.slurm.recent + self.jobs.unsent >= _UNMEASURED
        self._is_waiting = is_soon or self.jobs.count_of(job.request.gpus) >= _UNMEASURED
        return not self._is_waiting and self.jobs.submit(job, settings, self._is_ahead)

    def _are_short(self, gpus: float, settings: SlurmLauncherConf) -> bool | None:
        judged_at, is_short = self._judged.get(gpus, (0.0, None))
        if time.monotonic() - judged_at > _JUDGE_S:
            is_short = self.slurm.lengths.are_short(gpus, settings.short_s, self.jobs.ages_s(gpus))
            self._judged[gpus] = time.monotonic(), is_short
        return is_short

    def _median_s(self, job: Job) -> float | None:
        return self.slurm.lengths.median_s(job.request.gpus)

    def adopt(self, job: Job) -> bool:
        """Take over the attempt, which an earlier driver may have submitted in either way."""
        return self.workers.adopt(job) or self.jobs.adopt(job)

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        deadline = time.monotonic() + timeout_s
        self.jobs.send()
        self.arrays.adjust_throttles()
        self._observe()
        while not self.slurm.over and time.monotonic() < deadline:
            time.sleep(min(_WARM_TICK_S if self.workers.trials else _TICK_S, timeout_s))
            self._observe()
        over = self.slurm.over
        self.slurm.over = []
        return over

    def _observe(self) -> None:
        self.jobs.observe(
            self._looks.due(self.jobs.trials.values(), lambda trial: not trial[1].is_waiting)
        )
        if self._worker_looks.is_due:
            self._worker_looks.begin(len(self.workers.trials) + len(self.workers.jobs))
            self.workers.observe()

    def avoid(self, nodes: Mapping[str, str]) -> None:
        self.slurm.avoid(nodes)

    def notes(self) -> list[str]:
        return [*self._notes_on_lengths(), *self.slurm.notes()]

    def _notes_on_lengths(self) -> list[str]:
        """Return why trials run in warm workers, or few at a time."""
        if self._is_waiting:
            return [
                f"at most {_UNMEASURED} trials start, and as many a minute, before their length is"
                " measured. To start all: hydra.launcher.trials_per_job=1"
            ]
        trials = list(self.workers.trials.values())
        if not trials or self._settings.trials_per_job != "auto" or _needs_workers(self._settings):
            return []
        median_s = self._median_s(trials[0].job) or 0.0
        return [
            f"trials take {median_s:.0f} s, less than"
            f" short_trial_min={self._settings.short_s / 60:g} (minutes): they run in warm workers"
        ]

    def cancel_pending(self) -> None:
        self.jobs.cancel_pending()
        self.workers.cancel_pending()

    def close(self, keep: bool = False) -> None:
        self.jobs.close(keep)
        self.workers.close(keep)
        self.slurm.close()


def _needs_workers(settings: SlurmLauncherConf) -> bool:
    return settings.trials_per_job not in (1, "auto") or settings.trials_per_gpu > 1
