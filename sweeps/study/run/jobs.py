"""The jobs of a study's trials, as a launcher gets them."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sweeps.record.study import TrialRecord
from sweeps.space.space import SearchSpace
from sweeps.study.folder.places import Places
from sweeps.study.plan.points import Points
from sweeps.study.run.gpu_sharing import GpuSharing
from sweeps.trial.job import Objective
from sweeps.trial.run.app import PackedApp
from sweeps.trial.run.sent_job import Job

if TYPE_CHECKING:
    from sweeps.tracking.tracker import Tracker


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
