"""The values of a trial's life: what is to run (`Job`), how it ended (`Outcome`), and its ranks (`World`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

if TYPE_CHECKING:
    from sweeps.trial.folder import AttemptFolder, TrialFolder

_MOST_ERROR = 3000  # characters: MLflow warns of more than 8000 in a description, where the log follows

Value = bool | int | float | str | None
Point = dict[str, Value]  # one configuration: the value of each swept parameter that exists in it


class State(StrEnum):
    """How a trial stands, or how it or one of its attempts ended."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    INFEASIBLE = "infeasible"  # it cannot run here, and was never started
    FAILED = "failed"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    REFUSED = "refused"  # it never started: SLURM, a line of its setup or its disk said no
    LOST = "lost"  # its node failed, it was preempted, or killed from outside
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether the trial has ended for good. One that was refused or cancelled goes on when its study does."""
        return self not in {State.QUEUED, State.RUNNING, State.REFUSED, State.CANCELLED}

    @property
    def is_bad(self) -> bool:
        """Whether the trial ended without a result that counts."""
        good = {State.COMPLETED, State.PRUNED, State.INFEASIBLE}
        return self not in {State.QUEUED, State.RUNNING, State.CANCELLED, *good}

    @property
    def decides(self) -> bool:
        """Whether one trial that ended so decides for its whole configuration, whatever its other seeds do."""
        blamed = {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY}
        return self in {State.PRUNED, State.INFEASIBLE, *blamed}


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: one type and one file for it, written once, by whoever saw it first.

    Times are seconds since 1970. `AttemptFolder.close` fills in what the folder knows: all from `seconds` on.
    """

    state: State
    error: str = ""
    objective: list[float] = field(default_factory=list)
    """One value for each objective, in their order; empty unless the task function returned them."""
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, see `record.costs`
    asked: float = 0.0  # when it began to wait for room
    began: float | None = None  # when it had it; None if it never did
    ended: float = 0.0
    gpus: int = 0
    timeout_min: float | None = None  # how long it might have run; None without a limit
    energy_kwh: float | None = None  # what its GPUs used; None if they don't tell
    advanced: bool = False  # whether it reported a step, or saved a state, that no earlier attempt had
    misfit: bool = False  # whether it lacks what the study asks of every trial, so that no other can do better

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Outcome":
        """From what `as_json` made. Raises ValueError, KeyError, TypeError or OverflowError else."""
        error = str(content.get("error", "")).encode(errors="backslashreplace").decode()  # which may hold any bytes
        error = error if len(error) <= _MOST_ERROR else f"{error[:_MOST_ERROR]} ... (the rest is in its log)"
        end = cls(**{**content, "state": State(content["state"]), "error": error})
        float(end.asked), float(end.ended), dict(end.metrics), dict(end.seconds), list(end.objective)
        return end

    @property
    def gpu_hours(self) -> float:
        return self.gpus * (self.ended - self.began) / 3600 if self.began else 0.0


@dataclass(frozen=True)
class Request:
    """What one trial asks its launcher for, over all its nodes. None where it sets no bound."""

    gpus: int = 0
    cores: int | None = None
    mem_gb: float | None = None
    timeout_min: float | None = None
    nodes: int = 1


@dataclass(frozen=True)
class Objective:
    """What a study is judged by."""

    names: tuple[str, ...] = ("objective",)
    named: bool = False  # whether they are keys of what is reported and returned, not merely names for numbers
    needed: bool = True  # whether a trial without them has failed; a grid that names none does without


@dataclass(frozen=True)
class World:
    """The processes (ranks) of one attempt, seen by one of them. The chief, rank 0, alone writes and reports."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    nodes: int = 1
    addresses: tuple[str, ...] = ("127.0.0.1",)
    """The host of each rank; with a port that is free there, host:port, where there are several."""
    timeout_s: float = 120.0  # how long a rank waits for another one before it gives the attempt up

    @property
    def is_chief(self) -> bool:
        return self.rank == 0


@dataclass(frozen=True)
class Job:
    """One attempt at a trial, ready to be sent to where it runs."""

    study: str
    number: int
    attempt: int  # counts from 1; 0 until it has a folder
    config: DictConfig  # the whole composed config, with its hydra node: hydra.launcher has this trial's own settings
    request: Request
    folder: "TrialFolder"
    app: bytes  # the Hydra app, as `contract.pack_app` makes it: the same for every trial
    objective: Objective | None = None  # None if a sweeper that is not ours judges what the trial returns
    environment: Mapping[str, str] = field(default_factory=dict)
    job_return: Path | None = None  # where to leave Hydra's pickled JobReturn, for a sweeper that is not ours

    @property
    def attempt_folder(self) -> "AttemptFolder":
        return self.folder.attempt(self.attempt)
