"""What a launcher is to our loop. local.py and slurm.py are the two that exist; a third needs these methods."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.trial_folder import State, TrialFolder

LOOKS_PER_S = 1000.0
"""How many trials' files the driver looks at in a second, at most: a shared file system has other users."""


class Rounds:
    """When to look at the files of all trials once more, within LOOKS_PER_S."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def due(self, trials: int) -> bool:
        """Whether a round of looks at so many trials may begin now. If so, it is taken to begin."""
        now = time.monotonic()
        if now < self._not_before:
            return False
        self._not_before = now + trials / LOOKS_PER_S
        return True


@dataclass
class TrialJob:
    """One attempt at a trial, ready to be sent to where it runs."""

    number: int
    study: str
    config: DictConfig
    """The whole composed config, with its hydra node: hydra.launcher has this trial's own resources."""
    app: bytes
    """The Hydra app, as `pack_app` makes it: the same for every trial."""
    folder: TrialFolder
    attempt: Path
    """This attempt's own folder, which exists when the job is submitted; its `log` takes what the trial prints."""
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

    def check(self, config: DictConfig) -> None:
        """Raise UserError if this composed trial could never start here."""

    def open(self) -> None:
        """Get ready to run trials; may go on in the background."""

    def has_room(self, ahead: bool = False) -> bool:
        """Whether a small trial could be started now; or, `ahead`, may at least wait where those run that are started.

        The next trial of a search is chosen only when it can start, for then most is known.
        """

    def submit(self, job: TrialJob) -> bool:
        """Start the attempt, or return False if there is no room for it yet."""

    def adopt(self, job: TrialJob) -> bool:
        """Take over the trial's newest attempt, which an earlier driver submitted, if it still lives.

        False only when it is certain that it does not: the trial then goes on in a new attempt.
        """

    def poll(self, timeout_s: float) -> list[Exit]:
        """The attempts that are over since the last call; wait up to `timeout_s` for one if there are none."""

    def notes(self) -> list[str]:
        """What a person should know while trials wait: why they are pending, what is stuck."""

    def cancel(self, number: int) -> None:
        """End this trial's attempt now. Its Exit is still reported by `poll`."""

    def withdraw(self) -> None:
        """Take back every attempt that was submitted and has not begun; `poll` reports it as cancelled."""

    def close(self, keep: bool = False) -> None:
        """End every attempt that still lives; or, to `keep` them, leave those that do without a driver."""


def pack_app(task_function: TaskFunction, hydra_context: HydraContext) -> bytes:
    """The task function, Hydra's context, and its singletons (OmegaConf's resolvers among them) for another process.

    Raises:
        UserError: the task function refers to something that cannot leave this process.
    """
    try:
        data: bytes = cloudpickle.dumps((task_function, hydra_context, Singleton.get_state()))
    except Exception as error:  # whatever the __reduce__ of a user's object raises
        raise UserError(
            f"the task function cannot be sent to another process: {error}\n"
            "Create what it needs (files, locks, sessions) inside the function"
        ) from error
    return data
