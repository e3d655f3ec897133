"""The user's own Optuna storage, `hydra.sweeper.storage`, for optuna-dashboard and
`optuna.load_study` to read."""

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    json_to_distribution,
)
from optuna.storages import BaseStorage, get_storage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import ArgumentError

from sweeps.base.errors import Outage, UserError
from sweeps.base.secrets import without_password
from sweeps.choose import Changes
from sweeps.choose.sampler.encoding import choice_of, quiet_about_lists, true_distribution
from sweeps.choose.sampler.fed_study import RUNS, read_reports
from sweeps.choose.sampler.outcomes import BLAMED
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.space.space import Interval, SearchSpace, canonical
from sweeps.trial.job import State

_OWNER = "sweepyard"  # attribute of a study in the storage: the folder of its study here
_RETRY_S = 10.0  # pause after a failed call
_STATES = {State.COMPLETED: TrialState.COMPLETE, State.PRUNED: TrialState.PRUNED}
_CONSTRAINTS = {State.COMPLETED: {RUNS: -1.0}, **{state: {RUNS: 1.0} for state in BLAMED}}


class Mirror:
    """A writer of the study's trials, with their true names, values and states. Nothing is read
    back.

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
        self._pending: dict[int, None] = {}  # numbers of the trials to write
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
        name = self._name
        folder = str(self._study.folder)
        summaries = {
            study.study_name: study for study in optuna.get_all_study_summaries(self._storage)
        }
        stored = summaries.get(name)
        if stored and stored.user_attrs.get(_OWNER) != folder:
            if stored.n_trials:
                raise UserError(
                    f"hydra.sweeper.storage has another study named {name}, with {stored.n_trials}"
                    " trials.\nChoose another name: hydra.sweeper.study_name=..."
                )
            optuna.delete_study(study_name=name, storage=self._storage)
        self._create()

    def _create(self) -> None:
        name = self._name
        directions = cast(Any, self._study.directions)
        self._optuna_study = optuna.create_study(
            storage=self._storage, study_name=name, directions=directions, load_if_exists=True
        )
        self._optuna_study.set_user_attr(_OWNER, str(self._study.folder))
        self._id = self._storage.get_study_id_from_name(name)
        self._stored = self._storage.get_all_trials(self._id, deepcopy=False)
        self._pending = dict.fromkeys(range(len(self._study.rows)))
        self._connected = True

    def tick(self, at_once: bool = False) -> None:
        """Write new changes. After a failure, skip until its pause is over, unless `at_once`.
        Raises nothing."""
        self._pending |= dict.fromkeys(self._changes.read_new(self._study))
        if (not self._pending and self._connected) or (
            self._clock() < self._not_before and not at_once
        ):
            return
        try:
            if not self._connected:
                self._connect()
            try:
                if len(self._stored) > len(self._study.rows):
                    raise ValueError(len(self._stored))
                self._write()
            except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
                # after new choices or a retry
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
        for number in sorted(self._pending):
            self._write_trial(self._study.rows[number])
            self._pending.pop(number)

    def _write_trial(self, trial: TrialRecord) -> None:
        """Create or update a trial. Raises ValueError if Optuna cannot change the stored trial."""
        new = self._freeze(trial)
        if trial.number >= len(self._stored):
            self._storage.create_new_trial(self._id, new)
            self._stored = self._storage.get_all_trials(self._id, deepcopy=False)
            return
        old = self._stored[trial.number]
        has_same_params = canonical(old.params) == canonical(new.params)
        if has_same_params and (old.state, old.values) == (new.state, new.values):
            return
        if old.state.is_finished() or not has_same_params:
            raise ValueError(trial.number)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)
        for step in new.intermediate_values.keys() - old.intermediate_values.keys():
            self._storage.set_trial_intermediate_value(
                trial_id, step, new.intermediate_values[step]
            )
        for name, value in new.user_attrs.items():
            self._storage.set_trial_user_attr(trial_id, name, value)
        for name, value in new.constraints.items():
            optuna.Trial(self._optuna_study, trial_id).set_constraint(name, value)
        self._storage.set_trial_state_values(trial_id, new.state, new.values)
        self._stored[trial.number] = self._storage.get_trial(trial_id)

    def _freeze(self, trial: TrialRecord) -> FrozenTrial:
        custom: Mapping[str, str] = trial.memory.get("distributions", {})
        with quiet_about_lists():
            own = {name: json_to_distribution(text) for name, text in custom.items()}
        distributions = self._distributions | own
        fits = not trial.outside and all(
            key in distributions or key in trial.seed for key in trial.params
        )
        params: dict[str, Any] = {}
        for key, value in trial.params.items() if fits else ():
            if key not in trial.seed:
                params[key] = choice_of(value, distributions[key])
        attrs: dict[str, Any] = {
            "state": str(trial.state),
            "error": trial.error,
            "seed": dict(trial.seed),
        }
        attrs |= {} if fits else {"params": dict(trial.params)}
        state = (
            _STATES.get(trial.state, TrialState.FAIL) if trial.state.is_over else TrialState.RUNNING
        )
        has_reports = len(self._study.directions) == 1
        return create_trial(
            state=state,
            values=trial.result or None,
            params=params,
            distributions={key: distributions[key] for key in params},
            user_attrs={name: value for name, value in attrs.items() if value or name == "params"},
            intermediate_values=(
                read_reports(trial, self._study.objective[0]) if has_reports else {}
            ),
            constraints=_CONSTRAINTS.get(trial.state),
        )


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
    distributions: dict[str, BaseDistribution] = {}
    for key in dict.fromkeys(parameter.key for parameter in space.parameters):
        same = [parameter for parameter in space.parameters if parameter.key == key]
        values: list[Any] = [value for parameter in same for value in parameter.values]
        if len(same) == 1:
            distributions[key] = true_distribution(same[0])
        elif not any(isinstance(parameter, Interval) for parameter in same):
            choices = dict.fromkeys(value for parameter in same for value in parameter.distinct)
            distributions[key] = CategoricalDistribution(tuple(choices))
        elif all(type(value) in (int, float) for value in values):
            # else Optuna has no distribution
            distributions[key] = FloatDistribution(float(min(values)), float(max(values)))
    return distributions
