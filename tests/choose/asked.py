"""A search without a loop: real choosers and a real record, asked one trial at a time; trials end as a table says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from sweeps.hydra.functions import extend_grammar
from sweeps.hydra.settings import SweeperConf
from sweeps.record.fold import trial_as_json
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.record.writer import Record
from sweeps.space.grammar import parse, parse_condition
from sweeps.space.space import SearchSpace
from sweeps.study.run.choosing import Choosing
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State

extend_grammar()
PARSER = OverridesParser.create()
Ending = Callable[[Point], float | State]


def space(*lines: str, conditional: dict[str, list[str]] | None = None, also: Sequence[str] = ()) -> SearchSpace:
    under = {parse_condition(k): PARSER.parse_overrides(v) for k, v in (conditional or {}).items()}
    further = [PARSER.parse_overrides([*lines, *words.split()]) for words in also]
    return parse(PARSER.parse_overrides(list(lines)), under, {}, further)


class Asked:
    """A study in `folder`, as its next driver opens it."""

    def __init__(
        self, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.choosing = choosing = Choosing("s", folder, settings, space, config or DictConfig({}))
        self.space = choosing.space
        repeats = 1 if choosing.is_grid else settings.repeats
        study = StudySnapshot("s", folder, choosing.objective.names, settings.directions, [], choosing.planned)
        searched = not choosing.is_grid
        study = replace(study, size=choosing.size, repeats=repeats, searched=searched, seed_key=settings.seed_key)
        self.record = Record(study)
        choosing.earlier.save()
        self.record.open()
        self.choosers = choosing.choosers()
        self.pruner = choosing.pruner(self.record)
        self._clock = 1.0 + sum(row.state.is_over for row in self.record.trials)

    @property
    def study(self) -> StudySnapshot:
        return self.record.study

    @property
    def trials(self) -> list[TrialRecord]:
        return [*self.record.trials]

    def ask(self) -> TrialRecord | None:
        """Begin the next trial, an open trial of an earlier driver or a new trial, and return the trial."""
        for chooser in self.choosers:
            answer = chooser.next(self.study)
            if answer.resume:
                trial = self.record.trials[answer.resume[0]]
            elif answer.begin:
                chosen, number = answer.begin[0], len(self.record.trials)
                folder = self.study.folder / str(number)
                trial = TrialRecord(number, chosen.params, State.QUEUED, folder, by=chosen.by, of=chosen.of)
                more = {"seed": chosen.seed, "outside": chosen.outside, "added": chosen.added, "memory": chosen.memory}
                trial = replace(trial, **more)
                self.record.queue(trial, chosen.shared)
                TrialFolder(folder).write_trial({"number": number, **trial_as_json(trial, self.study.folder)})
                if chosen.infeasible:
                    self.end(trial, State.INFEASIBLE)
                    return self.ask()
            else:
                continue
            self.record.mark_under_way(trial.number)
            return trial
        return None

    def end(self, trial: TrialRecord, outcome: float | State | Outcome) -> None:
        self._clock += 1
        names = self.study.objective
        if isinstance(outcome, State):
            began = None if outcome is State.INFEASIBLE else 1.0
            outcome = Outcome(outcome, "so it was told", started_at=began)
        elif not isinstance(outcome, Outcome):
            outcome = Outcome(State.COMPLETED, objective=[outcome] * len(names), started_at=1.0)
        self.record.unmark_under_way(trial.number)
        self.record.end(self.record.trials[trial.number].with_end(replace(outcome, ended_at=self._clock)))

    def run(self, outcome: Ending, most: int = 1000) -> list[Point]:
        """Run the trials that the chooser begins, and return their points."""
        points: list[Point] = []
        while len(points) < most and (trial := self.ask()):
            points.append(trial.params)
            self.end(trial, outcome(trial.params))
        return points
