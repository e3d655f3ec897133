"""Trials as SLURM jobs of their own, single or in arrays, with the resources of each trial.

The trials of a grid are collected until no further one comes, so that one array has them all.
"""

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sweeps.base.files import CorruptFile
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm.follow.ends import outcome_of_attempt
from sweeps.launchers.slurm.follow.following import FollowedJobs, refusal_of_disk
from sweeps.launchers.slurm.follow.listing import GONE, JobInfo
from sweeps.launchers.slurm.follow.watcher import FollowedJob
from sweeps.launchers.slurm.inside.in_job import call_of
from sweeps.launchers.slurm.queue import SlurmError, read_ticket
from sweeps.launchers.slurm.script import limits
from sweeps.launchers.slurm.script.request import pool_of
from sweeps.launchers.slurm.script.submit import RefusedError, write_call
from sweeps.launchers.slurm.trials.arrays import Arrays
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job
from sweeps.trial.times import now

_STRAGGLE_S = 30.0  # maximum time for other ranks to end after the chief
_TICK_S = 0.05
_OLDEST = 30
# trials that are collected between two polls, because the driver also has to observe ends
_CHUNK = 100


class JobTrials:
    """The trials that have a SLURM job of their own."""

    def __init__(
        self, slurm: FollowedJobs, settings: SlurmLauncherConf, arrays: Arrays, folder: Path
    ) -> None:
        self._slurm = slurm
        self._settings = settings
        self._arrays = arrays
        self._folder = folder
        self._most_ahead = max(limits.MOST, 2 * settings.array_parallelism)
        self._fills = True  # whether trials are queued ahead
        # submitted trials, by the name of the SLURM job
        self.trials: dict[str, tuple[Job, FollowedJob]] = {}
        self._collected: list[tuple[str, Job]] = []  # unsent trials, each with its pool's name
        self._added = 0  # trials collected since the last poll

    @property
    def count(self) -> int:
        return len(self.trials) + self.unsent

    @property
    def unsent(self) -> int:
        """Return how many trials are collected for the next arrays."""
        return len(self._collected)

    def ages_s(self, gpus: float) -> list[float]:
        """Return for how long trials with this number of GPUs have been running, of the oldest
        trials."""
        with self._slurm.retrying("ages of running trials"):
            jobs = [job for job, _ in self.trials.values() if job.request.gpus == gpus]
            began = [job.attempt_folder.began() for job in jobs[:_OLDEST]]
            return [now() - started for started in began if started]
        return []

    def count_of(self, gpus: float) -> int:
        """Return how many trials with this number of GPUs were collected or submitted, and are not
        over."""
        jobs = [job for job, _ in self.trials.values()]
        jobs += [job for _, job in self._collected]
        return sum(job.request.gpus == gpus for job in jobs)

    def has_room(self, ahead: bool) -> bool:
        if not ahead or self._settings.array == "never":
            return self.count < self._settings.array_parallelism
        if self.count >= self._most_ahead:
            self._fills = False
        elif self.count <= self._most_ahead // 2:
            # not at each end, because each array is an sbatch
            self._fills = True
        is_full = self._added >= _CHUNK and not self._settings.detach
        return self._fills and not is_full

    def submit(self, job: Job, settings: SlurmLauncherConf, ahead: bool) -> bool:
        """Submit the trial or, with `ahead`, collect it for an array. Return False if there is no
        room yet."""
        if not self.has_room(ahead):
            return False
        if ahead and self._settings.array != "never":
            return self._slurm.try_submit(job, lambda: self._collect(job, settings))
        return self._slurm.may_send() and self._slurm.try_submit(
            job, lambda: self._submit(job, settings)
        )

    def _submit(self, job: Job, settings: SlurmLauncherConf) -> bool:
        try:
            write_call(job.attempt_folder.path, settings, *call_of(job, settings))
            sent = self._slurm.send(job.attempt_folder.path, settings)
            if sent:
                self.trials[sent.name] = job, sent
            return sent is not None
        except RefusedError as error:
            self._slurm.report(job.number, error.outcome)
            return True

    def _collect(self, job: Job, settings: SlurmLauncherConf) -> bool:
        """Add a trial to those to send, and return True. Raises OSError if its files cannot be
        written."""
        write_call(job.attempt_folder.path, settings, *call_of(job, settings))
        self._collected.append((pool_of(self._folder, settings).name, job))
        self._added += 1
        return True

    def send(self) -> None:
        """Send the collected trials once no further trial comes. Raises nothing."""
        is_complete = self._added == 0
        self._added = 0
        if is_complete:
            self._send()

    def _send(self) -> bool:
        """Send the next collected trials. Return False if that has to wait for room, or for a
        disk."""
        count = self.unsent
        with self._slurm.retrying("arrays"):
            if count and self._arrays.room > 0 and self._slurm.may_send():
                self._send_equal()
        return self.unsent < count or not self._slurm.may_send()

    def _send_equal(self) -> None:
        """Send the next trials with equal requests."""
        pool, first = self._collected[0]
        settings = read(first.config.hydra.launcher, SlurmLauncherConf)
        group = [job for other, job in self._collected if other == pool]
        group = group[: self._arrays.size(settings, len(group))]
        if not group:
            return
        try:
            sent = self._arrays.send(pool, [job.attempt_folder.path for job in group], settings)
        except RefusedError as error:
            self._refuse(group, error.outcome)
        except OSError as error:
            self._refuse(group, refusal_of_disk(error))
        else:
            if sent:
                self._drop(group)
                self.trials |= {
                    followed.name: (job, followed)
                    for job, followed in zip(group, sent, strict=True)
                }

    def _refuse(self, jobs: Iterable[Job], end: Outcome) -> None:
        self._drop(jobs)
        for job in jobs:
            self._slurm.report(job.number, end)

    def _drop(self, jobs: Iterable[Job]) -> None:
        numbers = {job.number for job in jobs}
        self._collected = [entry for entry in self._collected if entry[1].number not in numbers]

    def adopt(self, job: Job) -> bool:
        """Take over the attempt. Return False if no job id was written and SLURM has no job of its
        name."""
        folder = job.attempt_folder.path
        ticket = read_ticket(folder)
        with suppress(SlurmError):
            if ticket.id is None and ticket.name not in self._slurm.listing():
                return False
        self.trials[ticket.name] = job, self._slurm.follow(folder, ticket)
        return True

    def cancel_pending(self) -> None:
        self._drop_unsent("it was cancelled")
        self._slurm.cancel([sent for _, sent in self.trials.values()], only_pending=True)

    def _drop_unsent(self, reason: str) -> None:
        self._refuse([job for _, job in self._collected], Outcome(State.CANCELLED, reason))

    def close(self, keep: bool) -> None:
        while keep and self._collected and not self._slurm.busy and self._send():
            time.sleep(_TICK_S)
        self._drop_unsent("it was not submitted, because SLURM accepts no further job now")
        if not keep:
            self._slurm.cancel([sent for _, sent in self.trials.values()])
        self.trials.clear()

    def observe(self, trials: Iterable[tuple[Job, FollowedJob]]) -> None:
        """Update these trials. Raises nothing."""
        trials = list(trials)
        gone = [
            sent for _, sent in trials if sent.id and sent.cancel_at is None and sent.state == GONE
        ]
        if gone:
            # because SLURM may list them again, and their trials get other jobs
            self._slurm.cancel(gone)
        for job, sent in trials:
            with self._slurm.retrying(f"trial {job.number}"):
                self._update(job, sent)

    def _update(self, job: Job, sent: FollowedJob) -> None:
        info = self._slurm.final_info(sent)
        try:
            end = job.attempt_folder.end()
            if end and sent.outcome_at is None:
                sent.outcome_at = time.monotonic()
            if end and (sent.ended_at or _is_single(job)):
                self._end(job, sent, end)
            elif _straggles(sent):
                self._slurm.cancel([sent])  # because a hung rank blocks all nodes of the job
            elif info:
                self._end_without_outcome(job, sent, info)
        except (OSError, CorruptFile) as error:
            if info is None:
                raise
            self._end(job, sent, Outcome(State.LOST, str(error)))

    def _end_without_outcome(self, job: Job, sent: FollowedJob, info: JobInfo) -> None:
        """End a trial whose job has ended, by the job's end. If sbatch submitted no job, submit
        one."""
        if sent.never_was:
            self._submit_again(job, sent)
            return
        outcome = outcome_of_attempt(info, job.attempt_folder, job.config.hydra.launcher)
        self._end(job, sent, outcome)

    def _submit_again(self, job: Job, sent: FollowedJob) -> None:
        """Submit a trial that an unanswered sbatch has not submitted, once SLURM may accept it."""
        if not sent.array and not self._slurm.may_send():
            return
        self._forget(sent)
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        if sent.array:
            self._collect(job, settings)
        else:
            self._submit(job, settings)

    def _forget(self, sent: FollowedJob) -> None:
        self.trials.pop(sent.name, None)
        self._slurm.jobs.pop(sent.name, None)

    def _end(self, job: Job, sent: FollowedJob, end: Outcome) -> None:
        self._forget(sent)
        self._slurm.report(job.number, end)


def _straggles(sent: FollowedJob) -> bool:
    """Return whether a job goes on for long after the outcome of its trial."""
    ended_at = sent.outcome_at or math.inf
    return time.monotonic() > max(ended_at + _STRAGGLE_S, sent.cancel_at or 0.0)


def _is_single(job: Job) -> bool:
    launcher = job.config.hydra.launcher
    return bool(launcher.nodes * launcher.tasks_per_node == 1)
