"""The costs of a study: seconds by phase, GPU-hours and energy, and the part that trials without a
result cost."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path

from sweeps.base.files import CorruptFile
from sweeps.record.study import TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State

COSTS = (
    # seconds until the trial had room: a free slot here, a job that began on SLURM
    "seconds/queued",
    "seconds/starting",  # seconds from there until the task function was called
    "seconds/training",  # seconds of the task function
    "seconds/idle_slot",  # seconds that the trial's slot was empty after the trial before
    # seconds that the driver spent on showing the trial in MLflow, beside all other phases
    "seconds/tracking",
    "gpu_hours",
    "energy_kwh",  # energy of the GPUs that report their power
    "co2_g",  # emissions of this energy, by hydra.launcher.co2_g_per_kwh
)
"""Costs of a trial, over all its attempts. A cost that is zero or unknown is omitted."""
_KINDS = ("completed", "pruned", "paused", "failed", "unfinished", "all")


def read_tracking_seconds(study: Path) -> dict[int, float]:
    """Return the seconds that drivers spent on showing each trial in MLflow, by the trials'
    numbers."""
    with suppress(CorruptFile, OSError, ValueError, TypeError, AttributeError):
        recorded = TrialFolder(study).read_tracking().get("seconds", {})
        return {int(number): float(seconds) for number, seconds in recorded.items()}
    return {}


def of_study(trials: Iterable[TrialRecord]) -> dict[str, dict[str, float]]:
    """Sum the costs of the trials of each kind. `trials` is their number."""
    costs: dict[str, list[dict[str, float]]] = {}
    for trial in trials:
        cost = {"trials": 1, **of_trial(trial)}
        costs.setdefault(_kind(trial.state), []).append(cost)
        costs.setdefault("all", []).append(cost)
    return {kind: _sum(costs[kind]) for kind in _KINDS if kind in costs}


def of_trial(trial: TrialRecord) -> dict[str, float]:
    return {**of_attempts(trial.attempts), "seconds/tracking": trial.tracking_s}


def of_attempts(outcomes: Iterable[Outcome]) -> dict[str, float]:
    return _sum(_of_attempt(outcome) for outcome in outcomes)


def _of_attempt(outcome: Outcome) -> dict[str, float | None]:
    return {
        **{f"seconds/{phase}": seconds for phase, seconds in outcome.seconds.items()},
        "gpu_hours": outcome.gpu_hours or None,
        "energy_kwh": outcome.energy_kwh,
        "co2_g": outcome.co2_g,
    }


def tail_s(trials: Iterable[TrialRecord]) -> float:
    """Sum the seconds that slots were empty at the end, because no further trial was to start."""
    outcomes = [outcome for trial in trials for outcome in trial.attempts]
    starts = [outcome.started_at for outcome in outcomes if outcome.started_at]
    if not starts:
        return 0.0
    last_start = max(starts)
    ends = [outcome.ended_at for outcome in outcomes]
    last_end = max(ends)
    return sum(last_end - end for end in ends if end > last_start)


def real_time_s(trials: Iterable[TrialRecord]) -> float:
    """Return the seconds in which at least one attempt ran: without queues, and without the time in
    which nobody resumed the study."""
    attempts = chain.from_iterable(trial.attempts for trial in trials)
    ran = [(outcome.started_at, outcome.ended_at) for outcome in attempts if outcome.started_at]
    total = 0.0
    counted_to = 0.0
    for start, end in sorted(ran):
        total += max(0.0, end - max(start, counted_to))
        counted_to = max(counted_to, end)
    return total


def pauses(trial: TrialRecord) -> list[tuple[float, float]]:
    """Return the end and the length of each pause between two attempts of a trial, in which nothing
    was trained (s)."""
    ran = [
        (outcome.started_at, outcome.ended_at) for outcome in trial.attempts if outcome.started_at
    ]
    with suppress(OSError):
        newest = TrialFolder(trial.folder).newest()
        began = newest.began() if newest else None
        if began and (not ran or began > ran[-1][1]):  # because a running attempt has no outcome
            ran.append((began, began))
    return [(start, start - end) for (_, end), (start, _) in pairwise(ran) if start > end]


def seconds_between(first: float, last: float, pauses: Iterable[tuple[float, float]]) -> float:
    """Return the seconds between two times of a trial without its pauses."""
    paused_s = sum(length_s for end, length_s in pauses if first < end <= last)
    return max(0.0, last - first - paused_s)


def _kind(state: State) -> str:
    kinds = {State.COMPLETED: "completed", State.PRUNED: "pruned", State.INFEASIBLE: "pruned"}
    kinds[State.PAUSED] = "paused"
    return kinds.get(state, "failed" if state.is_bad else "unfinished")


def _sum(costs: Iterable[Mapping[str, float | None]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for cost in costs:
        for name, value in cost.items():
            if value is not None:
                total[name] = total.get(name, 0) + value
    return total
