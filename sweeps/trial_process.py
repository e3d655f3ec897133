"""Runs one trial in its own process: Hydra's job around the task function, and result.json at the end."""

import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import cloudpickle
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals

from sweeps import outcome
from sweeps.launchers.contract import TrialJob
from sweeps.system_metrics import sampling
from sweeps.trial_folder import Result, note_beginning


def run_trial(job: TrialJob, began: float) -> None:
    """Run the job and write its result.json. What the task function raises ends in the result, not here.

    `began` is when the trial had its slot, or when its SLURM job began.
    """
    note_beginning(job.attempt, began)
    task_function, hydra_context, singletons = cloudpickle.loads(job.app)
    setup_globals()
    singletons["instances"][Plugins] = Plugins.instance()  # else Hydra looks for all plugins once more
    Singleton.set_state(singletons)
    started = time.time()
    with sampling(job.folder):
        returned = run_job(
            task_function=task_function,
            config=job.config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=hydra_context,
        )
    result = result_of(returned, job.objective)
    result.seconds = {"starting": started - began, "training": time.time() - started}
    job.folder.write_result(result)
    if job.job_return is not None:
        _leave(returned, job.job_return)


def result_of(returned: JobReturn, objectives: Sequence[str]) -> Result:
    """How Hydra's job ended."""
    if returned.status is JobStatus.COMPLETED:
        return outcome.of_return(returned.return_value, objectives)
    error = returned._return_value  # reading .return_value would raise it
    traceback.print_exception(error)
    return outcome.of_error(error)


def _leave(returned: JobReturn, path: Path) -> None:
    try:
        data = cloudpickle.dumps(returned)
    except Exception as error:  # whatever a foreign value raises while it is pickled
        returned.status = JobStatus.FAILED
        returned.return_value = RuntimeError(
            f"what the task returned cannot be sent to the driver: {error!r}"
        )
        data = cloudpickle.dumps(returned)
    aside = path.with_suffix(".part")
    aside.write_bytes(data)
    aside.replace(path)
