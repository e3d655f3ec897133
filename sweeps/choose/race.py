"""The final race: the best configurations of a study under fresh seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sweeps.analysis.comparison import race
from sweeps.analysis.configurations import Configuration, by_configuration, candidates
from sweeps.base.wording import counted
from sweeps.choose import Changes, Next, Proposal
from sweeps.choose.repeats import Seeds
from sweeps.record.study import By, StudySnapshot, TrialRecord


@dataclass
class Race:
    """A chooser that begins the trials of the race once all other trials have ended."""

    count: int  # number of best configurations in the race
    seeds: Seeds
    maximize: bool
    _changes: Changes = field(default_factory=Changes)
    _waits: bool | None = None  # cached answer, until a trial changes

    def next(self, study: StudySnapshot) -> Next:
        """Return the next trial of the race. If the search has enough, its open trials do not delay
        the race."""
        if not self._changes.read_new(study) and self._waits is not None and not study.enough:
            return Next(waits=self._waits)
        # without open trials that will not be resumed, because the search has enough
        trials = [
            trial
            for trial in study.rows
            if not study.enough
            or trial.race
            or trial.by_hand
            or trial.state.is_settled
            or trial.number in study.under_way
        ]
        answer = self._choose(trials, any(trial.race for trial in trials))
        self._waits = None if answer.begin else answer.waits
        return answer

    def _choose(self, trials: Sequence[TrialRecord], has_begun: bool) -> Next:
        if any(not trial.state.is_settled for trial in trials if not trial.race):
            return Next(waits=True)
        racing = self._racing(trials)
        results = [configuration.results() for configuration in racing]
        standing = race(results, self.seeds.fresh, self.maximize)
        for index, seed in standing.todo:
            configuration = racing[index]
            begun = {trial.params[self.seeds.key] for trial in configuration.raced}
            if seed in begun:
                continue
            first = configuration.rows[0]
            seeded = {self.seeds.key: seed}
            params = {**configuration.params, **seeded}
            proposal = Proposal(params, By.RACE, first.number, seeded, first.outside)
            message = "" if has_begun else self._announce(racing)
            return Next([proposal], waits=True, message=message)
        return Next(waits=bool(standing.todo))

    def _racing(self, trials: Sequence[TrialRecord]) -> list[Configuration]:
        """Return the best configurations, and further ones that are in the race already."""
        groups = by_configuration(trials, self.seeds.key)
        racing = candidates(groups, self.count, self.maximize)
        begun = [group for group in groups if group.raced and group.rows]
        return racing + [group for group in begun if group not in racing]

    def _announce(self, racing: Sequence[Configuration]) -> str:
        fresh = self.seeds.of_race(len(racing))
        names = "; ".join(configuration.name for configuration in racing)
        seeds = f"up to {len(fresh)} fresh seeds each (first seed: {fresh[0]})"
        return f"final race: {counted(len(racing), 'configuration')}, {seeds}: {names}"
