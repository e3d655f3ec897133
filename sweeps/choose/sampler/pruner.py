"""Early stopping: whether a running trial is worse than others and should end."""

import math
from dataclasses import dataclass, field

from optuna.pruners import BasePruner

from sweeps.choose import Changes
from sweeps.choose.sampler.faults import explain_faults
from sweeps.choose.sampler.fed_study import FedStudy
from sweeps.choose.sampler.stored import storable
from sweeps.record.study import TrialRecord
from sweeps.record.writer import Record


@dataclass
class Pruner:
    """A judge of the values that trials report. If the first trial of a configuration is pruned,
    its repeats end."""

    fed: FedStudy
    record: Record
    _changes: Changes = field(default_factory=Changes)
    # trials of each configuration, by its first trial
    _groups: dict[int, set[int]] = field(default_factory=dict)

    def report(self, number: int, step: int, value: float) -> bool:
        """Record a value of the objective, and return whether the trial should end."""
        trial = self.record.trials[number]
        if trial.of is not None:
            return not trial.race and self._is_given_up(trial.of)
        if self.fed.pruner is None or not math.isfinite(value):
            return False
        self.fed.follow(self.record.study)
        trial_id = self.fed.id_of(number)
        frozen = self.fed.frozen(trial_id)
        if frozen.state.is_finished() or step <= max(frozen.intermediate_values, default=-1):
            return False
        self.fed.storage.set_trial_intermediate_value(trial_id, step, value)
        return self._ask(self.fed.pruner, trial, trial_id)

    def _ask(self, pruner: BasePruner, trial: TrialRecord, trial_id: int) -> bool:
        """Return whether the pruner ends the trial, and store what it notes with the trial."""
        kind = type(pruner)
        with explain_faults(kind):
            prunes = pruner.prune(self.fed.load_study(None), self.fed.frozen(trial_id))
        self.fed.refuse_added(kind, len(self.record.trials))
        attrs = storable(kind, self.fed.frozen(trial_id).system_attrs)
        if attrs != trial.memory.get("system", {}):
            self.record.store_memory(trial.number, {**trial.memory, "system": attrs})
        return prunes

    def _is_given_up(self, first: int) -> bool:
        for number in self._changes.read_new(self.record.study):
            trial = self.record.trials[number]
            if not trial.race:
                self._groups.setdefault(trial.first, set()).add(number)
        return any(self.record.trials[number].state.decides for number in self._groups[first])
