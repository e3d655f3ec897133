"""What a study cost: seconds by phase, GPU-hours and energy, and how much of it came to nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sweeps.results.summary import Row
from sweeps.trial.job import End, State

PHASES = ("queued", "starting", "training", "idle_slot", "tracking")
"""Of a trial, over all its attempts, in seconds:

    queued     until it had room: a free slot here, a job that began on SLURM
    starting   from there until the task function was called
    training   the task function
    idle_slot  that its slot stood empty before it came, after the trial before
    tracking   that the driver spent on telling MLflow about it, beside all the others
"""

_KINDS: dict[str, Callable[[State], bool]] = {
    "completed": lambda state: state is State.COMPLETED,
    "pruned": lambda state: state is State.PRUNED,
    "failed": lambda state: state.is_bad,
    "unfinished": lambda state: not state.is_over and not state.is_bad,
}


@dataclass(frozen=True)
class Cost:
    """Of one trial or several. Energy is that of the GPUs that tell their power; None if none did."""

    trials: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    gpu_hours: float = 0.0
    energy_kwh: float | None = None

    def __add__(self, other: "Cost") -> "Cost":
        phases = dict.fromkeys([*self.seconds, *other.seconds])
        known = [cost.energy_kwh for cost in (self, other) if cost.energy_kwh is not None]
        return Cost(
            self.trials + other.trials,
            {name: self.seconds.get(name, 0.0) + other.seconds.get(name, 0.0) for name in phases},
            self.gpu_hours + other.gpu_hours,
            sum(known) if known else None,
        )


def of_study(rows: Sequence[Row]) -> dict[str, Cost]:
    """What the trials of each kind cost together: completed, pruned, failed, unfinished, and all of them."""
    found = {
        name: sum((of_trial(row) for row in rows if belongs(row.state)), Cost()) for name, belongs in _KINDS.items()
    }
    return {name: cost for name, cost in found.items() if cost.trials} | {"all": sum(found.values(), Cost())}


def of_trial(row: Row) -> Cost:
    return sum(map(of_attempt, row.attempts), Cost(1, {"tracking": row.tracking_s}))


def of_attempt(end: End) -> Cost:
    return Cost(0, end.seconds, end.gpu_hours, end.energy_kwh)


def tail_s(rows: Iterable[Row]) -> float:
    """The seconds for which slots stood empty at the end, because no further trial was to start."""
    ends = sorted(end.ended for row in rows for end in row.attempts)
    begins = sorted(end.began for row in rows for end in row.attempts if end.began)
    return sum(ends[-1] - end for end in ends if end > begins[-1]) if begins else 0.0
