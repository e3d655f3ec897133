"""What a search learns from, proposes and never repeats: real studies, and trials that end as a table says."""

import json
import math
import random
import shutil
import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.trial import TrialState

from sweeps.errors import UserError
from sweeps.results.summary import Row
from sweeps.settings import SweeperConf
from sweeps.study import storage
from sweeps.study.definition import define
from sweeps.study.memory import Memory
from sweeps.study.proposals import Proposals
from sweeps.study.sampling import distribution
from sweeps.study.search import Search
from sweeps.study.search_space import SearchSpace, canonical, parse, parse_condition
from sweeps.trial.job import End, Point, State
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Clock, FakeLauncher, by_trial, ends, trains

PARSER = OverridesParser.create()
GP = pytest.param("GP", marks=pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"))
SAMPLERS = ["TPE", "Random", "QMC", "CmaEs", "NSGAII", GP]
MakeSearch = Callable[..., Search]
Outcome = Callable[[Point], float | State]


def space(*lines: str, conditional: dict[str, list[str]] | None = None) -> SearchSpace:
    under = {parse_condition(k): PARSER.parse_overrides(v) for k, v in (conditional or {}).items()}
    return parse(PARSER.parse_overrides(list(lines)), under, {})


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSearch]:
    """(override lines, settings) -> a search over them that is open; the next driver's, if there was one before."""

    def make(*lines: str, sampler: str = "TPE", conditional: Any = None, **settings: Any) -> Search:
        target = {"_target_": f"optuna.samplers.{sampler}Sampler", "seed": 1}
        chosen = SweeperConf(**{"sampler": target, "n_trials": 20, **settings})
        search = Search("s", tmp_path, chosen, space(*lines, conditional=conditional), DictConfig({}))
        search.open()
        return search

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield make


def end(search: Search, row: Row, outcome: float | State) -> None:
    if isinstance(outcome, State):
        row.take(End(outcome, "so it was told", began=None if outcome is State.PRUNED else 1.0))
    else:
        row.take(End(State.COMPLETED, objective=[outcome] * len(search.objective.names), began=1.0))
    search.tell(row)


def run(search: Search, outcome: Outcome, most: int = 1000) -> list[Point]:
    """The points of the trials that it asks for."""
    found = []
    while len(found) < most and (row := search.ask()):
        found.append(row.params)
        end(search, row, outcome(row.params))
    return found


def trials(search: Search) -> list[optuna.trial.FrozenTrial]:
    return search._study.get_trials(deepcopy=False)


# Failures


@pytest.mark.parametrize(
    ("sampler", "outcome", "told", "constraint"),
    [
        ("TPE", 2.0, TrialState.COMPLETE, None),
        ("TPE", State.FAILED, TrialState.PRUNED, 1),
        ("TPE", State.DIVERGED, TrialState.PRUNED, 1),
        ("TPE", State.OUT_OF_MEMORY, TrialState.PRUNED, 1),
        ("TPE", State.PRUNED, TrialState.PRUNED, 1),  # infeasible: it never began
        ("TPE", State.LOST, TrialState.FAIL, None),
        ("TPE", State.TIMED_OUT, TrialState.FAIL, None),
        ("NSGAII", 2.0, TrialState.COMPLETE, -1),
        ("NSGAII", State.FAILED, TrialState.COMPLETE, 1),
        ("NSGAII", State.PRUNED, TrialState.COMPLETE, 1),
        ("NSGAII", State.LOST, TrialState.FAIL, None),
        ("CmaEs", State.DIVERGED, TrialState.COMPLETE, None),
        ("CmaEs", State.LOST, TrialState.FAIL, None),
        ("Random", State.FAILED, TrialState.FAIL, None),
        ("Random", State.PRUNED, TrialState.PRUNED, None),
        ("QMC", State.OUT_OF_MEMORY, TrialState.FAIL, None),
    ],
)
def test_what_a_sampler_is_told_and_a_person_sees(
    make: MakeSearch, tmp_path: Path, sampler: str, outcome: float | State, told: TrialState, constraint: float | None
) -> None:
    search = make("x=interval(0,1)", "y=interval(0,1)", sampler=sampler)
    run(search, lambda point: 1.0, most=1)
    run(search, lambda point: 3.0, most=1)
    run(search, lambda point: outcome, most=1)
    last = trials(search)[-1]
    assert last.state is told
    assert last.constraints.get("runs") == constraint
    if told is TrialState.COMPLETE and isinstance(outcome, State):
        assert last.values == [3.0]  # the worst that was seen
    row = storage.row_of(last, tmp_path, search._axes)
    assert row.state == (outcome if isinstance(outcome, State) else State.COMPLETED)
    assert [one.state for one in search.finished()] == ["completed", "completed", row.state]


