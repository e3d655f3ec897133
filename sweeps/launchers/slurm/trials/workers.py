"""Trials in warm workers: SLURM jobs that run many trials, one after the other or side by side."""

import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, make_private, write_whole
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm.follow.ends import outcome_of_job, outcomes_in_worker
from sweeps.launchers.slurm.follow.following import STARTS_PER_MIN, FollowedJobs
from sweeps.launchers.slurm.follow.listing import ENDED, JobInfo
from sweeps.launchers.slurm.follow.watcher import FollowedJob
from sweeps.launchers.slurm.inside.in_worker import run_worker
from sweeps.launchers.slurm.queue import SlurmError, read_ticket, token_of
from sweeps.launchers.slurm.script.request import pool_of
from sweeps.launchers.slurm.script.submit import RefusedError, write_call
from sweeps.launchers.slurm.trials.arrays import Arrays, next_number
from sweeps.trial.job import Outcome, State
from sweeps.trial.packing import pack
from sweeps.trial.run.sent_job import Job, SentJob

_AHEAD = 4  # queued trials for each worker, so that a worker never waits for the driver
_MAX_FAILED_STARTS = 2
_SHORTEST_S = 120.0  # because sites count shorter jobs as misuse: docs/how_to/short_trials.md
_TICK_S = 0.05
_GONE_S = 90.0  # maximum time for which an NFS client sees a renamed file in neither folder


@dataclass
class PooledTrial:
    """A trial that is queued or run by a worker."""

    job: Job
    pool: Path  # folder of the queue and the workers for trials with the same resources
    # time since which its file is neither in the queue nor with a worker
    gone_since: float | None = None

    @property
    def file(self) -> Path:
        return self.pool / "queue" / token_of(self.job.number, self.job.attempt)

    def check_end(self, is_present: bool) -> Outcome | None:
        """Return its outcome, if it is over; `is_present` is whether its file is in the queue or
        with a worker.

        Raises CorruptFile if end.json is damaged while a worker runs the trial, because the worker
        rewrites the file.
        """
        now = time.monotonic()
        self.gone_since = None if is_present else self.gone_since or now
        try:
            end = self.job.attempt_folder.end()
        except CorruptFile as error:
            if is_present:
                raise
            return Outcome(State.LOST, str(error))
        if end or self.gone_since is None or now - self.gone_since <= _GONE_S:
            return end
        problem = f"{self.file} is missing and no worker has it"
        return Outcome(State.LOST, f"{problem}: it was deleted or damaged (see the workers' logs)")


def check_request(settings: SlurmLauncherConf) -> None:
    """Raise UserError if no worker could run a trial with these settings."""
    if settings.nodes * settings.tasks_per_node > 1:
        raise UserError(
            "hydra.launcher.trials_per_job: a trial of several tasks or nodes needs its own job.\n"
            "Use hydra.launcher.trials_per_job=1"
        )
    delay_s = settings.signal_delay_s
    if settings.timeout_min * 60 <= delay_s:
        raise UserError(
            f"hydra.launcher.timeout_min={settings.timeout_min}: a worker starts no trial in its"
            f" last signal_delay_s={delay_s} seconds.\n"
            f"Use at least hydra.launcher.timeout_min={delay_s // 60 + 1}"
        )


