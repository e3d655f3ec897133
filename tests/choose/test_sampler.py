"""What a search learns from, proposes and never repeats: real records, and trials that end as a table says."""

import json
import pickle
import random
import shutil
import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import optuna
import pytest
from omegaconf import DictConfig
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from sweeps.base.errors import UserError
from sweeps.choose.out_of_memory import OutOfMemory
from sweeps.choose.proposals import Proposals
from sweeps.choose.sampler.build import DefaultSampler
from sweeps.choose.sampler.encoding import Encoding, encoded_distribution, true_distribution
from sweeps.choose.sampler.fed_study import FedStudy
from sweeps.hydra.settings import SweeperConf
from sweeps.record.definition import define
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.space.space import canonical
from sweeps.trial.folder import MetricsLine, TrialFolder
from sweeps.trial.job import Outcome, Point, State
from tests.choose.asked import Asked, Ending, space
from tests.command_lines import some
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Clock, FakeLauncher, by_trial, ends, trains

GP = pytest.param("GP", marks=pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"))
FURTHER = [pytest.param(name, marks=pytest.mark.long) for name in ("TPE", "Random", "QMC")]
SAMPLERS = ["Default", "CmaEs", "NSGAII", *FURTHER, GP]
MakeSearch = Callable[..., Asked]


@dataclass
class Touch:
    """An object that makes a file when it is unpickled."""

    path: Path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def target(sampler: str) -> str:
    own = "sweeps.choose.sampler.build.DefaultSampler"
    return own if sampler == "Default" else f"optuna.samplers.{sampler}Sampler"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSearch]:
    """Return a function that opens a search over override lines, or resumes the search of this folder."""

    def make(*lines: str, sampler: str = "Default", conditional: Any = None, **settings: Any) -> Asked:
        chosen = SweeperConf(**{"sampler": {"_target_": target(sampler), "seed": 1}, "n_trials": 20, **settings})
        return Asked(tmp_path, chosen, space(*lines, conditional=conditional))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield make


def told(search: Asked, sampler: str) -> list[optuna.trial.FrozenTrial]:
    """Return the trials as a sampler of this kind observes them."""
    kind = DefaultSampler if sampler == "Default" else getattr(optuna.samplers, f"{sampler}Sampler")
    fed = FedStudy(search.study, kind, Encoding(search.space))
    fed.follow(search.study)
    return fed.study.get_trials(deepcopy=False)


# Failures


@pytest.mark.parametrize(
    ("sampler", "outcome", "state", "constraint"),
    [
        ("TPE", 2.0, TrialState.COMPLETE, None),
        ("TPE", State.FAILED, TrialState.PRUNED, 1),
        ("TPE", State.DIVERGED, TrialState.PRUNED, 1),
        ("TPE", State.OUT_OF_MEMORY, TrialState.PRUNED, 1),
        ("TPE", State.INFEASIBLE, TrialState.PRUNED, 1),
        ("TPE", State.LOST, TrialState.FAIL, None),
        ("TPE", State.TIMED_OUT, TrialState.FAIL, None),
        ("NSGAII", 2.0, TrialState.COMPLETE, -1),
        ("NSGAII", State.FAILED, TrialState.COMPLETE, 1),
        ("NSGAII", State.INFEASIBLE, TrialState.COMPLETE, 1),
        ("NSGAII", State.LOST, TrialState.FAIL, None),
        ("CmaEs", State.DIVERGED, TrialState.COMPLETE, None),
        ("CmaEs", State.LOST, TrialState.FAIL, None),
        ("Random", State.FAILED, TrialState.FAIL, None),
        ("Random", State.PRUNED, TrialState.PRUNED, None),
        ("Random", State.INFEASIBLE, TrialState.PRUNED, None),
        ("QMC", State.OUT_OF_MEMORY, TrialState.FAIL, None),
    ],
)
def test_values_for_a_sampler_and_for_a_user(
    make: MakeSearch, sampler: str, outcome: float | State, state: TrialState, constraint: float | None
) -> None:
    search = make("x=interval(0,1)", "y=interval(0,1)", sampler=sampler)
    search.run(lambda point: 1.0, most=1)
    search.run(lambda point: 3.0, most=1)
    search.run(lambda point: outcome, most=1)
    last = told(search, sampler)[-1]
    assert last.state is state
    assert last.constraints.get("runs") == constraint
    if state is TrialState.COMPLETE and isinstance(outcome, State):
        assert last.values == [3.0]  # the worst that was seen
    expected = outcome if isinstance(outcome, State) else State.COMPLETED
    assert [trial.state for trial in search.trials] == ["completed", "completed", expected]
    resumed = make("x=interval(0,1)", "y=interval(0,1)", sampler=sampler)
    (before, after) = (
        [(trial.state, trial.values, trial.params) for trial in told(x, sampler)] for x in (search, resumed)
    )
    assert before == after


@pytest.mark.parametrize("sampler", ["NSGAII", "CmaEs", GP])
def test_before_anything_completed_no_result_is_made_up(make: MakeSearch, sampler: str) -> None:
    search = make("x=interval(0,1)", "y=interval(0,1)", sampler=sampler)
    search.run(lambda point: State.FAILED, most=2)
    assert [trial.state for trial in told(search, sampler)] == [TrialState.FAIL] * 2


