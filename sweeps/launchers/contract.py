"""What a launcher is to our loop. local.py, slurm/ and batch.py are those that exist; another needs these methods."""

from typing import Protocol

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.trial.job import Job, Outcome, Request


class TrialLauncher(Protocol):
    """Runs attempts at trials somewhere, without ever blocking on one."""

    detach: bool = False
    """Whether the driver leaves once there is room for no further trial: what it started goes on without it."""
    keep_on_interrupt: bool = False
    """Whether the driver leaves at the first Ctrl-C, instead of letting its trials end after their epoch."""
    survives: bool = False  # whether what is started goes on when the driver dies, as SLURM's jobs do
    max_timeouts: int | None = None
    """How often a trial may reach its time limit and go on; None: as long as each attempt advances."""

    def request(self, config: DictConfig) -> Request:
        """What this composed trial asks for. Raises UserError if it could never start here."""

    def open(self) -> None:
        """Get ready to run trials; may go on in the background."""

    def has_room(self, ahead: bool = False) -> bool:
        """Whether a small trial could be started now, or, `ahead`, may at least wait where others run. The next trial
        of a search is chosen only when it can start, for then most is known.
        """

    def submit(self, job: Job) -> bool:
        """Start the attempt, or return False if there is no room for it yet."""

    def adopt(self, job: Job) -> bool:
        """Take over an attempt that an earlier driver submitted. False only when it is certain that it does not live:
        the trial then goes on in a new attempt.
        """

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        """The attempts that are over since the last call, by the numbers of their trials; waits up to `timeout_s` for
        one if there are none. What is said of an end counts only where the attempt left no end.json of its own.
        """

    def notes(self) -> list[str]:
        """What a person should know while trials wait: why they are pending, what is stuck."""
        return []

    def cancel_pending(self) -> None:
        """Take back every attempt that was submitted and has not begun; `poll` reports it as cancelled."""

    def close(self, keep: bool = False) -> None:
        """End every attempt that still lives; or, to `keep` them, leave those that do without a driver."""


def pack_app(task_function: TaskFunction, hydra_context: HydraContext) -> bytes:
    """The task function, Hydra's context, and its singletons (OmegaConf's resolvers among them) for another process.
    Raises UserError if the task function refers to something that cannot leave this one.
    """
    try:
        return bytes(cloudpickle.dumps((task_function, hydra_context, Singleton.get_state())))
    except Exception as error:  # whatever the __reduce__ of a user's object raises
        ask = "Create what it needs (files, locks, sessions) inside the function"
        raise UserError(f"the task function cannot be sent to another process: {error}\n{ask}") from error
