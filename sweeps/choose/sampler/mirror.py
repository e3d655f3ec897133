"""A storage of the user's, `hydra.sweeper.storage`, written through, for optuna-dashboard and `optuna.load_study`."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, json_to_distribution
from optuna.storages import BaseStorage, get_storage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import ArgumentError

from sweeps.choose import Changes
from sweeps.choose.sampler.encoding import true_distribution
from sweeps.choose.sampler.fed_study import RUNS
from sweeps.choose.sampler.outcomes import BLAMED
from sweeps.errors import Outage, UserError
from sweeps.record.space import Interval, SearchSpace
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.secrets import without_password
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State

_OWNER = "sweepyard"  # the attribute of a study that says whose it is: the study's folder
_AGAIN_S = 10.0  # after which a storage that does not answer is asked again
_STATES = {State.COMPLETED: TrialState.COMPLETE, State.PRUNED: TrialState.PRUNED}


class Mirror:
    """Shows the study's trials with their names, values and states as they are. Nothing is read back.

    If the storage is away, the study goes on, and the storage gets what it lacks once it answers again.
    """

    def __init__(self, url: str, study: StudySnapshot, space: SearchSpace, clock: Callable[[], float] = time.monotonic):
        self._url, self._study, self._clock = url, study, clock
        self._distributions = _by_key(space)
        self._changes = Changes()
        self._pending: dict[int, None] = {}
        self._not_before = 0.0
        self._connected = False
        self.problem: Outage | None = None

    def open(self, is_new: bool, may_replace: bool) -> None:
        """Connect. Raises UserError if the storage cannot be used by a new study, or has another study of this name.

        A study that has begun goes on without its storage. `may_replace` is for one that the version before kept there.
        """
        try:
            self._connect(may_replace)
        except UserError:
            raise
        except Exception as error:  # whatever a database says
            reason = without_password(str(error).splitlines()[0])
            if is_new or isinstance(error, ArgumentError):  # no address, or of no database that there is
                raise UserError(f"hydra.sweeper.storage cannot be used: {reason}") from error
            self._away(reason)

    def _connect(self, may_replace: bool = False) -> None:
        self._storage: BaseStorage = get_storage(self._url)
        name, owner = self._study.name, str(self._study.folder)
        found = {one.study_name: one for one in optuna.get_all_study_summaries(self._storage)}.get(name)
        others = found is not None and found.user_attrs.get(_OWNER) != owner
        if found and others and found.n_trials and not (may_replace and _OWNER not in found.user_attrs):
            raise UserError(
                f"hydra.sweeper.storage has another study named {name}, with {found.n_trials} trials\n"
                "Choose another name: hydra.sweeper.study_name=..."
            )
        if others:
            optuna.delete_study(study_name=name, storage=self._storage)
        self._create()

    def _create(self) -> None:
        self._own = optuna.create_study(
            storage=self._storage,
            study_name=self._study.name,
            directions=cast(Any, self._study.directions),
            load_if_exists=True,
        )
        self._own.set_user_attr(_OWNER, str(self._study.folder))
        self._id = self._storage.get_study_id_from_name(self._study.name)
        self._there = self._storage.get_all_trials(self._id, deepcopy=False)
        self._pending = dict.fromkeys(range(len(self._study.rows)))
        self._connected = True

    def tick(self, at_once: bool = False) -> None:
        """Write what is new; after an outage again in a while, or `at_once`. Never raises: a storage ends no study."""
        self._pending |= dict.fromkeys(self._changes.read_new(self._study))
        if (not self._pending and self._connected) or (self._clock() < self._not_before and not at_once):
            return
        try:
            if not self._connected:
                self._connect()
            try:
                if len(self._there) > len(self._study.rows):
                    raise ValueError(len(self._there))
                self._write()
            except (ValueError, optuna.exceptions.UpdateFinishedTrialError):  # more choices, or a trial runs again
                self._rewrite()
            self.problem = None
        except Exception as error:  # whatever a database says
            self._away(without_password(str(error).splitlines()[0] if str(error) else type(error).__name__))

    def _away(self, reason: str) -> None:
        words = f"hydra.sweeper.storage does not answer: {reason}; the study goes on without it"
        self.problem = Outage(words, "hydra.sweeper.storage answers again, and has all trials")
        self._not_before = self._clock() + _AGAIN_S
        self._connected = False

    def _rewrite(self) -> None:
        optuna.delete_study(study_name=self._study.name, storage=self._storage)
        self._create()
        self._write()

    def _write(self) -> None:
        for number in sorted(self._pending):
            self._put(self._study.rows[number])
            self._pending.pop(number)

    def _put(self, trial: TrialRecord) -> None:
        wanted = self._frozen(trial)
        if trial.number >= len(self._there):
            self._storage.create_new_trial(self._id, wanted)
            self._there = self._storage.get_all_trials(self._id, deepcopy=False)
            return
        known = self._there[trial.number]
        if (known.state, known.values, known.params) == (wanted.state, wanted.values, wanted.params):
            return
        if known.state.is_finished() or known.params != wanted.params:
            raise ValueError(trial.number)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)
        for step in wanted.intermediate_values.keys() - known.intermediate_values.keys():
            self._storage.set_trial_intermediate_value(trial_id, step, wanted.intermediate_values[step])
        for name, value in wanted.user_attrs.items():
            self._storage.set_trial_user_attr(trial_id, name, value)
        for name, value in wanted.constraints.items():
            optuna.Trial(self._own, trial_id).set_constraint(name, value)
        self._storage.set_trial_state_values(trial_id, wanted.state, wanted.values)
        self._there[trial.number] = self._storage.get_trial(trial_id)

    def _frozen(self, trial: TrialRecord) -> FrozenTrial:
        distributions = dict(self._distributions)
        own: Mapping[str, str] = trial.memory.get("distributions", {})
        distributions |= {name: json_to_distribution(text) for name, text in own.items()}
        fits = not trial.outside and all(key in distributions or key in trial.seed for key in trial.params)
        params = {key: value for key, value in trial.params.items() if key not in trial.seed} if fits else {}
        attrs: dict[str, Any] = {"state": str(trial.state), **({"error": trial.error} if trial.error else {})}
        attrs |= {"seed": dict(trial.seed)} if trial.seed else {}
        attrs |= {} if fits else {"params": dict(trial.params)}
        runs = {State.COMPLETED: -1.0, **dict.fromkeys(BLAMED, 1.0)}.get(trial.state)
        over = trial.state.is_over
        return create_trial(
            state=_STATES.get(trial.state, TrialState.FAIL) if over else TrialState.RUNNING,
            values=trial.result or None,
            params=params,
            distributions={key: distributions[key] for key in params},
            user_attrs=attrs,
            intermediate_values=_reports(trial, self._study.objective[0]) if len(self._study.directions) == 1 else {},
            constraints=None if runs is None else {RUNS: runs},
        )


def delete_study(url: str, name: str) -> None:
    """Delete a study from a storage of the user's. Raises UserError if the storage does not let us."""
    try:
        optuna.delete_study(study_name=name, storage=url)
    except KeyError:  # it is not there
        return
    except Exception as error:  # whatever a database says
        reason = without_password(str(error).splitlines()[0])
        raise UserError(f"study {name} cannot be deleted from its storage: {reason}") from error


def _by_key(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return a distribution for each key: where a key stands under several conditions, of all its values."""
    distributions: dict[str, BaseDistribution] = {}
    for key in dict.fromkeys(parameter.key for parameter in space.parameters):
        alike = [parameter for parameter in space.parameters if parameter.key == key]
        if len(alike) == 1:
            distributions[key] = true_distribution(alike[0])
        elif any(isinstance(parameter, Interval) for parameter in alike):
            values: list[Any] = [value for parameter in alike for value in parameter.values]
            if all(type(value) in (int, float) for value in values):  # else Optuna has no distribution of them
                distributions[key] = FloatDistribution(float(min(values)), float(max(values)))
        else:
            choices = dict.fromkeys(value for parameter in alike for value in parameter.distinct)
            distributions[key] = CategoricalDistribution(tuple(choices))
    return distributions


def _reports(trial: TrialRecord, metric: str) -> dict[int, float]:
    """Return what a trial reported of the objective, by step."""
    values = {line.step: line.metrics.get(metric, math.nan) for line in TrialFolder(trial.folder).read_metrics().values}
    return {step: value for step, value in values.items() if math.isfinite(value)}
