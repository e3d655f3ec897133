"""The page of a study while it runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sweeps.record.study import ENOUGH, StudySnapshot
from sweeps.results import report
from sweeps.results.trials import Trials
from sweeps.trial.job import State

_FIRST_S = 3.0  # a study that is over by then has its page at its end alone
_EVERY_S = 10.0
_READING_S = 0.3  # at most, of trials' files; what is left comes with the next writing
_WEIGHED = (ENOUGH, 200)  # completed trials of which importance is told; of more it takes many seconds
_WEIGHED_FROM_S = 60.0  # and not before, as it imports scikit-learn
_TIMES = 20.0  # as long as the last writing took the driver has for its trials before it writes again


@dataclass
class LivePage:
    """Writes it again and again: at most every 10 s, and with at most a twentieth of the driver's time.

    `importance` tells the share of each parameter in the variance of what is judged. It is asked again when half as
    many trials more have completed.
    """

    summary: StudySnapshot
    importance: Callable[[], dict[str, float]] = dict
    clock: Callable[[], float] = time.monotonic
    problem: str = ""  # why it could not be written the last time; the next time may do better
    trials: Trials = field(init=False)
    _due: float = field(init=False)
    _weigh_from: float = field(init=False)
    _weigh_at: float = _WEIGHED[0]
    _shares: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trials, now = Trials(self.summary.objective), self.clock()
        self._due, self._weigh_from = now + _FIRST_S, now + _WEIGHED_FROM_S

    def tick(self) -> None:
        """Write it if it is time to. Never raises: a page ends no study."""
        began = self.clock()
        if began < self._due:
            return
        try:
            self._weigh(began)
            study = replace(self.summary, importance=self._shares or self.summary.importance)
            report.write_live(study, self.trials, _EVERY_S, _READING_S)
            self.problem = ""
        except Exception as error:  # whatever a trial left in its files, or a full disk
            self.problem = f"{report.HTML} cannot be written now: {type(error).__name__}: {error}"
        ended = self.clock()
        self._due = ended + max(_EVERY_S, _TIMES * (ended - began))

    def _weigh(self, now: float) -> None:
        completed = self.summary.count(State.COMPLETED)
        if self.summary.searched and now >= self._weigh_from and self._weigh_at <= completed <= _WEIGHED[1]:
            self._weigh_at = 1.5 * completed  # also if it raises: the page comes without it the next time
            self._shares = self.importance()
