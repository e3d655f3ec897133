"""How configurations ended, in the order in which that was seen: what a search learns from."""

from dataclasses import dataclass, field

from sweeps.choose import Changes
from sweeps.record.replicates import verdict
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.trial.job import Outcome, State

BLAMED = {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY, State.INFEASIBLE}


def is_placeholder(trial: TrialRecord) -> bool:
    """Whether a sampler learns nothing of this trial: it repeats another one, or lies outside of the space."""
    return trial.of is not None or trial.outside or (not trial.params and trial.state.is_over)


def is_blamed(end: Outcome) -> bool:
    """Whether the trial's own values kept it from a result, so that others like it had better not be tried."""
    return end.state in BLAMED and not end.misfit


@dataclass(frozen=True)
class Update:
    """What changed since the last look."""

    asked: list[TrialRecord] = field(default_factory=list)
    ended: list[tuple[TrialRecord, Outcome]] = field(default_factory=list)
    """The first trial of each configuration that has ended, and how: with repeats by all of its trials."""
    reopened: bool = False  # whether something that had ended goes on


@dataclass
class ConfigurationOutcomes:
    """Follows the record. A trial by itself is a configuration where nothing repeats."""

    repeats: int
    _changes: Changes = field(default_factory=Changes)
    _groups: dict[int, list[int]] = field(default_factory=dict)  # the trials of each configuration, by the first
    _ended: set[int] = field(default_factory=set)
    _count: int = 0  # trials that were seen

    def read_new(self, study: StudySnapshot) -> Update:
        """Return what changed since the last call, ends in the order in which they were recorded."""
        firsts: dict[int, None] = {}
        for number in self._changes.read_new(study):
            trial = study.rows[number]
            first = number if trial.of is None or trial.race else trial.of
            firsts.pop(first, None)
            firsts[first] = None
        asked = [study.rows[number] for number in range(self._count, len(study.rows))]
        self._count = len(study.rows)
        for trial in asked:
            if not trial.race:
                self._groups.setdefault(trial.number if trial.of is None else trial.of, []).append(trial.number)
        ended, reopened = [], False
        for first in firsts:
            if is_placeholder(study.rows[first]):
                continue
            end = verdict([study.rows[number] for number in self._groups[first]], self.repeats)
            reopened |= end is None and first in self._ended
            if end and first not in self._ended:
                self._ended.add(first)
                ended.append((study.rows[first], end))
        return Update(asked, ended, reopened)
