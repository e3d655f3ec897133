"""The journal of a study, `journal.jsonl`: the events of its trials, each a numbered line.

    {"line": 0, "op": "started", "version": 1}
    {"line": 1, "op": "queued", "number": 0, "params": {...}, "by": "sampler", ...}    see
                                                                                    `record.fold`
    {"line": 2, "op": "ended", "number": 0, "attempts": [{"state": "completed", ...}]}

One writer, the study's driver; each line is fsynced before the driver acts on it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.base.files import (
    MALFORMED,
    CorruptFile,
    append_lines,
    as_lines,
    quarantine,
    write_whole,
)

FILE = "journal.jsonl"
Event = Mapping[str, Any]


class Journal:
    """The lines of one file. The next line replaces an incomplete last line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0  # number of lines that were read or written
        self._whole = 0  # size of these lines in bytes

    def read(self, apply: Callable[[Event], None]) -> None:
        """Apply all events in order. Raises CorruptFile at the first line that is damaged, or
        cannot be applied."""
        if not self.path.exists():
            return
        if not self.path.is_file():
            raise CorruptFile(self.path, "it is not a regular file")
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
        """Drop an incomplete last line, which a killed driver leaves."""
        if self.path.exists() and self.path.stat().st_size > self._whole:
            os.truncate(self.path, self._whole)

    def append(self, events: Sequence[Event]) -> None:
        """Append events, fsynced. If that fails, raises OSError and leaves the file unchanged."""
        self.trim()
        lines = [{"line": self.count + i, **event} for i, event in enumerate(events)]
        if self.path.exists():
            append_lines(self.path, lines, sync=True)
        else:
            write_whole(self.path, as_lines(lines))
        self.count += len(lines)
        self._whole = self.path.stat().st_size

    def quarantine(self) -> Path:
        """Rename the damaged file, and copy its valid lines into a new file. Return the renamed
        file."""
        damaged = quarantine(self.path)
        write_whole(self.path, damaged.read_bytes()[: self._whole] if self._whole else b"")
        return damaged
