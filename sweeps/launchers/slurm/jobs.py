"""Trials as SLURM jobs: each attempt one job with the resources of its own trial."""

from dataclasses import dataclass

from sweeps.files import Unreadable
from sweeps.launchers.slurm.base import Followed, SlurmBase
from sweeps.launchers.slurm.ends import end_of_attempt
from sweeps.launchers.slurm.in_job import run_attempt
from sweeps.launchers.slurm.queue import ENDED, JobInfo, squeue
from sweeps.launchers.slurm.request import parameters
from sweeps.launchers.slurm.submit import RefusedError
from sweeps.launchers.slurm.ticket import end_of_ranks, name_of, noted_id
from sweeps.settings import SlurmLauncherConf, read
from sweeps.trial.job import End, Job, State


@dataclass
class _Trial:
    job: Job
    sent: Followed


class SlurmTrials(SlurmBase):
    """The SLURM launcher, as our loop sees it (`sweeps.launchers.contract.TrialLauncher`)."""

    def __init__(self, settings: SlurmLauncherConf) -> None:
        super().__init__(settings)
        self._trials: dict[int, _Trial] = {}

    def _jobs(self) -> list[Followed]:
        return [trial.sent for trial in self._trials.values()]

    def has_room(self, ahead: bool = False) -> bool:
        return len(self._trials) < self._settings.array_parallelism

    def submit(self, job: Job) -> bool:
        return self.has_room() and self._may_send() and self._written(job, lambda: self._submit(job))

    def _submit(self, job: Job) -> bool:
        folder = job.attempt_folder.path
        asked = parameters(folder, read(job.config.hydra.launcher, SlurmLauncherConf))
        try:
            sent = self._send(folder, asked, run_attempt, job)
        except RefusedError as error:
            self._trials.pop(job.number, None)
            self._report(job.number, End(State.REFUSED, f"SLURM refused the job: {error}"))
            return True
        if sent:
            self._trials[job.number] = _Trial(job, sent)
        return sent is not None

    def adopt(self, job: Job) -> bool:
        """False if its job is certainly not there: none was noted, and SLURM knows no job of its name."""
        folder = job.attempt_folder.path
        if noted_id(folder) is None:
            listed = squeue()
            if isinstance(listed, dict) and name_of(folder) not in listed:
                return False
        self._trials[job.number] = _Trial(job, self._follow(folder))
        return True

    def cancel(self, number: int) -> None:
        if number in self._trials:
            self._cancel([self._trials[number].sent])

    def withdraw(self) -> None:
        self._cancel_all(only_pending=True)

    def close(self, keep: bool = False) -> None:
        if not keep:
            self._cancel_all()
        self._trials.clear()
        self._watcher.stop()

    def _look(self) -> None:
        if not self._rounds.due(len(self._trials)):
            return
        for number, trial in list(self._trials.items()):
            with self._concerning(f"trial {number}"):
                self._look_at(trial)

    def _look_at(self, trial: _Trial) -> None:
        info, launcher = self._info(trial.sent), trial.job.config.hydra.launcher
        ended = info is not None and info.state in ENDED
        final = info is not None and ended and self._is_final(trial.sent, info)
        try:
            own = trial.job.attempt_folder.end()
            if own and (ended or launcher.nodes * launcher.tasks_per_node == 1):
                self._end(trial, own)
            elif info and final and not self._never_was(trial.sent, info):
                self._end(trial, self._end_without_word(trial, info))
            elif final and self._may_send():
                self._submit(trial.job)
        except (OSError, Unreadable) as error:
            if not final:
                raise
            self._end(trial, End(State.LOST, str(error)))

    def _end_without_word(self, trial: _Trial, info: JobInfo) -> End:
        sent = trial.sent
        if sent.cancel_at is not None and (info.state == "CANCELLED" or not sent.only_pending):
            return End(State.CANCELLED, f"it was cancelled (SLURM job {info.id})")
        end = end_of_attempt(info, trial.job.attempt_folder)
        return (end.state is State.FAILED and end_of_ranks(sent.folder)) or end

    def _end(self, trial: _Trial, end: End) -> None:
        self._watcher.forget(trial.sent.name)
        del self._trials[trial.job.number]
        self._report(trial.job.number, end)
