"""A search: Optuna's sampler, or our surrogate, chooses the next point. Only this package imports
Optuna."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import _get_single_value
from optuna.pruners import _filter_study
from optuna.samplers import BaseSampler, CmaEsSampler, TPESampler

from sweeps.choose import Next, Proposal
from sweeps.choose.curves import Curve, Ends, Reports, fill_ends
from sweeps.choose.out_of_memory import OutOfMemory
from sweeps.choose.proposals import Proposals
from sweeps.choose.repeats import Seeds
from sweeps.choose.sampler.build import Samplers
from sweeps.choose.sampler.encoding import in_distribution
from sweeps.choose.sampler.faults import explain_faults
from sweeps.choose.sampler.fed_study import CONSTRAINED, FedStudy
from sweeps.choose.sampler.outcomes import ConfigurationOutcomes, is_blamed, is_placeholder
from sweeps.choose.sampler.own_space import MAX_PRUNED, OwnSpace
from sweeps.choose.sampler.stored import storable
from sweeps.choose.warm_start import EarlierTrial
from sweeps.record.study import By, StudySnapshot, TrialRecord
from sweeps.space.space import SearchSpace, canonical
from sweeps.trial.job import Outcome, Point, State

if TYPE_CHECKING:
    from sweeps.choose.surrogate import EarlierModels, Surrogate

# newest completed trials whose curves count, because the cost grows with their number
_MAX_CURVES = 200
_MIN_RESULTS = 3  # of this study, before its scales can be fitted
_MAX_DRAWS = 5  # draws for one trial, before the nearest untried point is used


@dataclass(frozen=True)
class Search:
    """The parts of a search."""

    space: SearchSpace
    memory: OutOfMemory
    seeds: Seeds
    max_configurations: int  # configurations to try, without the points that a person adds
    start: Sequence[Point] = ()  # first points to try; the sampler chooses their missing values
    earlier: Sequence[EarlierTrial] = ()  # trials of earlier studies
    custom: Callable[[optuna.Trial], object] | None = None
    """The user's own function that suggests further parameters, so that the space is not fully
    known."""
    name: str = ""  # name of the user's own function
    is_grid: bool = False  # whether no points but those of `start` are tried


class _Result(NamedTuple):
    """A point that ran. Its loss is infinite if the trial was pruned."""

    loss: float
    point: Point
    encoded: list[float]
    trial: int


class Sampler:
    """A chooser that begins untried configurations that are not likely to fail."""

    def __init__(self, search: Search, samplers: Samplers, fed: FedStudy) -> None:
        self._search = search
        self._samplers = samplers
        self._fed = fed
        assert fed.encoding
        self._space = search.space
        self._encoding = fed.encoding
        learns = issubclass(samplers.kind, (TPESampler, *CONSTRAINED, CmaEsSampler))
        self._avoids_failures = learns and not search.custom
        self._has_surrogate = samplers.models and not search.custom
        self._sign = 1 if fed.study.directions[0] is optuna.study.StudyDirection.MINIMIZE else -1
        self._repeat_note = (
            f"{search.name} suggests a point again: each trial of hydra.sweeper.n_trials runs,"
            " repeated or not"
        )
        self._reset()

    def _reset(self) -> None:
        self._outcomes = ConfigurationOutcomes(self._fed.repeats)
        self._proposals = Proposals(self._space)
        self._count = 0  # configurations, without the points that a person added
        self._started: set[str] = set()  # start points that have begun
        self._next = 0  # index of the next start point
        self._running: dict[int, list[float]] = {}  # coordinates of the running points, by trial
        self._scales: Sequence[float] = ()
        self._results: list[_Result] = []  # oldest first
        self._own_tried: set[str] = set()  # points with the values of the user's own function
        self._reports = Reports(self._fed.metric, self._sign < 0)
        for trial in self._search.earlier if self._avoids_failures else ():
            self._proposals.observe(trial.point, ran=not trial.has_failed)
        self._ran_before = [*self._proposals.ran]

    def next(self, study: StudySnapshot) -> Next:
        """Return the next configuration under its first seed; empty if the search is complete."""
        self._fed.follow(study)
        self._follow(study)
        self._proposals.narrow(study.excluded)
        exhausted = not self._search.custom and self._proposals.is_exhausted(study.size)
        if self._count >= self._search.max_configurations or exhausted or study.enough:
            return Next()
        number = len(study.rows)
        sampler = self._samplers.sampler(number, self._count_before(number))
        self._fed.load_study(sampler)
        if not self._search.custom:
            return Next([self._propose(study, number, sampler, self._next_start())])

        own = OwnSpace(self._search.custom, self._search.name, self._encoding)
        proposals = self._propose_custom(study, number, sampler, own)
        note = ""
        if any(canonical(proposal.params) in self._own_tried for proposal in proposals):
            note = self._repeat_note
            self._repeat_note = ""  # because once is enough
        return Next(proposals, message=note)

    def _next_start(self) -> Point:
        """Return the next start point that has not begun; an empty point if there is none."""
        while self._next < len(self._search.start):
            point = self._search.start[self._next]
            is_untried = self._search.custom or self._proposals.is_open(point)
            if is_untried and canonical(point) not in self._started:
                return point
            self._next += 1
        return {}

    def _count_before(self, number: int) -> int:
        """Return how many configurations were proposed before this trial; repeats have numbers,
        too."""
        return number if self._search.custom else len(self._proposals)

    def _follow(self, study: StudySnapshot) -> None:
        update = self._outcomes.read_new(study)
        if update.reopened:
            self._reset()
            update = self._outcomes.read_new(study)
        for trial in update.proposed:
            self._add_proposed(trial)
        for trial, end in update.ended:
            self._running.pop(trial.number, None)
            if self._avoids_failures:
                self._observe(trial, end)

    def _add_proposed(self, trial: TrialRecord) -> None:
        self._scales = trial.memory.get("scales", self._scales)
        if trial.by in (By.SAMPLER, By.GRID):
            self._count += 1
            keys = {parameter.key for parameter in self._space.parameters}
            swept = {key: value for key, value in trial.params.items() if key in keys}
            self._started.add(trial.memory.get("start", ""))
            self._started.add(canonical(swept))
        if self._search.custom:
            self._own_tried.add(canonical(trial.params))
        if not is_placeholder(trial):
            self._proposals.add(trial.configuration)
            self._running[trial.number] = self._proposals.encode(trial.configuration)

    def _observe(self, trial: TrialRecord, end: Outcome) -> None:
        point = trial.configuration
        has_run = end.state in {State.COMPLETED, State.PRUNED}
        if end.missing_objective or not (has_run or is_blamed(end)):
            return
        self._proposals.observe(point, ran=has_run)
        if has_run and (end.objective or end.state is State.PRUNED):
            loss = self._loss(end.state, end.objective)
            encoded = self._proposals.encode(point)
            self._results.append(_Result(loss, point, encoded, trial.number))

    def _loss(self, state: str, objective: Sequence[float]) -> float:
        if state != State.COMPLETED or not objective:
            return math.inf
        return self._sign * objective[0]

    @cached_property
    def _earlier(self) -> "EarlierModels":
        """Fit the models of the earlier studies, once because their trials never change."""
        from sweeps.choose.surrogate import EarlierModels

        studies: dict[int, tuple[list[list[float]], list[float]]] = {}
        for trial in self._search.earlier:
            if not trial.has_failed:
                encoded, losses = studies.setdefault(trial.study, ([], []))
                encoded.append(self._proposals.encode(trial.point))
                losses.append(self._loss(trial.state, trial.objective))
        return EarlierModels(studies.values(), self._proposals.parameter_indices())

    def _propose(
        self, study: StudySnapshot, number: int, sampler: BaseSampler, start: Point
    ) -> Proposal:
        """Return an untried point that is not likely to fail, or else the nearest untried point."""
        trial_id = self._fed.begin(number, {})
        point, scales = self._ask_surrogate(study, number, start)
        untried = None
        for draw in range(_MAX_DRAWS):
            if draw > 0 or not point:
                with explain_faults(type(sampler)):
                    point = self._ask_sampler(trial_id, sampler, start)
            if len(start) == len(point):
                break
            if self._proposals.is_open(point):
                untried = point
                fails = self._avoids_failures and self._proposals.seems_to_fail(point)
                if not fails and not self._search.memory.explain_infeasible(study, point):
                    break
        else:
            point = untried or self._nearest(point, start)
        params = {**point, **self._search.seeds.first}
        self._fed.settle(number, trial_id, self._encoding.encode(point), params)
        return self._proposal(study, number, point, params, start, scales=scales)

    def _nearest(self, point: Point, start: Point) -> Point:
        """Return the nearest untried point, with the values of the start point if there is one."""
        nearest = self._proposals.nearest(point, [*start])
        if self._proposals.is_open(nearest):
            return nearest
        return self._proposals.nearest(nearest)

    def _proposal(
        self,
        study: StudySnapshot,
        number: int,
        point: Point,
        params: Point,
        start: Point,
        **memory: Any,
    ) -> Proposal:
        kind = self._samplers.kind
        attributes = self._fed.frozen(self._fed.id_of(number)).system_attrs
        memory["system"] = storable(kind, attributes)
        memory["start"] = canonical(start) if start else ""
        shared = storable(kind, self._fed.shared)
        new = {name: value for name, value in shared.items() if study.shared.get(name) != value}
        return Proposal(
            params,
            By.SAMPLER,
            seed=self._search.seeds.first,
            infeasible=self._search.memory.explain_infeasible(study, point),
            memory={name: value for name, value in memory.items() if value},
            shared=new,
        )

    def _ask_surrogate(
        self, study: StudySnapshot, number: int, start: Point
    ) -> tuple[Point, list[float]]:
        """Return the surrogate's best point, and the scales of its fit; empty if the sampler
        chooses this trial."""
        if start or not self._has_surrogate:
            return {}, []
        results = self._results_of(study)
        ends, losses = self._estimated(study, results)
        count = self._count_before(number)
        too_few = len(losses) < _MIN_RESULTS or len(set(losses)) < 2
        is_start = too_few or count < self._samplers.startup
        if is_start and not self._search.earlier:
            return {}, []

        seed = self._samplers.seed(number)
        name = study.name
        advice = (
            f"To search on in a new study, add hydra.sweeper.study_name={name}-tpe"
            f" 'hydra.sweeper.learn_from=[{name}]' hydra/sweeper/sampler=tpe"
        )
        with explain_faults(self._samplers.kind, advice):
            surrogate = self._fit_surrogate(study, results, ends, losses)
            has_weight = self._earlier.teach(surrogate, count, seed)
            if is_start and not has_weight:
                return {}, []
            # those beside the best results first
            best = [results[i].point for i in np.argsort(losses, kind="stable")]
            draws = iter(np.random.RandomState(seed).random_sample, None)
            point = self._proposals.most_promising(best, surrogate.gain, draws)
        return point, [] if too_few else surrogate.scales

    def _fit_surrogate(
        self, study: StudySnapshot, results: Sequence[_Result], ends: Ends, losses: Sequence[float]
    ) -> "Surrogate":
        """Fit a surrogate to the results with these losses, the failures, and the running points,
        whose losses are estimated by their newest curves."""
        # because SciPy's import takes half a second, and first trials need no surrogate
        from sweeps.choose.surrogate import Surrogate

        surrogate = Surrogate(self._proposals.parameter_indices(), self._scales)
        encoded = [result.encoded for result in results]
        trials = sorted(self._running.keys() - {result.trial for result in results})
        running = [self._running[trial] for trial in trials]
        curves = [self._reports.curve(study.rows[trial]) for trial in trials]
        estimates = [ends.estimate(curve) for curve in curves]
        surrogate.fit(encoded, losses, self._proposals.failed, running, self._ran_before, estimates)
        return surrogate

    def _results_of(self, study: StudySnapshot) -> list[_Result]:
        """Return the results, oldest first, and then the paused trials, whose ends are unknown."""
        results = [*self._results]
        for number, encoded in sorted(self._running.items()):
            trial = study.rows[number]
            if trial.state is State.PAUSED:
                results.append(_Result(math.inf, trial.configuration, encoded, number))
        return results

    def _estimated(
        self, study: StudySnapshot, results: Sequence[_Result]
    ) -> tuple[Ends, list[float]]:
        """Return what the newest curves show about ends, and the losses of the results with
        estimates."""
        losses = [result.loss for result in results]
        completed = [i for i, loss in enumerate(losses) if loss < math.inf]
        oldest = min(completed[-_MAX_CURVES:], default=0)
        curves: list[Curve] = []
        for i, result in enumerate(results):
            is_read = i >= oldest or result.loss == math.inf
            curves.append(self._reports.curve(study.rows[result.trial]) if is_read else {})
        if len(results) > len(self._results):
            losses = fill_ends(curves, losses)
        ends = Ends(curves, losses)
        return ends, ends.fill(curves, losses)

    def _ask_sampler(self, trial_id: int, sampler: BaseSampler, start: Point) -> Point:
        """Return the point that the sampler proposes, with the values of the start point."""
        frozen = self._fed.frozen(trial_id)
        encoding = self._encoding
        frozen.params = encoding.encode(start)
        # because Hyperband shows each bracket its own trials
        study = _filter_study(self._fed.study, frozen)
        sampler.before_trial(study, frozen)
        # those of the start point, and those that the sampler chooses together
        values = frozen.params
        if len(values) < len(encoding.named):
            searched = sampler.infer_relative_search_space(study, frozen)
            values = {**sampler.sample_relative(study, frozen, searched), **values}

        point: Point = {}
        for parameter, name in encoding.named:
            if not self._space.exists(parameter, point):
                continue
            distribution = encoding.distributions[name]
            if distribution.single():
                value = _get_single_value(distribution)
            elif name in values:
                value = values[name]
            else:
                value = sampler.sample_independent(study, frozen, name, distribution)
            frozen.params[name] = in_distribution(name, value, distribution)
            decoded = encoding.decode(name, frozen.params[name])
            point |= self._space.fit(parameter, decoded, {**start, **point})
        return point

    def _propose_custom(
        self, study: StudySnapshot, number: int, sampler: BaseSampler, own: OwnSpace
    ) -> list[Proposal]:
        """Return a point with values of the user's own function; none if the grid is complete.

        A point for which the function raises TrialPruned is left out. Raises UserError if all are
        left out.
        """
        start = self._next_start()
        trial_id = self._fed.begin(number, start)
        for _ in range(MAX_PRUNED):
            with explain_faults(self._samplers.kind):
                trial = optuna.Trial(self._fed.study, trial_id)
                point = own.suggest_swept(trial)
            if own.accepts(trial):
                values, kinds = own.values(trial)
                params = {**point, **values, **self._search.seeds.first}
                self._fed.settle(number, -1, {}, params)
                return [self._proposal(study, number, point, params, start, distributions=kinds)]
            self._next += bool(start)
            start = self._next_start()
            trial_id = self._fed.begin_again(study, number, start, sampler)
            if self._search.is_grid and not start:
                break
        if self._search.is_grid and study.rows:
            return []
        raise own.without_points()
