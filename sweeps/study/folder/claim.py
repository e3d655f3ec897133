"""A study's folder, which one driver claims at a time."""

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.base.files import Lock, LockHeld, write_whole
from sweeps.base.secrets import mask_value
from sweeps.hydra import plain
from sweeps.record.study_file import DONE, sweeps_line

_DECIDES = ("study.json", "code", "journal.jsonl", "learned.json")
"""The files that define a study for the next command in its folder."""


def refuse_running(folder: Path, driver: str) -> NoReturn:
    """Raise UserError, because a driver runs the study in this folder."""
    raise UserError(
        f"study {folder.name} is being run by {driver}. If that node is gone, its lock expires"
        f" after a minute.\nWatch the study: {sweeps_line('status', folder)}, or stop it:"
        f" {sweeps_line('stop', folder)}"
    ) from None


class Claim:
    """The claim of one driver on a study's folder, until its lock is released."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if it is missing, and lock it.

        Raises UserError if another driver holds the lock, and OSError if the folder cannot be
        written.
        """
        self._folder = folder
        self._made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        self._new = [folder / name for name in _DECIDES if not (folder / name).exists()]
        try:
            self.lock = Lock(folder / "driver.lock", beats=True)
        except LockHeld as error:
            refuse_running(folder, str(error))

    def begin(self, config: DictConfig) -> None:
        """Write the configuration of this command, and remove the requests and the result of an
        earlier one."""
        content = mask_value("", plain.content(config))
        write_whole(self._folder / "multirun.yaml", OmegaConf.to_yaml(OmegaConf.create(content)))
        for name in ("stop", DONE):
            (self._folder / name).unlink(missing_ok=True)

    def undo(self) -> None:
        """Remove the files that were created since the claim, because the study was refused;
        release the folder."""
        with suppress(OSError):  # because the user has to see the refusal, not this error
            if self._made:
                gone = self._folder.rename(
                    self._folder.with_name(f".{self._folder.name}.refused-{time.time_ns()}")
                )
                shutil.rmtree(gone, ignore_errors=True)
            for folder in self._made[1:]:
                folder.rmdir()
            for path in self._new if not self._made else ():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        self.lock.release()
