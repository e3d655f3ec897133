"""From what a task function returned or raised to how its trial ended."""

from collections.abc import Sequence
from typing import Any

from sweeps import trial
from sweeps.trial import Diverged, check_finite
from sweeps.trial_folder import Result, State

_OUT_OF_MEMORY = {"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"}
"""Names, not classes: the frameworks that raise them must not be imported here."""


def of_return(returned: Any, names: Sequence[str]) -> Result:
    """The end of a trial whose task function returned; `names` are its objectives."""
    try:
        metrics, objective = read_objective(returned, names)
        check_finite(dict(zip(names, objective, strict=True)))
    except (Diverged, ValueError, TypeError) as error:
        return of_error(error)
    return Result(trial.stop_heard or State.COMPLETED, objective, metrics)


def of_error(error: BaseException) -> Result:
    """The end of a trial whose task function raised."""
    if isinstance(error, Diverged):
        return Result(State.DIVERGED, error=str(error))
    names = {cls.__name__ for cls in type(error).__mro__}
    state = State.OUT_OF_MEMORY if names & _OUT_OF_MEMORY else State.FAILED
    return Result(state, error=f"{type(error).__name__}: {error}")


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
