"""Points that a person excludes from a study that has begun: what is refused, what still runs, and what is counted."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sweeps.base.errors import UserError
from sweeps.choose import manual
from sweeps.choose.repeats import Seeds
from sweeps.hydra.settings import SweeperConf
from sweeps.record.narrowed import narrow
from sweeps.record.study import Added
from sweeps.show.steering import describe_steering
from sweeps.space.exclusion import Excluded, Restored
from sweeps.space.space import SearchSpace
from sweeps.study.plan.typed_space import refuse_narrowing
from sweeps.trial.job import Point, State
from tests.choose.asked import Asked, space
from tests.choose.test_sampler import target

NUMBERS = count()


def loss(point: Point) -> float:
    return float(point["x"])  # type: ignore[arg-type]  # lowest where it is excluded


def study(folder: Path, chosen: SearchSpace, sampler: str = "", **settings: Any) -> Asked:
    chooser = {"_target_": target(sampler), "seed": 1} if sampler else None
    opened = Asked(folder, SweeperConf(sampler=chooser, **settings), chosen)
    opened.record.update_outside(chosen)
    return opened


def exclude(opened: Asked, condition: str) -> None:
    refuse_narrowing(condition, narrow(opened.space, opened.study.excluded), opened.study)
    opened.record.exclude(Excluded(f"{next(NUMBERS)}.json", condition, "ada", 1.0), opened.space)


@pytest.mark.parametrize("settings", [{}, {"n_trials": 5}], ids=["whole", "part"])
def test_grid_leaves_out_excluded_points(tmp_path: Path, settings: dict[str, Any]) -> None:
    grid = space("x=1,2,3,4,5,6", "y=0,1")
    first = study(tmp_path, grid, **settings)
    assert len(first.run(loss, most=3)) == 3
    exclude(first, "x in [1, 3] and y=1")
    exclude(first, "x>3")
    assert first.study.total == min(5, settings.get("n_trials", 5))
    resumed = study(tmp_path, grid, **settings)
    assert resumed.study.excluded[-1] == first.study.excluded[-1]
    assert resumed.run(loss) == [{"x": 2, "y": 1}, {"x": 3, "y": 0}]
    assert resumed.study.total == len(resumed.trials) == 5


@pytest.mark.parametrize(
    ("sampler", "lines"),
    [
        ("Default", ["x=interval(0,1)", "n=1,2,3"]),
        ("TPE", ["x=tag(log,interval(1e-3,1))"]),
        ("Random", ["x=interval(0,1)", "n=1,2,3"]),
        ("CmaEs", ["x=interval(0,1)"]),
    ],
)
def test_search_proposes_no_excluded_point(tmp_path: Path, sampler: str, lines: list[str]) -> None:
    chosen = space(*lines)
    search = study(tmp_path, chosen, sampler, n_trials=14, start=[{"x": 0.01}] if sampler == "TPE" else [])
    search.run(loss, most=6)
    exclude(search, "x<0.5")
    later = search.run(loss, most=4)
    resumed = study(tmp_path, chosen, sampler, n_trials=14)
    later += resumed.run(loss)
    assert len(later) == 8
    assert all(point["x"] >= 0.5 for point in later)  # type: ignore[operator]
    assert resumed.study.total == len(resumed.trials) == 14


def test_killed_driver_makes_the_same_choices(tmp_path: Path) -> None:
    points = []
    for name, pieces in (("once", [6]), ("killed", [1, 5])):
        search = study(tmp_path / name, space("x=interval(0,1)", "n=1,2,3"), "Default", n_trials=14)
        search.run(loss, most=8)
        exclude(search, "x<0.3 and n<3")
        for most in pieces:
            search = study(tmp_path / name, space("x=interval(0,1)", "n=1,2,3"), "Default", n_trials=14)
            search.run(loss, most=most)
        points.append([trial.params for trial in search.trials])
    assert points[0] == points[1]
    assert len(points[0]) == 14


@pytest.mark.parametrize("lines", [("x=1,2,3,4", "n=1,2,3"), ("x=1,2,3,4", "n=int(interval(1,400))")])
def test_search_ends_once_the_rest_is_tried(tmp_path: Path, lines: tuple[str, ...]) -> None:
    search = study(tmp_path, space(*lines), "Default", n_trials=30)
    begun = search.run(loss, most=4)
    exclude(search, "x>1 or n>2")
    later = search.run(loss)
    assert {(point["x"], point["n"]) for point in [*begun, *later]} >= {(1, 1), (1, 2)}
    assert all((point["x"], point["n"]) in {(1, 1), (1, 2)} for point in later)
    assert search.study.total == len(search.trials) <= 6


def test_repeats_retries_and_added_points_go_on(tmp_path: Path) -> None:
    search = study(tmp_path, space("x=1,2,3"), "Random", n_trials=3, repeats=2, seed_key="+seed")
    first = search.ask()
    assert first
    exclude(search, f"x={first.params['x']}")
    file = manual.exclude_points(tmp_path, "x=2")
    request = manual.read_request(file, search.space, Seeds())
    assert isinstance(request, Excluded)
    assert (request.text, bool(request.by)) == ("x=2", True)
    search.end(first, 1.0)
    repeat = search.ask()
    assert repeat and (repeat.of, repeat.params["x"]) == (0, first.params["x"])
    search.end(repeat, State.FAILED)
    search.record.reopen([repeat.number])
    retried = search.ask()
    assert retried and retried.number == repeat.number
    search.end(retried, 1.0)
    search.run(loss)
    assert search.study.total == len(search.trials) == 6


def test_person_may_add_an_excluded_point(tmp_path: Path) -> None:
    grid = study(tmp_path, space("x=1,2,3,4"))
    grid.run(loss, most=1)
    exclude(grid, "x>2")
    (tmp_path / "added").mkdir()
    (file := tmp_path / "added" / "7.json").write_text(json.dumps({"params": {"x": 4}, "by": "bob"}))
    added = manual.read_request(file, narrow(grid.space, grid.study.excluded), Seeds())
    assert added == Added("7.json", {"x": 4}, outside=True, by="bob", at=7e-9)
    assert isinstance(added, Added)
    grid.record.add(added)
    assert grid.run(loss) == [{"x": 4}, {"x": 2}]
    resumed = study(tmp_path, space("x=1,2,3,4"))
    assert resumed.ask() is None
    assert resumed.study.total == grid.study.total == 3
    assert resumed.study.added == (grid.study.added)


@pytest.mark.parametrize("sampler", ["", "Random"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_points_of_a_removed_exclusion_are_tried(tmp_path: Path, sampler: str, is_killed: bool) -> None:
    chosen = space("x=1,2,3,4")
    opened = study(tmp_path, chosen, sampler, n_trials=4)
    exclude(opened, "x<3")
    assert len(opened.run(loss, most=1 if is_killed else 2)) == opened.study.total - is_killed
    opened.record.restore(Restored("r.json", "x<3", "ada", 2.0), chosen)
    opened = study(tmp_path, chosen, sampler, n_trials=4) if is_killed else opened
    assert (opened.study.total, opened.study.excluded) == (4, [])
    opened.run(loss)
    assert {trial.params["x"] for trial in opened.trials} == {1, 2, 3, 4}
    assert describe_steering(opened.study, False)[1].startswith("ada removed the exclusion of x<3 at ")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("xx > 1", "'xx > 1' has xx, which is not swept.\nDid you mean x?"),
        ("x >", "'x >' cannot be read.\nCompare swept keys"),
        ("X => 1 && x=0,1", "'X => 1 && x=0,1' cannot be read.\nType in its place: 'X >= 1 and x in \\[0,1\\]'$"),
        ("__import__('os')", "cannot be read"),
        ({"x": 1}, "'{'x': 1}' cannot be read.\nCompare swept keys"),
        ("x>big", "'x>big' has big, which is no number and is not swept.\nType a number, or one of: x"),
        ("x=9", "has x=9, which no trial has.\nChoose among: 1,2,3"),
        ("x>3", "exclude 'x>3': it holds for no point.\nCompare with values that are swept: x=1,2,3"),
        ("x=0.5", "exclude 'x=0.5': x is continuous, so that a single value .*\nType a range, as in 'x > 0.5'"),
        ("x>1.0", "exclude 'x>1.0': it holds for no point.\nCompare with values that are swept: x=interval"),
        ("x>1", "exclude 'x>1': no untried point is left.\nTo start no further trial, type: .* stop .*s"),
    ],
)
def test_wrong_conditions_are_refused(tmp_path: Path, condition: str, message: str) -> None:
    is_search = "0" in condition
    chosen = space("x=interval(0,1)" if is_search else "x=1,2,3")
    grid = study(tmp_path, chosen, "Random" if is_search else "", n_trials=3)
    grid.run(loss, most=1)
    with pytest.raises(UserError, match=message) as error:
        exclude(grid, condition)
    assert len(str(error.value).splitlines()) == 2
    assert not grid.study.excluded
