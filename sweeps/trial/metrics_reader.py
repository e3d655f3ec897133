"""A reader of the lines that a trial appends to its metrics files."""

from dataclasses import dataclass

from sweeps.base.files import Lines
from sweeps.trial.folder import TrialFolder
from sweeps.trial.metrics import METRICS


@dataclass
class MetricsReader:
    """A reader of one metrics file of a trial, with the offset up to which it has read."""

    folder: TrialFolder
    name: str = METRICS
    offset: int = 0  # bytes that were marked as read

    def unread(self) -> Lines:
        """Return the lines after `offset`. If the file was truncated, all its lines are unread
        again."""
        return self.folder.read_metrics(self.offset, self.name)

    def mark_read(self, lines: Lines) -> bool:
        """Mark these lines as read. Return whether they continue the lines before; False if the
        file was truncated."""
        is_continuation = lines.offset >= self.offset
        self.offset = lines.offset
        return is_continuation
