"""What a study's driver does just now, for those who look at the study from outside: `python -m sweeps status`."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sweeps.files import Unreadable, read_json, write_whole

_FILE = "standing.json"


@dataclass(frozen=True)
class Standing:
    """It holds as long as the driver that wrote it lives."""

    running: int  # how many trials have a slot, or a job that is queued or runs
    full: bool  # whether there is no room for another one
    stopped: str = ""  # why no further trial starts; empty if one does
    notes: tuple[str, ...] = ()  # what else keeps trials waiting
    troubles: tuple[str, ...] = ()  # what keeps none waiting: a store or files that do not answer

    def write(self, folder: Path) -> None:
        with suppress(OSError):  # what is wrong with the disk, the study says where it matters
            write_whole(folder / _FILE, json.dumps(asdict(self)), sync=False)


def read(folder: Path) -> Standing | None:
    """What the newest driver wrote; None if there is nothing that can be read."""
    try:
        content = read_json(folder / _FILE)
        told = {name: tuple(map(str, (content or {}).get(name, ()))) for name in ("notes", "troubles")}
        return Standing(**{**content, **told}) if content else None
    except (Unreadable, OSError, TypeError, KeyError):
        return None
