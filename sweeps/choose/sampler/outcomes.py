"""The outcomes of configurations, in the order of the record: the data that a search learns
from."""

from dataclasses import dataclass, field

from sweeps.choose import Changes
from sweeps.record.study import StudySnapshot, TrialRecord, by_first, verdict
from sweeps.trial.job import Outcome, State

BLAMED = {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY, State.INFEASIBLE}


def is_placeholder(trial: TrialRecord) -> bool:
    """Return whether a sampler ignores this trial: a repeat, a point outside of the space, or
    unknown params."""
    return trial.of is not None or trial.outside or (not trial.params and trial.state.is_over)


def is_blamed(end: Outcome) -> bool:
    """Return whether the trial's params caused its failure, so that similar points are likely to
    fail."""
    return end.state in BLAMED and not end.missing_objective


@dataclass(frozen=True)
class Update:
    """The changes of the record since the last call."""

    proposed: list[TrialRecord]
    # first trial of each configuration, and the outcome of all its repeats
    ended: list[tuple[TrialRecord, Outcome]]
    reopened: bool  # whether a configuration that had ended is open again


@dataclass
class ConfigurationOutcomes:
    """A follower of the record; without repeats each trial is a configuration."""

    repeats: int
    _changes: Changes = field(default_factory=Changes)
    # trials of each configuration, by its first trial
    _groups: dict[int, list[int]] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)
    _count: int = 0  # number of trials read

    def read_new(self, study: StudySnapshot) -> Update:
        """Return the changes since the last call; outcomes are in the order of the record."""
        proposed = study.rows[self._count :]
        self._count = len(study.rows)
        for first, trials in by_first(proposed).items():
            self._groups.setdefault(first, []).extend(trial.number for trial in trials)

        ended = []
        reopened = False
        trials = [study.rows[number] for number in self._changes.read_new(study)]
        firsts = [trial.first for trial in trials if not trial.race]
        # in the order of the last changes
        for first in reversed(dict.fromkeys(reversed(firsts))):
            if is_placeholder(study.rows[first]):
                continue
            end = verdict([study.rows[number] for number in self._groups[first]], self.repeats)
            if end is None:
                reopened |= first in self._ended
            elif first not in self._ended:
                self._ended.add(first)
                ended.append((study.rows[first], end))
        return Update([*proposed], ended, reopened)
