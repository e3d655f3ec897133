"""Results derived from a study's trials, each computed once for all parts of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from sweeps.analysis import configurations, costs, pareto_front
from sweeps.analysis.advice import Advice, Use, examine
from sweeps.analysis.answer import Answer, Pair, answer_of, pairs
from sweeps.analysis.configurations import Ranking
from sweeps.base.wording import LONGEST, digits_of, short, text
from sweeps.record.study import StudySnapshot, TrialRecord, Trials, parameters
from sweeps.show import notes, scaling_study, steering
from sweeps.show.scaling import Scaling
from sweeps.trial.confusion import Confusion, read_confusion
from sweeps.trial.folder import Note
from sweeps.trial.job import State

_NOT_STARTED = "not started"
_MOST_CONFUSIONS = 20  # best trials in which a confusion matrix is looked for


@dataclass(frozen=True)
class Findings:
    """A study and its derived results. Each report makes new findings, because a running study
    changes."""

    study: StudySnapshot
    target: float | None = None  # value of the first objective to reach, for the scaling page
    forecast_counts: Sequence[int] = ()  # counts of GPUs, nodes or ranks to forecast
    reads_all: bool = True  # whether notes, steering and scaling may read the files of all trials
    # findings of the same trials, whose notes and scaling were read
    origin: "Findings | None" = None

    @cached_property
    def top(self) -> Trials:
        """Return the completed trials, best first; for several objectives, the Pareto front
        first."""
        return self.study.top()

    @cached_property
    def front(self) -> Set[int]:
        """Return the numbers of the trials on the Pareto front; empty for one objective."""
        return self.study.front()

    @cached_property
    def ranked(self) -> Trials:
        """Return all trials: the completed trials best first, then the rest by number."""
        completed = {trial.number for trial in self.top}
        rest = [trial for trial in self.study.rows if trial.number not in completed]
        return [*self.top, *rest]

    @cached_property
    def ranking(self) -> Ranking:
        return configurations.rank(self.study)

    @cached_property
    def answer(self) -> Answer:
        return answer_of(self.top, len(self.front), self.ranking)

    @cached_property
    def pairs(self) -> Sequence[Pair]:
        """Return the pairwise comparisons of a parameter's values, if configurations have several
        seeds."""
        ranked = self.ranking.configurations
        return pairs(self.study, self.top, ranked[0].key) if ranked else ()

    @cached_property
    def costs(self) -> Mapping[str, Mapping[str, float]]:
        return costs.of_study(self.study.rows)

    @cached_property
    def efficiency(self) -> tuple[Sequence[Use], Sequence[Advice]]:
        """Return the use of each requested resource, and advice on what to request."""
        return examine(self.study.rows)

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
        return notes.collect_notes(self.study) if self.reads_all else {}

    @cached_property
    def steering(self) -> Sequence[str]:
        """Return what persons changed in the study, and when."""
        if self.origin:
            return self.origin.steering
        return steering.describe_steering(self.study, self.reads_all)

    @cached_property
    def scaling(self) -> Scaling | None:
        if self.origin:
            return self.origin.scaling
        if not self.reads_all:
            return None
        return scaling_study.measure_scaling(self.study, self.target, self.forecast_counts)

    @cached_property
    def saved_model(self) -> tuple[TrialRecord, Confusion] | None:
        """Return the best trial with a confusion matrix, and the matrix; None if none of the best
        trials has one."""
        for trial in self.top[:_MOST_CONFUSIONS]:
            if confusion := read_confusion(trial.folder):
                return trial, confusion
        return None

    def table(self, trials: Trials) -> list[list[str]]:
        """Return a header and a row of cells for each trial: number, params and objectives.

        A running trial has its newest metrics. If some trials were continued, a column has their
        longer budget; if some completed trials are dominated, one marks the Pareto front.
        """
        names = parameters(trials)
        objective = self.study.objective
        extra = self._extra_columns(trials)
        table = [["trial", *names, *objective, *extra]]
        all_results = [_results(trial, objective) for trial in trials]
        digits = [digits_of(column) for column in zip(*all_results, strict=True)]
        for row, (trial, values) in enumerate(zip(trials, all_results, strict=True)):
            params = [trial.params.get(name, "") for name in names]
            results = [text(value, most) for value, most in zip(values, digits, strict=True)]
            others = [column[row] for column in extra.values()]
            cells = (trial.number, *params, *results, *others)
            table.append([short(text(cell), LONGEST) for cell in cells])
        return table

    def _extra_columns(self, trials: Trials) -> dict[str, list[str]]:
        """Return the columns that only some studies have, by their header."""
        columns: dict[str, list[str]] = {}
        if any(trial.longer for trial in trials):
            columns["continued with"] = [" ".join(trial.longer) for trial in trials]
        if 0 < len(self.front) < len(self.top):
            marks = [trial.number in self.front for trial in trials]
            columns["on the front"] = ["yes" if mark else "" for mark in marks]
        return columns


def _results(trial: TrialRecord, objective: Sequence[str]) -> Sequence[object]:
    """Return the objectives of a trial; of a running trial, its newest metrics."""
    newest = trial.metrics if trial.state is State.RUNNING else {}
    if len(trial.objective) == len(objective):
        return trial.objective
    return [newest.get(name, "") for name in objective]


def findings_of(study: StudySnapshot | Findings) -> Findings:
    """Return the findings of a study, or findings as they are."""
    return study if isinstance(study, Findings) else Findings(study)


def count_states(study: StudySnapshot) -> dict[str, int]:
    """Return the number of trials by state. The counts add up to the study's total.

    Planned trials without a record count as queued or, if the study is done, as not started.
    """
    counts = Counter(trial.state.value for trial in study.rows)
    counts[_NOT_STARTED if study.done else State.QUEUED] += max(
        0, (study.total or 0) - len(study.rows)
    )
    return {name: counts[name] for name in (*State, _NOT_STARTED) if counts[name]}
