"""Adapters between Hydra's `Launcher.launch()`, which waits for a whole batch, and our
`TrialLauncher`."""

import logging
import os
import pickle
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.base.files import Lock, read_own
from sweeps.hydra.foreign_settings import adopt
from sweeps.hydra.parts import SUBDIR, hydra_config, set_output_dir, typed_words
from sweeps.launchers.contract import TrialLauncher, await_end
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Request
from sweeps.trial.run.app import PackedApp, pack_app
from sweeps.trial.run.process import outcome_of_error, outcome_of_job
from sweeps.trial.run.sent_job import Job
from sweeps.trial.times import now

log = logging.getLogger(__name__)


def launch(
    trials: TrialLauncher,
    job_overrides: Sequence[Sequence[str]],
    initial_job_idx: int,
    config: DictConfig,
    hydra_context: HydraContext,
    task_function: TaskFunction,
) -> list[JobReturn]:
    """Run a batch of trials for another library's sweeper, with the arguments of Hydra's
    `Launcher.launch`."""
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    app = pack_app(task_function, hydra_context)
    study = Path(config.hydra.sweep.dir).absolute()
    study.mkdir(parents=True, exist_ok=True)
    trials.open()
    # In the study, because other nodes must see the files; private (0700), because the files are
    # unpickled.
    with tempfile.TemporaryDirectory(prefix=".returns", dir=study) as private:
        jobs: dict[int, Job] = {}
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            composed = hydra_context.config_loader.load_sweep_config(config, list(overrides))
            job = _make_job(trials, study.name, number, composed, app)
            jobs[number] = replace(job, job_return=Path(private, str(number)))
        log.info("Launching %d jobs in %s", len(jobs), study)
        words = [" ".join(overrides) for overrides in job_overrides]
        return _run(trials, jobs, dict(enumerate(words, initial_job_idx)))


def _make_job(
    trials: TrialLauncher, study: str, number: int, composed: DictConfig, app: PackedApp
) -> Job:
    """Return the first attempt at a composed trial, in a new folder."""
    adopt(composed.hydra)
    composed.hydra.job.update(id=str(number), num=number)
    with hydra_config(composed.hydra):
        set_output_dir(composed)
        request = trials.request(composed)
    folder = TrialFolder(Path(composed.hydra.runtime.output_dir))
    attempt = folder.new_attempt().number
    return Job(study, number, attempt, composed, request, folder, app)


def _run(trials: TrialLauncher, jobs: dict[int, Job], words: dict[int, str]) -> list[JobReturn]:
    """Run the jobs, which have these overrides, and return what they returned, in the order of
    their numbers."""
    returns: dict[int, JobReturn] = {}
    waiting = deque(jobs.values())
    while len(returns) < len(jobs):
        while waiting and trials.submit(waiting[0]):
            waiting.popleft()
        for number, outcome in trials.poll(timeout_s=1.0):
            job = jobs[number]
            end = job.attempt_folder.close(outcome)
            returns[number] = _read_return(job, end)
            log.info("\t#%d : %s   %s %s", number, words[number], end.state, end.error)
    return [returns[number] for number in sorted(returns)]


def _read_return(job: Job, end: Outcome) -> JobReturn:
    """Return the trial's JobReturn from the private folder, or a failed JobReturn."""
    if job.job_return and job.job_return.exists():
        returned: JobReturn = pickle.loads(read_own(job.job_return))  # noqa: S301
        return returned
    failed = JobReturn(status=JobStatus.FAILED, overrides=typed_words(job.config.hydra, "task"))
    log = job.attempt_folder.log
    log_hint = f". Its log: {log}" if log.exists() else ""
    failed.return_value = RuntimeError(f"trial {job.number} {end.state}: {end.error}{log_hint}")
    return failed


_RANKS = ("SLURM_PROCID", "SUBMITIT_LOCAL_GLOBALID")
"""Variables with the number of a process among the processes of one trial: srun's and
submitit's."""


def run_locked(task_function: TaskFunction, config: DictConfig) -> Any:
    """Run a task function under another library's launcher, and hold the lock of its attempt.

    The lock shows the next driver that the attempt is alive, because such a process may outlive its
    driver. Raises RuntimeError if a driver ended the attempt before.
    """
    attempt = TrialFolder(Path(HydraConfig.get().runtime.output_dir)).newest()
    if attempt is None:
        return task_function(config)
    if attempt.is_over:
        raise RuntimeError(f"{attempt.path} ended before this process started")
    rank = next((os.environ[name] for name in _RANKS if os.environ.get(name, "0") != "0"), "")
    lock = Lock(attempt.path / f"alive{rank}", beats=True)
    try:
        return task_function(config)
    finally:
        lock.release()


def _overrides(hydra: DictConfig) -> list[str]:
    """Return the overrides from which a foreign launcher composes a trial, with those of Hydra that
    the driver's own configuration lacks, such as a changed folder."""
    driver: Any = HydraConfig.get() if HydraConfig.initialized() else None
    shared = typed_words(driver, "hydra") if driver else []
    own = [word for word in typed_words(hydra, "hydra") if word not in shared]
    folders = [word for word in own if word.startswith(f"{SUBDIR}=")]
    others = [word for word in own if word not in folders]
    return [*typed_words(hydra, "task"), *others, *folders[-1:]]


class BatchTrials(TrialLauncher):
    """Another library's launcher behind our interface: batches of `size` trials, each as slow as
    its slowest trial."""

    def __init__(self, launcher: Launcher, size: int) -> None:
        self.name = f"{type(launcher).__module__}.{type(launcher).__qualname__}"
        self._launcher = launcher
        self._size = size
        self._batch: list[Job] = []

    def request(self, config: DictConfig) -> Request:
        """Return the resources by the setting names of hydra-submitit-launcher."""
        settings = config.hydra.launcher
        nodes = int(settings.get("nodes") or 1)
        gpus = int(settings.get("gpus_per_node") or 0)
        return Request(gpus=nodes * gpus, timeout_min=settings.get("timeout_min"), nodes=nodes)

    def has_room(self, ahead: bool = False) -> bool:
        return len(self._batch) < self._size

    def submit(self, job: Job) -> bool:
        # because launch() numbers consecutively
        is_next = not self._batch or job.number == self._batch[-1].number + 1
        if not (self.has_room() and is_next):
            return False
        self._batch.append(job)
        return True

    def adopt(self, job: Job) -> bool:
        await_end(job.attempt_folder)
        return False

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        if not self._batch or not timeout_s:  # because the loop may still fill the batch
            time.sleep(timeout_s)
            return []
        batch, self._batch = self._batch, []
        for job in batch:
            with suppress(OSError):  # because the trial itself reports a full disk
                job.attempt_folder.begin(now())
        overrides = [_overrides(job.config.hydra) for job in batch]
        try:
            returns = self._launcher.launch(overrides, initial_job_idx=batch[0].number)
        except (Exception, SystemExit) as error:
            # because some launchers raise a trial's error and lose the batch
            return [(job.number, outcome_of_error(error)) for job in batch]
        return [
            (job.number, outcome_of_job(returned, job.objective, job.attempt_folder.stop_reason()))
            for job, returned in zip(batch, returns, strict=True)
        ]

    # Empty, because a batch cannot be interrupted and ends with its driver.
    def open(self) -> None: ...
    def cancel_pending(self) -> None: ...
    def close(self, keep: bool = False) -> None: ...
