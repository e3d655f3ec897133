"""A study's folder, which one driver has at a time."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

from sweeps.errors import UserError
from sweeps.files import Holder, Lock, LockHeld
from sweeps.record.definition import sweeps_line

_DECIDES = ("study.json", "code", "journal.jsonl", "learned.json")
"""What another command in the same folder would go on with."""


class Claim:
    """The folder, made if it was not there, and held until it is released."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError if another driver has it, OSError if it cannot be written."""
        self._folder = folder
        self._made = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        self._new = [folder / name for name in _DECIDES if not (folder / name).exists()]
        try:
            self._lock = Lock(folder / "driver.lock", beats=True)
        except LockHeld as error:
            raise UserError(
                f"study {folder.name} is being run by {error}. A node that is gone is forgotten after a minute\n"
                f"Watch it with: {sweeps_line('status', folder)}, or end it: {sweeps_line('stop', folder)}"
            ) from None

    def taken_over_by(self) -> Holder | None:
        """Return who runs the study too, where locks do not reach."""
        return self._lock.taken_over_by()

    def release(self) -> None:
        self._lock.release()

    def undo(self) -> None:
        """Remove what was made since, of a study that was refused before it began, and release the folder."""
        with suppress(OSError):  # the refusal is what a person has to know
            if self._made:
                gone = self._folder.rename(self._folder.with_name(f".{self._folder.name}.refused-{time.time_ns()}"))
                shutil.rmtree(gone, ignore_errors=True)
            for folder in self._made[1:]:
                folder.rmdir()
            for path in self._new if not self._made else ():
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        self._lock.release()
