"""What a study cost: seconds by phase, GPU-hours and energy, and how much of it came to nothing."""

from collections.abc import Iterable, Mapping

from sweeps.record.study import TrialRecord
from sweeps.trial.job import Outcome, State

COSTS = (
    "seconds/queued",  # until it had room: a free slot here, a job that began on SLURM
    "seconds/starting",  # from there until the task function was called
    "seconds/training",  # the task function
    "seconds/idle_slot",  # that its slot stood empty before it came, after the trial before
    "seconds/tracking",  # that the driver spent on telling MLflow about it, beside all the others
    "gpu_hours",
    "energy_kwh",  # of the GPUs that tell their power
)
"""Of a trial, over all its attempts. What there is none of, or nobody knows, is left out."""
_KINDS = ("completed", "pruned", "failed", "unfinished", "all")


def of_study(rows: Iterable[TrialRecord]) -> dict[str, dict[str, float]]:
    """What the trials of each kind cost together, and `trials`, how many they are."""
    costs: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        cost = {"trials": 1, **of_trial(row)}
        costs.setdefault(_kind(row.state), []).append(cost)
        costs.setdefault("all", []).append(cost)
    return {kind: _sum(costs[kind]) for kind in _KINDS if kind in costs}


def of_trial(row: TrialRecord) -> dict[str, float]:
    return {**of_attempts(row.attempts), "seconds/tracking": row.tracking_s}


def of_attempts(ends: Iterable[Outcome]) -> dict[str, float]:
    return _sum(
        {f"seconds/{phase}": value for phase, value in end.seconds.items()}
        | {"gpu_hours": end.gpu_hours or None, "energy_kwh": end.energy_kwh}
        for end in ends
    )


def tail_s(rows: Iterable[TrialRecord]) -> float:
    """The seconds for which slots stood empty at the end, because no further trial was to start."""
    ends = sorted(end.ended for row in rows for end in row.attempts)
    begins = sorted(end.began for row in rows for end in row.attempts if end.began)
    return sum(ends[-1] - end for end in ends if end > begins[-1]) if begins else 0.0


def _kind(state: State) -> str:
    if state in (State.COMPLETED, State.PRUNED):
        return state
    if state is State.INFEASIBLE:
        return "pruned"
    return "failed" if state.is_bad else "unfinished"


def _sum(costs: Iterable[Mapping[str, float | None]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for cost in costs:
        for name, value in cost.items():
            if value is not None:
                total[name] = total.get(name, 0) + value
    return total
