"""The jobs of a study's trials, as a launcher gets them, and how many of them share a GPU: as many
as the setting allows, and fewer if earlier trials needed more memory."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sweeps.launchers.contract import TrialLauncher
from sweeps.record.study import TrialRecord
from sweeps.space.space import SearchSpace
from sweeps.study.folder.places import Places
from sweeps.study.plan.points import Points
from sweeps.trial.job import Objective
from sweeps.trial.machine.gpus import fitting
from sweeps.trial.run.app import PackedApp
from sweeps.trial.run.sent_job import Job

if TYPE_CHECKING:
    from sweeps.tracking.tracker import Tracker


class GpuSharing:
    """Gives jobs larger parts of a shared GPU, by the largest memory of the study's trials that
    shared one."""

    def __init__(self, launcher: TrialLauncher, ended: Iterable[TrialRecord]) -> None:
        self._launcher = launcher
        self._peak = max(map(_peak, ended), default=0.0)

    def note(self, trial: TrialRecord) -> str:
        """Note the memory of an ended trial. If fewer trials fit on a GPU than shared that trial's,
        return how many; else an empty text."""
        before = self._peak
        self._peak = max(before, _peak(trial))
        parts = [end.gpus for end in trial.attempts if 0 < end.gpus < 1]
        sharers = max((round(1 / part) for part in parts), default=1)
        count = fitting(sharers, self._peak)
        if count >= fitting(sharers, before):
            return ""

        needed = f"trial {trial.number} used {self._peak:.0%} of its GPU's memory"
        if count == 1:
            return f"{needed}: from now on each trial has a whole GPU"
        return f"{needed}: from now on {count}, not {sharers}, trials share a GPU"

    def fit(self, job: Job) -> Job:
        """Return the job with as many trials on its GPU as fit, at most as many as its request
        allows."""
        count = fitting(job.request.trials_per_gpu, self._peak)
        if count == job.request.trials_per_gpu:
            return job
        job.config.hydra.launcher.trials_per_gpu = count
        return replace(job, request=self._launcher.request(job.config))


def _peak(trial: TrialRecord) -> float:
    shared = [end for end in trial.attempts if 0 < end.gpus < 1]
    return max((end.used.get("gpu_memory", 0.0) for end in shared), default=0.0)


@dataclass(frozen=True)
class TrialJobs:
    """Makes the jobs of one study's trials."""

    study: str  # name
    points: Points
    space: SearchSpace
    places: Places
    app: PackedApp
    objective: Objective
    sharing: GpuSharing
    tracker: "Tracker | None" = None

    def make(self, trial: TrialRecord) -> Job:
        """Return the job of a trial. Raises UserError if its config is not valid, and Infeasible if
        it cannot run here."""
        job = self.points.job(trial, self.study, self.places, self.app, self.objective)
        return self.sharing.fit(job)

    def track(self, trial: TrialRecord, job: Job) -> Job:
        """Return the job with the environment that names the trial's run in MLflow."""
        if self.tracker is None:
            return job

        overrides = self.space.overrides(trial.params)
        run = self.tracker.start_trial(trial, overrides, job.config)
        return replace(job, environment={**job.environment, **run})
