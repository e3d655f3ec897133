"""Searches of a space in which values go together, or conditions exclude points."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SweeperConf
from sweeps.space.space import SearchSpace, canonical
from sweeps.trial.job import Point
from tests.choose.asked import Asked, space
from tests.choose.test_sampler import SAMPLERS, target

PAIR = "p=zip(opt=[adam,sgd,lion],+lr=[0.001,0.1,0.0001])"
Make = Callable[..., Asked]


def loss(point: Point) -> float:
    return float(abs(point["x"] - 0.6) + (point["opt"] == "adam") + point.get("n", 0))  # type: ignore[operator, arg-type]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(chosen: SearchSpace, sampler: str = "Default", **settings: Any) -> Asked:
        return Asked(tmp_path, SweeperConf(sampler={"_target_": target(sampler), "seed": 1}, **settings), chosen)

    return make


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_proposed_point_is_in_the_space(make: Make, sampler: str) -> None:
    restricted = space(PAIR, "x=interval(0,1)", "n=1,2,3").with_excluded(["opt=sgd and n=3", "x>0.5"])
    points = make(restricted, sampler, n_trials=24).run(loss)
    assert len({*map(canonical, points)}) == 24
    assert all(map(restricted.contains, points))
    assert {point["opt"] for point in points} == {"adam", "sgd", "lion"}
    assert {point["n"] for point in points} == {1, 2, 3}
    resumed = make(restricted, sampler, n_trials=25).run(loss)
    assert len(resumed) == 1 and restricted.contains(resumed[0])


@pytest.mark.parametrize("sampler", ["Default", "TPE", "Random"])
def test_finite_space_is_tried_whole(make: Make, sampler: str) -> None:
    restricted = space(PAIR, "n=1,2,3", "x=0.5,0.7").with_excluded(["opt=sgd and n>1", "x=0.7 and n=1"])
    search = make(restricted, sampler, n_trials=100)
    assert search.choosing.size == search.choosing.planned == 11
    assert sorted(map(canonical, search.run(loss))) == sorted(map(canonical, restricted.points()))


def test_each_of_several_grids_is_tried(make: Make) -> None:
    lines = ["opt=sgd", "lr=0.1,0.2", "x=interval(0,1)", "n=1"]
    several = space(*lines, also=["opt=adam lr=0.001", "opt=lion m=1,2"])
    points = make(several, "TPE", n_trials=40).run(loss)
    assert all(map(several.contains, points))
    assert {canonical({k: v for k, v in point.items() if k != "x"}) for point in points} == {
        *map(canonical, several.listed)
    }


@pytest.mark.parametrize("start", [{"n": 3}, {"opt": "adam", "+lr": 0.1}])
def test_start_outside_of_the_space_is_refused(make: Make, start: Point) -> None:
    restricted = space(PAIR, "n=1,2,3").with_excluded(["n=3"])
    with pytest.raises(UserError, match=r"is not in the search space.\nRemove it"):
        make(restricted, n_trials=9, start=[start])


def test_start_chooses_the_values_that_go_together(make: Make) -> None:
    search = make(space(PAIR, "n=1,2,3", "x=interval(0,1)"), n_trials=9, start=[{"+lr": 0.0001, "n": 2}])
    trial = search.ask()
    assert trial and (trial.params["opt"], trial.params["+lr"], trial.params["n"]) == ("lion", 0.0001, 2)