@pytest.mark.parametrize("sampler", ["NSGAII", "CmaEs", GP])
def test_before_anything_completed_no_result_is_made_up(make: MakeSearch, sampler: str) -> None:
    search = make("x=interval(0,1)", "y=interval(0,1)", sampler=sampler)
    run(search, lambda point: State.FAILED, most=2)
    assert [trial.state for trial in trials(search)] == [TrialState.FAIL] * 2


def test_what_the_task_lacks_blames_no_point(make: MakeSearch) -> None:
    search = make("x=interval(0,1)")
    row = search.ask()
    assert row
    row.take(End(State.FAILED, "it returned nothing", misfit=True))
    search.tell(row)
    assert trials(search)[0].state is TrialState.FAIL


@pytest.mark.parametrize("directions", [("minimize",), ("minimize", "maximize")])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_goes_on_through_failures(make: MakeSearch, sampler: str, directions: tuple[str, ...]) -> None:
    if len(directions) > 1 and sampler in ("CmaEs", "GP"):
        pytest.skip("CMA-ES has one objective; the Gaussian process takes a minute for two")
    lines = ["x=interval(0.0,1.0)", "n=int(interval(1,40))", "b=16,32,64,100", "o=adam,sgd"]
    if sampler == "CmaEs":
        lines.pop()
    settings: dict[str, Any] = {"direction": list(directions)} if len(directions) > 1 else {}

    def outcome(point: Point) -> float | State:
        bad = [State.FAILED, State.OUT_OF_MEMORY, State.PRUNED, State.LOST]
        n, x = point["n"], point["x"]
        assert isinstance(n, int) and isinstance(x, float)
        return bad[n % 4] if x > 0.5 else x

    found = run(make(*lines, sampler=sampler, **settings), outcome, most=11)
    found += run(make(*lines, sampler=sampler, **settings), outcome)  # by the next driver
    assert len(found) == 20
    assert {type(point["b"]) for point in found} == {int}
    assert {point["b"] for point in found} <= {16, 32, 64, 100}


def test_a_corner_that_fails_is_left(make: MakeSearch) -> None:
    def outcome(point: Point) -> float | State:
        x, y = float(point["x"] or 0), float(point["y"] or 0)
        return State.DIVERGED if x + y > 1 else (x - 0.45) ** 2 + (y - 0.45) ** 2

    found = run(make("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", n_trials=50), outcome)
    failed = [isinstance(outcome(point), State) for point in found]
    assert sum(failed[20:]) <= 10


