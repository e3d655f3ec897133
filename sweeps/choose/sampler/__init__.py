"""A search: what a sampler of Optuna, or our own surrogate, chooses next. The only room that imports Optuna."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution, distribution_to_json
from optuna.pruners import _filter_study
from optuna.samplers import BaseSampler, CmaEsSampler, TPESampler

from sweeps.choose import Next, Proposal
from sweeps.choose.out_of_memory import OutOfMemory
from sweeps.choose.proposals import Proposals
from sweeps.choose.repeats import Seeds
from sweeps.choose.sampler.build import Samplers
from sweeps.choose.sampler.fed_study import CONSTRAINED, FedStudy
from sweeps.choose.sampler.outcomes import ConfigurationOutcomes, is_blamed, is_placeholder
from sweeps.choose.surrogate import Surrogate
from sweeps.choose.warm_start import EarlierTrial
from sweeps.errors import UserError
from sweeps.record.space import SearchSpace, canonical
from sweeps.record.study import By, StudySnapshot, TrialRecord
from sweeps.trial.job import Outcome, Point, State

_TIMES = 5  # draws, before the nearest untried point is taken
_EVERY, _LEAST = 10, 3  # one trial in so many is TPE's; the surrogate needs so many results


@dataclass(frozen=True)
class Search:
    """What a search is made of."""

    space: SearchSpace
    memory: OutOfMemory
    seeds: Seeds
    max_configurations: int  # configurations to try, without those that a person adds
    start: Sequence[Point] = ()  # the points to begin with; what one leaves out the sampler chooses
    earlier: Sequence[EarlierTrial] = ()  # the trials of earlier studies
    custom: Callable[[optuna.Trial], object] | None = None
    """The user's own function, which suggests further parameters: the space then has points that are not known here."""
    name: str = ""  # of that function


