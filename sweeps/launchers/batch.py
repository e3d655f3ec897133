"""Between the two ways to run trials: Hydra's `launch()`, a batch that waits for all, and our `TrialLauncher`."""

import logging
import pickle
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.files import read_own
from sweeps.launchers.contract import TrialLauncher, pack_app
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Job, Outcome, Request
from sweeps.trial.process import end_of, end_of_error

log = logging.getLogger(__name__)


def launch(
    trials: TrialLauncher,
    job_overrides: Sequence[Sequence[str]],
    initial_job_idx: int,
    config: DictConfig,
    hydra_context: HydraContext,
    task_function: TaskFunction,
) -> list[JobReturn]:
    """Hydra's `Launcher.launch` on top of one of our launchers, for a sweeper that is not ours."""
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    app = pack_app(task_function, hydra_context)
    jobs: dict[int, Job] = {}
    returns: dict[int, JobReturn] = {}
    study = Path(config.hydra.sweep.dir).absolute()
    study.mkdir(parents=True, exist_ok=True)
    trials.open()
    # Where other nodes see it too; a folder of ours alone (0700).
    with tempfile.TemporaryDirectory(prefix=".returns", dir=study) as private:
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            composed = hydra_context.config_loader.load_sweep_config(config, list(overrides))
            composed.hydra.job.update(id=f"{composed.hydra.job.name}_{number}", num=number)
            folder, wanted = TrialFolder(study / str(composed.hydra.sweep.subdir)), trials.request(composed)
            attempt, left = folder.new_attempt().number, Path(private, str(number))
            jobs[number] = Job(study.name, number, attempt, composed, wanted, folder, app, job_return=left)
        log.info("Launching %d jobs in %s", len(jobs), study)
        waiting = list(jobs.values())
        while len(returns) < len(jobs):
            while waiting and trials.submit(waiting[0]):
                waiting.pop(0)
            for number, said in trials.poll(timeout_s=1.0):
                end = jobs[number].attempt_folder.close(said)
                returns[number] = _read_return(jobs[number], end)
                log.info(
                    "\t#%d : %s   %s %s",
                    number,
                    " ".join(job_overrides[number - initial_job_idx]),
                    end.state,
                    end.error,
                )
    return [returns[number] for number in sorted(returns)]


def _read_return(job: Job, end: Outcome) -> JobReturn:
    """What the trial left for us in our own private folder, or a failure in Hydra's words."""
    if job.job_return and job.job_return.exists():
        returned: JobReturn = pickle.loads(read_own(job.job_return))  # noqa: S301
        return returned
    failed = JobReturn(status=JobStatus.FAILED, overrides=list(job.config.hydra.overrides.task))
    log = job.attempt_folder.log
    where = f". Its log: {log}" if log.exists() else ""
    failed.return_value = RuntimeError(f"trial {job.number} {end.state}: {end.error}{where}")
    return failed


class BatchTrials(TrialLauncher):
    """Somebody else's launcher, as our loop sees it: batches of `size` trials, each as slow as its slowest."""

    def __init__(self, launcher: Launcher, size: int) -> None:
        self._launcher = launcher
        self._size = size
        self._batch: list[Job] = []

    def request(self, config: DictConfig) -> Request:
        """By the names of hydra-submitit-launcher; only the launcher itself could refuse it."""
        wanted = config.hydra.launcher
        nodes, gpus = int(wanted.get("nodes") or 1), int(wanted.get("gpus_per_node") or 0)
        return Request(gpus=nodes * gpus, timeout_min=wanted.get("timeout_min"), nodes=nodes)

    def has_room(self, ahead: bool = False) -> bool:
        return len(self._batch) < self._size

    def submit(self, job: Job) -> bool:
        if not self.has_room() or (self._batch and job.number != self._batch[-1].number + 1):  # Hydra counts on
            return False
        self._batch.append(job)
        return True

    def adopt(self, job: Job) -> bool:
        """A batch ends with its driver."""
        return False

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        if not self._batch or not timeout_s:  # who has no time only looks: it may still fill the batch
            time.sleep(timeout_s)
            return []
        batch, self._batch = self._batch, []
        for job in batch:
            with suppress(OSError):  # a disk that is full is told of by the trial itself
                job.attempt_folder.begin(time.time())
        overrides = [list(job.config.hydra.overrides.task) for job in batch]
        try:
            returns = self._launcher.launch(overrides, initial_job_idx=batch[0].number)
        except (Exception, SystemExit) as error:  # some raise what a trial raised, and lose the batch
            return [(job.number, end_of_error(error)) for job in batch]
        pairs = zip(batch, returns, strict=True)
        return [(job.number, end_of(returned, job.objective, job.attempt_folder.heard())) for job, returned in pairs]

    # A batch cannot be interrupted, and nothing outlives it.
    def open(self) -> None: ...

    def cancel_pending(self) -> None: ...

    def close(self, keep: bool = False) -> None: ...
