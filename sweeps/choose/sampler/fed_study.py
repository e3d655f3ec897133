"""An Optuna study in memory, fed with the trials of the record, for samplers and pruners to
read."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    TPESampler,
)
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweeps.choose.curves import finite_values
from sweeps.choose.sampler.encoding import Encoding, choice_of, own_distributions
from sweeps.choose.sampler.faults import Kind, explain_faults, fault
from sweeps.choose.sampler.outcomes import ConfigurationOutcomes, is_blamed, is_placeholder
from sweeps.choose.sampler.stored import checked
from sweeps.choose.warm_start import EarlierTrial
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.space.space import canonical
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State

optuna.logging.set_verbosity(optuna.logging.ERROR)  # because users cannot act on Optuna's warnings

RUNS = "runs"  # name of the constraint; above 0 where it is violated
CONSTRAINED = (GPSampler, NSGAIISampler, NSGAIIISampler)
"""The samplers that need a constraint for each trial and read completed trials only."""


class FedStudy:
    """The trials in the form that each sampler learns from.

    For TPE a failed trial is infeasible, and so a bad trial, even if few trials fail (c-TPE,
    Watanabe and Hutter, IJCAI 2023). The Gaussian process models the probability that a point runs
    (Gardner et al., ICML 2014). NSGA-II prefers feasible parents (Deb et al., IEEE TEC 2002).
    CMA-ES uses ranks only, so a failed trial has the worst value so far (Hansen, 2016). Random and
    quasi-random samplers learn nothing.
    """

    def __init__(
        self,
        study: StudySnapshot,
        sampler: type[BaseSampler] = optuna.samplers.RandomSampler,
        encoding: Encoding | None = None,
        pruner: BasePruner | None = None,
        earlier: Sequence[EarlierTrial] = (),
    ) -> None:
        """Create an empty study for a class of samplers. Without an encoding, trials have no
        params."""
        self._name = study.name
        self._directions = study.directions
        self._sampler = sampler
        self.encoding = encoding
        self.pruner = pruner
        self._earlier = earlier
        self.metric = study.objective[0]
        self.repeats = study.repeats
        self._offset = len(earlier)
        # number and params of a proposed trial that is not yet recorded
        self._pending: tuple[int, Any] | None = None
        self._is_partial = False  # whether feeding was interrupted
        self._begin({})

    def _begin(self, shared: Mapping[str, Any]) -> None:
        self.storage = InMemoryStorage()
        optuna.create_study(
            study_name=self._name, directions=cast(Any, self._directions), storage=self.storage
        )
        self.load_study(None)
        self._id = self.storage.get_study_id_from_name(self._name)
        for key, value in shared.items():
            self.storage.set_study_system_attr(self._id, key, value)
        self._worst: list[float] = []
        self._outcomes = ConfigurationOutcomes(self.repeats)
        for trial in self._earlier:
            self._add_earlier(trial)

    def follow(self, study: StudySnapshot) -> None:
        """Feed the new changes. If a trial was reopened, or differs from its proposal, feed all
        trials anew."""
        is_partial = self._is_partial or not self._is_recorded(study)
        self._is_partial = True
        update = self._outcomes.read_new(study)
        if is_partial or update.reopened or self._count == self._offset:
            self._begin(study.shared)
            update = self._outcomes.read_new(study)
        for trial in update.proposed:
            # because a proposed trial was added before
            if trial.number + self._offset == self._count:
                self._add(trial)
        for trial, end in update.ended:
            self._end(trial, end)
        self._pending = None
        self._is_partial = False

    def _is_recorded(self, study: StudySnapshot) -> bool:
        """Return whether the record has the trial that was proposed last, with its params."""
        if self._pending is None:
            return True
        number, params = self._pending
        if number >= len(study.rows) or params is None:
            return False
        return canonical(study.rows[number].params) == canonical(params)

    def load_study(self, sampler: BaseSampler | None) -> optuna.Study:
        """Return a new Optuna object of the study with this sampler, because the object caches its
        trials."""
        sampler = sampler or optuna.samplers.RandomSampler()
        self.study = optuna.load_study(
            study_name=self._name, storage=self.storage, sampler=sampler, pruner=self.pruner
        )
        return self.study

    @property
    def _count(self) -> int:
        return self.storage.get_n_trials(self._id)

    def begin(self, number: int, start: Point) -> int:
        """Begin a trial with the params of a start point, and return its id in Optuna."""
        assert self.encoding
        assert self._count == number + self._offset
        self._pending = (number, None)
        attrs = {"fixed_params": self.encoding.encode(start)} if start else {}
        return self.storage.create_new_trial(
            self._id, create_trial(state=TrialState.RUNNING, system_attrs=attrs)
        )

    def begin_again(
        self, study: StudySnapshot, number: int, start: Point, sampler: BaseSampler
    ) -> int:
        """Begin a trial anew, because its params are left out. What the sampler stored with the
        study remains."""
        stored = self.shared
        self.follow(study)
        for key, value in stored.items():
            self.storage.set_study_system_attr(self._id, key, value)
        self.load_study(sampler)
        return self.begin(number, start)

    def settle(
        self, number: int, trial_id: int, values: Mapping[str, Any], params: Mapping[str, Any]
    ) -> None:
        """Set the encoded values of a trial that has begun; `params` are the params that its record
        will have.

        Raises UserError if the sampler added trials, or ended this one.
        """
        assert self.encoding
        self.refuse_added(self._sampler, number + 1)
        with explain_faults(self._sampler):
            for name, value in values.items():
                distribution = self.encoding.distributions[name]
                self.storage.set_trial_param(
                    trial_id, name, distribution.to_internal_repr(value), distribution
                )
        self._pending = (number, dict(params))

    def refuse_added(self, kind: Kind, count: int) -> None:
        """Raise UserError if the study has more than `count` trials of the record, because `kind`
        added others."""
        if self._count > count + self._offset:
            problem = (
                "it added trials to Optuna's study, where each trial must be one of the record"
            )
            raise fault(kind, problem)

    def frozen(self, trial_id: int) -> FrozenTrial:
        """Return a copy of a trial."""
        return self.storage.get_trial(trial_id)

    @property
    def shared(self) -> dict[str, Any]:
        """Return the data that samplers store with the study."""
        return dict(self.storage.get_study_system_attrs(self._id))

    def id_of(self, number: int) -> int:
        """Return a trial's id in Optuna."""
        return self.storage.get_trial_id_from_study_id_trial_number(self._id, number + self._offset)

    def _add(self, trial: TrialRecord) -> None:
        point = trial.configuration
        if is_placeholder(trial) or (self.encoding and not self.encoding.space.contains(point)):
            self.storage.create_new_trial(self._id, create_trial(state=TrialState.FAIL))
            return

        distributions = own_distributions(trial)
        values = {name: choice_of(point[name], kind) for name, kind in distributions.items()}
        if self.encoding:
            values = self.encoding.encode(point) | values
            distributions = self.encoding.distributions | distributions
        reports = {}
        if self.pruner and trial.state.is_over:
            reports = read_reports(trial, self.metric)
        template = create_trial(
            state=TrialState.RUNNING,
            params=values,
            distributions={name: distributions[name] for name in values},
            system_attrs=checked(trial.memory.get("system", {}), trial.number),
            intermediate_values=reports,
        )
        self.storage.create_new_trial(self._id, template)

    def _end(self, trial: TrialRecord, end: Outcome) -> None:
        state, values, runs = self._translate(end.state, end.objective, is_blamed(end))
        trial_id = self.id_of(trial.number)
        if self.frozen(trial_id).state.is_finished():
            return  # because it is a placeholder
        if runs is not None:
            optuna.Trial(self.study, trial_id).set_constraint(RUNS, runs)
        self.storage.set_trial_state_values(trial_id, state, values)
        if end.state is State.COMPLETED:
            self._update_worst(end.objective)

    def _add_earlier(self, trial: EarlierTrial) -> None:
        assert self.encoding
        if trial.state == State.COMPLETED:
            self._update_worst(trial.objective)
        state, values, runs = self._translate(trial.state, trial.objective, trial.has_failed)
        params = self.encoding.encode(trial.point)
        ended = create_trial(
            state=state,
            values=values,
            params=params,
            distributions={name: self.encoding.distributions[name] for name in params},
            constraints=None if runs is None else {RUNS: runs},
        )
        self.study.add_trial(ended)

    def _translate(
        self, state: str, values: Sequence[float], failed: bool
    ) -> tuple[TrialState, Any, float | None]:
        """Return the state, the values and the constraint that the sampler reads of an ended
        trial."""
        is_constrained = issubclass(self._sampler, CONSTRAINED)
        runs, runs_not = (-1.0, 1.0) if is_constrained else (None, None)
        if state == State.COMPLETED and values:
            return TrialState.COMPLETE, values, runs
        if failed and issubclass(self._sampler, TPESampler):
            return TrialState.PRUNED, None, 1.0
        if failed and self._worst and issubclass(self._sampler, (*CONSTRAINED, CmaEsSampler)):
            return TrialState.COMPLETE, self._worst, runs_not
        if state in (State.PRUNED, State.INFEASIBLE):
            return TrialState.PRUNED, None, None
        return TrialState.FAIL, None, None

    def _update_worst(self, values: Sequence[float]) -> None:
        if values:
            triples = zip(self._directions, values, self._worst or values, strict=True)
            self._worst = [
                max(value, worst) if direction == "minimize" else min(value, worst)
                for direction, value, worst in triples
            ]


def read_reports(trial: TrialRecord, metric: str) -> dict[int, float]:
    """Return the finite values of a metric that the trial reported, by step."""
    return finite_values(TrialFolder(trial.folder).read_metrics(), metric)
