"""An Optuna study in memory, fed with the trials of our record: what samplers and pruners look at."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.pruners import BasePruner
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    RandomSampler,
    TPESampler,
)
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweeps.choose.sampler.encoding import Encoding
from sweeps.choose.sampler.outcomes import ConfigurationOutcomes, is_blamed, is_placeholder
from sweeps.choose.warm_start import EarlierTrial
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State

__all__ = ["CONSTRAINED", "FedStudy", "RandomSampler"]

optuna.logging.set_verbosity(optuna.logging.ERROR)  # what it warns of, a person at the terminal cannot change

RUNS = "runs"  # the constraint: above 0 where it is violated
CONSTRAINED = (GPSampler, NSGAIISampler, NSGAIIISampler)
"""These samplers want the constraint of each trial, and look at none but completed ones."""


class FedStudy:
    """Tells a sampler how trials ended, in the words that it learns from.

    Of a trial that failed, TPE hears that it is infeasible: a bad one, however few there are (c-TPE, Watanabe and
    Hutter, IJCAI 2023). The Gaussian process models how likely a point is to run (Gardner et al., ICML 2014), NSGA-II
    prefers parents that did (Deb et al., IEEE TEC 2002); CMA-ES, which goes by ranks alone, hears the worst value so
    far (Hansen, 2016). Random and quasi-random points learn nothing.
    """

    def __init__(
        self,
        study: StudySnapshot,
        sampler: type[BaseSampler],
        encoding: Encoding | None = None,
        pruner: BasePruner | None = None,
        earlier: Sequence[EarlierTrial] = (),
    ) -> None:
        """`sampler` is the class of who asks; without an encoding trials have no values, as a pruner needs none."""
        self._name, self._directions = study.name, study.directions
        self._sampler, self.encoding, self.pruner, self._earlier = sampler, encoding, pruner, earlier
        self._metric, self.repeats = study.objective[0], study.repeats
        self._begin({})

    def _begin(self, shared: Mapping[str, Any]) -> None:
        self.storage = InMemoryStorage()
        optuna.create_study(study_name=self._name, directions=cast(Any, self._directions), storage=self.storage)
        self.study = self.load_study(None)
        self._id = self.storage.get_study_id_from_name(self._name)
        for key, value in shared.items():
            self.storage.set_study_system_attr(self._id, key, value)
        self._worst: list[float] = []
        self._outcomes = ConfigurationOutcomes(self.repeats)
        self._pending: tuple[int, Any] | None = None  # a trial that was proposed and is not on record yet
        for known in self._earlier:
            self._add_earlier(known)
        self._offset = len(self._earlier)

    def follow(self, study: StudySnapshot) -> None:
        """Feed what is new. Where something goes on that had ended, or was not asked for as proposed, feed all anew."""
        update = self._outcomes.read_new(study)
        pending, self._pending = self._pending, None
        is_first = self._count == self._offset
        if is_first or update.reopened or (pending and not self._is(pending, study)):
            self._begin(study.shared)
            update = self._outcomes.read_new(study)
        for trial in update.asked:
            if trial.number + self._offset == self._count:  # else it is there, as it was proposed
                self._add(trial)
        for trial, end in update.ended:
            self._tell(trial, end)

    def load_study(self, sampler: BaseSampler | None) -> optuna.Study:
        """Return the study with this sampler. Optuna's own object keeps trials in a cache, which is not to be old."""
        self.study = optuna.load_study(
            study_name=self._name, storage=self.storage, sampler=sampler or RandomSampler(), pruner=self.pruner
        )
        return self.study

    @property
    def _count(self) -> int:
        return self.storage.get_n_trials(self._id)

    def _is(self, pending: tuple[int, Any], study: StudySnapshot) -> bool:
        number, params = pending
        return number < len(study.rows) and dict(study.rows[number].params) == params

    def begin(self, number: int, fixed: Mapping[str, Any]) -> int:
        """Return the id of a new trial that runs, whose values are to be chosen but for the `fixed` ones."""
        assert self._count == number + self._offset
        self._pending = (number, None)
        attrs = {"fixed_params": dict(fixed)} if fixed else {}
        return self.storage.create_new_trial(self._id, create_trial(state=TrialState.RUNNING, system_attrs=attrs))

    def settle(self, number: int, trial_id: int, values: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Give a trial that was begun the values that were chosen; `params` are those that its record will have."""
        assert self.encoding
        for name, value in values.items():
            distribution = self.encoding.distributions[name]
            self.storage.set_trial_param(trial_id, name, distribution.to_internal_repr(value), distribution)
        self._pending = (number, dict(params))

    def frozen(self, trial_id: int) -> FrozenTrial:
        """Return a copy of a trial as it stands."""
        return self.storage.get_trial(trial_id)

    @property
    def shared(self) -> dict[str, Any]:
        """What samplers keep with the study."""
        return dict(self.storage.get_study_system_attrs(self._id))

    def id_of(self, number: int) -> int:
        """Return the id of the trial of this number."""
        return self.storage.get_trial_id_from_study_id_trial_number(self._id, number + self._offset)

    def _add(self, trial: TrialRecord) -> None:
        point = trial.configuration
        if is_placeholder(trial) or (self.encoding and not self.encoding.holds(point)):
            self.storage.create_new_trial(self._id, create_trial(state=TrialState.FAIL))
            return
        distributions = dict(self.encoding.distributions) if self.encoding else {}
        own = trial.memory.get("distributions", {})  # of what the user's own code suggested
        distributions |= {name: json_to_distribution(text) for name, text in own.items()}
        values = self.encoding.encode(point) if self.encoding else {}
        values |= {name: point[name] for name in own}
        template = create_trial(
            state=TrialState.RUNNING,
            params=values,
            distributions={name: distributions[name] for name in values},
            system_attrs=dict(trial.memory.get("system", {})),  # Optuna writes into it
            intermediate_values=self._reports(trial) if self.pruner and trial.state.is_over else {},  # others report
        )
        self.storage.create_new_trial(self._id, template)

    def _reports(self, trial: TrialRecord) -> dict[int, float]:
        """Return what the trial reported of the first objective, by step."""
        lines = TrialFolder(trial.folder).read_metrics().values
        values = {line.step: line.metrics.get(self._metric, math.nan) for line in lines}
        return {step: value for step, value in values.items() if math.isfinite(value)}

    def _tell(self, trial: TrialRecord, end: Outcome) -> None:
        state, values, runs = self._words(end.state, end.objective, is_blamed(end))
        trial_id = self.id_of(trial.number)
        if self.frozen(trial_id).state.is_finished():
            return  # a placeholder
        if runs is not None:
            optuna.Trial(self.study, trial_id).set_constraint(RUNS, runs)
        self.storage.set_trial_state_values(trial_id, state, values)
        if end.state is State.COMPLETED:
            self._observe(end.objective)

    def _add_earlier(self, known: EarlierTrial) -> None:
        """Feed an earlier study's trial, as the sampler would have been told of it."""
        assert self.encoding
        if known.state == State.COMPLETED:
            self._observe(known.objective)
        state, values, runs = self._words(known.state, known.objective, known.failed)
        params = self.encoding.encode(known.point)
        distributions: dict[str, BaseDistribution] = {name: self.encoding.distributions[name] for name in params}
        constraints = None if runs is None else {RUNS: runs}
        self.study.add_trial(
            create_trial(
                state=state, values=values, params=params, distributions=distributions, constraints=constraints
            )
        )

    def _words(self, state: str, values: Sequence[float], blamed: bool) -> tuple[TrialState, Any, float | None]:
        """Return the state, the values and the constraint to tell of a trial that ended so."""
        constrained = issubclass(self._sampler, CONSTRAINED)
        if state == State.COMPLETED and values:
            return TrialState.COMPLETE, values, -1.0 if constrained else None
        if blamed and issubclass(self._sampler, TPESampler):
            return TrialState.PRUNED, None, 1.0
        if blamed and (constrained or issubclass(self._sampler, CmaEsSampler)) and self._worst:
            return TrialState.COMPLETE, self._worst, 1.0 if constrained else None
        return TrialState.PRUNED if state in (State.PRUNED, State.INFEASIBLE) else TrialState.FAIL, None, None

    def _observe(self, values: Sequence[float]) -> None:
        if not values:
            return
        signs = [1.0 if direction == "minimize" else -1.0 for direction in self._directions]
        pairs = zip(signs, values, self._worst or values, strict=True)
        self._worst = [sign * max(sign * value, sign * worst) for sign, value, worst in pairs]
