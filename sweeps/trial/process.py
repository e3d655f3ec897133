"""Runs one trial in its own process: Hydra's job around the task function, and the attempt's end after it."""

import time
import traceback
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import cloudpickle
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals

from sweeps.files import write_whole
from sweeps.trial import Diverged, MissingObjective, Trial, as_numbers, ranks, read_objective, running
from sweeps.trial.folder import SYSTEM_METRICS
from sweeps.trial.job import Job, Objective, Outcome, State, World
from sweeps.trial.memory import OUT_OF_MEMORY
from sweeps.trial.system_metrics import sampling

_HEARD = {State.TIMED_OUT: "it was warned of its time limit", State.CANCELLED: "it was told to stop"}
WANTED = "a trial returns its objective: a number, one number for each direction, or a dict of metrics"


def run_trial(job: Job, began: float, world: World | None = None) -> Outcome:
    """Run the job and return its end, which the chief has written, or this rank in its own file if it went wrong alone.
    What the task function raises ends in there. The trial had its slot, or its SLURM job, at `began` (seconds since
    1970). A `world` of several ranks has no ports yet.
    """
    world = world or World()
    place = job.attempt_folder
    if world.is_chief:
        place.begin(began)
    task_function, hydra_context, singletons = cloudpickle.loads(job.app)
    setup_globals()
    singletons["instances"][Plugins] = Plugins.instance()  # else Hydra looks for all plugins once more
    Singleton.set_state(singletons)
    if world.size > 1:
        try:
            world = ranks.meet(place, world)
        except ranks.RankLost as error:
            return _parted(job, world, end_of_error(error))
    running[place.path] = Trial(job.folder, job.attempt, job.objective, world)
    if not world.is_chief:
        job.config.hydra.output_subdir = None  # .hydra/ has one writer
    started = time.time()
    samples = SYSTEM_METRICS if world.is_chief else f"system_metrics.{world.rank}.jsonl"
    with sampling(job.folder, name=samples) if world.local_rank == 0 else nullcontext():
        try:
            where = ("hydra.sweep.dir", "hydra.sweep.subdir")
            returned = run_job(task_function, job.config, *where, hydra_context, configure_logging=world.is_chief)
        except SystemExit as error:
            returned = JobReturn(list(job.config.hydra.overrides.task), status=JobStatus.FAILED, _return_value=error)
    # What ranks above the chief return, nobody judges: many return nothing.
    end = end_of(returned, job.objective if world.is_chief else None, place.heard())
    end.seconds.update(starting=started - began, training=time.time() - started)
    if not world.is_chief or end.state is State.LOST:  # what took its place away, the launcher knows
        return _parted(job, world, end)
    if job.job_return is not None:
        write_whole(job.job_return, cloudpickle.dumps(returned), sync=False)
    return place.close(end)


def _parted(job: Job, world: World, end: Outcome) -> Outcome:
    if world.size > 1:
        ranks.part(job.attempt_folder, world, end)
    return end


def end_of(returned: JobReturn, objective: Objective | None, heard: State | None) -> Outcome:
    """How Hydra's job ended; `heard` is why the task function was told to stop, if it was."""
    if returned.status is JobStatus.COMPLETED:
        return end_of_return(returned.return_value, objective, heard)
    error = returned._return_value  # reading .return_value would raise it
    if isinstance(error, SystemExit) and not error.code:
        return end_of_return(None, objective, heard)
    with suppress(OSError):  # the log is on a full disk too: what the trial failed of is still told
        traceback.print_exception(error)
    return end_of_error(error)


def end_of_return(returned: Any, objective: Objective | None, heard: State | None) -> Outcome:
    """The end of a trial whose task function returned."""
    state = heard or State.COMPLETED
    end = Outcome(state, _HEARD.get(state, ""))
    if objective is None or (returned is None and not objective.needed):
        return end
    try:
        metrics = read_metrics(returned, objective)
        return replace(end, metrics=metrics, objective=read_objective(metrics, objective))
    except MissingObjective as error:
        return end if heard else end_of_error(error)  # what was cut short, nobody judges by what it has not
    except (Diverged, TypeError) as error:
        return end_of_error(error)


def end_of_error(error: BaseException) -> Outcome:
    """The end of a trial whose task function raised."""
    if isinstance(error, Diverged):
        return Outcome(State.DIVERGED, str(error))
    if isinstance(error, ranks.RankLost):
        return Outcome(State.LOST, str(error))
    if isinstance(error, MissingObjective):
        return Outcome(State.FAILED, str(error), misfit=True)
    if isinstance(error, SystemExit):
        return Outcome(State.FAILED, f"it ended itself: sys.exit({error.code!r})")
    if isinstance(error, KeyboardInterrupt):
        return Outcome(State.CANCELLED, "it was interrupted")
    names = {cls.__name__ for cls in type(error).__mro__}
    state = State.OUT_OF_MEMORY if names & OUT_OF_MEMORY else State.FAILED
    hints = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
    return Outcome(state, f"{type(error).__name__}: {error}{hints}")


def read_metrics(returned: Any, objective: Objective) -> dict[str, float]:
    """The metrics in what a task function returned: a number for each objective, or a dict of metrics. Raises
    MissingObjective if it returned nothing or too few numbers, and TypeError if one is no number.
    """
    if returned is None:
        raise MissingObjective(f"the task returned nothing; {WANTED}")
    if isinstance(returned, dict):
        return as_numbers(returned)
    values, names = returned if isinstance(returned, list | tuple) else [returned], objective.names
    if len(values) != len(names):
        raise MissingObjective(
            f"the task returned {len(values)} numbers for {len(names)} objectives ({', '.join(names)}); "
            "give hydra.sweeper.direction one entry for each"
        )
    return as_numbers(dict(zip(names, values, strict=True)))
