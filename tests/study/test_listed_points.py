"""Listed points of a grid: from a list or a table to the points, with what is swept beside them."""

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SweeperConf
from sweeps.space.grammar import space_of
from sweeps.space.listed import removed_point
from sweeps.space.space import canonical
from sweeps.study.plan.listed_points import read_listed, with_start
from sweeps.trial.job import Point
from tests.command_lines import rows, run, theirs
from tests.study.test_search_space import space

LIST: list[dict[str, Any]] = [{"opt": "adam", "lr": 0.1}, {"opt": "sgd", "m": 0.9}]


class Composer:
    def parse(self, lines: list[str]) -> Any:
        return OverridesParser.create().parse_overrides(lines)


def read(points: Any, *swept: str) -> list[dict[str, Any]]:
    return [dict(point) for point in read_listed(SweeperConf(points=points), Composer(), space(*swept))]  # type: ignore[arg-type]


def test_each_listed_point_has_all_swept_values() -> None:
    grid = space("b=1,2").with_listed(read(LIST))
    assert [grid.overrides(point) for point in grid.points()] == [
        ["b=1", "opt=adam", "lr=0.1"],
        ["b=2", "opt=adam", "lr=0.1"],
        ["b=1", "opt=sgd", "m=0.9"],
        ["b=2", "opt=sgd", "m=0.9"],
    ]
    assert [parameter.typed for parameter in grid.parameters] == ["adam,sgd", "0.1", "0.9", "1,2"]
    assert all(map(grid.contains, grid.points()))
    assert not grid.contains({"opt": "sgd", "lr": 0.1, "b": 1})
    assert not grid.contains({"opt": "sgd", "m": 0.9, "b": 3})
    assert grid.corners(limit=2)[0] == {"opt": "adam", "lr": 0.1, "b": 1}


def test_conditions_may_be_on_listed_keys() -> None:
    grid = space(conditional={"opt=sgd": ["n=1,2"]}).with_listed(read(LIST))
    assert [grid.overrides(point)[-1] for point in grid.points()] == ["lr=0.1", "n=1", "n=2"]


def test_recorded_space_contains_the_listed_points_alone() -> None:
    recorded = space_of({"opt": "adam,sgd", "lr": "0.1", "m": "0.9", "b": "1,2"}).with_listed(read(LIST))
    assert recorded.contains({"opt": "sgd", "m": 0.9, "b": 2})
    assert not recorded.contains({"opt": "sgd", "lr": 0.1, "m": 0.9, "b": 2})


def test_table_is_a_list_without_its_empty_cells(tmp_path: Path) -> None:
    table = tmp_path / "points.csv"
    table.write_text("\ufeffopt, lr,m\nadam,1e-1,\nsgd,,0.9\n")
    assert read(str(table)) == LIST
    assert with_start(SweeperConf(start=str(table)), Composer()).start == LIST  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "points, swept, message",
    [
        ([], [], "hydra.sweeper.points=[]: not a list of points"),
        (3, [], "hydra.sweeper.points=3: not a list of points"),
        ([{}], [], "not a list of points"),
        ("nothing.csv", [], "hydra.sweeper.points=nothing.csv: there is no such file.\nType a list"),
        ([{"a": 1}, {"a": 1.0}], [], "point 2 equals point 1.\nRemove one of them"),
        ([{"b": 1}, {"a": 1}], ["+a=1,2"], "has +a, which is swept, too"),
        ([{"a": "1,2"}], [], "point 1: a=1,2: type a single value"),
    ],
)
def test_wrong_points_are_refused(points: Any, swept: list[str], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        read(points, *swept)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "content, encoding",
    [
        ("opt,lr,m\nadam,1e-1,\nsgd,,0.9\n", "utf-8"),
        ("opt;lr;m\r\nadam;1e-1;\r\nsgd;;0.9\r\n", "utf-8-sig"),
        ("opt\tlr\tm\nadam\t1e-1\t\nsgd\t\t0.9", "utf-16"),
        ('"opt","lr","m"\n"adam","1e-1",""\n\n"sgd","","0.9"\n,,\n', "utf-8"),
        ('"opt" , "lr" , m,\nadam , 0.1 , ,\n"sgd", , 0.9,\n', "utf-8"),
    ],
)
def test_tables_of_other_programs(tmp_path: Path, content: str, encoding: str) -> None:
    table = tmp_path / "points.csv"
    table.write_bytes(content.encode(encoding))
    assert read(str(table)) == LIST


