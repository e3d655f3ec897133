"""One trial in its own process: Hydra's job around the task function, then the attempt's
outcome."""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job
from hydra.types import HydraContext, TaskFunction

from sweeps.base.files import NO_ROOM, write_whole
from sweeps.base.secrets import without_secrets
from sweeps.hydra.parts import typed_words
from sweeps.trial import (
    Diverged,
    MissingObjective,
    Trial,
    active_trials,
    as_numbers,
    ranks,
    read_objective,
)
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import Objective, Outcome, State, World
from sweeps.trial.machine import facts
from sweeps.trial.machine.gpus import limit_jax, share
from sweeps.trial.machine.memory import OUT_OF_MEMORY
from sweeps.trial.machine.system_metrics import sampling
from sweeps.trial.metrics import METRICS, SYSTEM_METRICS
from sweeps.trial.packing import pack
from sweeps.trial.run.app import explain_missing
from sweeps.trial.run.sent_job import Job, SentJob
from sweeps.trial.times import now

_STOP_ERRORS = {
    State.TIMED_OUT: "it was near its time limit",
    State.CANCELLED: "a stop was requested",
}
_MOST_NUMBERS = 20  # in a list that is recorded as metrics: more are no result but data
EXPECTED_RETURN = (
    "a trial returns its objective: a number, one number for each direction, or a dict of metrics"
)


def run_trial(sent: SentJob, began: float, world: World | None = None) -> Outcome:
    """Run the job and return its outcome, also if the task function raises.

    The chief has written the outcome; a rank that failed alone has written its own file. The slot
    or the SLURM job started at `began` (seconds since 1970). A `world` of several ranks has no
    ports yet.
    """
    _flush_each_line()
    world = world or World()
    attempt = sent.attempt_folder
    if world.is_chief:
        attempt.begin(began)
    try:
        job = sent.unpack()
        task_function, hydra_context = job.app.restore(job.config)
        if world.size > 1:
            world = ranks.exchange_addresses(attempt, world)
    except ranks.RankLost as error:
        return ranks.leave(attempt, world, outcome_of_error(error))
    except (Exception, SystemExit) as error:  # of the program
        return _end_early(attempt, world, error)
    active_trials[attempt.path] = Trial(job.folder, job.attempt, job.objective, world)
    limit_jax()
    started = now()
    returned = _run_job(job, task_function, hydra_context, world)
    end = _read_outcome(returned, job, world)
    end.seconds.update(starting=max(0.0, started - began), training=now() - started)
    if not world.is_chief or end.state is State.LOST:  # because the launcher knows who preempted it
        return ranks.leave(attempt, world, end)
    if job.job_return is not None:
        write_whole(job.job_return, pack(returned), sync=False)
    return attempt.close(replace(end, node=os.environ.get("SLURMD_NODENAME", "")))


def _flush_each_line() -> None:
    """Write each line at once, because several ranks write to one log."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def _run_job(
    job: Job, task_function: TaskFunction, hydra_context: HydraContext, world: World
) -> JobReturn:
    """Run the task function as Hydra's launcher does, and record the use of resources."""
    config = job.config
    samples = SYSTEM_METRICS if world.is_chief else f"system_metrics.{world.rank}.jsonl"
    with ExitStack() as recorders:
        if world.local_rank == 0:
            recorders.enter_context(sampling(job.folder, name=samples))
        if world.is_chief:
            recorders.enter_context(facts.recording(job.attempt_folder))
            # as Hydra's launcher does: it lasts where hydra.job_logging configures nothing
            configure_log(config.hydra.hydra_logging, config.hydra.verbose)
        else:
            config.hydra.output_subdir = None  # because .hydra/ has one writer
        keys = ("hydra.sweep.dir", "hydra.sweep.subdir")
        try:
            return run_job(
                task_function, config, *keys, hydra_context, configure_logging=world.is_chief
            )
        except SystemExit as error:
            words = typed_words(config.hydra, "task")
            return JobReturn(words, status=JobStatus.FAILED, _return_value=error)


def _read_outcome(returned: JobReturn, job: Job, world: World) -> Outcome:
    """Return the outcome of this rank; if a resumed attempt failed before its first report, with a
    possible cause."""
    # Only the chief's return value counts, because many other ranks return nothing.
    objective = job.objective if world.is_chief else None
    end = outcome_of_job(returned, objective, job.attempt_folder.stop_reason())
    # Here, because a worker may give the trial a larger part of its GPU than it was queued with.
    if share() < 1:
        end = replace(end, gpus=share())
    last_step = active_trials[job.attempt_folder.path].unreported_since
    if end.state is not State.FAILED or last_step is None:
        return end
    hint = (
        f"an earlier attempt reported step {last_step}, this one reported nothing. "
        "If nothing was left to train, return trial.last_report"
    )
    return replace(end, error=f"{end.error}; {hint}")


def _end_early(attempt: AttemptFolder, world: World, error: BaseException) -> Outcome:
    """Print the error that ends the trial before its task function starts. Return the outcome,
    which is written."""
    _print_traceback(error)
    end = outcome_of_error(error)
    return attempt.close(end) if world.is_chief else ranks.leave(attempt, world, end)


def _print_traceback(error: BaseException) -> None:
    # because the log may be on a full disk, and the outcome must still have the error
    with suppress(OSError):
        print(without_secrets("".join(traceback.format_exception(error))), end="", file=sys.stderr)