def test_missing_file_of_the_task_blames_no_point(make: MakeSearch) -> None:
    search = make("x=interval(0,1)")
    row = search.ask()
    assert row
    search.end(row, Outcome(State.FAILED, "it returned nothing", missing_objective=True))
    assert told(search, "Default")[0].state is TrialState.FAIL


@pytest.mark.parametrize("directions", [("minimize",), ("minimize", "maximize")])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_continues_through_failures(make: MakeSearch, sampler: str, directions: tuple[str, ...]) -> None:
    if len(directions) > 1 and sampler in ("CmaEs", "GP"):
        pytest.skip("CMA-ES has one objective; the Gaussian process takes a minute for two")
    lines = ["x=interval(0.0,1.0)", "n=int(interval(1,40))", "b=16,32,64,100", "o=adam,sgd"]
    if sampler == "CmaEs":
        lines.pop()
    settings: dict[str, Any] = {"direction": list(directions)} if len(directions) > 1 else {}

    def outcome(point: Point) -> float | State:
        bad = [State.FAILED, State.OUT_OF_MEMORY, State.INFEASIBLE, State.LOST]
        n, x = point["n"], point["x"]
        assert isinstance(n, int) and isinstance(x, float)
        return bad[n % 4] if x > 0.5 else x

    points = make(*lines, sampler=sampler, **settings).run(outcome, most=11)
    points += make(*lines, sampler=sampler, **settings).run(outcome)  # by the next driver
    assert len(points) == 20
    assert {type(point["b"]) for point in points} == {int}
    assert {point["b"] for point in points} <= {16, 32, 64, 100}


@pytest.mark.long
def test_a_corner_that_fails_is_left(make: MakeSearch) -> None:
    def outcome(point: Point) -> float | State:
        x, y = float(point["x"] or 0), float(point["y"] or 0)
        return State.DIVERGED if x + y > 1 else (x - 0.45) ** 2 + (y - 0.45) ** 2

    points = make("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", n_trials=50).run(outcome)
    failed = [isinstance(outcome(point), State) for point in points]
    assert sum(failed[20:]) <= 10


