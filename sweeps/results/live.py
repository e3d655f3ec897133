"""The page of a study while it runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sweeps.results import report
from sweeps.results.summary import Summary
from sweeps.results.trials import Trials

_FIRST_S = 3.0  # a study that is over by then has its page at its end alone
_EVERY_S = 10.0
_READING_S = 0.3  # at most, of trials' files; what is left comes with the next writing
_TIMES = 20.0  # as long as the last writing took the driver has for its trials before it writes again


@dataclass
class LivePage:
    """Writes it again and again: at most every 10 s, and with at most a twentieth of the driver's time."""

    summary: Summary
    clock: Callable[[], float] = time.monotonic
    problem: str = ""  # why it could not be written the last time; the next time may do better
    _trials: Trials = field(init=False)
    _due: float = field(init=False)

    def __post_init__(self) -> None:
        self._trials, self._due = Trials(self.summary, _READING_S), self.clock() + _FIRST_S

    def tick(self) -> None:
        """Write it if it is time to. Never raises: a page ends no study."""
        began = self.clock()
        if began < self._due:
            return
        try:
            report.write_live(self.summary, self._trials, _EVERY_S)
            self.problem = ""
        except Exception as error:  # whatever a trial left in its files, or a full disk
            self.problem = f"{report.HTML} cannot be written now: {type(error).__name__}: {error}"
        ended = self.clock()
        self._due = ended + max(_EVERY_S, _TIMES * (ended - began))
