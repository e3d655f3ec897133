"""Grid search: every point of the space once."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sweeps.choose import Changes, Next, Proposal
from sweeps.choose.out_of_memory import OutOfMemory
from sweeps.record.narrowed import narrow
from sweeps.record.study import By, StudySnapshot, TrialRecord
from sweeps.space.space import SearchSpace, canonical
from sweeps.trial.job import Point


@dataclass
class Grid:
    """A chooser that begins the points in order; points that need too much memory are
    infeasible."""

    space: SearchSpace
    memory: OutOfMemory
    max_points: int | None = None  # points to try, without added points; None: all
    _changes: Changes = field(default_factory=Changes)
    _tried: set[str] = field(default_factory=set)
    _count: int = 0  # tried points, without added points
    _left: Iterator[Point] | None = None
    _restored: int = 0  # number of exclusions that were removed when `_left` began

    def next(self, study: StudySnapshot) -> Next:
        """Return the next untried point."""
        for number in self._changes.read_new(study):
            self._follow(study.rows[number])
        is_complete = self.max_points is not None and self._count >= self.max_points
        if study.enough or is_complete:
            return Next()

        if self._left is None or len(study.restored) != self._restored:
            self._left = self.space.points()
            self._restored = len(study.restored)
        allowed = narrow(self.space, study.excluded)
        for point in self._left:
            if canonical(point) not in self._tried and not allowed.excludes(point):
                infeasible = self.memory.explain_infeasible(study, point)
                return Next([Proposal(point, By.GRID, infeasible=infeasible)])
        return Next()

    def _follow(self, trial: TrialRecord) -> None:
        identity = canonical(trial.configuration)
        if identity not in self._tried and not trial.by_hand and not trial.race:
            self._count += 1
        self._tried.add(identity)
