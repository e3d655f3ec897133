"""What a study cost: seconds by phase, GPU-hours and energy, and how much of it came to nothing."""

from collections.abc import Iterable, Mapping
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

    def metrics(self) -> dict[str, float]:
        """By name, as MLflow shows it; without what there is none of."""
        spent = {f"seconds/{phase}": value for phase, value in self.seconds.items()}
        known = {"gpu_hours": self.gpu_hours or None, "energy_kwh": self.energy_kwh}
        return spent | {name: value for name, value in known.items() if value is not None}


def of_study(rows: Iterable[Row]) -> dict[str, Cost]:
    """What the trials of each kind cost together: completed, pruned, failed, unfinished, and all of them."""
    costs = dict.fromkeys(("completed", "pruned", "failed", "unfinished", "all"), Cost())
    for row in rows:
        cost = of_trial(row)
        costs[_kind(row.state)] += cost
        costs["all"] += cost
    return {kind: cost for kind, cost in costs.items() if cost.trials or kind == "all"}


def _kind(state: State) -> str:
    if state in (State.COMPLETED, State.PRUNED):
        return state
    return "failed" if state.is_bad else "unfinished"


def of_trial(row: Row) -> Cost:
    return sum(map(of_attempt, row.attempts), Cost(1, {"tracking": row.tracking_s}))


def of_attempt(end: End) -> Cost:
    return Cost(0, end.seconds, end.gpu_hours, end.energy_kwh)


def tail_s(rows: Iterable[Row]) -> float:
    """The seconds for which slots stood empty at the end, because no further trial was to start."""
    ends = sorted(end.ended for row in rows for end in row.attempts)
    begins = sorted(end.began for row in rows for end in row.attempts if end.began)
    return sum(ends[-1] - end for end in ends if end > begins[-1]) if begins else 0.0
