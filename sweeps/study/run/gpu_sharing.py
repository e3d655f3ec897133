"""How many trials share a GPU: as many as the setting allows, and fewer if earlier trials needed
more memory."""

from collections.abc import Iterable
from dataclasses import replace

from sweeps.launchers.contract import TrialLauncher
from sweeps.record.study import TrialRecord
from sweeps.trial.machine.gpus import fitting
from sweeps.trial.run.sent_job import Job


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
