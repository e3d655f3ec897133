"""The user's own Optuna storage, `hydra.sweeper.storage`, for optuna-dashboard and
`optuna.load_study` to read."""

import time
from collections.abc import Callable
from itertools import chain
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import BaseStorage, get_storage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import ArgumentError

from sweeps.base.errors import Outage, UserError
from sweeps.base.secrets import without_password
from sweeps.choose import Changes
from sweeps.choose.sampler.encoding import choice_of, own_distributions, true_distribution
from sweeps.choose.sampler.fed_study import RUNS, read_reports
from sweeps.choose.sampler.outcomes import BLAMED
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.space.space import Interval, Parameter, SearchSpace, canonical
from sweeps.trial.job import State

_OWNER = "sweepyard"  # attribute of a study in the storage: the folder of its study here
_NUMBER = "trial"  # attribute of a trial in the storage: its number here
_RETRY_S = 10.0  # pause after a failed call
_STATES = {State.COMPLETED: TrialState.COMPLETE, State.PRUNED: TrialState.PRUNED}
_CONSTRAINTS = {State.COMPLETED: {RUNS: -1.0}, **{state: {RUNS: 1.0} for state in BLAMED}}


class Mirror:
    """A writer of the study's ended trials, with their true names, values and states.

    If the storage does not answer, the study continues. Once the storage answers again, the missing
    trials are written.
    """

    def __init__(
        self,
        url: str,
        name: str,
        study: StudySnapshot,
        space: SearchSpace,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the copy of `study` under this name, which is not that of its folder if
        hydra.sweep.dir was typed."""
        self._url = url
        self._name = name
        self._study = study
        self._clock = clock
        self._distributions = _distributions_by_key(space)
        self._changes = Changes()
        self._pending: dict[int, None] = {}  # numbers of the trials to compare and write
        self._not_before = 0.0
        self._connected = False
        self.problem: Outage | None = None

    def open(self, is_new: bool) -> None:
        """Connect. Raises UserError if a new study cannot use the storage, or another study has its
        name.

        A study that has begun runs without its storage.
        """
        try:
            self._connect()
        except UserError:
            raise
        except Exception as error:  # because databases raise anything
            if is_new or isinstance(error, ArgumentError):  # because such a URL never works
                raise UserError(
                    f"hydra.sweeper.storage cannot be used: {_reason(error)}"
                ) from error
            self._disconnect(error)

    def _connect(self) -> None:
        self._storage: BaseStorage = get_storage(self._url)
        for stored in optuna.get_all_study_summaries(self._storage):
            if stored.study_name != self._name:
                continue
            is_ours = stored.user_attrs.get(_OWNER) == str(self._study.folder)
            if stored.n_trials and not is_ours:
                raise UserError(
                    f"hydra.sweeper.storage has another study named {self._name}, with"
                    f" {stored.n_trials} trials.\nChoose another name:"
                    " hydra.sweeper.study_name=..."
                )
            if not is_ours:
                optuna.delete_study(study_name=self._name, storage=self._storage)
        self._create()
        self._connected = True

    def _create(self) -> None:
        """Create the study in the storage, or load it with the trials that it has."""
        self._optuna_study = optuna.create_study(
            storage=self._storage,
            study_name=self._name,
            directions=cast(Any, self._study.directions),
            load_if_exists=True,
        )
        self._optuna_study.set_user_attr(_OWNER, str(self._study.folder))
        trials = self._optuna_study.get_trials(deepcopy=False)
        self._stored = {trial.user_attrs.get(_NUMBER): trial for trial in trials}
        self._pending = dict.fromkeys(range(len(self._study.rows)))

    def tick(self, at_once: bool = False) -> None:
        """Write the trials that have ended. After a failure, skip until its pause is over, unless
        `at_once`. Raises nothing."""
        self._pending |= dict.fromkeys(self._changes.read_new(self._study))
        is_written = self._connected and not self._pending
        is_pause = self._clock() < self._not_before and not at_once
        if is_written or is_pause:
            return

        try:
            if not self._connected:
                self._connect()
            try:
                self._write()
            except ValueError:  # after new choices or a retry, because Optuna changes no trial
                optuna.delete_study(study_name=self._name, storage=self._storage)
                self._create()
                self._write()
            self.problem = None
        except Exception as error:  # because databases raise anything
            self._disconnect(error)

    def _disconnect(self, error: Exception) -> None:
        problem = (
            f"hydra.sweeper.storage does not answer: {_reason(error)}; the study continues"
            " without it"
        )
        self.problem = Outage(problem, "hydra.sweeper.storage answers again and has all trials")
        self._not_before = self._clock() + _RETRY_S
        self._connected = False

    def _write(self) -> None:
        """Add the ended trials that are pending. Raises ValueError if the storage has another
        outcome of a trial, or a trial that the study has not."""
        rows = self._study.rows
        if not self._stored.keys() <= set(range(len(rows))):
            raise ValueError(self._stored.keys())

        for number in sorted(self._pending):
            if rows[number].state.is_over:
                self._add(rows[number])
            del self._pending[number]

    def _add(self, trial: TrialRecord) -> None:
        new = self._freeze(trial)
        old = self._stored.get(trial.number)
        if old is None:
            self._optuna_study.add_trial(new)
            self._stored[trial.number] = new
            return

        has_same_params = canonical(old.params) == canonical(new.params)
        if not has_same_params or (old.state, old.values) != (new.state, new.values):
            raise ValueError(trial.number)

    def _freeze(self, trial: TrialRecord) -> FrozenTrial:
        """Return an ended trial in Optuna's terms. Params that Optuna cannot hold are an
        attribute."""
        distributions = self._distributions | own_distributions(trial)
        typed = trial.configuration
        attributes = _attributes(trial)
        if trial.outside or not typed.keys() <= distributions.keys():
            attributes["params"] = dict(trial.params)
            typed = {}

        reports = {}
        if len(self._study.directions) == 1:
            reports = read_reports(trial, self._study.objective[0])
        return create_trial(
            state=_STATES.get(trial.state, TrialState.FAIL),
            values=trial.result or None,
            params={key: choice_of(value, distributions[key]) for key, value in typed.items()},
            distributions={key: distributions[key] for key in typed},
            user_attrs=attributes,
            intermediate_values=reports,
            constraints=_CONSTRAINTS.get(trial.state),
        )


def _attributes(trial: TrialRecord) -> dict[str, Any]:
    """Return what Optuna has no place for; without what is empty."""
    attributes = {"state": str(trial.state), "error": trial.error, "seed": dict(trial.seed)}
    return {_NUMBER: trial.number, **{name: value for name, value in attributes.items() if value}}


def delete_study(url: str, name: str) -> None:
    """Delete a study from the user's storage, if it is there. Raises UserError if the storage
    refuses."""
    try:
        optuna.delete_study(study_name=name, storage=url)
    except KeyError:  # because the storage has no such study
        return
    except Exception as error:  # because databases raise anything
        raise UserError(
            f"study {name} cannot be deleted from its storage: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return without_password(lines[0])


def _distributions_by_key(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return a distribution for each key; for a key under several conditions, of all its values."""
    parameters: dict[str, list[Parameter]] = {}
    for parameter in space.parameters:
        parameters.setdefault(parameter.key, []).append(parameter)

    distributions: dict[str, BaseDistribution] = {}
    for key, same in parameters.items():
        if len(same) == 1:
            distributions[key] = true_distribution(same[0])
        elif not any(isinstance(parameter, Interval) for parameter in same):
            choices = dict.fromkeys(chain.from_iterable(p.distinct for p in same))
            distributions[key] = CategoricalDistribution(tuple(choices))
        else:
            values: list[Any] = [*chain.from_iterable(p.values for p in same)]
            if all(type(value) in (int, float) for value in values):
                # else Optuna has no distribution
                distributions[key] = FloatDistribution(float(min(values)), float(max(values)))
    return distributions
