"""The final race: the best configurations of a study under fresh seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sweeps.choose import Changes, Next, Proposal
from sweeps.choose.repeats import Seeds
from sweeps.record.comparison import race
from sweeps.record.configurations import Configuration, by_configuration, candidates
from sweeps.record.study import By, StudySnapshot, TrialRecord


@dataclass
class Race:
    """Begins the trials of the race, once all others have ended."""

    count: int  # of the best configurations that are in it
    seeds: Seeds
    maximize: bool
    _changes: Changes = field(default_factory=Changes)
    _waits: bool | None = None  # the answer, until something changes

    def next(self, study: StudySnapshot) -> Next:
        """Return the next trial of the race. Once the search has enough, the race waits for no open trial of it."""
        if not self._changes.read_new(study) and self._waits is not None and not study.enough:
            return Next(waits=self._waits)
        trials = [one for one in study.rows if one.race or one.state.is_over or not self._is_left(one, study)]
        answer = self._of(trials, any(trial.race for trial in study.rows))
        self._waits = None if answer.begin else answer.waits
        return answer

    def _is_left(self, trial: TrialRecord, study: StudySnapshot) -> bool:
        """Whether nobody goes on with an open trial, because the search has enough."""
        return study.enough and not trial.by_hand and trial.number not in study.under_way

    def _of(self, trials: Sequence[TrialRecord], has_begun: bool) -> Next:
        if any(not trial.state.is_over for trial in trials if not trial.race):
            return Next(waits=True)
        groups = by_configuration(trials, self.seeds.key)
        chosen = candidates(groups, self.count, self.maximize)
        chosen += [one for one in groups if one.raced and one.rows and one not in chosen]  # what began the race ends it
        standing = race([one.results() for one in chosen], self.seeds.fresh, self.maximize)
        for place, seed in standing.todo:
            if seed not in {row.params[self.seeds.key] for row in chosen[place].raced}:
                message = "" if has_begun else self._message(chosen)
                return Next([self._proposal(chosen[place], seed)], waits=True, message=message)
        return Next(waits=bool(standing.todo))

    def _proposal(self, configuration: Configuration, seed: int) -> Proposal:
        like, own = configuration.rows[0], {self.seeds.key: seed}
        params = {key: value for key, value in like.params.items() if key != self.seeds.key}
        return Proposal({**params, **own}, By.RACE, like.number, own, like.outside)

    def _message(self, chosen: Sequence[Configuration]) -> str:
        first, names = self.seeds.fresh[0], "; ".join(one.name for one in chosen)
        words = f"the final race: {len(chosen)} configurations under fresh seeds from {first} on, at most "
        return f"{words}{len(self.seeds.fresh)}: {names}"
