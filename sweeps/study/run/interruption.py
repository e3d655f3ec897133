"""Why a driver ends before its study does: a signal, `sweepyard stop`, or another driver."""

from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, Signals
from typing import TYPE_CHECKING, Any

from sweeps.base.files import Holder, Lock
from sweeps.study.folder.takeover import successor

if TYPE_CHECKING:
    from sweeps.launchers.slurm.trials.driver_job import DriverJob


@dataclass(frozen=True)
class Signs:
    """What a driver observes of the world outside."""

    signal: Signals | None = None
    lock_holder: Holder | None = None  # another driver that has the lock of the study
    wider_command: Holder | None = None  # a command that widens the study, and waits for it
    newer_job: str = ""  # id of a later SLURM job in which a driver of the study has begun
    has_stop_file: bool = False


@dataclass(frozen=True)
class Interruption:
    """Why a driver ends now, and what it leaves."""

    reason: str
    leaves_trials: bool = False  # whether trials that survive their driver go on
    has_successor: bool = False  # whether a command waits to drive the study on
    is_conflict: bool = False  # whether another driver has begun, so that this one writes no more


def judge(signs: Signs) -> Interruption | None:
    """Return why the driver ends; None if it goes on. A conflict counts first."""
    if signs.lock_holder:
        reason = f"left to {signs.lock_holder}, which runs it too: locks have no effect there"
        return Interruption(reason, is_conflict=True)

    if signs.newer_job:
        reason = f"left to its newer driver, SLURM job {signs.newer_job}"
        return Interruption(reason, is_conflict=True)

    if signs.signal:
        reason = f"it was interrupted ({signs.signal.name})"
        return Interruption(reason, leaves_trials=signs.signal != SIGINT)

    if signs.wider_command:
        reason = f"it is left to {signs.wider_command}"
        return Interruption(reason, leaves_trials=True, has_successor=True)

    if signs.has_stop_file:
        return Interruption("it was stopped by sweepyard stop")
    return None


class Lookout:
    """Observes what ends a driver. The first reason stays, unless a conflict follows."""

    def __init__(self, folder: Path, lock: Lock, job: "DriverJob | None") -> None:
        self._folder = folder
        self._lock = lock
        self._job = job
        self._signal: Signals | None = None
        self.interruption: Interruption | None = None

    def note_signal(self, number: int, _: Any = None) -> None:
        """Note the first signal. A second Ctrl-C raises KeyboardInterrupt immediately."""
        if self._signal and number == SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or Signals(number)

    def observe(self) -> Signs:
        """Return the present signs. Raises OSError if the disk does not answer."""
        return Signs(
            signal=self._signal,
            lock_holder=self._lock.taken_over_by(),
            wider_command=successor(self._folder),
            newer_job=self._job.newer() if self._job else "",
            has_stop_file=(self._folder / "stop").exists(),
        )

    def look(self) -> Interruption | None:
        """Return why the driver ends; None if it goes on. Any thread may call it. Raises OSError if
        the disk does not answer."""
        interruption = judge(self.observe())
        if interruption and (self.interruption is None or interruption.is_conflict):
            self.interruption = interruption
        return self.interruption

    def reason(self) -> str:
        """Return why the driver ends, in words; empty if it goes on."""
        interruption = self.look()
        return interruption.reason if interruption else ""