@pytest.mark.parametrize(
    "content, message",
    [
        (",lr\n0,0.1\n1,0.2\n", r"index of pandas\.\n.*to_csv\(path, index=False\)"),
        (";lr\n0;0.1\n1;0.2\n", r"index of pandas\.\n.*to_csv\(path, index=False\)"),
        ("lr,\n0.1,7\n", r"column 2 has no name\.\nAdd its name"),
        ("lr;seed\n0,1;1\n", r"line 2 has lr=0,1: a decimal comma, and semicolons as separators\.\nWrite 0\.1"),
        ("lr,seed,lr\n1,2,3\n", r"column 'lr' occurs twice\.\nRemove"),
        ("0.1,1\n0.2,2\n", r"first line has the value 0\.1, and no name\.\nAdd a header"),
        ("learning rate,b\n1,2\n", r"'learning rate' is no key, because it contains a space\.\n"),
        ("a,b\n1\n", r"line 2 has 1 of 2 cells\.\nLeave a cell empty"),
        ('a,b\n1,"x\n2,y\n', r"a quote before line 3 is not closed\.\nUse CSV"),
        ("a\n1\0\n", r"it contains a zero byte\.\nUse CSV"),
        ("a,b\n1,2\n\n1,2,3\n", r"line 4 has more cells than the header\.\nQuote"),
    ],
)
def test_wrong_tables_are_explained(tmp_path: Path, content: str, message: str) -> None:
    table = tmp_path / "points.csv"
    table.write_text(content)
    with pytest.raises(UserError, match=rf"^hydra\.sweeper\.points=.*{message}"):
        read(str(table))


@pytest.mark.parametrize("content", ["", "a\n1,2\n", "a\n\xff\n"])
def test_wrong_tables_are_refused(tmp_path: Path, content: str) -> None:
    table = tmp_path / "points.csv"
    table.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"hydra\.sweeper\.points=.*\n(Type|Quote|Use) "):
        read(str(table))


def test_search_has_no_listed_points() -> None:
    settings = SweeperConf(points=[{"a": 1}], sampler={"_target_": "optuna.samplers.TPESampler"})
    with pytest.raises(UserError, match=r"a search chooses its points\.\nTo .*: .hydra\.sweeper\.start=\[\{a:1\}\]"):
        read_listed(settings, Composer(), space("a=1,2"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "old, new, adds",
    [
        ([], [], True),
        ([{"x": 1}], [{"x": 1}, {"x": 2}], True),
        ([{"x": 1}], [{"x": 2}], False),
        ([{"x": 1, "k": 2}], [], True),
        ([], [{"x": 1, "k": 2}, {"x": 2, "k": 2}], False),
        ([], [{"x": x, "k": k} for x in (1, 2) for k in (2, 3)], True),
        ([], [{"x": 1, "new": 1}, {"x": 2}], False),
        ([], [{"x": 1, "new": 1}, {"x": 1}, {"x": 2}], True),
    ],
)
def test_listed_points_only_add_to_what_was_allowed(old: list[Point], new: list[Point], adds: bool) -> None:
    assert (removed_point(old, new, {"x": [1, 2], "k": [2, 3]}) is None) is adds


def test_study_of_listed_points_is_resumed_and_extended(tmp_path: Path) -> None:
    line = ["-m", "hydra/sweeper=grid", "hydra.sweeper.study_name=s", "hydra.sweeper.tracking=false", "+y=1,2"]

    def sweep(points: str, *more: str) -> str:
        done = run(theirs(*line, f"hydra.sweeper.points={points}", *more), tmp_path)
        return done.said

    sweep("[{+x: 1},{+x: 3}]")
    study = tmp_path / "multirun" / "s"
    assert [dict(row.params) for row in rows(study)] == [{"+x": x, "+y": y} for x in (1, 3) for y in (1, 2)]
    assert "nothing is left to do" in sweep("[{+x: 1},{+x: 3}]")
    fewer = sweep("[{+x: 1}]", "hydra.sweeper.extend=true")
    assert fewer == (
        "x=3: study s has this point, and this command lacks it.\n"
        "Add it to hydra.sweeper.points. To try it no further: sweepyard exclude s x=3\n"
    )
    sweep("[{+x: 1},{+x: 3},{+x: 4}]", "hydra.sweeper.extend=true")
    assert [row.params["+x"] for row in rows(study)] == [1, 1, 3, 3, 4, 4]


@pytest.mark.long
def test_study_of_zipped_and_further_grids_resumes_without_excluded_points(tmp_path: Path) -> None:
    line = ["-m", "hydra/sweeper=grid", "hydra.sweeper.study_name=s", "hydra.sweeper.tracking=false"]
    line += ["p=zip(+x=[1,3],+k=[a,b])", "+y=logspace(1,4,3)", "hydra.sweeper.also=['+z=1 +y=2.0']"]
    line += ["hydra.sweeper.exclude=['x=3 and y>2']"]
    run(theirs(*line), tmp_path)
    study = tmp_path / "multirun" / "s"
    points = [
        {"+y": y, "+x": x, "+k": k} for x, k in ((1, "a"), (3, "b")) for y in (1.0, 2.0, 4.0) if (x, y) != (3, 4.0)
    ]
    points += [{"+y": 2.0, "+z": 1, "+x": x, "+k": k} for x, k in ((1, "a"), (3, "b"))]
    assert sorted(canonical(row.params) for row in rows(study)) == sorted(map(canonical, points))
    assert not any(row.outside for row in rows(study))
    assert "nothing is left to do" in run(theirs(*line), tmp_path).said