def test_a_made_up_value_is_in_no_importance(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", sampler="CmaEs", n_trials=40)
    run(search, lambda point: State.FAILED if float(point["y"] or 0) > 0.5 else float(point["x"] or 0))
    assert search.importance()["x"] > 0.9


def test_few_trials_tell_of_no_importance(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", sampler="Random")
    run(search, lambda point: float(point["x"] or 0), most=9)
    assert search.importance() == {}
    run(search, lambda point: float(point["x"] or 0))
    assert search.importance()["x"] > 0.9


def test_a_trial_that_is_retried_may_succeed(make: MakeSearch, tmp_path: Path) -> None:
    search = make("x=interval(0,1)")
    run(search, lambda point: State.FAILED, most=3)
    storage.rewrite("s", tmp_path, [1])
    search = make("x=interval(0,1)")
    (row,) = search.unfinished()
    end(search, row, 1.0)
    assert [trial.constraints for trial in trials(search)] == [{"runs": 1.0}, {}, {"runs": 1.0}]
    assert [trial.state.name for trial in trials(search)] == ["PRUNED", "COMPLETE", "PRUNED"]
    assert search._learner


# Memory


@pytest.mark.parametrize(
    ("axes", "ran_out", "other", "known"),
    [
        (["b/gpus"], {"b": 64}, {"b": 64}, True),
        (["b/gpus"], {"b": 64}, {"b": 128}, True),
        (["b/gpus"], {"b": 64}, {"b": 32}, False),
        (["b/gpus"], {"b": 64, "lr": 0.1}, {"b": 128, "lr": 0.2}, False),  # not otherwise equal
        (["b/gpus"], {"b": 64, "gpus": 1}, {"b": 128, "gpus": 2}, True),
        (["b/gpus"], {"b": 64, "gpus": 2}, {"b": 64, "gpus": 1}, True),
        (["b/gpus"], {"b": 64, "gpus": 1}, {"b": 100, "gpus": 2}, False),
        (["b/gpus"], {"b": 64, "gpus": 0}, {"b": 128, "gpus": 0}, True),
        (["b/gpus"], {"b": 64, "gpus": 0}, {"b": 999, "gpus": 1}, False),  # another memory
        (["b/nodes"], {"b": 64}, {"b": 128}, True),  # the configuration has no nodes
        (["b", "h"], {"b": 64, "h": 2}, {"b": 128, "h": 2}, True),
        (["b", "h"], {"b": 64, "h": 2}, {"b": 128, "h": 1}, False),
        (["b", "h"], {"b": 64, "h": "[8,8]"}, {"b": 64, "h": "[8,9]"}, True),
        (["b", "h"], {"b": 64, "h": "[8,8]"}, {"b": 64, "h": "[9,7]"}, False),
        (["b", "h"], {"b": 64, "h": "[8,8]"}, {"b": 64, "h": "[8,8,8]"}, False),  # nobody knows
        (["b"], {"+b": 64, "m": "x"}, {"+b": 65, "m": "x"}, True),
        (["m"], {"m": "x"}, {"m": "y"}, False),
        (["m"], {"m": "x"}, {"m": "x"}, False),  # no axis: a repeat may well be asked for
        (["other"], {"b": 64}, {"b": 128}, False),
        ([], {"b": 64}, {"b": 64}, False),
    ],
)
def test_running_out_of_memory_is_monotone(axes: list[str], ran_out: Point, other: Point, known: bool) -> None:
    memory = Memory(axes, DictConfig({"b": 32, "gpus": 1, "h": 1}))
    memory.add(7, ran_out)
    said = memory.lacking(other)
    assert bool(said) == known
    if known:
        assert "at least as much memory as trial 7, which ran out of it" in said


@pytest.mark.parametrize("axis", ["b*gpus", "b/gpus/2", "", "b gpus + 1"])
def test_what_is_no_axis(axis: str) -> None:
    with pytest.raises(UserError, match=r"hydra\.sweeper\.memory_axes="):
        Memory([axis], DictConfig({}))


@pytest.mark.parametrize(
    ("axis", "unknown"), [("b/gpus", ""), ("m.size", ""), ("x", ""), ("c", "c"), ("b/gpu", "gpu"), ("h.size", "h.size")]
)
def test_an_axis_that_nothing_is_known_of(axis: str, unknown: str) -> None:
    memory, swept = Memory([axis], DictConfig({"b": 32, "gpus": 1, "h": {}})), ["m", "x"]  # m may be a config group
    with pytest.raises(UserError, match=f"memory_axes has {unknown}, which is not") if unknown else nullcontext():
        memory.refuse_unknown(swept)


def test_a_grid_goes_on_without_what_cannot_fit(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("o=a,b", "x=1,2,3,4", memory_axes=["x"], n_jobs=1)
    out = ends(End(State.OUT_OF_MEMORY, "MemoryError"))
    launcher = FakeLauncher(by_trial(trains(), t1=out, t5=out), clock, slots=1)
    done = study.drive(launcher)
    assert done.states() == ["completed", "out_of_memory", "pruned", "pruned"] * 2
    assert [number for number, _ in launcher.submitted] == [0, 1, 4, 5]
    assert "by x it needs at least as much memory as trial 1" in done.out
    assert study.drive(FakeLauncher(trains(), clock)).states() == done.states()
    storage.rewrite("s", study.folder, [1])  # a person wants it tried again
    assert study.drive(FakeLauncher(trains(), clock)).states()[:3] == ["completed", "completed", "pruned"]


def test_a_search_knows_of_it_after_its_driver_died(make: MakeSearch) -> None:
    def outcome(point: Point) -> float | State:
        return State.OUT_OF_MEMORY if int(point["x"] or 0) > 2 else float(point["x"] or 0)

    settings = {"memory_axes": ["x"], "sampler": "Random"}
    first = run(make("x=1,2,3,4,5,6,7,8", **settings), outcome, most=4)
    search = make("x=1,2,3,4,5,6,7,8", **settings)
    least = min((int(point["x"] or 0) for point in first if isinstance(outcome(point), State)), default=9)
    while row := search.ask():
        assert bool(search.infeasible(row)) == (int(row.params["x"] or 0) >= least)
        end(search, row, State.PRUNED if search.infeasible(row) else outcome(row.params))
        least = min(least, int(row.params["x"] or 9) if row.state is State.OUT_OF_MEMORY else 9)
    assert len(trials(search)) == 8


# Numbers in their order


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x=16,32,64,1000", IntDistribution(0, 3)),
        ("x=32,16,32", IntDistribution(0, 1)),
        ("x=-1e-4,0,1e-2", IntDistribution(0, 2)),
        ("x=1,1.0,2.5", IntDistribution(0, 1)),
        ("x=range(0,10,2)", IntDistribution(0, 4)),
        ("x=int(interval(1,5))", IntDistribution(1, 5)),
        ("x=a,b", CategoricalDistribution(("a", "b"))),
        ("x=1,a", CategoricalDistribution((1, "a"))),
        ("x=1,null", CategoricalDistribution((1, None))),
        ("x=true,false", CategoricalDistribution((True, False))),
        ("x=0.1,0.1", CategoricalDistribution((0.1,))),
        ("x=1,1.0,true", CategoricalDistribution((1, True))),
        ("x=[1],[2]", CategoricalDistribution(("[1]", "[2]"))),
    ],
)
def test_numbers_are_an_axis_and_words_are_choices(line: str, expected: BaseDistribution) -> None:
    found = distribution(space(line).parameters[0], grid=False, learns=True)
    assert found == expected
    if isinstance(expected, CategoricalDistribution):
        assert [type(value) for value in found.choices] == [type(value) for value in expected.choices]


def test_what_is_recorded_is_what_was_typed(make: MakeSearch, tmp_path: Path) -> None:
    lines = ["lr=1e-4,3e-4,1e-2", "b=16,32,100", "m=1,2.5"]
    search = make(*lines)
    found = run(search, lambda point: float(point["lr"] or 0))
    overrides = {"lr=0.0001", "lr=0.0003", "lr=0.01", "b=16", "b=32", "b=100", "m=1", "m=2.5"}
    for trial, point in zip(trials(search), found, strict=True):
        assert storage.row_of(trial, tmp_path, search._axes).params == point
        assert set(search.space.overrides(point)) < overrides
        assert search.space.overrides(storage.row_of(trial, tmp_path, search._axes).params) == search.space.overrides(
            point
        )


def test_conditions_are_modelled_by_themselves(make: MakeSearch) -> None:
    under = {"o=adam": ["beta=interval(0.8,0.99)"], "o=sgd": ["momentum=0.0,0.5,0.9"]}
    search = make("o=adam,sgd,lion", "lr=interval(0.0,1.0)", conditional=under, n_trials=30)
    found = run(search, lambda point: float(point["lr"] or 0))
    assert search._study.sampler._group
    assert {tuple(point) for point in found} == {("o", "lr", "beta"), ("o", "lr", "momentum"), ("o", "lr")}


# No point twice


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    ("lines", "conditional", "count"),
    [
        (["x=1,2"], None, 2),
        (["x=1,1.0,2"], None, 2),
        (["x=0.1,0.1"], None, 1),
        (["x=int(interval(1,5))"], None, 5),
        (["x=1,2,3", "y=1,2,4"], None, 9),
        (["x=1,2,3,4", "y=a,b,true,2,c"], None, 20),
        (["o=a,b"], {"o=a": ["y=1,2,3"]}, 4),
        (["o=a,b"], {"o=a": ["y=1,2"], "o=b": ["y=7,8,9"]}, 5),
        (["o=a,b,c"], {"o=a": ["y=interval(0.0,1.0)"]}, 20),
        (["x=interval(0.0,1.0)"], None, 20),
    ],
)
def test_a_finite_space_is_tried_once_and_then_over(
    make: MakeSearch, sampler: str, lines: list[str], conditional: dict[str, list[str]] | None, count: int
) -> None:
    if sampler == "CmaEs" and (conditional or "a,b" in str(lines)):
        pytest.skip("for numbers alone")
    search = make(*lines, conditional=conditional, sampler=sampler)
    assert search.total == count
    found = run(search, lambda point: 1.0, most=count // 2)
    found += run(make(*lines, conditional=conditional, sampler=sampler), lambda point: 2.0)
    assert len({canonical(point) for point in found}) == len(found) == count
    assert run(make(*lines, conditional=conditional, sampler=sampler), lambda point: 2.0) == []


def test_points_of_ones_own_code_are_left_alone(make: MakeSearch) -> None:
    search = make("x=1,2", custom_search_space=f"{__name__}.custom")
    found = run(search, lambda point: 1.0)
    assert (search.total, len(found)) == (20, 20)
    assert set(found[0]) == {"x", "z"}


def custom(cfg: DictConfig, trial: optuna.Trial) -> None:
    trial.suggest_float("z", 0, 1)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_driver_that_was_killed_while_it_chose_repeats_nothing(make: MakeSearch, tmp_path: Path, cut: int) -> None:
    lines = ["x=1,2", "y=1,2,3"]
    run(make(*lines), lambda point: 1.0, most=4)
    journal = tmp_path / "study.journal"
    before = len(journal.read_bytes().splitlines())
    assert make(*lines).ask()
    kept = journal.read_bytes().splitlines(keepends=True)[: before + cut]
    journal.write_bytes(b"".join(kept))
    search = make(*lines)
    for row in search.unfinished():
        end(search, row, 1.0)
    run(search, lambda point: 1.0)
    points = [canonical(search._row_of(trial).params) for trial in trials(search)]
    assert len(set(points)) == len(points) == 6


def test_an_interval_that_is_extended_goes_on_from_there(make: MakeSearch) -> None:
    first = run(make("x=int(interval(1,3))"), lambda point: 1.0)
    second = run(make("x=int(interval(1,5))", extend=True, n_trials=40), lambda point: 1.0)
    assert sorted(int(point["x"] or 0) for point in first + second) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("lines", "tried", "point", "nearest"),
    [
        (["x=1,2,3,4"], [3], 3, {"x": 2}),
        (["x=1,2,3,4"], [2, 3], 3, {"x": 4}),
        (["x=1,10,11,100"], [10], 10, {"x": 1}),  # by their order
        (["x=a,b"], ["b"], "b", {"x": "a"}),
        (["x=int(interval(1,9))"], [5, 4], 5, {"x": 6}),
        (["x=1,2"], [1, 2], 1, {"x": 1}),  # all were tried
        (["x=1,2"], [7], 2, {"x": 2}),  # outside of the space
    ],
)
def test_the_nearest_point(lines: list[str], tried: list[Any], point: Any, nearest: Point) -> None:
    proposals = Proposals(space(*lines))
    for one in tried:
        proposals.add({"x": one})
    assert proposals.nearest({"x": point}) == nearest


