"""The status of a study's driver, which `sweepyard status` reads from another process."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sweeps.base.files import CorruptFile, read_json, write_whole

_FILE = "driver_status.json"


@dataclass(frozen=True)
class DriverStatus:
    """What the driver is doing. Valid while the driver that wrote it lives."""

    running: int  # number of trials with a slot, or with a job that is queued or running
    full: bool  # whether there is no room for another trial
    stopped: str = ""  # why no further trial starts; empty while trials start
    notes: tuple[str, ...] = ()  # other reasons why trials wait
    # problems for which no trial waits: a store or files that do not answer
    troubles: tuple[str, ...] = ()
    command: str = ""  # the command that resumes the study as this driver ran it

    def write(self, folder: Path) -> None:
        """Write the status into the study's folder."""
        with suppress(OSError):  # because the study itself reports a disk that takes no files
            write_whole(folder / _FILE, json.dumps(asdict(self)), sync=False)


def read(folder: Path) -> DriverStatus | None:
    """Return the status that the newest driver wrote, or None if no status can be read."""
    try:
        content = read_json(folder / _FILE)
        if not content:
            return None
        for name in ("notes", "troubles"):
            content[name] = tuple(map(str, content.get(name, ())))
        return DriverStatus(**content)
    except (CorruptFile, OSError, TypeError, KeyError):
        return None
