"""Runs one trial in its own process: Hydra's job around the task function, and result.json at the end."""

import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals

from sweeps.launchers.contract import TrialJob
from sweeps.system_metrics import sampling
from sweeps import trial
from sweeps.trial import Diverged, check_finite
from sweeps.trial_folder import Result, State

_OUT_OF_MEMORY = {"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"}
"""Names, not classes: the frameworks that raise them must not be imported here."""


def run_trial(job: TrialJob, submitted: float) -> None:
    """Run the job and write its result.json. What the task function raises ends in the result, not here."""
    started = time.time()
    task_function, hydra_context, singletons = cloudpickle.loads(job.app)  # noqa: S301 - from the driver itself
    setup_globals()
    Singleton.set_state(singletons)
    with sampling(job.folder):
        returned = run_job(
            task_function=task_function,
            config=job.config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=hydra_context,
        )
    result = result_of(returned, job.objective)
    result.seconds = {"starting": started - submitted, "running": time.time() - started}
    job.folder.write_result(result)
    if job.job_return is not None:
        _leave(returned, job.job_return)


def result_of(returned: JobReturn, names: Sequence[str]) -> Result:
    """The end of a trial whose task function returned or raised."""
    if returned.status is JobStatus.FAILED:
        error = returned._return_value  # reading .return_value would raise it
        traceback.print_exception(error)
        return Result(_state_of(error), error=f"{type(error).__name__}: {error}")
    try:
        metrics, objective = read_objective(returned.return_value, names)
        check_finite(dict(zip(names, objective, strict=True)))
    except (Diverged, ValueError, TypeError) as error:
        print(f"{type(error).__name__}: {error}")
        return Result(_state_of(error), error=str(error))
    return Result(trial.stop_heard or State.COMPLETED, objective, metrics)


def _state_of(error: BaseException) -> State:
    if isinstance(error, Diverged):
        return State.DIVERGED
    names = {cls.__name__ for cls in type(error).__mro__}
    return State.OUT_OF_MEMORY if names & _OUT_OF_MEMORY else State.FAILED


def read_objective(returned: Any, names: Sequence[str]) -> tuple[dict[str, float], list[float]]:
    """The metrics and the objectives in what a task function returned: a number, several, or a dict of metrics.

    Raises:
        ValueError: an objective is missing, or there are not as many numbers as objectives.
        TypeError: it is nothing of the kind.
    """
    if isinstance(returned, dict):
        metrics = {str(name): float(value) for name, value in returned.items()}
        missing = [name for name in names if name not in metrics]
        if missing:
            known = ", ".join(sorted(metrics))
            raise ValueError(
                f"the task returned no '{missing[0]}', which is the objective; it returned {known}. "
                f"Choose one of them: hydra.sweeper.objective={next(iter(metrics), '...')}"
            )
        return metrics, [metrics[name] for name in names]
    values = list(returned) if isinstance(returned, list | tuple) else [returned]
    if any(isinstance(value, str) or not hasattr(value, "__float__") for value in values):
        raise TypeError(
            f"the task returned {type(returned).__name__}; "
            "a trial returns its objective: a number, one number for each direction, or a dict of metrics"
        )
    if len(values) != len(names):
        raise ValueError(
            f"the task returned {len(values)} numbers for {len(names)} objectives ({', '.join(names)}); "
            "give hydra.sweeper.direction one entry for each"
        )
    objective = [float(value) for value in values]
    return dict(zip(names, objective, strict=True)), objective


def _leave(returned: JobReturn, path: Path) -> None:
    try:
        data = cloudpickle.dumps(returned)
    except Exception as error:  # whatever a foreign value raises while it is pickled
        returned.status = JobStatus.FAILED
        returned.return_value = RuntimeError(f"what the task returned cannot be sent to the driver: {error!r}")
        data = cloudpickle.dumps(returned)
    aside = path.with_suffix(".part")
    aside.write_bytes(data)
    aside.replace(path)