def test_a_made_up_value_is_in_no_importance(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", sampler="CmaEs", n_trials=40)
    search.run(lambda point: State.FAILED if float(point["y"] or 0) > 0.5 else float(point["x"] or 0))
    assert search.choosing.importance(search.study)["x"] > 0.9


def test_foreign_pickle_in_the_record_is_not_loaded(make: MakeSearch, tmp_path: Path) -> None:
    lines = ("x=interval(0.0,1.0)", "y=interval(0.0,1.0)")
    make(*lines, sampler="CmaEs", n_trials=20).run(lambda point: float(point["x"] or 0))
    journal, state = tmp_path / "journal.jsonl", pickle.dumps(Touch(tmp_path / "executed")).hex()
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    stored = [event["memory"]["system"] for event in events if "cma:optimizer:0" in str(event.get("memory"))]
    for system in stored:
        for part in [key for key in system if key.startswith("cma:optimizer")]:
            del system[part]
        system["cma:optimizer:0"] = state
    journal.write_text("".join(json.dumps(event) + "\n" for event in events))
    with pytest.raises(UserError, match=r"pathlib.* is no part of it\n.*learn_from"):
        make(*lines, sampler="CmaEs", n_trials=30).ask()
    assert stored and not (tmp_path / "executed").exists()


def test_few_trials_have_no_importance(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", sampler="Random")
    search.run(lambda point: float(point["x"] or 0), most=9)
    assert search.choosing.importance(search.study) == {}
    search.run(lambda point: float(point["x"] or 0))
    assert search.choosing.importance(search.study)["x"] > 0.9


def test_a_trial_that_is_retried_may_succeed(make: MakeSearch) -> None:
    search = make("x=interval(0,1)")
    search.run(lambda point: State.FAILED, most=3)
    search.record.reopen([1])
    row = search.ask()
    assert row and row.number == 1
    assert [trial.state.name for trial in told(search, "TPE")] == ["PRUNED", "RUNNING", "PRUNED"]
    search.end(row, 1.0)
    for study in (search, make("x=interval(0,1)")):
        assert [trial.constraints for trial in told(study, "TPE")] == [{"runs": 1.0}, {}, {"runs": 1.0}]
        assert [trial.state.name for trial in told(study, "TPE")] == ["PRUNED", "COMPLETE", "PRUNED"]


# Memory


@pytest.mark.parametrize(
    ("axes", "ran_out", "other", "infeasible"),
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
def test_running_out_of_memory_is_monotone(axes: list[str], ran_out: Point, other: Point, infeasible: bool) -> None:
    memory = OutOfMemory(axes, DictConfig({"b": 32, "gpus": 1, "h": 1}))
    trials = [TrialRecord(n, {}, State.COMPLETED, Path()) for n in range(7)]
    trials.append(TrialRecord(7, ran_out, State.OUT_OF_MEMORY, Path()))
    study = StudySnapshot("s", Path(), ("loss",), ("minimize",), trials, changes=[7])
    reason = memory.explain_infeasible(study, other)
    assert bool(reason) == infeasible
    if infeasible:
        assert "at least as much memory as trial 7, which ran out of memory" in reason


@pytest.mark.parametrize("axis", ["b*gpus", "b/gpus/2", "", "b gpus + 1"])
def test_keys_that_are_no_axis(axis: str) -> None:
    with pytest.raises(UserError, match=r"hydra\.sweeper\.memory_axes="):
        OutOfMemory([axis], DictConfig({}))


@pytest.mark.parametrize(
    ("axis", "unknown"), [("b/gpus", ""), ("m.size", ""), ("x", ""), ("c", "c"), ("b/gpu", "gpu"), ("h.size", "h.size")]
)
def test_axis_without_observations(axis: str, unknown: str) -> None:
    memory, swept = (
        OutOfMemory([axis], DictConfig({"b": 32, "gpus": 1, "h": {}})),
        ["m", "x"],
    )  # m may be a config group
    with pytest.raises(UserError, match=f"memory_axes: {unknown} is not in") if unknown else nullcontext():
        memory.refuse_unknown(swept)


def test_grid_continues_without_infeasible_points(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("o=a,b", "x=1,2,3,4", memory_axes=["x"], n_jobs=1)
    out = ends(Outcome(State.OUT_OF_MEMORY, "MemoryError"))
    launcher = FakeLauncher(by_trial(trains(), t1=out, t5=out), clock, slots=1)
    done = study.drive(launcher)
    assert done.states() == ["completed", "out_of_memory", "infeasible", "infeasible"] * 2
    assert [number for number, _ in launcher.submitted] == [0, 1, 4, 5]
    assert "by x it needs at least as much memory as trial 1" in done.out
    assert study.drive(FakeLauncher(trains(), clock)).states() == done.states()
    study.record(study.settings).reopen([1])  # a person wants it tried again
    assert study.drive(FakeLauncher(trains(), clock)).states()[:3] == ["completed", "completed", "infeasible"]


def test_search_knows_infeasible_points_after_a_kill(make: MakeSearch) -> None:
    def outcome(point: Point) -> float | State:
        return State.OUT_OF_MEMORY if int(point["x"] or 0) > 2 else float(point["x"] or 0)

    settings = {"memory_axes": ["x"], "sampler": "Random"}
    first = make("x=1,2,3,4,5,6,7,8", **settings).run(outcome, most=4)
    search = make("x=1,2,3,4,5,6,7,8", **settings)
    least = min((int(point["x"] or 0) for point in first if isinstance(outcome(point), State)), default=9)
    while row := search.ask():
        x = int(row.params["x"] or 0)
        assert x < least
        search.end(row, outcome(row.params))
        least = min(least, x if x > 2 else 9)
    assert len(search.trials) == 8
    for trial in search.trials:
        if trial.infeasible:
            assert int(trial.params["x"] or 0) >= least


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
    distribution = encoded_distribution(space(line).parameters[0])
    assert distribution == expected
    if isinstance(expected, CategoricalDistribution):
        assert [type(value) for value in distribution.choices] == [type(value) for value in expected.choices]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x=range(0,10,2)", IntDistribution(0, 8, step=2)),
        ("x=range(-5.5,5.5,0.5)", FloatDistribution(-5.5, 5.0, step=0.5)),
        ("x=0.1,0.2", CategoricalDistribution((0.1, 0.2))),
        ("x=interval(0.5,1)", FloatDistribution(0.5, 1.0)),
    ],
)
def test_custom_code_receives_typed_values(line: str, expected: BaseDistribution) -> None:
    assert true_distribution(space(line).parameters[0]) == expected


def test_recorded_values_are_typed_values(make: MakeSearch) -> None:
    lines = ["lr=1e-4,3e-4,1e-2", "b=16,32,100", "m=1,2.5"]
    search = make(*lines)
    points = search.run(lambda point: float(point["lr"] or 0))
    overrides = {"lr=0.0001", "lr=0.0003", "lr=0.01", "b=16", "b=32", "b=100", "m=1", "m=2.5"}
    for trial, point in zip(make(*lines).trials, points, strict=True):
        assert trial.params == point
        assert [type(value) for value in trial.params.values()] == [type(value) for value in point.values()]
        assert set(search.space.overrides(trial.params)) < overrides


def test_conditions_are_modelled_by_themselves(make: MakeSearch) -> None:
    under = {"o=adam": ["beta=interval(0.8,0.99)"], "o=sgd": ["momentum=0.0,0.5,0.9"]}
    search = make("o=adam,sgd,lion", "lr=interval(0.0,1.0)", conditional=under, n_trials=30)
    points = search.run(lambda point: float(point["lr"] or 0))
    assert {tuple(point) for point in points} == {("o", "lr", "beta"), ("o", "lr", "momentum"), ("o", "lr")}


# No point twice


@pytest.mark.parametrize("sampler", SAMPLERS)
@some(
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
    4,
)
def test_a_finite_space_is_tried_once_and_then_over(
    make: MakeSearch, sampler: str, lines: list[str], conditional: dict[str, list[str]] | None, count: int
) -> None:
    if sampler == "CmaEs" and (conditional or "a,b" in str(lines)):
        pytest.skip("for numbers alone")
    search = make(*lines, conditional=conditional, sampler=sampler)
    assert search.study.total == count
    points = search.run(lambda point: 1.0, most=count // 2)
    points += make(*lines, conditional=conditional, sampler=sampler).run(lambda point: 2.0)
    assert len({canonical(point) for point in points}) == len(points) == count
    assert make(*lines, conditional=conditional, sampler=sampler).run(lambda point: 2.0) == []


def test_points_of_custom_code_are_not_changed(make: MakeSearch) -> None:
    search = make("x=1,2", custom_search_space=f"{__name__}.custom")
    points = search.run(lambda point: 1.0)
    assert (search.study.total, len(points)) == (20, 20)
    assert set(points[0]) == {"x", "z"}


def custom(cfg: DictConfig, trial: optuna.Trial) -> None:
    trial.suggest_float("z", 0, 1)


def test_lists_and_dicts_of_custom_code_are_recorded_as_text(make: MakeSearch) -> None:
    named = {"custom_search_space": f"{__name__}.lists", "n_trials": 12}
    points = make("x=1,2", **named).run(lambda point: 1.0, most=5)
    resumed = make("x=1,2", **named)
    points += resumed.run(lambda point: 1.0)
    assert len(points) == 12
    assert {point["h"] for point in points} == {"[64]", "[128,64]"}
    assert {point["d"] for point in points} == {"{k:2}", "{k:[a,b]}"}
    assert resumed.space.overrides({"x": 1, "h": "[128,64]"}) == ["x=1", "h=[128,64]"]


def lists(cfg: DictConfig, trial: optuna.Trial) -> None:
    trial.suggest_categorical("h", cast(Any, [[64], [128, 64]]))
    trial.suggest_categorical("d", cast(Any, [{"k": 2}, {"k": ["a", "b"]}]))


@pytest.mark.parametrize("choice", [(64,), {1: 2}, {64}, "[64]", object])
def test_custom_code_that_suggests_what_a_record_cannot_hold_is_refused(make: MakeSearch, choice: Any) -> None:
    not_plain.clear()
    not_plain.append(choice)
    with pytest.raises(UserError, match=r"it suggests .*\n.*uggest "):
        make("x=1,2", custom_search_space=f"{__name__}.suggests").run(lambda point: 1.0)


not_plain: list[Any] = []


def suggests(cfg: DictConfig, trial: optuna.Trial) -> None:
    trial.suggest_categorical("h", not_plain)


@pytest.mark.parametrize("sampler", ["Default", "Grid", "Random", "TPE", "QMC"])
def test_points_that_custom_code_leaves_out_are_not_tried(make: MakeSearch, sampler: str) -> None:
    lines, named = ["x=range(1,21)"], {"custom_search_space": f"{__name__}.leaves_out_odd", "n_trials": 9}
    points = make(*lines, sampler=sampler, **named).run(lambda point: 1.0, most=4)
    points += make(*lines, sampler=sampler, **named).run(lambda point: 1.0)
    assert len(points) == 9
    assert not [point for point in points if int(point["x"]) % 2]


def leaves_out_odd(cfg: DictConfig, trial: optuna.Trial) -> None:
    if trial.params["x"] % 2:
        raise optuna.TrialPruned("odd")


@pytest.mark.parametrize("sampler", ["Default", "Grid"])
def test_custom_code_that_leaves_out_all_points_ends_the_study(make: MakeSearch, sampler: str) -> None:
    with pytest.raises(UserError, match=r"it raised TrialPruned .*: none\nLet "):
        make("x=1,2", sampler=sampler, custom_search_space=f"{__name__}.leaves_out_all").run(lambda point: 1.0)


def leaves_out_all(cfg: DictConfig, trial: optuna.Trial) -> None:
    raise optuna.TrialPruned("none")


@pytest.mark.parametrize("sampler", ["Default", "Random", "TPE"])
def test_nan_is_one_value_of_a_search(make: MakeSearch, sampler: str) -> None:
    lines, start = ["x=1,nan,inf,-inf", "y=nan,2"], [{"x": float("nan"), "y": float("nan")}]
    points = make(*lines, sampler=sampler, start=start).run(lambda point: 1.0, most=4)
    points += make(*lines, sampler=sampler, start=start).run(lambda point: 1.0)
    assert len({canonical(point) for point in points}) == len(points) == 8
    assert canonical(points[0]) == canonical(start[0])


pairs: list[tuple[Any, Any]] = []


def looks_at_x(cfg: DictConfig, trial: optuna.Trial) -> None:
    pairs.append((trial.params["x"], trial.suggest_float("z", 0, 1)))


@pytest.mark.parametrize("sampler", ["Default", "Grid", "Random"])
def test_custom_code_receives_values(make: MakeSearch, sampler: str) -> None:
    pairs.clear()
    lines, named = ["x=range(-5.5,5.5,0.5)"], {"custom_search_space": f"{__name__}.looks_at_x", "n_trials": 9}
    points = make(*lines, sampler=sampler, **named).run(lambda point: 1.0, most=4)
    points += make(*lines, sampler=sampler, **named).run(lambda point: 1.0)
    assert [(point["x"], point["z"]) for point in points] == pairs
    assert len(points) == 9 and {-5.5 + i / 2 for i in range(22)} >= {x for x, _ in pairs}
    if sampler == "Grid":
        assert [x for x, _ in pairs] == [-5.5 + i / 2 for i in range(9)]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_driver_killed_before_its_choice_is_written_repeats_the_choice(make: MakeSearch, sampler: str) -> None:
    lines = ["x=1,2,3,4,5", "y=interval(0.0,1.0)"]
    make(*lines, sampler=sampler).run(lambda point: float(point["y"] or 0), most=12)
    chosen = [make(*lines, sampler=sampler).choosers[-1].next(make(*lines, sampler=sampler).study) for _ in range(2)]
    assert chosen[0].begin[0].params == chosen[1].begin[0].params


@pytest.mark.long
@pytest.mark.parametrize("running", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_search_killed_after_each_trial_asks_for_the_same_points(
    tmp_path: Path, make: MakeSearch, sampler: str, running: int
) -> None:
    lines, count = ["x=interval(0.0,1.0)", "y=tag(log,interval(0.001,1.0))", "b=16,32,64,100,200"], 20
    whole: list[Point] = []
    for killed in (False, True):
        settings = SweeperConf(sampler={"_target_": target(sampler), "seed": 3}, n_trials=count)
        folder = tmp_path / str(killed)
        search, points, under_way = Asked(folder, settings, space(*lines)), list[Point](), list[TrialRecord]()
        while len(points) < count or under_way:
            if len(points) < count and len(under_way) < running:
                trial = search.ask()
                assert trial
                points.append(trial.params)
                under_way.append(trial)
            else:
                first = under_way.pop(0)
                x, y = float(first.params["x"] or 0), float(first.params["y"] or 0)
                search.end(first, State.FAILED if first.number % 7 == 3 else (x - 0.3) ** 2 + (y - 0.1) ** 2)
            if killed:
                search = Asked(folder, settings, space(*lines))
                for trial in under_way:
                    search.record.mark_under_way(trial.number)
        if killed:
            assert points == whole
        whole = points


def test_extended_interval_continues(make: MakeSearch) -> None:
    first = make("x=int(interval(1,3))").run(lambda point: 1.0)
    second = make("x=int(interval(1,5))", extend=True, n_trials=40).run(lambda point: 1.0)
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
    for value in tried:
        proposals.add({"x": value})
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
    candidates = Proposals(whole).candidates([{"x": value, "o": 2}], iter(random.Random(0).random, None))
    assert {type(point["x"]) for point in candidates} == {kind}
    assert all(whole.parameters[0].find(point["x"]) for point in candidates)
    beside = [point for point in candidates[400:] if point["o"] == 2]
    assert len(candidates) < 440 and len({point["x"] for point in beside}) >= min(
        3, len({point["x"] for point in candidates})
    )


def test_candidates_keep_their_conditional_params() -> None:
    proposals = Proposals(space("o=a,b", "x=1,2,3", conditional={"o=b": ["y=interval(0.0,1.0)"]}))
    point: Point = {"o": "b", "x": 2, "y": 0.5}
    candidates = proposals.candidates([point], iter(random.Random(0).random, None))
    assert {(candidate["o"], "y" in candidate) for candidate in candidates[:400]} == {("a", False), ("b", True)}
    assert all(
        candidate["o"] == "b" and sum(candidate[key] != point[key] for key in "xy") <= 1
        for candidate in candidates[400:]
    )
    assert len(candidates) == 400 + 3 + 12


@some("resumed", [True, False], 2)
def test_two_trials_in_three_are_where_the_results_so_far_promise_most(make: MakeSearch, resumed: bool) -> None:
    lines = ("x=interval(0.0,1.0)", "y=interval(0.0,1.0)", "o=a,b,c")

    def outcome(point: Point) -> float | State:
        x, y = float(point["x"] or 0), float(point["y"] or 0)
        return (x - 0.3) ** 2 + (y - 0.6) ** 2 + (point["o"] != "b")

    search = make(*lines, n_trials=40)
    points = search.run(outcome, most=20)
    points += (make(*lines, n_trials=40) if resumed else search).run(outcome)
    losses = [float(outcome(point)) for point in points]
    assert statistics.median(losses[:10]) > 1
    assert statistics.median(losses[25:]) < 0.05


def test_error_of_the_surrogate_stops_the_search_and_loses_nothing(
    make: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = make("x=interval(0.0,1.0)", n_trials=20)
    points = search.run(lambda point: float(point["x"] or 0), most=12)
    with monkeypatch.context() as broken:
        broken.setattr(np.linalg, "cholesky", raises_singular)
        with pytest.raises(UserError, match=r"raised LinAlgError: singular\nNo trial is lost. .*learn_from=.s.. "):
            search.ask()
    resumed = make("x=interval(0.0,1.0)", n_trials=20)
    assert [trial.params for trial in resumed.trials] == points
    assert len(resumed.run(lambda point: float(point["x"] or 0))) == 8


def raises_singular(_: object) -> None:
    raise np.linalg.LinAlgError("singular")


def test_repeats_do_not_run_for_ever(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", n_trials=4, repeats=3, seed_key="+seed")
    assert len(search.run(lambda point: float(point["x"] or 0))) == 12
    assert not search.study.open
    assert [trial.state.name for trial in told(search, "Default") if trial.params] == ["COMPLETE"] * 4


class RaisingPruner(optuna.pruners.BasePruner):
    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        raise ZeroDivisionError


def test_pruner_that_raises_ends_in_two_lines(make: MakeSearch) -> None:
    search = make("x=interval(0.0,1.0)", n_trials=4, pruner={"_target_": f"{__name__}.RaisingPruner"})
    row = search.ask()
    assert row and search.pruner
    with pytest.raises(UserError, match=r"^hydra.sweeper.pruner._target_=.*RaisingPruner: it raised .*\nNo trial "):
        search.pruner.report(row.number, 1, 1.0)


@some("reports", [False, True], 2)
def test_pruned_trials_count_by_their_reports_and_else_as_bad(make: MakeSearch, reports: bool) -> None:
    lines = ["x=interval(0.0,1.0)"]
    settings = {"n_trials": 40, "pruner": {"_target_": "optuna.pruners.ThresholdPruner", "lower": 0.0}}
    search, values = make(*lines, **settings), []
    while row := search.ask():
        x = float(row.params["x"] or 0)
        values.append(x)
        if len(values) == 30:
            search = make(*lines, **settings)  # as after a kill: from the journal and the folders
            assert search.ask() == row
        if reports:
            TrialFolder(row.folder).append_metrics(MetricsLine(1, 1.0, {"objective": 1.0 + (x - 0.7) ** 2}))
            assert search.pruner and not search.pruner.report(row.number, 1, 1.0 + (x - 0.7) ** 2)
        search.end(row, Outcome(State.PRUNED, started_at=1.0) if x > 0.4 else (x - 0.7) ** 2)
    assert statistics.median(values[20:]) == pytest.approx(0.7 if reports else 0.4, abs=0.1)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_reports_of_running_trials_lead_the_search_also_after_a_kill(make: MakeSearch, direction: str) -> None:
    line, settings = "x=interval(0.0,1.0)", {"n_trials": 60, "direction": direction}
    sign = 1 if direction == "minimize" else -1
    search = make(line, **settings)

    def report(row: TrialRecord, loss: float) -> None:
        TrialFolder(row.folder).append_metrics(MetricsLine(1, 1.0, {"objective": sign * loss}))

    while len(search.trials) < 12 and (row := search.ask()):
        loss = (float(row.params["x"] or 0) - 0.3) ** 2
        report(row, loss + 1.0)
        search.end(row, sign * loss)
    running = [row for _ in range(6) if (row := search.ask())]
    before = make(line, **settings).choosers[-1].next(search.study).begin[0].params
    for row in running:
        report(row, 1.09 - (float(row.params["x"] or 0) - 0.3) ** 2)  # contrary to the results: best far from 0.3
    best = max(running, key=lambda row: abs(float(row.params["x"] or 0) - 0.3)).params["x"]
    after, twin = (each.choosers[-1].next(search.study).begin[0] for each in (search, make(line, **settings)))
    assert after == twin
    assert abs(float(after.params["x"] or 0) - best) < abs(float(before["x"] or 0) - best)


def test_the_nearest_point_where_a_choice_brings_its_own() -> None:
    proposals = Proposals(space("o=a,b", conditional={"o=b": ["y=interval(0.0,1.0)", "z=1,2,3"]}))
    points: list[Point] = [{"o": "a"}]
    proposals.add(points[0])
    for _ in range(5):
        points.append(proposals.nearest({"o": "a"}))
        proposals.add(points[-1])
    assert [set(point) for point in points[1:]] == [{"o", "y", "z"}] * 5
    assert len({canonical(point) for point in points}) == 6
    assert proposals.nearest(points[1], fixed=("o", "y"))["y"] == points[1]["y"]


def test_where_the_nearest_has_failed_the_next_seems_to() -> None:
    proposals = Proposals(space("x=interval(0.0,1.0)", "o=a,b"))
    assert not proposals.seems_to_fail({"x": 0.5, "o": "a"})
    proposals.observe({"x": 0.6, "o": "a"}, ran=False)
    proposals.observe({"x": 0.2, "o": "a"}, ran=True)
    seems = [proposals.seems_to_fail({"x": x, "o": o}) for x, o in ((0.5, "a"), (0.3, "a"), (0.5, "b"), (0.3, "b"))]
    assert seems == [True, False, True, False]


# Where it starts


def test_search_starts_at_the_configured_batch(make: MakeSearch) -> None:
    start = [{"lr": 0.01, "b": 32.0, "o": "sgd"}, {"b": 16}, {"o": "adam", "beta": 0.9}]
    under = {"o=adam": ["beta=interval(0.8,0.99)"]}
    lines = ["+lr=interval(0.0,1.0)", "b=16,32,64", "o=adam,sgd"]
    search = make(*lines, conditional=under, start=start, n_trials=6)
    points = search.run(lambda point: 1.0)
    assert points[0] == {"+lr": 0.01, "b": 32, "o": "sgd"}
    assert type(points[0]["b"]) is int
    assert points[1]["b"] == 16
    assert (points[2]["o"], points[2]["beta"]) == ("adam", 0.9)
    assert len(points) == 6
    assert make(*lines, conditional=under, start=start, n_trials=6).run(lambda point: 1.0) == []


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_start_of_any_sampler_is_once_and_first(make: MakeSearch, sampler: str) -> None:
    start = [{"x": 3, "y": 2}, {"x": 1, "y": 1}]
    lines = ["x=1,2,3,4", "y=1,2"]
    points = make(*lines, sampler=sampler, start=start).run(lambda point: 1.0, most=1)
    search = make(*lines, sampler=sampler, start=[*start, {"x": 4, "y": 2}])  # one more, meanwhile
    points += search.run(lambda point: 1.0)
    assert points[:3] == [{"x": 3, "y": 2}, {"x": 1, "y": 1}, {"x": 4, "y": 2}]
    assert len({canonical(point) for point in points}) == len(points) == 8


def test_start_point_that_was_added_too_late_is_named(make: MakeSearch) -> None:
    make("x=1,2,3", sampler="Random", n_trials=1, start=[{"x": 1}]).run(lambda point: 1.0)
    search = make("x=1,2,3", sampler="Random", n_trials=2, start=[{"x": 2}, {"x": 3}])
    assert search.choosing.describe_late_start(search.study).startswith("hydra.sweeper.start: 1 of its points cannot")
    assert "n_trials=3 hydra.sweeper.extend=true" in search.choosing.describe_late_start(search.study)
    search = make("x=1,2,3", sampler="Random", n_trials=3, start=[{"x": 2}, {"x": 3}])
    assert search.choosing.describe_late_start(search.study) == ""


@pytest.mark.parametrize("killed_after", [0, 1, 2, 3])
def test_driver_killed_at_the_start_keeps_the_start_points(make: MakeSearch, killed_after: int) -> None:
    lines, start = ["x=1,2,3,4", "y=1,2"], [{"x": 3}, {"x": 2, "y": 2}, {"y": 1}]
    search = make(*lines, start=start)
    for _ in range(killed_after):
        assert search.ask()
    search = make(*lines, start=start)
    points = search.run(lambda point: 1.0)
    assert points[0]["x"] == 3
    assert points[1] == {"x": 2, "y": 2}
    assert points[2]["y"] == 1
    assert len({canonical(point) for point in points}) == len(points) == len(search.trials) == 8


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([{"lx": 0.1}], "lx is not in the search space.\nChoose from: x, n, b, o, z"),
        ([{"x": 2}], "x=2 is not in the search space.\nChoose from x=interval(0,1)"),
        ([{"x": "0.5"}], "x=0.5 is not"),
        ([{"n": 2.5}], "n=2.5 is not in the search space.\nChoose from n=int(interval(1,9))"),
        ([{"n": True}], "n=True is not"),
        ([{"b": 17}], "b=17 is not in the search space.\nChoose from b=16,32"),
        ([{"o": "adm"}], "o=adm is not in the search space.\nChoose from o=adam,sgd"),
        ([{"o": "sgd", "z": 1}], "z exists only under o=adam.\nAdd this condition, or remove z"),
        ([{"z": 1}], "z exists only under o=adam"),
        ([{"b": 16}, {"b": 16.0}], "{b:16} is listed twice"),
        ([{}], "the point has no values"),
        ([{"n": n} for n in range(1, 5)], "4 points, but hydra.sweeper.n_trials=3"),
    ],
)
def test_launcher_that_cannot_start(make: MakeSearch, start: list[dict[str, Any]], message: str) -> None:
    lines = ["x=interval(0.0,1.0)", "n=int(interval(1,9))", "b=16,32", "o=adam,sgd"]
    with pytest.raises(UserError) as error:
        make(*lines, conditional={"o=adam": ["z=1,2"]}, start=start, n_trials=3)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


def test_grid_refuses_a_warm_start(make: MakeSearch) -> None:
    advice = "a grid tries every point anyway.\nTo search, type hydra/sweeper=optuna"
    for setting in ({"start": [{"x": 1}]}, {"learn_from": ["before"]}):
        with pytest.raises(UserError, match=f"^hydra.sweeper.{next(iter(setting))}: {advice}$"):
            make("x=1,2", sampler="Grid", **setting)


@pytest.fixture
def make_earlier(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes the folder of an ended study beside the folder of `make`."""

    def make_earlier(*lines: str, outcome: Ending, name: str = "before", **fixed: Any) -> Path:
        folder = tmp_path.parent / f"{tmp_path.name}_{name}"
        folder.mkdir()
        settings = SweeperConf(sampler={"_target_": target("Random"), "seed": 0}, n_trials=30)
        config = DictConfig({**fixed, "hydra": {"sweeper": {}}})
        search = Asked(folder, settings, space(*lines), config)
        search.run(outcome)
        definition = define(name, settings, search.space, config, search.choosing.planned, search.choosing.size)
        (folder / "study.json").write_text(json.dumps(asdict(definition)))
        return folder

    return make_earlier


def bowl(point: Point) -> float | State:
    x, y = (float(point[key] or 0) for key in ("x", "y"))
    return State.FAILED if x > 0.8 else (x - 0.3) ** 2 + (y - 0.7) ** 2


LINES = ["x=interval(0.0,1.0)", "y=interval(0.0,1.0)"]


@pytest.mark.parametrize("sampler", ["Default", "TPE", GP])
def test_search_learns_from_an_earlier_study(make: MakeSearch, make_earlier: Callable[..., Path], sampler: str) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    search = make(*LINES, sampler=sampler, learn_from=[folder.name], n_trials=8)
    assert search.choosing.earlier.notes == [f"warm start: 30 trials of study {folder.name}"]
    points = search.run(bowl, most=4)
    shutil.rmtree(folder)  # it has its own copy
    search = make(*LINES, sampler=sampler, learn_from=[folder.name], n_trials=8)
    assert [row.number for row in search.trials] == [0, 1, 2, 3]
    assert search.choosing.earlier.notes == []
    points += search.run(bowl)
    assert len(points) == 8
    assert [trial.number for trial in search.trials] == list(range(8))
    near = [not isinstance(value := bowl(point), State) and value < 0.1 for point in points]
    assert sum(near) >= 6  # of random points a third are


def test_fixed_value_of_an_earlier_study_is_a_value_of_a_wider_space(
    make: MakeSearch, make_earlier: Callable[..., Path]
) -> None:
    folder = make_earlier("x=1,2,3", outcome=lambda point: float(point["x"] or 0), b=32, epochs=5)
    search = make("x=2,3,4", "b=16,32", learn_from=[folder.name])
    assert [trial.point for trial in search.choosing.earlier.trials] == [{"x": 2, "b": 32}, {"x": 3, "b": 32}] or [
        trial.point for trial in search.choosing.earlier.trials
    ] == [{"x": 3, "b": 32}, {"x": 2, "b": 32}]
    (note,) = search.choosing.earlier.notes
    assert note.endswith("(1 more outside of this search space); its configuration differs: epochs=5, not (nothing)")
    assert len(search.run(lambda point: 1.0)) == 6


def test_no_study_is_learnt_from_twice(make: MakeSearch, make_earlier: Callable[..., Path]) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    with pytest.raises(UserError, match=f"learn_from: study {folder} is listed twice"):
        make(*LINES, learn_from=[folder.name, str(folder)])


def test_replicates_are_one_observation(make: MakeSearch, make_earlier: Callable[..., Path]) -> None:
    def outcome(point: Point) -> float | State:
        return State.DIVERGED if point == {"x": 3, "seed": 1} else float(point["x"] or 0) + float(point["seed"] or 0)

    folder = make_earlier("x=1,2,3", "seed=0,1,2", outcome=outcome, seed=0)
    search = make("x=interval(0.0,5.0)", learn_from=[folder.name])
    outcomes = sorted((trial.point["x"], trial.state, trial.objective) for trial in search.choosing.earlier.trials)
    assert outcomes == [(1.0, "completed", [2.0]), (2.0, "completed", [3.0]), (3.0, "diverged", [])]
    (note,) = search.choosing.earlier.notes
    assert note.startswith(f"warm start: 3 configurations of study {folder.name}")


def test_a_copy_that_was_cut_is_made_again(make: MakeSearch, make_earlier: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    make(*LINES, learn_from=[folder.name])
    (tmp_path / "learned.json").write_text('[{"point":')
    assert len(make(*LINES, learn_from=[folder.name]).choosing.earlier.trials) == 30
    assert make(*LINES, learn_from=[folder.name]).choosing.earlier.notes == []


@pytest.mark.parametrize("content", ["{", '{"colour": 1}'])
def test_damaged_definition_of_an_earlier_study_is_named(
    make: MakeSearch, make_earlier: Callable[..., Path], content: str
) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    (folder / "study.json").write_text(content)
    with pytest.raises(UserError) as error:
        make(*LINES, learn_from=[folder.name])
    problem, advice = str(error.value).splitlines()
    assert problem.startswith(f"hydra.sweeper.learn_from={folder.name}: {folder / 'study.json'} cannot be read: ")
    assert "__init__" not in problem
    assert advice == "To repair it, type the command that started that study"


@pytest.mark.parametrize(
    ("settings", "lines", "message"),
    [
        ({"learn_from": ["nothing"]}, LINES, "learn_from=nothing: there is no such earlier study"),
        ({"sampler": "Random"}, LINES, "Use hydra/sweeper/sampler=default, tpe or gp"),
        (
            {"direction": "maximize"},
            LINES,
            "its objective is objective (minimize), but this study's is objective (maximize)",
        ),
        ({}, ["x=interval(7.0,8.0)", "y=interval(0.0,1.0)"], "none of its 30 trials is in this search space"),
        ({}, [*LINES, "z=1,2"], "none of its 30 trials is in"),
        ({}, ["y=interval(0.0,1.0)"], "none of its 30 trials is in"),
    ],
)
def test_unusable_earlier_studies(
    make: MakeSearch, make_earlier: Callable[..., Path], settings: dict[str, Any], lines: list[str], message: str
) -> None:
    folder = make_earlier(*LINES, outcome=bowl)
    with pytest.raises(UserError) as error:
        make(*lines, **{"learn_from": [folder.name], **settings})
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


def test_corrupt_journal_is_repaired(make: MakeSearch, tmp_path: Path) -> None:
    search = make("x=1,2.5,4", "o=a,b")
    rows = [trial for _ in range(3) if (trial := search.ask())]
    (tmp_path / "journal.jsonl").write_bytes(b"")
    search = make("x=1,2.5,4", "o=a,b")
    assert search.study.open == rows
    assert len(search.run(lambda point: 1.0)) == 6