@pytest.mark.parametrize(
    ("line", "value", "kind"),
    [
        ("x=1,10,11,100", 10, int),
        ("x=a,b,c", "a", str),
        ("x=true,false", True, bool),
        ("x=interval(0.0,10.0)", 10.0, float),
        ("x=int(interval(1,5))", 3, int),
        ("x=tag(log,interval(1.0,1e4))", 100.0, float),
        ("x=range(0,1000)", 3, int),
    ],
)
def test_candidates_are_of_the_space(line: str, value: Any, kind: type) -> None:
    whole = space(line, "o=1,2,3")
    found = Proposals(whole).candidates([{"x": value, "o": 2}], iter(random.Random(0).random, None))
    assert {type(point["x"]) for point in found} == {kind}
    assert all(whole.parameters[0].find(point["x"]) for point in found)
    beside = [point for point in found[400:] if point["o"] == 2]
    assert len(found) < 440 and len({point["x"] for point in beside}) >= min(3, len({point["x"] for point in found}))


def test_a_candidate_beside_another_has_its_parameters() -> None:
    """What decides on others stays; anywhere all that exist together are there."""
    proposals = Proposals(space("o=a,b", "x=1,2,3", conditional={"o=b": ["y=interval(0.0,1.0)"]}))
    point: Point = {"o": "b", "x": 2, "y": 0.5}
    found = proposals.candidates([point], iter(random.Random(0).random, None))
    assert {(one["o"], "y" in one) for one in found[:400]} == {("a", False), ("b", True)}
    assert all(one["o"] == "b" and sum(one[key] != point[key] for key in "xy") <= 1 for one in found[400:])
    assert len(found) == 400 + 3 + 12


