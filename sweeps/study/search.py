"""A study's search: which trials there are, which comes next, and what became of each."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import optuna
from hydra._internal.utils import _locate
from omegaconf import DictConfig
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.pruners import NopPruner
from optuna.trial import TrialState

from sweeps.errors import UserError
from sweeps.results.summary import Row
from sweeps.settings import SweeperConf
from sweeps.study import start, storage
from sweeps.study.learner import Learner, axes, placed
from sweeps.study.memory import Memory
from sweeps.study.race import next_of
from sweeps.study.repeats import Repeats, seeds_of, swept
from sweeps.study.sampling import build, distribution, sampler_of
from sweeps.study.search_space import Choice, Parameter, SearchSpace, canonical, is_grid, total
from sweeps.trial.job import End, Objective, Point, State, Value


class Search:
    """An Optuna study, asked one trial at a time.

    A search learns, unless it was begun by a version that did not. A grid is enumerated here and only recorded
    in Optuna: asked from outside of `optimize`, its GridSampler repeats cells and raises on the last tell.
    """

    waits: bool
    """Whether an end may be followed by more trials, though there is none to be asked for now."""
    _changed: bool  # whether what is known of the race is old
    _axes: storage.Axes | None

    def __init__(self, name: str, folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig) -> None:
        """Raises UserError: the sampler or the pruner cannot be built, the search space in code not imported, or the
        search not started as it was told to.
        """
        self._folder, self._settings, self._config = folder, settings, config
        try:
            self._custom = settings.custom_search_space and _locate(settings.custom_search_space)
        except ImportError as error:
            why = f"{settings.custom_search_space} cannot be imported: {str(error).splitlines()[-1]}"
            raise UserError(f"hydra.sweeper.custom_search_space={why}") from error
        self.is_grid = is_grid(settings)
        self.seeds, self.fresh_seeds = seeds_of(settings, space, config)
        in_grid = self.is_grid and settings.repeats > 1
        self.space = space = swept(space, settings.seed_key, self.seeds) if in_grid else space
        self._repeated = settings.repeats > 1 and not self.is_grid
        named = settings.objective is not None
        self.objective = Objective(settings.objectives, named, needed=named or not self.is_grid)
        self._named = [(parameter, space.name(parameter)) for parameter in space.parameters]
        self.news = ""  # what to say when the next trial begins
        self._total: int | None = None  # as it was noted
        self._trials: dict[int, optuna.Trial] = {}
        self._reported: dict[int, int] = {}
        self._memory = Memory(settings.memory_axes, config)
        if not (folder / "study.json").exists():  # else it was passed over once
            self._memory.refuse_unknown([one.key.lstrip("+") for one in space.parameters])
        self.start = start.points(settings, space)
        self.earlier = start.earlier(settings, space, config, folder)
        prunes = bool(settings.pruner) and settings.pruner["_target_"] != "optuna.pruners.NopPruner"
        if prunes and len(settings.directions) > 1 and not (folder / "study.json").exists():  # it was passed over once
            one = f"hydra.sweeper.objective={settings.objectives[0]} hydra.sweeper.direction={settings.directions[0]}"
            raise UserError(
                f"a pruner ends trials by one objective, and there are {len(settings.directions)}, by which often "
                f"neither of two trials is worse\nLeave it out (hydra/sweeper/pruner=none), or search on one: {one}"
            )
        self._pruner = build("pruner", settings.pruner) or NopPruner()
        self._open = partial(
            storage.open_study,
            name,
            folder,
            settings.storage,
            sampler=None if self.is_grid else sampler_of(settings, space, learns=True),
            pruner=self._pruner,
            directions=settings.directions,
        )

    def open(self) -> None:
        """Take up the study, or make it. `mended` says what had to be mended in its journal; empty if nothing had."""
        self._study, self.mended = self._open()
        self.earlier.keep()
        self._begin()
        if self._settings.storage is None:
            if self._settings.extend and self.is_grid:
                storage.rewrite(self._study.study_name, self._folder, known=self._distributions)
                self._study, _ = self._open()
            self._add_missing()
        earlier = self._study.get_trials(deepcopy=False)
        self._take_up(earlier)
        by_hand = [one.user_attrs for one in earlier if storage.BY_HAND in one.user_attrs and not _is_again(one)]
        self._outside = sum(storage.OUTSIDE in attrs for attrs in by_hand)
        self._inside = len(by_hand) - self._outside
        self._count()
        self._note_total()
        seen = self._seen = {trial.user_attrs.get("point") for trial in earlier}
        known = self.space.points() if self.is_grid else self.start
        untried = (point for point in known if canonical(point) not in seen and not self._has_tried(point))
        new = untried if self.is_grid else chain(untried, repeat(Point()))
        configurations = sum(not _is_again(trial) for trial in earlier)
        asked = (len(seen - {None}) if self.is_grid else configurations) - len(by_hand)
        wanted = self._settings.most if self.is_grid else self._settings.n_trials
        most = None if wanted is None else max(0, wanted - asked)
        self._new: Iterator[Point] = islice(new, most)
        """The points that are left of a grid; for each trial that is left of a search one to start at, or none."""

    @property
    def total(self) -> int | None:
        """How many trials there will be: with the repeats, those of the final race that have begun, and those that were
        added by hand. None if nobody knows.
        """
        if self._points is None:
            return None
        tried = self._points * (self._settings.repeats if self._repeated else 1) - self._repeats.left_out()
        return tried + self._raced + self._outside

    def _count(self) -> None:
        """How many of them are points of the space."""
        asked = self._settings.n_trials
        wanted = None if asked is None else asked + self._inside
        known = self.is_grid or self._learner
        self._points = total(replace(self._settings, n_trials=wanted), self.space) if known else wanted

    def add(self, point: Point, name: str) -> Row:
        """A trial that a person wants, added under this name. Its point may lie outside of the space."""
        attrs: dict[str, Any] = {storage.BY_HAND: point, storage.ADDED: name}
        attrs |= {} if self.space.holds(point) else {storage.OUTSIDE: True}
        self._outside += storage.OUTSIDE in attrs
        self._inside += storage.OUTSIDE not in attrs
        self._count()
        if self.is_grid:
            attrs["point"] = canonical(point)
            self._seen.add(attrs["point"])
        self._study.enqueue_trial({}, user_attrs=attrs)
        self._note_total()
        return self._propose(self._study.ask())

    def was_added(self, name: str) -> bool:
        """Whether a trial was added under this name."""
        return any(one.user_attrs.get(storage.ADDED) == name for one in self._study.get_trials(deepcopy=False))

    def ask(self, race_alone: bool = False) -> Row | None:
        """A trial that was never asked for, where only the final race is left one of its. None when the study has all
        it should have, or `waits`.
        """
        row = None if race_alone else self._ask_repeat() or self._ask_new()
        row = row or self._ask_raced(race_alone)
        self._note_total()
        return row

    def _ask_repeat(self) -> Row | None:
        """A configuration that was begun, under its next seed."""
        found = self._repeats.next()
        return self._again(*found, race=False) if found else None

    def _ask_raced(self, alone: bool) -> Row | None:
        """One of the best configurations, under a fresh seed. With `alone` it waits for no other trials."""
        if not self.waits or not self._changed:
            return None
        rows = [self._row_of(trial) for trial in self._study.get_trials(deepcopy=False)]
        rows = [row for row in rows if row.race or row.state.is_over or not alone]
        settings, maximize = self._settings, self._settings.directions[0] == "maximize"
        found = next_of(rows, settings.final_race, settings.seed_key, self.fresh_seeds, maximize)
        self.waits, self._changed = found.waits, bool(found.begin)
        if not found.begin:
            return None
        if not self._raced:
            count, (first, *_) = len(found.names), self.fresh_seeds
            self.news = f"the final race: {count} configurations under fresh seeds from {first} on, at most "
            self.news += f"{len(self.fresh_seeds)}: {'; '.join(found.names)}"
        self._raced += 1
        return self._again(*found.begin[0], race=True)

    def _again(self, first: int, seed: int, race: bool) -> Row:
        """A trial at the point of an earlier one, under another seed, which samplers pass over."""
        like, key = self._study.get_trials(deepcopy=False)[first], self._settings.seed_key
        params = {name: value for name, value in like.params.items() if name != key}
        attrs = {name: value for name, value in like.user_attrs.items() if name in (storage.BY_HAND, storage.OUTSIDE)}
        trial = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=params,
            distributions={name: like.distributions[name] for name in params},
            user_attrs={**attrs, storage.REPEAT: {"of": first, "race": race, "seed": {key: seed}}},
        )
        trial_id = self._study._storage.create_new_trial(self._study._study_id, template_trial=trial)
        return self._propose(optuna.Trial(self._study, trial_id))

    def _ask_new(self) -> Row | None:
        if self._learner and not self._custom and self._learner.tried() >= (self._points or 0):
            return None
        point = next(self._new, None)
        if point is None:
            return None
        if point or self.is_grid:
            named = placed(self.space.named(point), self._axes or {})
            self._study.enqueue_trial(named, user_attrs={"point": canonical(point)})
        return self._propose(self._study.ask())

    def unfinished(self) -> list[Row]:
        """The trials that an earlier driver asked for, or enqueued and was killed, and did not see end."""
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
        trials = [trial for trial in trials if trial.number not in self._held]
        self._reported = {one.number: max(one.intermediate_values, default=-1) for one in trials}
        begun = [optuna.Trial(self._study, one._trial_id) for one in trials if one.state is TrialState.RUNNING]
        enqueued = [self._study.ask() for _ in range(len(trials) - len(begun))]
        return [self._propose(trial) for trial in begun + enqueued]

    def finished(self) -> list[Row]:
        """The trials that ended under an earlier driver."""
        trials = self._study.get_trials(deepcopy=False)
        return [self._row_of(trial) for trial in trials if trial.state.is_finished() or trial.number in self._held]

    def infeasible(self, row: Row) -> str:
        """Why a point cannot run here, in words, as far as earlier trials tell; else empty."""
        return self._memory.lacking(_without_seed(row))

    def reopen(self, numbers: Sequence[int]) -> None:
        """Let these trials, which have ended, run again."""
        storage.rewrite(self._study.study_name, self._folder, reopened=numbers)
        self._study, _ = self._open()
        self._begin()
        self._take_up(self._study.get_trials(deepcopy=False))

    def report(self, number: int, value: float, step: int) -> bool:
        """Record an intermediate value of the objective. True if the pruner wants this trial to end, which looks at the
        first one of a configuration alone; the others end with it.
        """
        if number in self._of:
            return self._of[number] in self._repeats.given_up
        prunes = len(self._settings.directions) == 1 and not isinstance(self._pruner, NopPruner)
        if not prunes or not math.isfinite(value) or step <= self._reported.get(number, -1):
            return False
        trial = self._trials[number]
        trial.report(value, step)
        self._reported[number] = step
        return trial.should_prune()

    def place(self, row: Row) -> None:
        """Note where a trial is, if not where everybody looks first."""
        where = str(row.folder).removeprefix(f"{self._folder}/")
        if where != str(row.number):
            self._trials[row.number].set_user_attr("folder", where)

    def tell(self, row: Row) -> None:
        """Record how a trial ended."""
        trial = self._trials.pop(row.number)
        trial.set_user_attr("end", {"attempts": [end.as_json() for end in row.attempts]})
        self._changed = True
        if row.state is State.OUT_OF_MEMORY:
            self._memory.add(row.number, _without_seed(row))
        outside = storage.OUTSIDE in trial.user_attrs
        if row.of is not None or outside:
            self._study.tell(trial, state=TrialState.FAIL)
        elif self._repeated:
            self._held[row.number] = trial, row
        else:
            self._tell(trial, row)
        if self._repeated and not row.race and not outside:
            first = row.number if row.of is None else row.of
            self._repeats.end(first, self._seed(row), row.attempts[-1])
            self._tell_configuration(first)
        self._note_total()

    def _tell_configuration(self, first: int) -> None:
        """Record how a configuration ended whose first trial has, once all of its repeats decide that."""
        if first in self._held and (end := self._repeats.verdict(first)):
            trial, row = self._held.pop(first)
            self._tell(trial, replace(row, state=end.state, attempts=[end], params=_without_seed(row)))

    def _tell(self, trial: optuna.Trial, row: Row) -> None:
        if self._learner:
            self._learner.tell(trial, row)
        elif row.result:
            self._study.tell(trial, row.result)
        else:
            self._study.tell(trial, state=TrialState.PRUNED if row.state is State.PRUNED else TrialState.FAIL)

    def importance(self) -> dict[str, float]:
        """The share of each parameter in the first objective's variance (fANOVA, Hutter et al., ICML 2014)."""
        return {} if self.is_grid or len(self._distributions) < 2 else storage.importance(self._study)

    def _has_tried(self, point: Point) -> bool:
        return self._learner is not None and self._learner.has_tried(point)

    def _take_up(self, trials: Sequence[optuna.trial.FrozenTrial]) -> None:
        """Learn from what ended under an earlier driver."""
        rows = {trial.number: self._row_of(trial) for trial in trials if self._is_grouped(trial)}
        self._of: dict[int, int] = {number: row.of for number, row in rows.items() if row.of is not None}
        """The trials that others repeat, by the numbers of these."""
        self._raced = sum(row.race for row in rows.values())
        for row in rows.values():
            if self._repeated and not row.race:
                self._begin_repeat(row)
        for trial in trials:
            if storage.OUTSIDE in trial.user_attrs:
                continue
            params = storage.params_of(trial, self._axes)
            point = {parameter.key: params[name] for parameter, name in self._named if name in params}
            end = storage.ended(trial)
            if self._learner and not _is_again(trial):
                self._learner.take_up(trial, point, self._repeats.verdict(trial.number) if self._repeated else end)
            if self._repeated and end and not _is_again(trial) and not trial.state.is_finished():
                self._held[trial.number] = optuna.Trial(self._study, trial._trial_id), rows[trial.number]
            if end and end.state is State.OUT_OF_MEMORY:
                self._memory.add(trial.number, point)
        for first in [*self._held]:
            self._tell_configuration(first)

    def _is_grouped(self, trial: optuna.trial.FrozenTrial) -> bool:
        return _is_again(trial) or (self._repeated and storage.OUTSIDE not in trial.user_attrs)

    def _begin_repeat(self, row: Row) -> None:
        """A trial of a search whose configurations have several."""
        first = row.number if row.of is None else row.of
        if first <= row.number:  # else its folder tells nonsense
            self._repeats.begin(first, self._seed(row))
        if row.state.is_over:
            self._repeats.end(first, self._seed(row), row.attempts[-1])

    def _seed(self, row: Row) -> int:
        seed: int = row.repeat.get("seed", {}).get(self._settings.seed_key, self.seeds[0])
        return seed

    def _note_total(self) -> None:
        """For whoever looks at the study: how many trials it has, if not as many as it began with."""
        known = self._study.user_attrs.get(storage.TOTAL) if self._total is None else self._total
        whole = self._points and self._points * (self._settings.repeats if self._repeated else 1)
        if self.total != (whole if known is None else known):
            self._study.set_user_attr(storage.TOTAL, self.total)
        self._total = self.total

    def _add_missing(self) -> None:
        """After damage to the journal: the trials that it lacks, which their folders still tell of."""
        missing = storage.missing_trials(self._study, self._folder)
        if missing and not self.mended:
            self.mended = f"{self._folder}/study.journal lacks {len(missing)} trials, which their folders tell of"
        for point, again in missing:
            asked = {key: value for key, value in (point or {}).items() if key not in again.get("seed", {})}
            if asked and self._is_outside(asked):
                attrs = {storage.BY_HAND: asked, storage.OUTSIDE: True, "point": canonical(asked)}
                attrs |= {storage.REPEAT: again} if again else {}
                self._study.add_trial(optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs=attrs))
                continue
            named = placed(self.space.named(asked), self._axes or {})
            unknown = End(State.FAILED, "which trial it was is not known: its trial.json cannot be read")
            known = {storage.REPEAT: again} if again else {"point": canonical(point or {})}
            trial = optuna.trial.create_trial(
                state=TrialState.RUNNING if point else TrialState.FAIL,  # its number is taken all the same
                params=named,
                distributions={name: self._distributions[name] for name in named},
                user_attrs=known if point else {"end": {"attempts": [unknown.as_json()]}},
            )
            self._study.add_trial(trial)

    def _is_outside(self, point: Point) -> bool:
        """Whether it has all the values that it should, and one of them is none of the space."""
        there = [one for one in self.space.parameters if self.space.exists(one, point)]
        return all(one.key in point for one in there) and not self.space.holds(point)

    def _propose(self, trial: optuna.Trial) -> Row:
        """What was suggested before is suggested again: Optuna keeps the values of a trial that runs."""
        self._trials[trial.number] = trial
        row = self._row_of(trial)
        if row.of is not None:
            self._of[row.number] = row.of
        if storage.OUTSIDE in trial.user_attrs:
            return row
        if self._repeated and not row.repeat:
            trial.set_user_attr(storage.REPEAT, {"seed": {self._settings.seed_key: self.seeds[0]}})
            row = self._row_of(trial)
        if self._repeated and not row.race:
            self._begin_repeat(row)
        wanted = trial.user_attrs.get(storage.BY_HAND)
        if wanted:
            trial._fixed_params = placed(self.space.named(wanted), self._axes or {})
        if wanted and self._learner:
            self._learner.take(trial, wanted)
        elif self._learner:
            self._learner.choose(trial)
        row.params, seed = {}, row.repeat.get("seed", {})
        for parameter in self.space.parameters:
            if parameter.key not in seed and self.space.exists(parameter, row.params):
                row.params[parameter.key] = self._suggest(trial, parameter)
        if self._custom:
            self._custom(self._config, trial)
            row.params |= {name: value for name, value in trial.params.items() if name not in self._distributions}
        row.params |= seed
        return row

    def _row_of(self, trial: optuna.trial.BaseTrial) -> Row:
        return storage.row_of(trial, self._folder, self._axes)

    def _begin(self) -> None:
        """Find out how this search goes on: one that was begun without a learner does without."""
        self._repeats = Repeats(self.seeds)
        self._held: dict[int, tuple[optuna.Trial, Row]] = {}
        """The first trials that have ended before their configurations did, which the sampler is told of."""
        self.waits, self._changed = self._settings.final_race > 0, True
        self._axes = storage.axes_of(self._study)
        if self._axes is None and not self.is_grid:
            if not self._study.get_trials(deepcopy=False):
                self._axes = axes(self.space)
                self._study.set_user_attr(storage.AXES, self._axes)
            else:
                self._study.sampler = sampler_of(self._settings, self.space, learns=False)
        learns, open_ended = self._axes is not None, bool(self._custom)
        known = self.earlier.trials
        learner = Learner(self._study, self.space, self._memory, open_ended, known) if learns else None
        self._learner: Learner | None = learner
        self._distributions: dict[str, BaseDistribution] = {
            name: distribution(p, self.is_grid, learns) for p, name in self._named
        }

    def _suggest(self, trial: optuna.Trial, parameter: Parameter) -> Value:
        """What the sampler chooses, or, for a trial that was enqueued, what it was enqueued with."""
        name = self.space.name(parameter)
        found: Any = trial._suggest(name, self._distributions[name])
        if self._axes and name in self._axes:
            found = self._axes[name][found]
        if isinstance(parameter, Choice) and isinstance(self._distributions[name], FloatDistribution):
            values: Sequence[Any] = parameter.values
            found = min(values, key=lambda value: abs(value - found))
        return found  # type: ignore[no-any-return]


def _is_again(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether it repeats another trial under another seed."""
    return trial.user_attrs.get(storage.REPEAT, {}).get("of") is not None


def _without_seed(row: Row) -> Point:
    return {key: value for key, value in row.params.items() if key not in row.repeat.get("seed", {})}
