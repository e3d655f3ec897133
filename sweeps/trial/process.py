"""Runs one trial in its own process: Hydra's job around the task function, and the attempt's end after it."""

import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cloudpickle
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from omegaconf import open_dict

from sweeps.files import write_whole
from sweeps.trial import Diverged, MissingObjective, Trial, as_numbers, check_finite, enter, lacks
from sweeps.trial.job import End, Job, Objective, State, World
from sweeps.trial.system_metrics import sampling

_OUT_OF_MEMORY = {"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"}
"""Names, not classes: the frameworks that raise them must not be imported here."""

_HEARD = {
    State.TIMED_OUT: "it was warned of its time limit, and saved its state",
    State.CANCELLED: "it was told to stop",
}
WANTED = "a trial returns its objective: a number, one number for each direction, or a dict of metrics"


def run_trial(job: Job, began: float, world: World | None = None) -> End:
    """Run the job and return its end, which the chief has written. What the task function raises ends in there.

    `began` is when the trial had its slot, or when its SLURM job began.
    """
    world = world or World()
    place = job.attempt_folder
    if world.is_chief:
        place.begin(began)
    task_function, hydra_context, singletons = cloudpickle.loads(job.app)
    setup_globals()
    singletons["instances"][Plugins] = Plugins.instance()  # else Hydra looks for all plugins once more
    Singleton.set_state(singletons)
    enter(Trial(job.folder, job.attempt, job.objective, world))
    if not world.is_chief:  # .hydra/ has one writer
        with open_dict(job.config):
            job.config.hydra.output_subdir = None
    started = time.time()
    with sampling(job.folder) if world.is_chief else nullcontext():
        try:
            returned = run_job(
                task_function=task_function,
                config=job.config,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
                hydra_context=hydra_context,
                configure_logging=world.is_chief,
            )
        except SystemExit as error:
            returned = JobReturn(status=JobStatus.FAILED, overrides=list(job.config.hydra.overrides.task))
            returned.return_value = error
    end = end_of(returned, job.objective, place.heard())
    end.seconds.update(starting=started - began, training=time.time() - started)
    if not world.is_chief or end.state is State.LOST:  # what took its place away, the launcher knows
        return end
    if job.job_return is not None:
        _leave(returned, job.job_return)
    return place.close(end)


def end_of(returned: JobReturn, objective: Objective | None, heard: State | None) -> End:
    """How Hydra's job ended; `heard` is why the task function was told to stop, if it was."""
    if returned.status is JobStatus.COMPLETED:
        return end_of_return(returned.return_value, objective, heard)
    error = returned._return_value  # reading .return_value would raise it
    if isinstance(error, SystemExit) and not error.code:
        return end_of_return(None, objective, heard)
    traceback.print_exception(error)
    return end_of_error(error)


def end_of_return(returned: Any, objective: Objective | None, heard: State | None) -> End:
    """The end of a trial whose task function returned."""
    state = heard or State.COMPLETED
    if objective is None or (returned is None and not objective.needed and not objective.named):
        return End(state, _HEARD.get(state, ""))
    try:
        metrics, values = read_objective(returned, objective)
        check_finite(dict(zip(objective.names, values, strict=False)))
    except (Diverged, ValueError, TypeError) as error:
        if heard and isinstance(error, MissingObjective):  # it was cut short: nobody judges it by what it has not
            return End(state, _HEARD.get(state, ""))
        return end_of_error(error)
    return End(state, _HEARD.get(state, ""), values, metrics)


def end_of_error(error: BaseException) -> End:
    """The end of a trial whose task function raised."""
    if isinstance(error, Diverged):
        return End(State.DIVERGED, str(error))
    if isinstance(error, MissingObjective):
        return End(State.FAILED, str(error), misfit=True)
    if isinstance(error, SystemExit):
        return End(State.FAILED, f"it ended itself: sys.exit({error.code!r})")
    if isinstance(error, KeyboardInterrupt):
        return End(State.CANCELLED, "it was interrupted")
    names = {cls.__name__ for cls in type(error).__mro__}
    state = State.OUT_OF_MEMORY if names & _OUT_OF_MEMORY else State.FAILED
    return End(state, f"{type(error).__name__}: {error}")


def read_objective(returned: Any, objective: Objective) -> tuple[dict[str, float], list[float]]:
    """The metrics and the objectives in what a task function returned: a number, several, or a dict of metrics.

    Raises:
        MissingObjective: it returned nothing, lacks an objective, or has not as many numbers as there are objectives.
        TypeError: it is nothing of the kind.
    """
    names = objective.names
    if isinstance(returned, dict):
        metrics = as_numbers(returned)
        if not objective.needed and not objective.named and not set(names) <= set(metrics):
            return metrics, []
        if lacking := lacks(names, metrics, "returned"):
            raise MissingObjective(lacking)
        return metrics, [metrics[name] for name in names]
    values = list(returned) if isinstance(returned, list | tuple) else [returned]
    if returned is None:
        raise MissingObjective(f"the task returned nothing; {WANTED}")
    if len(values) != len(names):
        raise MissingObjective(
            f"the task returned {len(values)} numbers for {len(names)} objectives ({', '.join(names)}); "
            "give hydra.sweeper.direction one entry for each"
        )
    metrics = as_numbers(dict(zip(names, values, strict=True)))
    return metrics, list(metrics.values())


def _leave(returned: JobReturn, path: Path) -> None:
    try:
        data = cloudpickle.dumps(returned)
    except Exception as error:  # whatever a foreign value raises while it is pickled
        returned.status = JobStatus.FAILED
        returned.return_value = RuntimeError(f"what the task returned cannot be sent to the driver: {error!r}")
        data = cloudpickle.dumps(returned)
    write_whole(path, data)