@pytest.mark.parametrize("resumed", [False, True])
def test_two_trials_in_three_are_where_the_results_so_far_promise_most(make: MakeSearch, resumed: bool) -> None:
    lines = ("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", "o=a,b,c")

    def outcome(point: Point) -> float | State:
        x, y = float(point["x"] or 0), float(point["y"] or 0)
        return (x - 0.3) ** 2 + (y - 0.6) ** 2 + (point["o"] != "b")

    search = make(*lines, n_trials=40)
    found = run(search, outcome, most=20)
    found += run(make(*lines, n_trials=40) if resumed else search, outcome)
    losses = [float(outcome(point)) for point in found]
    assert statistics.median(losses[:10]) > 1
    assert statistics.median(losses[25:]) < 0.05


def test_what_runs_is_known_until_it_ends(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", n_trials=40)
    rows = [row for _ in range(6) if (row := search.ask())]
    end(search, rows[0], 0.5)
    end(search, rows[1], State.FAILED)
    again = make("x=interval(0.0,1.0)", n_trials=40)
    for one in (search, again):
        assert one._learner
        assert one._learner._running == {canonical(row.params) for row in rows[2:]}


def test_repeats_do_not_run_for_ever(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", n_trials=4, repeats=3, seed_key="+seed")
    assert len(run(search, lambda point: float(point["x"] or 0))) == 12
    assert search._learner
    assert not search._learner._running


def test_pruned_trials_are_bad_ones(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", n_trials=40)
    found = []
    while row := search.ask():
        found.append(float(row.params["x"] or 0))
        if found[-1] > 0.4:  # of which nothing was known but that it had to end
            row.take(End(State.PRUNED, began=1.0))
            search.tell(row)
        else:
            end(search, row, 1.0 - found[-1])
    assert statistics.median(found[20:]) == pytest.approx(0.4, abs=0.1)


def test_the_first_trials_count_when_they_are_asked_for(make: MakeSearch) -> None:
    """With many at a time there are no more of them."""
    search = make("x=interval(0.0,1.0)", sampler="TPE", n_trials=30)
    rows = [row for _ in range(9) if (row := search.ask())]
    end(search, rows[0], 1.0)
    sampler = search._study.sampler
    assert [sampler._n_startup_trials for _ in range(2) if search.ask()] == [10, 1]


def test_the_nearest_point_where_a_choice_brings_its_own() -> None:
    proposals = Proposals(space("o=a,b", conditional={"o=b": ["y=interval(0.0,1.0)", "z=1,2,3"]}))
    found: list[Point] = [{"o": "a"}]
    proposals.add(found[0])
    for _ in range(5):
        found.append(proposals.nearest({"o": "a"}))
        proposals.add(found[-1])
    assert [set(point) for point in found[1:]] == [{"o", "y", "z"}] * 5
    assert len({canonical(point) for point in found}) == 6
    assert proposals.nearest(found[1], held=("o", "y"))["y"] == found[1]["y"]


def test_where_the_nearest_has_failed_the_next_seems_to() -> None:
    proposals = Proposals(space("x=interval(0.0,1.0)", "o=a,b"))
    assert not proposals.seems_to_fail({"x": 0.5, "o": "a"})
    proposals.hear({"x": 0.6, "o": "a"}, ran=False)
    proposals.hear({"x": 0.2, "o": "a"}, ran=True)
    seems = [proposals.seems_to_fail({"x": x, "o": o}) for x, o in ((0.5, "a"), (0.3, "a"), (0.5, "b"), (0.3, "b"))]
    assert seems == [True, False, True, False]


# Where it starts


def test_it_starts_where_it_is_told_to(make: MakeSearch) -> None:
    start = [{"lr": 0.01, "b": 32.0, "o": "sgd"}, {"b": 16}, {"o": "adam", "beta": 0.9}]
    under = {"o=adam": ["beta=interval(0.8,0.99)"]}
    lines = ["+lr=interval(0.0,1.0)", "b=16,32,64", "o=adam,sgd"]
    search = make(*lines, conditional=under, start=start, n_trials=6)
    found = run(search, lambda point: 1.0)
    assert found[0] == {"+lr": 0.01, "b": 32, "o": "sgd"}
    assert type(found[0]["b"]) is int
    assert found[1]["b"] == 16
    assert (found[2]["o"], found[2]["beta"]) == ("adam", 0.9)
    assert len(found) == 6
    assert run(make(*lines, conditional=under, start=start, n_trials=6), lambda point: 1.0) == []


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_start_of_any_sampler_is_once_and_first(make: MakeSearch, sampler: str) -> None:
    start = [{"x": 3, "y": 2}, {"x": 1, "y": 1}]
    lines = ["x=1,2,3,4", "y=1,2"]
    found = run(make(*lines, sampler=sampler, start=start), lambda point: 1.0, most=1)
    search = make(*lines, sampler=sampler, start=[*start, {"x": 4, "y": 2}])  # one more, meanwhile
    found += run(search, lambda point: 1.0)
    assert found[:3] == [{"x": 3, "y": 2}, {"x": 1, "y": 1}, {"x": 4, "y": 2}]
    assert len({canonical(point) for point in found}) == len(found) == 8


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 6])
def test_a_driver_that_was_killed_at_the_start_starts_there_all_the_same(
    make: MakeSearch, tmp_path: Path, cut: int
) -> None:
    lines, start = ["x=1,2,3,4", "y=1,2"], [{"x": 3}, {"x": 2, "y": 2}, {"y": 1}]
    make(*lines, start=start)
    journal = tmp_path / "study.journal"
    before = len(journal.read_bytes().splitlines())
    assert make(*lines, start=start).ask()
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[: before + cut]))
    search = make(*lines, start=start)
    found = []
    for row in search.unfinished():
        found.append(row.params)
        end(search, row, 1.0)
    found += run(search, lambda point: 1.0)
    assert found[0]["x"] == 3
    assert found[1] == {"x": 2, "y": 2}
    assert found[2]["y"] == 1
    assert len({canonical(point) for point in found}) == len(found) == len(trials(search)) == 8


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ([{"lx": 0.1}], "lx is not in the search space, which has x, n, b, o, z"),
        ([{"x": 2}], "x=2 is not in the search space\nIt has x=interval(0,1)"),
        ([{"x": "0.5"}], "x=0.5 is not"),
        ([{"n": 2.5}], "n=2.5 is not in the search space\nIt has n=int(interval(1,9))"),
        ([{"n": True}], "n=True is not"),
        ([{"b": 17}], "b=17 is not in the search space\nIt has b=16,32"),
        ([{"o": "adm"}], "o=adm is not in the search space\nIt has o=adam,sgd"),
        ([{"o": "sgd", "z": 1}], "z exists only under o=adam, which it does not say"),
        ([{"z": 1}], "z exists only under o=adam"),
        ([{"b": 16}, {"b": 16.0}], "a point twice, {b:16}"),
        ([{}], "a point has values"),
        ([{"n": n} for n in range(1, 5)], "has 4 points, more than hydra.sweeper.n_trials"),
    ],
)
def test_where_it_cannot_start(make: MakeSearch, start: list[dict[str, Any]], said: str) -> None:
    lines = ["x=interval(0.0,1.0)", "n=int(interval(1,9))", "b=16,32", "o=adam,sgd"]
    with pytest.raises(UserError) as error:
        make(*lines, conditional={"o=adam": ["z=1,2"]}, start=start, n_trials=3)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