def outcome_of_job(
    returned: JobReturn, objective: Objective | None, stop_reason: State | None
) -> Outcome:
    """Return the outcome of Hydra's job; `stop_reason` is why the task function was asked to stop,
    if it was."""
    if returned.status is JobStatus.COMPLETED:
        return outcome_of_return(returned.return_value, objective, stop_reason)
    error = returned._return_value  # because .return_value would raise the error
    if isinstance(error, SystemExit) and not error.code:
        return outcome_of_return(None, objective, stop_reason)
    explain_missing(error)
    _print_traceback(error)
    return outcome_of_error(error)


def outcome_of_return(
    returned: Any, objective: Objective | None, stop_reason: State | None
) -> Outcome:
    """Return the outcome of a trial whose task function returned."""
    state = stop_reason or State.COMPLETED
    end = Outcome(state, _STOP_ERRORS.get(state, ""))
    if objective is not None and not objective.needed:
        returned = _metrics_among(returned, objective.names)
    if objective is None or (returned is None and not objective.needed):
        return end
    try:
        metrics = read_metrics(returned, objective)
        return replace(end, metrics=metrics, objective=read_objective(metrics, objective))
    except MissingObjective as error:
        # A stopped trial may lack its objective, because it ended before its last epoch.
        return end if stop_reason else outcome_of_error(error)
    except (Diverged, TypeError) as error:
        return outcome_of_error(error)


def _metrics_among(returned: Any, names: Sequence[str]) -> Any:
    """Return what is a metric of all that a task function without an objective returned; None if
    nothing is. Several numbers are objective_0, objective_1 ..., as if each had a direction.

    The rest is named in the log, and does not fail the trial, because Hydra lets a task function
    return anything.
    """
    if isinstance(returned, dict):
        metrics = {name: value for name, value in returned.items() if _is_number(value)}
        _print_left_out([ascii(name) for name in returned if name not in metrics])
        return metrics
    values = returned if isinstance(returned, list | tuple) else [returned]
    if 0 < len(values) <= _MOST_NUMBERS and all(map(_is_number, values)):
        if len(names) == 1 < len(values):
            return {f"{names[0]}_{number}": value for number, value in enumerate(values)}
        return returned
    if returned is not None:
        _print_left_out([type(returned).__name__])
    return None


def _print_left_out(names: Sequence[str]) -> None:
    if names:
        print(
            f"The task function returned {', '.join(names)}, which is no metric and is not"
            " recorded."
        )


def _is_number(value: Any) -> bool:
    try:
        as_numbers({"metric": value})
    except Exception:  # of the value's own conversion, too
        return False
    return True


def outcome_of_error(error: BaseException) -> Outcome:
    """Return the outcome of a trial whose task function raised."""
    if isinstance(error, Diverged | ranks.RankLost):
        return Outcome(State.DIVERGED if isinstance(error, Diverged) else State.LOST, str(error))
    if isinstance(error, MissingObjective):
        return Outcome(State.FAILED, str(error), missing_objective=True)
    if isinstance(error, SystemExit):
        return Outcome(State.FAILED, f"it called sys.exit({error.code!r})")
    if isinstance(error, KeyboardInterrupt):
        return Outcome(State.CANCELLED, "it was interrupted")
    if _is_disk_full(error):
        return Outcome(State.REFUSED, f"its files cannot be written: {error}")
    names = {cls.__name__ for cls in type(error).__mro__}
    state = State.OUT_OF_MEMORY if names & OUT_OF_MEMORY else State.FAILED
    notes = map(str, getattr(error, "__notes__", []))
    sentences = [str(error), *notes, *_remedies(error)]
    return Outcome(state, f"{type(error).__name__}: {'; '.join(sentences)}")


def _is_disk_full(error: BaseException) -> bool:
    """Return whether a file cannot be written that the task function writes through `Trial`."""
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return False
    return Path(str(error.filename)).name in {METRICS, "notes.json", "confusion.json"}


def _remedies(error: BaseException) -> list[str]:
    """Return what to change in code that leads MLflow away from the run that the driver made for
    the trial."""
    if type(error).__name__ != "MlflowException" or "MLFLOW_TRACKING_URI" not in os.environ:
        return []
    if "active experiment ID does not match" in str(error):
        setting = "tracking.experiment=NAME (in other apps: hydra.sweeper.experiment=NAME)"
        return [f"remove mlflow.set_experiment(), and type {setting}"]
    if str(error).startswith("Run with id=") or "Run '" in str(error):
        setting = "tracking.uri=ADDRESS (in other apps: hydra.sweeper.tracking_uri=ADDRESS)"
        return [f"remove mlflow.set_tracking_uri(), and type {setting}"]
    return []


def read_metrics(returned: Any, objective: Objective) -> dict[str, float]:
    """Return the metrics that a task function returned: a number for each objective, or a dict of
    metrics.

    Raises MissingObjective if it returned nothing or too few numbers, and TypeError if a value is
    not a number.
    """
    if returned is None:
        raise MissingObjective(f"the task returned nothing; {EXPECTED_RETURN}")
    if isinstance(returned, dict):
        return as_numbers(returned)
    values = returned if isinstance(returned, list | tuple) else [returned]
    names = objective.names
    if len(values) != len(names):
        remedy = "return a number for each, or a dict of metrics"
        if values and not objective.named:
            directions = ",".join(["minimize"] * len(values))
            remedy = f"name the direction of each: 'hydra.sweeper.direction=[{directions}]'"
        raise MissingObjective(
            f"the task returned {len(values)} numbers for {len(names)} objectives"
            f" ({', '.join(names)}); {remedy}"
        )
    return as_numbers(dict(zip(names, values, strict=True)))
