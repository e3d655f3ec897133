"""What a launcher is to our loop. local.py and slurm.py are the two that exist; a third needs these methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.trial_folder import State, TrialFolder


@dataclass
class TrialJob:
    """One attempt at a trial, ready to be sent to where it runs."""

    number: int
    study: str
    config: DictConfig
    """The whole composed config, with its hydra node: hydra.launcher has this trial's own resources."""
    task_function: TaskFunction
    hydra_context: HydraContext
    folder: TrialFolder
    attempt: Path
    """This attempt's own folder, which exists; its `log` takes what the trial prints."""
    objective: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    job_return: Path | None = None
    """Where to leave Hydra's pickled JobReturn, for a sweeper that is not ours."""


@dataclass(frozen=True)
class Exit:
    """An attempt is over. If the trial left no result.json, `state` and `error` say what became of it."""

    number: int
    state: State = State.LOST
    error: str = ""


class TrialLauncher(Protocol):
    """Runs trials somewhere, without ever blocking on one."""

    def check(self, configs: Sequence[DictConfig]) -> None:
        """Raise UserError if one of these composed trials could never start here."""

    def has_room(self) -> bool:
        """Whether a small trial could be started now. The next trial is chosen only then, when most is known."""

    def submit(self, job: TrialJob) -> bool:
        """Start the attempt, or return False if there is no room for it yet."""

    def poll(self, timeout_s: float) -> list[Exit]:
        """The attempts that are over since the last call; wait up to `timeout_s` for one if there are none."""

    def cancel(self, number: int) -> None:
        """End this trial's attempt now. Its Exit is still reported by `poll`."""

    def close(self) -> None:
        """End every attempt that still runs, and leave no process behind."""