def test_a_grid_starts_nowhere_else(make: MakeSearch) -> None:
    with pytest.raises(UserError, match="a grid tries every point"):
        make("x=1,2", sampler="Grid", start=[{"x": 1}])


@pytest.fixture
def make_earlier(tmp_path: Path) -> Callable[..., Path]:
    """(lines, outcome, what it fixed) -> the folder of a study that has ended, beside the one that `make` makes."""

    def make_earlier(*lines: str, outcome: Outcome, name: str = "before", **fixed: Any) -> Path:
        folder = tmp_path.parent / f"{tmp_path.name}_{name}"
        folder.mkdir()
        target = {"_target_": "optuna.samplers.RandomSampler", "seed": 0}
        settings, config = SweeperConf(sampler=target, n_trials=30), DictConfig({**fixed, "hydra": {"sweeper": {}}})
        search = Search(name, folder, settings, space(*lines), config)
        search.open()
        run(search, outcome)
        said = define(name, settings, search.space, config)
        (folder / "study.json").write_text(json.dumps(asdict(said)))
        return folder

    return make_earlier


def bowl(point: Point) -> float | State:
    x, y = (float(point[key] or 0) for key in ("x", "y"))
    return State.FAILED if x > 0.8 else (x - 0.3) ** 2 + (y - 0.7) ** 2


