"""The SLURM launcher that submits each attempt as one job with the resources of its trial."""

import time
from contextlib import suppress

from sweeps.files import CorruptFile
from sweeps.launchers.slurm.base import SlurmBase
from sweeps.launchers.slurm.ends import outcome_of_attempt
from sweeps.launchers.slurm.in_job import run_attempt
from sweeps.launchers.slurm.queue import FollowedJob, SlurmError, name_of, read_job_id, squeue
from sweeps.launchers.slurm.submit import RefusedError
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import Job, Outcome, State

_STRAGGLE_S = 30.0  # maximum time for other ranks to end after the chief


class SlurmTrials(SlurmBase):
    """The SLURM launcher (`sweeps.launchers.contract.TrialLauncher`)."""

    name = "slurm"

    def __init__(self, settings: SlurmLauncherConf) -> None:
        super().__init__(settings)
        self._trials: dict[str, Job] = {}  # by the name of the SLURM job

    def has_room(self, ahead: bool = False) -> bool:
        return len(self._trials) < self._settings.array_parallelism

    def submit(self, job: Job) -> bool:
        return self.has_room() and self._may_send() and self._try_submit(job, lambda: self._submit(job))

    def _submit(self, job: Job) -> bool:
        folder = job.attempt_folder.path
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        try:
            if sent := self._send(folder, settings, run_attempt, job):
                self._trials[sent.name] = job
            return sent is not None
        except RefusedError as error:
            self._end(job, Outcome(State.REFUSED, f"SLURM refused the job: {error}"))
            return True

    def adopt(self, job: Job) -> bool:
        """Take over the attempt. Return False if no job id was written and SLURM has no job of its name."""
        folder = job.attempt_folder.path
        job_id = read_job_id(folder)
        with suppress(SlurmError):
            if job_id is None and name_of(folder) not in squeue():
                return False
        self._trials[self._follow(folder, job_id).name] = job
        return True

    def cancel_pending(self) -> None:
        self._cancel(list(self._jobs.values()), only_pending=True)

    def close(self, keep: bool = False) -> None:
        if not keep:
            self._cancel(list(self._jobs.values()))
        self._jobs.clear()
        self._trials.clear()
        self._watcher.stop()

    def _observe(self) -> None:
        if not self._looks.due(len(self._trials)):
            return
        for name, job in list(self._trials.items()):
            with self._retrying(f"trial {job.number}"):
                self._update_trial(job, self._jobs[name])

    def _update_trial(self, job: Job, sent: FollowedJob) -> None:
        info, launcher = self._final_info(sent), job.config.hydra.launcher
        try:
            end = job.attempt_folder.end()
            if end and sent.outcome_at is None:
                sent.outcome_at = time.monotonic()
            if end and (sent.ended_at or launcher.nodes * launcher.tasks_per_node == 1):
                self._end(job, end)
            elif sent.outcome_at and time.monotonic() > max(sent.outcome_at + _STRAGGLE_S, sent.cancel_at or 0):
                self._cancel([sent])  # because a hung rank blocks all nodes of the job
            elif info and not sent.never_was:
                self._end(job, outcome_of_attempt(info, job.attempt_folder))
            elif info and self._may_send():
                self._submit(job)
        except (OSError, CorruptFile) as error:
            if info is None:
                raise
            self._end(job, Outcome(State.LOST, str(error)))

    def _end(self, job: Job, end: Outcome) -> None:
        name = name_of(job.attempt_folder.path)
        self._trials.pop(name, None)
        self._jobs.pop(name, None)
        self._report(job.number, end)
