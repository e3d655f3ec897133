"""The page of a running study."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot
from sweeps.show import tables
from sweeps.show.page import report
from sweeps.show.trials import TrialFiles
from sweeps.trial.job import State

_FIRST_S = 3.0  # because a study that is over by then needs its final page alone
_EVERY_S = 10.0
_READING_S = 0.3  # longest time for reading trials' files; the next page reads on
_MAX_FOR_IMPORTANCE = 200  # completed trials, because the importance of more takes many seconds
_IMPORTANCE_FROM_S = 60.0  # because importing scikit-learn takes seconds
_REST = 200.0  # pause between two pages, in multiples of the time for the last page


@dataclass
class LivePage:
    """Writes the page at most every 10 s, and spends at most 0.5% of the driver's time.

    `importance` computes each parameter's share of the objective's variance, again for each 50%
    more completed trials.
    """

    study: StudySnapshot
    importance: Callable[[], dict[str, float]] = dict
    clock: Callable[[], float] = time.monotonic
    problem: str = ""  # reason why the last page was not written
    files: TrialFiles = field(init=False)
    _rest_s: float = _EVERY_S  # pause after a page
    _next_page_at: float = field(init=False)
    _importance_from: float = field(init=False)
    _next_importance_count: float = MIN_FOR_IMPORTANCE  # number of completed trials
    _importance: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = TrialFiles(self.study.objective)
        now = self.clock()
        self._next_page_at = now + _FIRST_S
        self._importance_from = now + _IMPORTANCE_FROM_S

    def tick(self) -> None:
        """Write the page if it is due. Never raises, because a page must not end a study."""
        started_at = self.clock()
        if started_at < self._next_page_at:
            return
        try:
            self._update_importance(started_at)
            study = replace(self.study, importance=self._importance or self.study.importance)
            report.write_live(study, self.files, self._rest_s, _READING_S)
            self.problem = ""
        except Exception as error:
            # because trials' files may contain anything, and the disk may be full
            self.problem = (
                f"{tables.HTML} was not written, and will be retried: {type(error).__name__}:"
                f" {error}"
            )
        ended_at = self.clock()
        self._rest_s = max(_EVERY_S, _REST * (ended_at - started_at))
        self._next_page_at = ended_at + self._rest_s

    def _update_importance(self, now: float) -> None:
        completed = self.study.count(State.COMPLETED)
        is_due = (
            now >= self._importance_from
            and self._next_importance_count <= completed <= _MAX_FOR_IMPORTANCE
        )
        if self.study.searched and is_due:
            # first, because the next page must be written if this raises
            self._next_importance_count = 1.5 * completed
            self._importance = self.importance()