class WorkerTrials:
    """The trials that are queued or run by workers.

    Trials with the same resources share a pool: a queue and its workers, in a folder under
    `folder`. Each submitted trial is queued, claimed by a followed worker, or over.
    """

    def __init__(
        self,
        slurm: FollowedJobs,
        settings: SlurmLauncherConf,
        arrays: Arrays,
        folder: Path,
        median_s: Callable[[Job], float | None],
    ) -> None:
        self._slurm = slurm
        self._arrays = arrays
        self._median_s = median_s  # returns how long such trials take
        self._settings = settings
        self._folder = folder
        self.trials: dict[int, PooledTrial] = {}
        self.jobs: dict[str, FollowedJob] = {}  # the workers, by name
        # by pool: consecutive workers without a trial
        self._failed_starts: Counter[Path] = Counter()

    def open(self) -> None:
        """Adopt the workers of an earlier driver."""
        folders = [file.parent for file in self._folder.glob("*/[0-9]*/slurm")]
        listed = None  # unknown
        if folders:
            with suppress(SlurmError):
                listed = self._slurm.listing()
        for folder in folders:
            ticket = read_ticket(folder)
            # because a submission without an answer may reach SLURM later
            may_live = listed is None or (ticket.id is None and not (folder / "dismissed").exists())
            if listed is not None:
                info = listed.find(ticket.name, ticket.id)
                may_live |= info is not None and info.state not in ENDED
            if may_live or any(folder.glob("claimed/*")):
                self.jobs[ticket.name] = self._slurm.follow(folder, ticket)

    def has_room(self, ahead: bool) -> bool:
        # because no driver will be there to queue the other trials
        if ahead and self._settings.detach:
            return True
        trials_per_worker = self._settings.slots + (_AHEAD if ahead else 0)
        return len(self.trials) < self._settings.array_parallelism * trials_per_worker

    def submit(self, job: Job, settings: SlurmLauncherConf) -> bool:
        return self.has_room(ahead=True) and self._slurm.try_submit(
            job, lambda: self._queue(job, settings)
        )

    def _queue(self, job: Job, settings: SlurmLauncherConf) -> bool:
        trial = PooledTrial(job, pool_of(self._folder, settings, job.request.trials_per_gpu))
        make_private(self._folder)
        make_private(trial.file.parent)
        write_whole(trial.file, pack(SentJob.of(job)), sync=False)
        self.trials[job.number] = trial
        return True

    def adopt(self, job: Job) -> bool:
        """Take over the attempt. Return False if no queue of any settings and no worker has it."""
        token = token_of(job.number, job.attempt)
        # in this order, because files move so
        for pattern in (f"*/queue/{token}", f"*/*/claimed/{token}"):
            for file in self._folder.glob(pattern):
                pool = self._folder / file.relative_to(self._folder).parts[0]
                self.trials[job.number] = PooledTrial(job, pool)
                return True
        return False

    def cancel_pending(self) -> None:
        self._remove_queued(self.trials.values(), Outcome(State.CANCELLED, "it was cancelled"))

    def _remove_queued(self, trials: Iterable[PooledTrial], end: Outcome) -> None:
        """End the trials that no worker has claimed."""
        for trial in list(trials):
            # FileNotFoundError if a worker was faster
            with self._slurm.retrying(f"trial {trial.job.number}"), suppress(FileNotFoundError):
                trial.file.unlink()
                self._end(trial, end)

    def close(self, keep: bool) -> None:
        with self._slurm.retrying("new workers"):
            # because queued trials need workers
            while keep and not self._adjust_workers(at_once=True) and not self._slurm.busy:
                time.sleep(_TICK_S)
        if keep:
            served = {worker.folder.parent for worker in self.jobs.values()}
            reason = "no worker was submitted for it, because SLURM accepts no further job now"
            unserved = [trial for trial in self.trials.values() if trial.pool not in served]
            self._remove_queued(unserved, Outcome(State.CANCELLED, reason))
        elif self.trials:
            self.cancel_pending()
            self._slurm.cancel(list(self.jobs.values()))
        else:
            for worker in self.jobs.values():
                with self._slurm.retrying(worker.name):
                    _dismiss(worker.folder)
            self._slurm.cancel(list(self.jobs.values()), only_pending=True)
        self.jobs.clear()
        self.trials.clear()

    def _end(self, trial: PooledTrial, end: Outcome) -> None:
        del self.trials[trial.job.number]
        self._slurm.report(trial.job.number, end)

    def observe(self) -> None:
        """Update all trials and workers; submit missing workers, and cancel surplus ones. Raises
        nothing."""
        with self._slurm.retrying("the queue of the workers"):
            self._update_trials()
        for worker in list(self.jobs.values()):
            with self._slurm.retrying(worker.name):
                self._update_worker(worker)
        with self._slurm.retrying("new workers"):
            self._adjust_workers()

    def _update_trials(self) -> None:
        # in this order, because files move so
        folders = list({trial.file.parent for trial in self.trials.values()})
        folders += [worker.folder / "claimed" for worker in self.jobs.values()]
        tokens = {file.name for folder in folders for file in folder.glob("*.job")}
        for number, trial in list(self.trials.items()):
            with self._slurm.retrying(f"trial {number}"):
                end = trial.check_end(trial.file.name in tokens)
                if end:
                    self._end(trial, end)

    def _update_worker(self, worker: FollowedJob) -> None:
        """End the trials of a worker that is over. If it never claimed a trial, count its failed
        start."""
        info = self._slurm.final_info(worker)
        pool = worker.folder.parent
        claimed = worker.folder / "claimed"
        has_started = claimed.exists()
        if has_started:
            self._failed_starts.pop(pool, None)
        if worker.state == "RUNNING":
            worker.cancel_at = None  # because it started before the cancellation
        if info is None:
            return

        end = self._end_trials(info, worker, claimed)
        _dismiss(worker.folder)  # because a lost worker may still be alive
        shutil.rmtree(claimed, ignore_errors=True)
        del self.jobs[worker.name]
        del self._slurm.jobs[worker.name]
        was_needed = worker.cancel_at is None and not worker.never_was
        if was_needed and not has_started and any(pool.glob("queue/*.job")):
            self._count_failed_start(pool, end)

    def _end_trials(self, info: JobInfo, worker: FollowedJob, claimed: Path) -> Outcome:
        """End the trials that a worker has claimed, and return the outcome of the worker."""
        of_pool = self._of_pool(worker.folder.parent)
        launcher = of_pool[0].job.config.hydra.launcher if of_pool else None
        end = outcome_of_job(info, worker.folder, launcher)
        jobs = [trial.job for trial in self.trials.values() if (claimed / trial.file.name).exists()]
        for number, outcome in outcomes_in_worker(info, end, jobs):
            self._end(self.trials[number], outcome)
        return end

    def _count_failed_start(self, pool: Path, end: Outcome) -> None:
        """Count a worker that ended before it claimed a trial. Refuse the trials of its pool if
        that is no accident."""
        if end.state is State.LOST:  # which is no fault of its request
            self._slurm.pause(f"a worker never started: {end.error}")
            return
        self._failed_starts[pool] += 1
        if end.request_refused or self._failed_starts[pool] >= _MAX_FAILED_STARTS:
            error = f"its workers never started: {end.error}"
            refusal = Outcome(State.REFUSED, error, request_refused=end.request_refused)
            self._remove_queued(self._of_pool(pool), refusal)

    def _of_pool(self, pool: Path) -> list[PooledTrial]:
        return [trial for trial in self.trials.values() if trial.pool == pool]

    def _adjust_workers(self, at_once: bool = False) -> bool:
        """Submit missing workers, cancel surplus pending ones. Return whether no worker is missing
        that may run now.

        Workers for trials of measured length start as few a minute as sites accept, or all
        `at_once`.
        """
        pools = {trial.pool for trial in self.trials.values()}
        pools |= {job.folder.parent for job in self.jobs.values()}
        are_enough = [self._adjust_pool(pool, at_once) for pool in pools]
        return all(are_enough)

    def _adjust_pool(self, pool: Path, at_once: bool) -> bool:
        """Submit or cancel workers of one pool. Return whether none is missing that may run now."""
        jobs = [trial.job for trial in self._of_pool(pool)]
        workers = [
            worker
            for worker in self.jobs.values()
            if worker.folder.parent == pool and worker.cancel_at is None
        ]
        missing = self._useful_count(jobs) - len(workers)
        if missing < 0:
            self._cancel_surplus(workers, -missing)
        if missing <= 0 or self._arrays.room <= 0:
            return True

        if not at_once and self._packed_s(jobs[0]) is not None:
            missing = min(missing, max(0, STARTS_PER_MIN - self._slurm.starts))
        if not self._slurm.may_send():
            return False
        return missing == 0 or not self._submit_workers(pool, jobs[0], missing)

    def _cancel_surplus(self, workers: list[FollowedJob], surplus: int) -> None:
        pending = [worker for worker in workers if worker.state == "PENDING"]
        if pending:
            self._slurm.cancel(pending[-surplus:], only_pending=True)

    def _useful_count(self, jobs: list[Job]) -> int:
        """Return how many workers the trials need: one for each; or, if they are packed by
        themselves, less than that.

        Then each of up to ten workers has work for two minutes, and each of more workers for
        `short_trial_min`.
        """
        if not jobs:
            return 0
        at_once = self._settings.trials_at_once * jobs[0].request.trials_per_gpu
        useful = math.ceil(len(jobs) / at_once)
        median_s = self._packed_s(jobs[0])
        if median_s is None:
            return useful
        few = min(STARTS_PER_MIN, math.ceil(useful * median_s / _SHORTEST_S))
        long = math.ceil(useful * median_s / max(1.0, self._settings.short_s))
        return min(useful, max(1, few, long))

    def _packed_s(self, job: Job) -> float | None:
        """Return how long such trials take, if this decides how many workers they need."""
        return self._median_s(job) if self._settings.trials_per_job == "auto" else None

    def _submit_workers(self, pool: Path, job: Job, count: int) -> bool:
        """Submit workers for such trials, up to `count` as an array. Return False if the limits
        leave no room now."""
        settings = read(job.config.hydra.launcher, SlurmLauncherConf)
        # because a few workers may soon have run many trials of unknown length
        most = STARTS_PER_MIN if self._packed_s(job) is None else count
        room = self._settings.array_parallelism - len(self.jobs)
        count = self._arrays.size(settings, min(count, most, room))
        first = next_number(pool)
        folders = [pool / str(number) for number in range(first, first + count)]
        in_job = replace(settings, setup=[])  # because its lines may contain secrets
        typical_s = self._median_s(job) or 0.0
        sent: list[FollowedJob] = []
        try:
            for folder in folders:
                make_private(folder)
                write_call(folder, settings, run_worker, folder, in_job, typical_s)
            if folders:
                sent = self._arrays.send(pool.name, folders, settings, settings.slots)
            self.jobs |= {worker.name: worker for worker in sent}
        except RefusedError as error:
            self._remove_queued(self._of_pool(pool), error.outcome)
        finally:
            for folder in folders[len(sent) :]:
                shutil.rmtree(folder, ignore_errors=True)
        return count > 0


def _dismiss(worker: Path) -> None:
    """Request that a worker ends when it is idle."""
    write_whole(worker / "dismissed", "", sync=False)
