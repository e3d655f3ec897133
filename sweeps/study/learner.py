"""A search that learns: from trials that failed, from the order of numbers, and from what was tried."""

import math
from collections.abc import Container, Mapping, Sequence
from operator import itemgetter
from typing import Any

import optuna
from optuna.pruners import _filter_study
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIIISampler, NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweeps.results.summary import Row
from sweeps.study.memory import Memory
from sweeps.study.proposals import Proposals
from sweeps.study.sampling import distribution
from sweeps.study.search_space import Choice, SearchSpace, canonical
from sweeps.study.start import Known
from sweeps.study.storage import Axes
from sweeps.study.surrogate import Surrogate
from sweeps.trial.job import End, Point, State

_TIMES = 5
_EVERY, _LEAST = 10, 3
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

    def __init__(
        self, study: optuna.Study, space: SearchSpace, memory: Memory, open_ended: bool, earlier: Sequence[Known] = ()
    ) -> None:
        """A space that is `open_ended`, in the user's own code, has points that are not known here."""
        self._study, self._space, self._memory, self._open_ended = study, space, memory, open_ended
        self._named = [(parameter, space.name(parameter)) for parameter in space.parameters]
        self._axes = axes(space)
        self._distributions = {name: distribution(p, grid=False, learns=True) for p, name in self._named}
        self._proposals = Proposals(space)
        self._worst: list[float] = []
        self._guesses = isinstance(study.sampler, (TPESampler, *_CONSTRAINED, CmaEsSampler)) and not open_ended
        models = isinstance(study.sampler, TPESampler) and len(study.directions) == 1 and not open_ended
        self._surrogate = Surrogate(self._proposals.owners()) if models else None
        self._results: list[tuple[float, Point, list[float]]] = []
        """The loss of each point that ended, infinite where it was pruned, and its place; oldest first."""
        self._running: set[str] = set()
        """The points that are not told of yet, as text: the repeats of one are one."""
        self._startup = getattr(study.sampler, "_n_startup_trials", 0)
        for one in earlier:
            if one.state == State.COMPLETED:
                self._hear(one.objective, one.point)
            if self._guesses:
                self._proposals.hear(one.point, ran=not one.failed)
                if one.state == State.PRUNED:
                    self._note(math.inf, one.point)
        self._informed = _Informed(study, [self._as_trial(one) for one in earlier]) if earlier else None

    def _as_trial(self, known: Known) -> optuna.trial.FrozenTrial:
        """An earlier study's trial, as the sampler would have been told of it."""
        state, values, runs = self._words(known.state, known.objective, known.failed)
        named = placed(self._space.named(known.point), self._axes)
        return optuna.trial.create_trial(
            state=state,
            values=values,
            params=named,
            distributions={name: self._distributions[name] for name in named},
            constraints=None if runs is None else {_RUNS: runs},
        )

    def tried(self) -> int:
        """How many points of the space were."""
        return len(self._proposals)

    def has_tried(self, point: Point) -> bool:
        return point in self._proposals

    def _asked_before(self, trial: optuna.Trial) -> int:
        """How many configurations were asked for before this one. Their repeats have numbers too."""
        return trial.number if self._open_ended else len(self._proposals)

    def take_up(self, trial: optuna.trial.FrozenTrial, point: Point, end: End | None) -> None:
        """A trial that was asked for under an earlier driver, and how it ended; None if it has not."""
        self._proposals.add(point)
        there = point in self._proposals
        if trial.state is TrialState.COMPLETE:
            self._hear(trial.values, point if there else {})
        if end:
            self._learn(point, end)
        elif there:
            self._running.add(canonical(point))

    def choose(self, trial: optuna.Trial) -> None:
        """Settle the values of a trial: a point that was not tried, and of which nothing says that it will fail."""
        settled = {**trial._fixed_params, **trial.params}  # what it starts at, or a driver chose that was killed
        if isinstance(self._study.sampler, TPESampler) and self._asked_before(trial) >= self._startup:
            self._study.sampler._n_startup_trials = 1  # it counts those that were asked for, not those that have ended
        held = [parameter.key for parameter, name in self._named if name in settled]
        untried = None
        for time in range(_TIMES):
            point = (not time and self._promising(trial, settled)) or self._draw(trial, settled)
            if self._open_ended or len(held) == len(point):
                break
            if point not in self._proposals:
                untried = point
                if not self._memory.lacking(point) and not (self._guesses and self._proposals.seems_to_fail(point)):
                    break
        else:
            point = untried or self._proposals.nearest(point, held)
        self.take(trial, point)

    def take(self, trial: optuna.Trial, point: Point) -> None:
        """Let a trial have these values."""
        self._proposals.add(point)
        self._running.add(canonical(point))
        trial._fixed_params = placed(self._space.named(point), self._axes)

    def _promising(self, trial: optuna.Trial, settled: Mapping[str, Any]) -> Point:
        """For nine trials in ten the point of which the surrogate hopes for most, else empty: TPE alone is slow to
        follow what is known. Its tenth of the trials looks elsewhere (`benchmarks/search_learns.py`).
        """
        sampler: Any = self._study.sampler
        losses = [loss for loss, _, _ in self._results]
        few = len(losses) < _LEAST or len(set(losses)) < 2
        earlier = self._asked_before(trial)
        if not self._surrogate or settled or few or earlier < self._startup or earlier % _EVERY == 0:
            return {}
        proposals, rng = self._proposals, sampler._rng.rng
        self._surrogate.learn([place for _, _, place in self._results], losses, proposals.failed, rng)
        best = [point for _, point, _ in sorted(self._results, key=itemgetter(0))]
        found = proposals.candidates(best, iter(rng.random_sample, None))
        places = [proposals.place(point) for point in found]
        hopes = self._surrogate.draw(places, rng) if self._running else self._surrogate.promise(places)
        ranked = (found[i] for i in hopes.argsort()[::-1])
        return next((one for one in ranked if one not in proposals and not proposals.seems_to_fail(one)), Point())

    def _draw(self, trial: optuna.Trial, settled: Mapping[str, Any]) -> Point:
        """What the sampler proposes, recorded nowhere yet."""
        sampler, frozen = self._study.sampler, trial._get_latest_trial()
        frozen.params = dict(settled)
        study = self._informed or _filter_study(self._study, frozen)  # of Hyperband's, a bracket
        together: Mapping[str, Any] = {}
        if any(name not in settled for _, name in self._named):
            together = sampler.sample_relative(study, frozen, sampler.infer_relative_search_space(study, frozen))
        point: Point = {}
        for parameter, name in self._named:
            if not self._space.exists(parameter, point):
                continue
            one = self._distributions[name]
            if name in frozen.params:
                value: Any = frozen.params[name]
            elif one.single():
                value = parameter.values[0]
            elif name in together:
                value = together[name]
            else:
                value = sampler.sample_independent(study, frozen, name, one)
            frozen.params[name] = value
            point[parameter.key] = self._axes[name][value] if name in self._axes else value
        return point

    def tell(self, trial: optuna.Trial, row: Row) -> None:
        """Record how a trial ended, in the words that its sampler learns from."""
        end = row.attempts[-1]
        self._learn(row.params, end)
        self._running.discard(canonical(row.params))
        state, values, runs = self._words(row.state, row.objective, _blames_its_point(end))
        if runs is not None:
            trial.set_constraint(_RUNS, runs)
        self._study.tell(trial, values, state=state)
        if row.state is State.COMPLETED:
            self._hear(row.objective, row.params)

    def _words(self, state: str, values: Sequence[float], blamed: bool) -> tuple[TrialState, Any, float | None]:
        """For a trial that ended so, and is to blame for it: its state, its values and its constraint."""
        sampler = self._study.sampler
        constrained = isinstance(sampler, _CONSTRAINED)
        if state == State.COMPLETED and values:
            return TrialState.COMPLETE, values, -1.0 if constrained else None
        if blamed and isinstance(sampler, TPESampler):
            return TrialState.PRUNED, None, 1.0
        if blamed and (constrained or isinstance(sampler, CmaEsSampler)) and self._worst:
            return TrialState.COMPLETE, self._worst, 1.0 if constrained else None
        return TrialState.PRUNED if state == State.PRUNED else TrialState.FAIL, None, None

    def _learn(self, point: Point, end: End) -> None:
        if not self._guesses:
            return
        if end.state in {State.COMPLETED, State.PRUNED, *_BLAMED} and not end.misfit:
            self._proposals.hear(point, ran=not _blames_its_point(end))
            if end.state is State.PRUNED and end.began is not None:
                self._note(math.inf, point)

    def _note(self, loss: float, point: Point) -> None:
        self._results.append((loss, point, self._proposals.place(point)))

    def _hear(self, values: Sequence[float], point: Point) -> None:
        if values:
            ways = [1.0 if way is StudyDirection.MINIMIZE else -1.0 for way in self._study.directions]
            losses = [way * value for way, value in zip(ways, values, strict=True)]
            if point:
                self._note(losses[0], point)
            worst = [max(a, way * b) for a, way, b in zip(losses, ways, self._worst or values, strict=True)]
            self._worst = [way * loss for way, loss in zip(ways, worst, strict=True)]


class _Informed(optuna.Study):
    """A study as its sampler sees it: after the trials of earlier ones, which are nowhere recorded in it."""

    def __init__(self, study: optuna.Study, earlier: Sequence[optuna.trial.FrozenTrial]) -> None:
        super().__init__(study.study_name, study._storage, study.sampler, study.pruner)
        self._earlier = earlier
        self._thread_local = study._thread_local  # its cache of trials, emptied whenever one is asked for
        for number, trial in enumerate(earlier, start=-len(earlier)):
            trial.number = number

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[optuna.trial.FrozenTrial]:
        own = super()._get_trials(deepcopy, states, use_cache)
        return [*(one for one in self._earlier if states is None or one.state in states), *own]


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
