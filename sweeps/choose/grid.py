"""Every point of the space once."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sweeps.choose import Changes, Next, Proposal
from sweeps.choose.out_of_memory import OutOfMemory
from sweeps.record.space import SearchSpace, canonical
from sweeps.record.study import By, StudySnapshot
from sweeps.trial.job import Point


@dataclass
class Grid:
    """Begins the points in their order. What needs more memory than a trial that ran out of it is infeasible."""

    space: SearchSpace
    memory: OutOfMemory
    max_points: int | None = None  # points to try, without those that a person adds; None: all
    _changes: Changes = field(default_factory=Changes)
    _tried: set[str] = field(default_factory=set)
    _asked: int = 0  # points that were tried, but for those that a person added
    _left: Iterator[Point] | None = None

    def next(self, study: StudySnapshot) -> Next:
        """Return the next point that was not tried."""
        for number in self._changes.read_new(study):
            trial = study.rows[number]
            tried = canonical(trial.configuration)
            self._asked += tried not in self._tried and not trial.by_hand and not trial.race
            self._tried.add(tried)
        if study.enough or (self.max_points is not None and self._asked >= self.max_points):
            return Next()
        self._left = self._left or self.space.points()
        for point in self._left:
            if canonical(point) not in self._tried:
                return Next([Proposal(point, By.GRID, infeasible=self.memory.explain_infeasible(study, point))])
        return Next()
