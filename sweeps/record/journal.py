"""The journal of a study, `journal.jsonl`: what was asked, ended, reopened and added, a numbered line each.

    {"line": 0, "op": "begun", "version": 1}
    {"line": 1, "op": "asked", "trial": 0, "point": {...}, "by": "sampler", ...}    see `record.fold`
    {"line": 2, "op": "ended", "trial": 0, "attempts": [{"state": "completed", ...}]}

One writer, the study's driver; each line is fsynced before the driver acts on it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.files import MALFORMED, CorruptFile, append_lines, quarantine, write_whole

FILE = "journal.jsonl"
Event = Mapping[str, Any]


class Journal:
    """The lines of one file. Half a last line is nobody's: the next line takes its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0  # lines that were read or written
        self._whole = 0  # bytes of these lines

    def read(self, apply: Callable[[Event], None]) -> None:
        """Apply every event, in order. Raises CorruptFile at the first line that is damaged, or cannot be applied."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                try:
                    event = json.loads(line)
                    if event["line"] != self.count:
                        raise ValueError
                    apply(event)
                except MALFORMED as error:
                    raise CorruptFile(self.path, f"line {self.count + 1} is damaged") from error
                self.count += 1
                self._whole += len(line)

    def trim(self) -> None:
        """Drop half a last line, of a driver that was killed."""
        if self.path.exists() and self.path.stat().st_size > self._whole:
            os.truncate(self.path, self._whole)

    def append(self, events: Sequence[Event]) -> None:
        """Write events, whole and fsynced, or raise OSError and leave the file as it was."""
        self.trim()
        lines = [{"line": self.count + i, **event} for i, event in enumerate(events)]
        if self.path.exists():
            append_lines(self.path, lines, sync=True)
        else:  # all of an older study, or nothing
            write_whole(self.path, "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines))
        self.count += len(lines)
        self._whole = self.path.stat().st_size

    def quarantine(self) -> Path:
        """Keep the damaged file under another name, and go on with its whole lines. Return the kept file."""
        damaged = quarantine(self.path)
        write_whole(self.path, damaged.read_bytes()[: self._whole])
        return damaged
