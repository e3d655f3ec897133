"""The data classes of a trial: its task (`Job`), its ranks (`World`) and its result (`Outcome`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sweeps.base.secrets import without_secrets
from sweeps.trial.times import is_time
from sweeps.trial.well_typed import check_amounts, check_numbers, check_text

# because MLflow warns above 8000 characters in a description, which also contains the log
_MAX_ERROR_CHARS = 3000

Value = bool | int | float | str | None
Point = dict[str, Value]  # one configuration: the value of each swept parameter that exists in it


class State(StrEnum):
    """The state of a trial or an attempt."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    PAUSED = "paused"  # at a rung; goes on from its checkpoint if it is promoted
    INFEASIBLE = "infeasible"  # never started, because it cannot run here
    FAILED = "failed"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    REFUSED = "refused"  # never started, because of SLURM, a setup line or the disk
    LOST = "lost"  # ended by a failed node, preemption, or a kill from outside
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Return whether the trial has ended for good. Refused and cancelled trials resume with
        their study, and a paused one may be promoted."""
        return self not in _OPEN

    @property
    def is_settled(self) -> bool:
        """Return whether the trial has ended, for good or until a rung's best are promoted."""
        return self.is_over or self is State.PAUSED

    @property
    def is_bad(self) -> bool:
        """Return whether the trial ended without a usable result."""
        return self not in _NOT_BAD

    @property
    def has_failed(self) -> bool:
        """Return whether the trial ended for good without a usable result."""
        return self.is_bad and self.is_over

    @property
    def decides(self) -> bool:
        """Return whether a trial in this state ends its whole configuration, whatever its other
        seeds do."""
        return self in {
            State.PRUNED,
            State.INFEASIBLE,
            State.FAILED,
            State.DIVERGED,
            State.OUT_OF_MEMORY,
        }


_OPEN = {State.QUEUED, State.RUNNING, State.REFUSED, State.CANCELLED, State.PAUSED}
_NOT_BAD = {
    State.QUEUED,
    State.PAUSED,
    State.RUNNING,
    State.CANCELLED,
    State.COMPLETED,
    State.PRUNED,
    State.INFEASIBLE,
}


@dataclass(frozen=True)
class Outcome:
    """The result of an attempt, written once, by the first process that observes its end.

    Times are seconds since 1970. `AttemptFolder.close` fills in all fields from `seconds` on.
    """

    state: State
    error: str = ""
    # returned value of each objective, in order
    objective: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, see `record.costs`
    queued_at: float = 0.0
    started_at: float | None = None  # None if it never started
    ended_at: float = 0.0
    gpus: float = 0  # number of its GPUs, or its part of a shared GPU
    timeout_min: float | None = None  # time limit; None without a limit
    energy_kwh: float | None = None  # energy of its GPUs; None if they do not measure power
    gpu_use: float | None = None  # mean utilization of its GPUs (%); None without GPUs
    # emissions of this energy, by the site's factor; None without a factor
    co2_g: float | None = None
    # cores, mem_gb, nodes and ranks of its `Request`
    requested: dict[str, float] = field(default_factory=dict)
    # what was sampled of them, see `sweeps.trial.machine.usage`
    used: dict[str, float] = field(default_factory=dict)
    step: int = 0  # newest step that the trial had reported at the end of the attempt
    advanced: bool = False  # whether it reported a new step or saved a checkpoint
    node: str = ""  # SLURM's node that ran it, or failed to; empty if unknown
    node_failed: bool = False  # whether that node failed, or could not start it
    request_refused: bool = False  # whether SLURM refused its request, as it would for other trials
    # whether it returned no objective, as every other trial of the study would
    missing_objective: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields that have a value, for a file that others may read."""
        # With floats of 0, because a GPU's use of 0% was measured.
        content = {
            name: value for name, value in vars(self).items() if value or isinstance(value, float)
        }
        if self.error:
            content["error"] = without_secrets(self.error)
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Outcome":
        """Return the outcome from the output of `as_json`. Raises ValueError, KeyError, TypeError
        or OverflowError."""
        # for lone surrogates
        error = str(content.get("error", "")).encode(errors="backslashreplace").decode()
        if len(error) > _MAX_ERROR_CHARS:
            error = f"{error[:_MAX_ERROR_CHARS]} ... (the rest is in its log)"
        end = cls(**{**content, "state": State(content["state"]), "error": error})
        times = [end.queued_at, end.ended_at, end.started_at or 0.0]
        if not all(map(is_time, times)):
            raise ValueError(f"its times {times} are in no calendar")
        for by_name in (end.metrics, end.seconds, end.requested, end.used):
            check_amounts(by_name)
        check_numbers(end.objective)
        amounts = [end.gpus, end.timeout_min, end.energy_kwh, end.gpu_use, end.co2_g]
        check_numbers([amount for amount in amounts if amount is not None])
        check_text(end.node)
        return end

    @property
    def duration_s(self) -> float:
        """Return the seconds from start to end; 0 if it never started."""
        return max(0.0, self.ended_at - self.started_at) if self.started_at else 0.0

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.duration_s / 3600


@dataclass(frozen=True)
class Request:
    """The resources of one trial over all its nodes; None where it sets no limit."""

    gpus: float = 0  # number of GPUs, or the trial's part of a shared GPU
    cores: int | None = None
    mem_gb: float | None = None
    timeout_min: float | None = None
    nodes: int = 1
    ranks: int = 1
    co2_g_per_kwh: float | None = None  # emissions of the site's electricity; None if unknown

    @property
    def trials_per_gpu(self) -> int:
        """Return how many such trials share a GPU."""
        return round(1 / self.gpus) if 0 < self.gpus < 1 else 1


@dataclass(frozen=True)
class Objective:
    """The metrics that a study optimizes."""

    names: tuple[str, ...] = ("objective",)
    named: bool = False  # whether the names are keys of the reported and returned metrics
    # whether a trial without them has failed; False for a grid without an objective
    needed: bool = True


@dataclass(frozen=True)
class World:
    """The ranks (processes) of one attempt, from the view of one rank. Only the chief, rank 0,
    writes and reports::

        if trial.world.is_chief:
            print(f"{trial.world.size} processes on {trial.world.nodes} nodes")

    Attributes:
        rank: The number of this process, from 0 on.
        size: The number of processes.
        local_rank: The number of this process among those of its node.
        nodes: The number of nodes.
        addresses: The host of each rank; host:port if there are several ranks.
        timeout_s: The maximum wait for another rank (s), after which the attempt is lost.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    nodes: int = 1
    addresses: tuple[str, ...] = ("127.0.0.1",)
    timeout_s: float = 120.0

    @property
    def is_chief(self) -> bool:
        return self.rank == 0
