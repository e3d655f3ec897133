"""A search that learns: from trials that failed, from the order of numbers, and from what was tried."""

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.pruners import _filter_study
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIIISampler, NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweeps.results.summary import Row
from sweeps.study import storage
from sweeps.study.memory import Memory
from sweeps.study.proposals import Proposals
from sweeps.study.sampling import distribution
from sweeps.study.search_space import Choice, SearchSpace
from sweeps.study.storage import Axes
from sweeps.trial.job import End, Point, State

_TIMES = 5
_RUNS = "runs"  # the constraint: above 0 where it is violated
_CONSTRAINED = (GPSampler, NSGAIISampler, NSGAIIISampler)
"""They want the constraint of each trial, and look at none but those that completed."""


class Learner:
    """Between a study and its sampler: settles the values of each trial, and tells how it ended.

    Of a trial that failed, TPE hears that it is infeasible: a bad one, however few there are (c-TPE, Watanabe and
    Hutter, IJCAI 2023). The Gaussian process models how likely a point is to run (Gardner et al., ICML 2014), NSGA-II
    prefers parents that did (Deb et al., IEEE TEC 2002); CMA-ES, which goes by ranks alone, hears the worst value so
    far (Hansen, 2016). All of them are asked anew where the nearest point that is known has failed. Random and
    quasi-random points learn nothing.
    """

    def __init__(self, study: optuna.Study, space: SearchSpace, memory: Memory, open_ended: bool) -> None:
        """A space that is `open_ended`, in the user's own code, has points that are not known here."""
        self._study, self._space, self._memory, self._open_ended = study, space, memory, open_ended
        self._named = [(parameter, space.name(parameter)) for parameter in space.parameters]
        self._axes = axes(space)
        self._distributions = {name: distribution(p, grid=False, learns=True) for p, name in self._named}
        self._proposals = Proposals(space)
        self._worst: list[float] = []
        self._guesses = isinstance(study.sampler, (TPESampler, *_CONSTRAINED, CmaEsSampler)) and not open_ended

    def tried(self) -> int:
        """How many points of the space were."""
        return len(self._proposals)

    def take_up(self, trial: optuna.trial.FrozenTrial, point: Point) -> None:
        """A trial that was asked for under an earlier driver."""
        self._proposals.add(point)
        if trial.state is TrialState.COMPLETE:
            self._hear(trial.values)
        if end := storage.ended(trial):
            self._learn(point, end)

    def choose(self, trial: optuna.Trial) -> None:
        """Settle the values of a trial: a point that was not tried, and of which nothing says that it will fail."""
        settled = trial.params  # by a driver that was killed meanwhile
        held = [parameter.key for parameter, name in self._named if name in settled]
        untried = None
        for _ in range(_TIMES):
            point = self._draw(trial)
            if self._open_ended or len(held) == len(point):
                break
            if point not in self._proposals:
                untried = point
                if not self._memory.lacking(point) and not (self._guesses and self._proposals.seems_to_fail(point)):
                    break
            trial._relative_params = None  # asks the sampler anew
        else:
            point = untried or self._proposals.nearest(point, held)
        self.take(trial, point)

    def take(self, trial: optuna.Trial, point: Point) -> None:
        """Let a trial have these values."""
        self._proposals.add(point)
        trial._fixed_params = placed({name: point[p.key] for p, name in self._named if p.key in point}, self._axes)

    def _draw(self, trial: optuna.Trial) -> Point:
        """What the sampler proposes, recorded nowhere yet."""
        frozen = trial._get_latest_trial()
        frozen.params = dict(frozen.params)
        study = _filter_study(self._study, frozen)  # of Hyperband's, a bracket
        point: Point = {}
        for parameter, name in self._named:
            if not self._space.exists(parameter, point):
                continue
            one = self._distributions[name]
            if name in frozen.params:
                value: Any = frozen.params[name]
            elif one.single():
                value = parameter.values[0]
            elif trial._is_relative_param(name, one):
                value = trial.relative_params[name]
            else:
                value = self._study.sampler.sample_independent(study, frozen, name, one)
            frozen.params[name] = value
            point[parameter.key] = self._axes[name][value] if name in self._axes else value
        return point

    def tell(self, trial: optuna.Trial, row: Row) -> None:
        """Record how a trial ended, in the words that its sampler learns from."""
        sampler, end = self._study.sampler, row.attempts[-1]
        self._learn(row.params, end)
        if row.state is State.COMPLETED and row.objective:
            if isinstance(sampler, _CONSTRAINED):
                trial.set_constraint(_RUNS, -1.0)
            self._study.tell(trial, row.objective)
            self._hear(row.objective)
        elif _blames_its_point(end) and isinstance(sampler, TPESampler):
            trial.set_constraint(_RUNS, 1.0)
            self._study.tell(trial, state=TrialState.PRUNED)
        elif _blames_its_point(end) and isinstance(sampler, (*_CONSTRAINED, CmaEsSampler)) and self._worst:
            if isinstance(sampler, _CONSTRAINED):
                trial.set_constraint(_RUNS, 1.0)
            self._study.tell(trial, self._worst)
        else:
            self._study.tell(trial, state=TrialState.PRUNED if row.state is State.PRUNED else TrialState.FAIL)

    def _learn(self, point: Point, end: End) -> None:
        if not self._guesses:
            return
        if end.state in {State.COMPLETED, State.PRUNED, *_BLAMED} and not end.misfit:
            self._proposals.hear(point, ran=not _blames_its_point(end))

    def _hear(self, values: Sequence[float]) -> None:
        pairs = zip(self._worst or values, values, self._study.directions, strict=True)
        self._worst = [max(a, b) if way is StudyDirection.MINIMIZE else min(a, b) for a, b, way in pairs]


_BLAMED = {State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY}


def _blames_its_point(end: End) -> bool:
    """Whether it was the trial's own values that kept it from a result, so that others like it had better not be tried.

    One that was not started because it is infeasible counts as pruned.
    """
    return end.began is None if end.state is State.PRUNED else end.state in _BLAMED and not end.misfit


def placed(named: Mapping[str, Any], axes: Axes) -> dict[str, Any]:
    """Values by the names of their parameters, as Optuna has them: those of an axis by their place on it."""
    return {name: axes[name].index(value) if name in axes else value for name, value in named.items()}


def axes(space: SearchSpace) -> Axes:
    """The parameters that are ordered numbers, by their names: a sampler chooses the place of a value among them."""
    ordered = {space.name(p): p.ordered for p in space.parameters if isinstance(p, Choice)}
    return {name: values for name, values in ordered.items() if values}