LINES = ["x=interval(0.0,1.0)", "y=interval(0.0,1.0)"]


@pytest.mark.parametrize("sampler", ["TPE", GP])
def test_it_learns_from_an_earlier_study(make: MakeSearch, make_earlier: Callable[..., Path], sampler: str) -> None:
    """Whose trials are nowhere among its own."""
    folder = make_earlier(*LINES, outcome=bowl)
    search = make(*LINES, sampler=sampler, learn_from=[folder.name], n_trials=8)
    assert search.earlier.said == [f"learns from 30 trials of study {folder.name}"]
    found = run(search, bowl, most=4)
    shutil.rmtree(folder)  # it has its own copy
    search = make(*LINES, sampler=sampler, learn_from=[folder.name], n_trials=8)
    assert [row.number for row in search.finished()] == [0, 1, 2, 3]
    assert search.earlier.said == []
    found += run(search, bowl)
    assert len(found) == 8
    assert [trial.number for trial in trials(search)] == list(range(8))
    near = [not isinstance(value := bowl(point), State) and value < 0.1 for point in found]
    assert sum(near) >= 6  # of random points a third are


def test_what_an_earlier_study_pruned_is_a_bad_point_there_too(
    make: MakeSearch, make_earlier: Callable[..., Path]
) -> None:
    """Whatever it had reached by then."""
    search = make(*LINES, sampler="TPE", learn_from=[make_earlier(*LINES, outcome=bowl).name])
    cut = {"state": State.PRUNED, "objective": [-1.0]}
    search.earlier.trials = [replace(one, **cut) if one.failed else one for one in search.earlier.trials]
    search.open()
    assert search._learner
    losses = [(loss, float(str(point["x"])) > 0.8) for loss, point, _ in search._learner._results]
    assert len(losses) == 30 and any(pruned for _, pruned in losses)
    assert all((loss == math.inf) == pruned for loss, pruned in losses)


def test_what_an_earlier_study_fixed_is_a_value_of_a_wider_space(
    make: MakeSearch, make_earlier: Callable[..., Path]
) -> None:
    folder = make_earlier("x=1,2,3", outcome=lambda point: float(point["x"] or 0), b=32, epochs=5)
    search = make("x=2,3,4", "b=16,32", learn_from=[folder.name])
    assert [one.point for one in search.earlier.trials] == [{"x": 2, "b": 32}, {"x": 3, "b": 32}] or [
        one.point for one in search.earlier.trials
    ] == [{"x": 3, "b": 32}, {"x": 2, "b": 32}]
    (said,) = search.earlier.said
    assert said.endswith("(1 more outside of this search space), which had epochs=5, not (nothing)")
    assert len(run(search, lambda point: 1.0)) == 6


def test_no_study_is_learnt_from_twice(make: MakeSearch, make_earlier: Callable[..., Path]) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    with pytest.raises(UserError, match=f"learn_from has study {folder} twice"):
        make(*LINES, learn_from=[folder.name, str(folder)])


