"""Between the two ways to run trials: Hydra's `launch()`, a batch that waits for all, and our `TrialLauncher`."""

import pickle
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from sweeps.launchers.contract import Exit, TrialJob, TrialLauncher, pack_app
from sweeps.trial_folder import State, TrialFolder, note_beginning
from sweeps.trial_process import result_of


def launch(
    trials: TrialLauncher,
    config: DictConfig,
    hydra_context: HydraContext,
    task_function: TaskFunction,
    job_overrides: Sequence[Sequence[str]],
    initial_job_idx: int,
) -> list[JobReturn]:
    """Hydra's `Launcher.launch` on top of one of our launchers, for a sweeper that is not ours."""
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    app = pack_app(task_function, hydra_context)
    trials.open()
    waiting: list[TrialJob] = []
    returns: dict[int, JobReturn] = {}
    sweep_dir = Path(str(config.hydra.sweep.dir)).absolute()
    sweep_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=".returns", dir=sweep_dir
    ) as private:  # where other nodes see it too
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            composed = hydra_context.config_loader.load_sweep_config(config, list(overrides))
            with open_dict(composed):
                composed.hydra.job.id = f"{composed.hydra.job.name}_{number}"
                composed.hydra.job.num = number
            folder = TrialFolder(
                Path(str(composed.hydra.sweep.dir)).absolute() / str(composed.hydra.sweep.subdir)
            )
            returned = Path(private) / str(number)
            job = TrialJob(
                number,
                folder.path.parent.name,
                composed,
                app,
                folder,
                folder.new_attempt(),
                job_return=returned,
            )
            waiting.append(job)
        jobs = {job.number: job for job in waiting}
        while len(returns) < len(jobs):
            while waiting and trials.submit(waiting[0]):
                waiting.pop(0)
            for over in trials.poll(timeout_s=1.0):
                returns[over.number] = _read_return(jobs[over.number], over)
    return [returns[number] for number in sorted(returns)]


def _read_return(job: TrialJob, over: Exit) -> JobReturn:
    """What the trial left for us in our own private folder, or a failure in Hydra's words."""
    assert job.job_return is not None
    if job.job_return.exists():
        returned: JobReturn = pickle.loads(job.job_return.read_bytes())  # noqa: S301 - only our processes write there
        return returned
    failed = JobReturn(status=JobStatus.FAILED, overrides=list(job.config.hydra.overrides.task))
    failed.return_value = RuntimeError(
        f"trial {job.number} {over.state}: {over.error}. Its log: {job.attempt / 'log'}"
    )
    return failed


class BatchTrials:
    """Somebody else's launcher, as our loop sees it: batches of `size` trials, each as slow as its slowest."""

    def __init__(self, launcher: Launcher, size: int, objective: tuple[str, ...]) -> None:
        self._launcher = launcher
        self._size = size
        self._objective = objective
        self._batch: list[TrialJob] = []

    def check(self, config: DictConfig) -> None:
        """Only the launcher itself could tell."""

    def open(self) -> None:
        """Nothing to prepare."""

    def has_room(self, ahead: bool = False) -> bool:
        return len(self._batch) < self._size

    def submit(self, job: TrialJob) -> bool:
        if not self.has_room():
            return False
        self._batch.append(job)
        return True

    def adopt(self, job: TrialJob) -> bool:
        """A batch ends with its driver."""
        return False

    def poll(self, timeout_s: float) -> list[Exit]:
        batch, self._batch = self._batch, []
        for job in batch:
            note_beginning(job.attempt, time.time())
        overrides = [list(job.config.hydra.overrides.task) for job in batch]
        try:
            returns = self._launcher.launch(overrides, initial_job_idx=batch[0].number) if batch else []
        except Exception as error:  # some launchers raise what a trial raised, and lose the batch
            return [Exit(job.number, State.FAILED, f"{type(error).__name__}: {error}") for job in batch]
        for job, returned in zip(batch, returns, strict=True):
            job.folder.write_result(result_of(returned, self._objective))
        return [Exit(job.number) for job in batch]

    def notes(self) -> list[str]:
        return []

    def cancel(self, number: int) -> None:
        """A batch cannot be interrupted."""

    def withdraw(self) -> None:
        """A batch is launched as a whole."""

    def close(self, keep: bool = False) -> None:
        """Nothing outlives launch()."""