class Sampler:
    """Begins a configuration that was not tried, and of which nothing says that it will fail."""

    def __init__(self, search: Search, samplers: Samplers, fed: FedStudy) -> None:
        self._search, self._samplers, self._fed = search, samplers, fed
        assert fed.encoding
        self._space, self._encoding = search.space, fed.encoding
        guessing = issubclass(samplers.kind, (TPESampler, *CONSTRAINED, CmaEsSampler))
        self._guesses = guessing and not search.custom
        self._models = samplers.models and not search.custom
        self._forget()

    def _forget(self) -> None:
        self._outcomes = ConfigurationOutcomes(self._fed.repeats)
        self._proposals = Proposals(self._space)
        self._asked = 0  # configurations, without those that a person added
        self._started: set[str] = set()  # the points to start at that were begun
        self._next = 0  # the place of the first of them that may be left
        self._running: set[int] = set()
        self._scales: Sequence[float] = ()
        self._results: list[tuple[float, Point, list[float]]] = []
        """The loss of each point that ended, infinite where it was pruned, and its code; oldest first."""
        for known in self._search.earlier if self._guesses else ():
            self._proposals.observe(known.point, ran=not known.failed)
            if known.state in (State.PRUNED, State.COMPLETED):
                self._note(known.objective if known.state == State.COMPLETED else [], known.point)

    def next(self, study: StudySnapshot) -> Next:
        """Return the next configuration, under its first seed; none when all that are wanted were asked for."""
        self._fed.follow(study)
        self._follow(study)
        self._known = study.shared
        exhausted = not self._search.custom and study.size is not None and len(self._proposals) >= study.size
        if self._asked >= self._search.max_configurations or exhausted or study.enough:
            return Next()
        number = len(study.rows)
        sampler = self._samplers.sampler(number, self._before(number))
        self._fed.load_study(sampler)
        start = self._next_start()
        if self._search.custom:
            return Next([self._custom(study, number, start)])
        return Next([self._propose(study, number, sampler, start)])

    def _next_start(self) -> Point:
        """Return the next point to start at that was not begun; an empty one when there is none."""
        while self._next < len(self._search.start):
            point = self._search.start[self._next]
            if canonical(point) not in self._started and (point not in self._proposals or self._search.custom):
                return point
            self._next += 1
        return {}

    def _before(self, number: int) -> int:
        """Return how many configurations were asked for before this one. Their repeats have numbers too."""
        return number if self._search.custom else len(self._proposals)

    def _follow(self, study: StudySnapshot) -> None:
        update = self._outcomes.read_new(study)
        if update.reopened:
            self._forget()
            update = self._outcomes.read_new(study)
        for trial in update.asked:
            self._take(trial)
        for trial, end in update.ended:
            self._running.discard(trial.number)
            if self._guesses:
                self._learn(trial.configuration, end)

    def _take(self, trial: TrialRecord) -> None:
        self._scales = trial.memory.get("scales", self._scales)
        if trial.by in (By.SAMPLER, By.GRID):
            self._asked += 1
            swept = {one.key: trial.params[one.key] for one in self._space.parameters if one.key in trial.params}
            self._started |= {trial.memory.get("start", ""), canonical(swept)}
        if not is_placeholder(trial):
            self._proposals.add(trial.configuration)
            self._running.add(trial.number)

    def _learn(self, point: Point, end: Outcome) -> None:
        if end.misfit or not (end.state in {State.COMPLETED, State.PRUNED} or is_blamed(end)):
            return
        self._proposals.observe(point, ran=not is_blamed(end))
        if (end.state is State.COMPLETED and end.objective) or end.state is State.PRUNED:
            self._note(end.objective if end.state is State.COMPLETED else [], point)

    def _note(self, values: Sequence[float], point: Point) -> None:
        sign = 1.0 if self._fed.study.directions[0] is optuna.study.StudyDirection.MINIMIZE else -1.0
        self._results.append((sign * values[0] if values else math.inf, point, self._proposals.encode(point)))

    def _propose(self, study: StudySnapshot, number: int, sampler: BaseSampler, start: Point) -> Proposal:
        """Return a point that was not tried, and of which nothing says that it will fail; else the nearest untried."""
        trial_id = self._fed.begin(number, {})
        point, untried, scales = Point(), None, list[float]()
        for time in range(_TIMES):
            if time == 0 and not start:
                point, scales = self._promising(number)
            point = point if time == 0 and point else self._draw(trial_id, sampler, start)
            if len(start) == len(point):
                break
            if point not in self._proposals:
                untried = point
                fails = self._guesses and self._proposals.seems_to_fail(point)
                if not fails and not self._search.memory.explain_infeasible(study, point):
                    break
        else:
            point = untried or self._proposals.nearest(point, [*start])
        params = {**point, **self._search.seeds.first}
        self._fed.settle(number, trial_id, self._encoding.encode(point), params)
        memory: dict[str, Any] = {"system": dict(self._fed.frozen(trial_id).system_attrs), "scales": scales}
        memory |= {"start": canonical(start)} if start else {}
        lacking = self._search.memory.explain_infeasible(study, point)
        return self._proposal(params, memory, lacking)

    def _proposal(self, params: Point, memory: Mapping[str, Any], infeasible: str = "") -> Proposal:
        content = {name: value for name, value in memory.items() if value}
        first = self._search.seeds.first
        shared = {name: value for name, value in self._fed.shared.items() if self._known.get(name) != value}
        return Proposal(params, By.SAMPLER, seed=first, infeasible=infeasible, memory=content, shared=shared)

    def _promising(self, number: int) -> tuple[Point, list[float]]:
        """Return the point of which the surrogate hopes for most, for nine trials in ten; else an empty one. Return the
        scales of its fit as well, from which the next one goes on.

        TPE alone is slow to follow what is known. Its tenth of the trials looks elsewhere
        (`benchmarks/search_learns.py`).
        """
        losses = [loss for loss, _, _ in self._results]
        few = len(losses) < _LEAST or len(set(losses)) < 2
        before = self._before(number)
        if not self._models or few or before < self._samplers.startup or before % _EVERY == 0:
            return {}, []
        proposals, rng = self._proposals, np.random.RandomState(self._samplers.seed(number))
        surrogate = Surrogate(proposals.parameter_indices(), self._scales)
        surrogate.fit([code for _, _, code in self._results], losses, proposals.failed, rng)
        best = [point for _, point, _ in sorted(self._results, key=itemgetter(0))]
        points = proposals.candidates(best, iter(rng.random_sample, None))
        codes = [proposals.encode(point) for point in points]
        alone = not self._running
        hopes = surrogate.expected_improvement(codes) if alone else surrogate.thompson_sample(codes, rng)
        ranked = (points[i] for i in hopes.argsort()[::-1])
        fresh = (point for point in ranked if point not in proposals and not proposals.seems_to_fail(point))
        return next(fresh, {}), surrogate.scales

    def _draw(self, trial_id: int, sampler: BaseSampler, start: Point) -> Point:
        """Return what the sampler proposes."""
        frozen, encoding = self._fed.frozen(trial_id), self._encoding
        frozen.params = encoding.encode(start)
        study = _filter_study(self._fed.study, frozen)  # of Hyperband's, a bracket
        sampler.before_trial(study, frozen)
        together: Mapping[str, Any] = {}
        if len(frozen.params) < len(encoding.named):
            together = sampler.sample_relative(study, frozen, sampler.infer_relative_search_space(study, frozen))
        point: Point = {}
        for parameter, name in encoding.named:
            if not self._space.exists(parameter, point):
                continue
            distribution = encoding.distributions[name]
            if name not in frozen.params:
                if distribution.single():
                    frozen.params[name] = encoding.encode({**point, parameter.key: parameter.values[0]})[name]
                elif name in together:
                    frozen.params[name] = together[name]
                else:
                    frozen.params[name] = sampler.sample_independent(study, frozen, name, distribution)
            point[parameter.key] = encoding.decode(name, frozen.params[name])
        return point

    def _custom(self, study: StudySnapshot, number: int, start: Point) -> Proposal:
        """Return what the sampler suggests, and the user's own function beside it: values as they are typed."""
        assert self._search.custom
        trial = optuna.Trial(self._fed.study, self._fed.begin(number, self._encoding.encode(start)))
        point: Point = {}
        for parameter, name in self._encoding.named:
            if self._space.exists(parameter, point):
                point[parameter.key] = suggest(trial, name, self._encoding.distributions[name])
        try:
            self._search.custom(trial)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            words = str(error).splitlines() or ["no reason given"]
            raise UserError(
                f"hydra.sweeper.custom_search_space={self._search.name}: it raised {type(error).__name__}: {words[0]}\n"
                f"Mend {self._search.name}(cfg, trial)"
            ) from error
        own = {name: value for name, value in trial.params.items() if name not in self._encoding.distributions}
        params = {**point, **own, **self._search.seeds.first}
        self._fed.settle(number, -1, {}, params)
        texts = {name: distribution_to_json(one) for name, one in trial.distributions.items() if name in own}
        memory: dict[str, Any] = {"distributions": texts}
        memory["system"] = dict(self._fed.frozen(self._fed.id_of(number)).system_attrs)
        memory |= {"start": canonical(start)} if start else {}
        return self._proposal(params, memory, self._search.memory.explain_infeasible(study, point))


def suggest(trial: optuna.Trial, name: str, distribution: Any) -> Any:
    """Return the value that a trial of Optuna's suggests."""
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    low, high, step, log = distribution.low, distribution.high, distribution.step, distribution.log
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, low, high, step=step or 1, log=log)
    return trial.suggest_float(name, low, high, step=step, log=log)
