"""Trials as SLURM jobs of their own, with the resources of each trial."""

import time
from contextlib import suppress

from sweeps.files import CorruptFile
from sweeps.launchers.slurm.ends import outcome_of_attempt
from sweeps.launchers.slurm.following import FollowedJobs
from sweeps.launchers.slurm.in_job import run_attempt
from sweeps.launchers.slurm.queue import SlurmError, name_of, read_job_id
from sweeps.launchers.slurm.submit import RefusedError
from sweeps.launchers.slurm.watcher import FollowedJob
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import Job, Outcome, State

_STRAGGLE_S = 30.0  # maximum time for other ranks to end after the chief


class JobTrials:
    """The trials that have a SLURM job of their own."""

    def __init__(self, slurm: FollowedJobs, settings: SlurmLauncherConf) -> None:
        self._slurm = slurm
        self._settings = settings
        self.trials: dict[str, tuple[Job, FollowedJob]] = {}  # by the name of the SLURM job

    def has_room(self, ahead: bool) -> bool:
        return len(self.trials) < self._settings.array_parallelism

    def submit(self, job: Job) -> bool:
        may_send = self.has_room(ahead=False) and self._slurm.may_send()
        return may_send and self._slurm.try_submit(job, lambda: self._submit(job))

    def _submit(self, job: Job) -> bool:
        folder = job.attempt_folder.path
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        try:
            if sent := self._slurm.send(folder, settings, run_attempt, job):
                self.trials[sent.name] = job, sent
            return sent is not None
        except RefusedError as error:
            self._end(job, Outcome(State.REFUSED, f"SLURM refused the job: {error}"))
            return True

    def adopt(self, job: Job) -> bool:
        """Take over the attempt. Return False if no job id was written and SLURM has no job of its name."""
        folder = job.attempt_folder.path
        job_id = read_job_id(folder)
        with suppress(SlurmError):
            if job_id is None and name_of(folder) not in self._slurm.listing():
                return False
        sent = self._slurm.follow(folder, job_id)
        self.trials[sent.name] = job, sent
        return True

    def cancel(self, only_pending: bool) -> None:
        self._slurm.cancel([sent for _, sent in self.trials.values()], only_pending)

    def close(self, keep: bool) -> None:
        if not keep:
            self.cancel(only_pending=False)
        self.trials.clear()

    def observe(self) -> None:
        """Update all trials. Raises nothing."""
        for job, sent in list(self.trials.values()):
            with self._slurm.retrying(f"trial {job.number}"):
                self._update(job, sent)

    def _update(self, job: Job, sent: FollowedJob) -> None:
        info, launcher = self._slurm.final_info(sent), job.config.hydra.launcher
        try:
            end = job.attempt_folder.end()
            if end and sent.outcome_at is None:
                sent.outcome_at = time.monotonic()
            if end and (sent.ended_at or launcher.nodes * launcher.tasks_per_node == 1):
                self._end(job, end)
            elif sent.outcome_at and time.monotonic() > max(sent.outcome_at + _STRAGGLE_S, sent.cancel_at or 0):
                self._slurm.cancel([sent])  # because a hung rank blocks all nodes of the job
            elif info and not sent.never_was:
                self._end(job, outcome_of_attempt(info, job.attempt_folder))
            elif info and self._slurm.may_send():
                self._submit(job)
        except (OSError, CorruptFile) as error:
            if info is None:
                raise
            self._end(job, Outcome(State.LOST, str(error)))

    def _end(self, job: Job, end: Outcome) -> None:
        name = name_of(job.attempt_folder.path)
        self.trials.pop(name, None)
        self._slurm.jobs.pop(name, None)
        self._slurm.report(job.number, end)
