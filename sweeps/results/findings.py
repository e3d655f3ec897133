"""What follows from a study's trials, each derived once, for all that one report shows of them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from sweeps.record import configurations, costs, pareto_front
from sweeps.record.answer import Answer, Pair, answer_of, pairs
from sweeps.record.configurations import Ranking
from sweeps.record.study import StudySnapshot, TrialRecord, parameters
from sweeps.results import notes, scaling
from sweeps.results.scaling import Scaling
from sweeps.trial.folder import Note
from sweeps.trial.job import State
from sweeps.wording import LONGEST, short, text


@dataclass(frozen=True)
class Findings:
    """A study and what follows from it. Made anew for each report: the study may go on meanwhile."""

    study: StudySnapshot
    target: float | None = None  # what the first objective is to reach, of a study that scales
    wanted: Sequence[int] = ()  # the counts to forecast there
    reads_all: bool = True  # whether files of all trials may be read, for notes and scaling
    origin: "Findings | None" = None  # of the same trials, for which those files were read

    @cached_property
    def top(self) -> Sequence[TrialRecord]:
        """The completed trials, best first, of several objectives the front before all others."""
        return self.study.top()

    @cached_property
    def front(self) -> Set[int]:
        """Of several objectives, the numbers of the trials that no other dominates."""
        return self.study.front()

    @cached_property
    def ranked(self) -> Sequence[TrialRecord]:
        """All trials: the completed ones best first, then the others by number."""
        placed = {row.number for row in self.top}
        others = [row for row in self.study.rows if row.number not in placed]
        return [*self.top, *sorted(others, key=lambda row: row.number)]

    @cached_property
    def ranking(self) -> Ranking:
        return configurations.rank(self.study)

    @cached_property
    def answer(self) -> Answer:
        return answer_of(self.top, len(self.front), self.ranking)

    @cached_property
    def pairs(self) -> Sequence[Pair]:
        """Values compared pairwise, where configurations have several seeds."""
        known = self.ranking.configurations
        return pairs(self.study, self.top, known[0].key) if known else ()

    @cached_property
    def costs(self) -> Mapping[str, Mapping[str, float]]:
        return costs.of_study(self.study.rows)

    @cached_property
    def tail_s(self) -> float:
        return costs.tail_s(self.study.rows)

    @cached_property
    def hypervolumes(self) -> Sequence[tuple[int, float]]:
        return pareto_front.hypervolumes(self.study, self.top)

    @cached_property
    def notes(self) -> Mapping[str, Note]:
        if self.origin:
            return self.origin.notes
        return notes.of_study(self.study.rows) if self.reads_all else {}

    @cached_property
    def scaling(self) -> Scaling | None:
        if self.origin:
            return self.origin.scaling
        return scaling.measure_scaling(self.study, self.target, self.wanted) if self.reads_all else None

    def table(self, rows: Sequence[TrialRecord]) -> list[list[str]]:
        """Some trials as rows of cells: number, parameters and objectives, of one that runs those that it reported
        last; with several objectives whether it is on the front, unless all are. The first row is the header.
        """
        names, objective = parameters(rows), self.study.objective
        marked = 0 < len(self.front) < len(self.top)
        table = [["trial", *names, *objective, *["on the front"] * marked]]
        for row in rows:
            values = [row.params.get(name, "") for name in names]
            last = row.metrics if row.state is State.RUNNING else {}
            results: Sequence[object] = row.objective or [last.get(name, "") for name in objective]
            mark = ["yes" if row.number in self.front else ""] * marked
            table.append([short(text(value), LONGEST) for value in (row.number, *values, *results, *mark)])
        return table


def findings_of(study: StudySnapshot | Findings) -> Findings:
    """Return what follows from the study, which somebody may have derived already."""
    return study if isinstance(study, Findings) else Findings(study)
