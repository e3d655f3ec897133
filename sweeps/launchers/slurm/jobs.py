"""Trials as SLURM jobs: each attempt one job with the resources of its own trial."""

import time
from contextlib import suppress

from sweeps.files import CorruptFile
from sweeps.launchers.slurm.base import SlurmBase
from sweeps.launchers.slurm.ends import end_of_attempt
from sweeps.launchers.slurm.in_job import run_attempt
from sweeps.launchers.slurm.queue import Followed, SlurmError, name_of, noted_id, squeue
from sweeps.launchers.slurm.request import parameters
from sweeps.launchers.slurm.submit import RefusedError
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import Job, Outcome, State

_STRAGGLE_S = 30.0
"""How long other ranks may live on when the chief has ended the attempt."""


class SlurmTrials(SlurmBase):
    """The SLURM launcher, as our loop sees it (`sweeps.launchers.contract.TrialLauncher`)."""

    def __init__(self, settings: SlurmLauncherConf) -> None:
        super().__init__(settings)
        self._trials: dict[str, Job] = {}  # by the names of their SLURM jobs

    def has_room(self, ahead: bool = False) -> bool:
        return len(self._trials) < self._settings.array_parallelism

    def submit(self, job: Job) -> bool:
        return self.has_room() and self._may_send() and self._written(job, lambda: self._submit(job))

    def _submit(self, job: Job) -> bool:
        folder = job.attempt_folder.path
        asked = parameters(folder, read(job.config.hydra.launcher, SlurmLauncherConf))
        try:
            if sent := self._send(folder, asked, run_attempt, job):
                self._trials[sent.name] = job
            return sent is not None
        except RefusedError as error:
            self._end(job, Outcome(State.REFUSED, f"SLURM refused the job: {error}"))
            return True

    def adopt(self, job: Job) -> bool:
        """False if its job is certainly not there: none was noted, and SLURM knows no job of its name."""
        folder = job.attempt_folder.path
        job_id = noted_id(folder)
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

    def _look(self) -> None:
        if not self._rounds.due(len(self._trials)):
            return
        for name, job in list(self._trials.items()):
            with self._concerning(f"trial {job.number}"):
                self._look_at(job, self._jobs[name])

    def _look_at(self, job: Job, sent: Followed) -> None:
        info, launcher = self._look_after(sent), job.config.hydra.launcher
        try:
            own = job.attempt_folder.end()
            if own and (sent.ended_at or launcher.nodes * launcher.tasks_per_node == 1):
                self._end(job, own)
            elif own and time.time() - own.ended > _STRAGGLE_S and time.monotonic() > (sent.cancel_at or 0):
                self._cancel([sent])  # a rank that hangs keeps all of its nodes
            elif info and not sent.never_was:
                self._end(job, end_of_attempt(info, job.attempt_folder))
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