def test_trials_under_several_seeds_are_learnt_from_as_one(make: MakeSearch, make_earlier: Callable[..., Path]) -> None:
    def outcome(point: Point) -> float | State:
        return State.DIVERGED if point == {"x": 3, "seed": 1} else float(point["x"] or 0) + float(point["seed"] or 0)

    folder = make_earlier("x=1,2,3", "seed=0,1,2", outcome=outcome, seed=0)
    search = make("x=interval(0.0,5.0)", learn_from=[folder.name])
    found = sorted((one.point["x"], one.state, one.objective) for one in search.earlier.trials)
    assert found == [(1.0, "completed", [2.0]), (2.0, "completed", [3.0]), (3.0, "diverged", [])]
    (said,) = search.earlier.said
    assert said.startswith(f"learns from 3 configurations of study {folder.name}")


def test_a_copy_that_was_cut_is_made_again(make: MakeSearch, make_earlier: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    make(*LINES, learn_from=[folder.name])
    (tmp_path / "learned.json").write_text('[{"point":')
    assert len(make(*LINES, learn_from=[folder.name]).earlier.trials) == 30
    assert make(*LINES, learn_from=[folder.name]).earlier.said == []


@pytest.mark.parametrize(
    ("settings", "lines", "said"),
    [
        ({"learn_from": ["nothing"]}, LINES, "learn_from=nothing: there is no such earlier study"),
        ({"sampler": "Random"}, LINES, "only hydra/sweeper/sampler=tpe and gp"),
        (
            {"direction": "maximize"},
            LINES,
            "it searched for objective (minimize), and this one for objective (maximize)",
        ),
        ({}, ["x=interval(7.0,8.0)", "y=interval(0.0,1.0)"], "none of its 30 trials lies in this search space"),
        ({}, [*LINES, "z=1,2"], "none of its 30 trials lies"),
        ({}, ["y=interval(0.0,1.0)"], "none of its 30 trials lies"),
    ],
)
def test_what_it_cannot_learn_from(
    make: MakeSearch, make_earlier: Callable[..., Path], settings: dict[str, Any], lines: list[str], said: str
) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    with pytest.raises(UserError) as error:
        make(*lines, **{"learn_from": [folder.name], **settings})
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


# Studies that were begun before


@pytest.fixture
def begun_before(tmp_path: Path) -> Callable[..., None]:
    """A journal as it was written by the version before: a failure as FAIL, numbers as choices, points repeated."""

    def write(*lines: str) -> None:
        journal = JournalStorage(storage._Journal(tmp_path / "study.journal"))
        study = optuna.create_study(study_name="s", storage=journal, directions=["minimize"])
        for number in range(4):
            trial = study.ask()
            for parameter in space(*lines).parameters:
                trial.suggest_categorical(parameter.key, parameter.values)
            said = End(State.FAILED, "too large") if number == 1 else End(State.COMPLETED, objective=[1.0 + number])
            trial.set_user_attr("end", {"attempts": [said.as_json()]})
            study.tell(trial, said.objective or None, state=None if said.objective else TrialState.FAIL)

    return write


def test_a_study_that_was_begun_before_goes_on_as_it_began(make: MakeSearch, begun_before: Callable[..., None]) -> None:
    begun_before("x=1,2", "y=0.1,0.1")
    search = make("x=1,2", "y=0.1,0.1", n_trials=12)
    assert (search.total, len(search.finished())) == (12, 4)
    assert len(run(search, lambda point: State.FAILED, most=2)) == 2
    assert len(run(make("x=1,2", "y=0.1,0.1", n_trials=12), lambda point: 1.0)) == 6
    after = trials(search)
    assert [trial.state.name for trial in after[4:]] == ["FAIL"] * 2 + ["COMPLETE"] * 6
    assert {repr(trial.distributions) for trial in after} == {repr(after[0].distributions)}
    assert all(not trial.constraints for trial in after)
    assert "axes" not in search._study.user_attrs


def test_a_new_one_keeps_its_ways_when_its_journal_is_written_anew(make: MakeSearch, tmp_path: Path) -> None:
    run(make("x=1,2,3"), lambda point: State.FAILED, most=1)
    storage.rewrite("s", tmp_path, [0])
    search = make("x=1,2,3")
    assert [row.params for row in search.unfinished()] == [search._row_of(trials(search)[0]).params]
    assert run(search, lambda point: 1.0) != []
    assert len(trials(search)) == 3


def test_a_damaged_journal_is_mended(make: MakeSearch, tmp_path: Path) -> None:
    search = make("x=1,2.5,4", "o=a,b")
    rows = []
    for _ in range(3):
        row = search.ask()
        assert row
        rows.append(row)
        folder = tmp_path / str(row.number)
        folder.mkdir()
        (folder / "trial.json").write_text(json.dumps({"number": row.number, "point": row.params}))
    (tmp_path / "study.journal").write_bytes(b"")
    search = make("x=1,2.5,4", "o=a,b")
    assert [row.params for row in search.unfinished()] == [row.params for row in rows]
    assert len(run(search, lambda point: 1.0)) == 3
