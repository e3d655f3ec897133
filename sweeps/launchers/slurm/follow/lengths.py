"""How long trials take, by their number of GPUs, and whether they are short: many of these belong
into one job."""

import statistics
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sweeps.base.files import CorruptFile
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State

_ENOUGH = 3  # trials, for a median
_NEWEST = 36


class Lengths:
    """The durations of the newest trials that ended by themselves, live or read from the study's
    folder."""

    def __init__(self) -> None:
        self._seconds: dict[float, deque[float]] = defaultdict(lambda: deque(maxlen=_NEWEST))

    def read(self, study: Path) -> None:
        """Read how long the newest trials of earlier commands took."""
        names = [file.parent.name for file in study.glob("[0-9]*/trial.json")]
        for number in sorted(int(name) for name in names if name.isdecimal())[-_NEWEST:]:
            with suppress(OSError, CorruptFile):  # because such a trial only counts as unmeasured
                for attempt in TrialFolder(study / str(number)).attempts():
                    self.add(attempt.end())

    def add(self, end: Outcome | None) -> None:
        if end and end.state in (State.COMPLETED, State.PRUNED) and end.duration_s > 0:
            self._seconds[end.gpus].append(end.duration_s)

    def median_s(self, gpus: float) -> float | None:
        """Return the median duration in seconds; None before three trials have ended."""
        seconds = self._seconds[gpus]
        return statistics.median(seconds) if len(seconds) >= _ENOUGH else None

    def are_short(self, gpus: float, limit_s: float, ages_s: Sequence[float]) -> bool | None:
        """Return whether trials take less than the limit; None before this can be judged.

        Running trials, with the ages `ages_s`, count with their ages, because the shortest trials
        end first.
        """
        if self.median_s(gpus) is not None:
            return statistics.median([*self._seconds[gpus], *ages_s]) < limit_s
        return False if any(age > limit_s for age in ages_s) else None
