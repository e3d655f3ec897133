"""A command that widens a study while it runs: the study's driver leaves the study, and the command
drives it on."""

import errno
import os
import time
from contextlib import suppress
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, Holder, Lock, LockHeld, holder
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.definition import Definition
from sweeps.record.study_file import read, refuse_differences
from sweeps.study.folder.handover import refuse_driver_job, refuse_running_elsewhere
from sweeps.study.folder.reading import read_study

# held by the command that waits, because a command that was killed must ask for nothing
_LOCK = "takeover.lock"
_LOOK_S = 0.1


def successor(folder: Path) -> Holder | None:
    """Return the command that waits to take the study over; None if there is none."""
    with suppress(OSError):  # because a shared disk may be away for a moment
        return holder(folder / _LOCK)
    return None


def take_over(folder: Path, wider: Definition, launcher: TrialLauncher) -> None:
    """Ask the driver of a running study to leave it to this command, and wait until it has left.

    A command that widens nothing asks for nothing. Raises UserError if the command changes more
    than values and trials that are added, or if the trials that run could not go on under it.
    """
    driver = holder(folder / "driver.lock")
    try:
        study = read(folder) if driver else wider
    except (FileNotFoundError, CorruptFile):  # because the claim of the folder names the driver
        return
    if not study.differences(wider):
        return
    refuse_driver_job(folder)
    claim = folder / "driver.lock"
    # because the driver would leave, and this command fail
    if not os.access(claim, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(claim))
    refuse_differences(folder, study, wider, extend=True)
    refuse_running_elsewhere(read_study(folder, study), launcher)
    try:
        lock = Lock(folder / _LOCK, beats=True)
    except LockHeld as error:
        raise UserError(
            f"study {folder.name} is being widened by {error}.\nRepeat this command once that"
            " command drives the study"
        ) from None
    trials = "go on" if launcher.survives else "end after their epoch and resume here"
    print(
        f"widening study {folder.name}: {driver} leaves it to this command; running trials"
        f" {trials}",
        flush=True,
    )
    try:
        while holder(folder / "driver.lock"):
            time.sleep(_LOOK_S)
    finally:
        lock.release()
    if (folder / "stop").exists():
        problem = f"study {folder.name} was stopped while this command waited for its driver."
        raise UserError(f"{problem}\nTo widen it and drive it on, type this command again")
