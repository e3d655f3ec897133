"""The product's own search without a loop: its choosers and its record, asked one trial at a time. Nothing trains."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from sweeps.hydra.settings import SweeperConf
from sweeps.record.definition import define
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.record.writer import Record
from sweeps.space.grammar import parse
from sweeps.study.run.choosing import Choosing
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import MetricsLine

DEFAULT = "sweeps.choose.sampler.build.DefaultSampler"
"""The sampler that hydra/sweeper=optuna means."""


class Asked:
    """A search in `folder` over what `lines` say, each a parameter as one types it."""

    def __init__(self, folder: Path, settings: SweeperConf, lines: Sequence[str]) -> None:
        space = parse(OverridesParser.create().parse_overrides([*lines]), {}, {})
        config = DictConfig({"seed": 0, "hydra": {"sweeper": {}}})
        choosing = Choosing("s", folder, settings, space, config)
        definition = define("s", settings, space, config, choosing.planned, choosing.size)
        (folder / "study.json").write_text(json.dumps(asdict(definition)))  # so that others can learn from it
        blank = StudySnapshot("s", folder, settings.objectives, settings.directions, [], choosing.planned)
        self._record = Record(replace(blank, size=choosing.size, repeats=settings.repeats, searched=True))
        self._record.open()
        self._choosers = choosing.choosers()
        self._pruner = choosing.pruner(self._record)
        self._rungs = choosing.rungs

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return self._record.trials

    def ask(self) -> TrialRecord | None:
        """Return the next trial, begun or promoted; None while something has to end first, or when there is none."""
        for chooser in self._choosers:
            answer = chooser.next(self._record.study)
            for number in answer.resume[:1]:
                self._record.reopen([number], answer.to_end)
                self._record.mark_under_way(number)
                return self.trials[number]
            for chosen in answer.begin:
                number = len(self.trials)
                folder = self._record.study.folder / str(number)
                trial = TrialRecord(number, chosen.params, State.QUEUED, folder, by=chosen.by, of=chosen.of)
                trial = replace(trial, seed=chosen.seed, memory=chosen.memory)
                self._record.queue(trial, chosen.shared)
                self._record.mark_under_way(number)
                folder.mkdir()
                return trial
        return None

    def report(self, trial: TrialRecord, step: int, value: float) -> bool:
        """Report the objective after a step, and return whether the pruner ends the trial."""
        line = MetricsLine(step, 0.0, {self._record.study.objective[0]: value})
        TrialFolder(trial.folder).append_metrics(line)
        return self._pruner is not None and self._pruner.report(trial.number, step, value)

    def pause_step(self, trial: TrialRecord) -> int | None:
        """Return the step at which a trial pauses next; None if it trains to its end."""
        return self._rungs.pause_step(trial) if self._rungs else None

    def pause(self, trial: TrialRecord, value: float) -> None:
        self._end(trial, Outcome(State.PAUSED, objective=[value], started_at=1.0))

    def prune(self, trial: TrialRecord) -> None:
        self._end(trial, Outcome(State.PRUNED, started_at=1.0))

    def end(self, trial: TrialRecord, result: float | None) -> None:
        """End a trial with what it returned; None: it failed."""
        self._end(trial, _FAILED if result is None else Outcome(State.COMPLETED, objective=[result], started_at=1.0))

    def _end(self, trial: TrialRecord, end: Outcome) -> None:
        self._record.unmark_under_way(trial.number)
        self._record.end(trial.with_end(end))


_FAILED = Outcome(State.FAILED, "it fails", started_at=1.0)
