"""Tables from override text to the points of a grid."""

import math

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweeps.errors import UserError
from sweeps.record.grammar import parse, parse_condition
from sweeps.record.space import Interval, SearchSpace, canonical

PARSER = OverridesParser.create()


def space(*lines: str, conditional: dict[str, list[str]] | None = None, **constants: str) -> SearchSpace:
    under = {parse_condition(k): PARSER.parse_overrides(v) for k, v in (conditional or {}).items()}
    return parse(PARSER.parse_overrides(list(lines)), under, constants)


@pytest.mark.parametrize(
    "line, overrides",
    [
        ("lr=0.1,1e-3", ["lr=0.1", "lr=0.001"]),
        ("n=1,2", ["n=1", "n=2"]),
        ("n=1,1.0,2", ["n=1", "n=2"]),
        ("n=1,true", ["n=1", "n=True"]),
        ("n=null,1", ["n=null", "n=1"]),
        ("n=range(1,4)", ["n=1", "n=2", "n=3"]),
        ("n=range(3)", ["n=0", "n=1", "n=2"]),
        ("n=range(0,1,0.5)", ["n=0.0", "n=0.5"]),
        ("h=[64],[128,64]", ["h=[64]", "h=[128,64]"]),
        ("s='a b','c,d'", ["s='a b'", "s='c,d'"]),
        ("+k=a,b", ["+k=a", "+k=b"]),
        ("g@pkg=a,b", ["g@pkg=a", "g@pkg=b"]),
        ("s=choice(x,y)", ["s=x", "s=y"]),
    ],
)
def test_a_grid_holds_every_value_once(line: str, overrides: list[str]) -> None:
    grid = space(line)
    composed = [grid.overrides(point) for point in grid.points()]
    assert composed == [[override] for override in overrides]
    for (override,) in composed:
        assert not PARSER.parse_override(override).is_sweep_override()


@pytest.mark.parametrize(
    "line, values",
    [
        ("x=1,1.5,true,null,abc", [1, 1.5, True, None, "abc"]),
        ("x=1e-10,0.1,1e22,-3", [1e-10, 0.1, 1e22, -3]),
        ("x=nan,inf", ["nan", "inf"]),  # by name: nan is not equal to itself
        ("x='1','true','null',''", ["1", "true", "null", ""]),
        (r"x='it\'s','say \"so\"'", ["it's", r"say \"so\""]),
        ("x='a=b','a,b','[a]','${b}',' a '", ["a=b", "a,b", "[a]", "${b}", " a "]),
        ("x=a/b.c,a:b,a@b,'ä'", ["a/b.c", "a:b", "a@b", "ä"]),
        (r"x=a\,b,c\ d", ["a,b", "c d"]),
        ("x=[1,[2,'a b']],[],{a:1,b:{c:null}}", [[1, [2, "a b"]], [], {"a": 1, "b": {"c": None}}]),
        ("x=sort(3,1,2)", [1, 2, 3]),
        ("x=int(1.0,2.0)", [1, 2]),
        ("x=str(1,2)", [1, 2]),  # as under Hydra's own sweeper
        ("x=range(5,0,-2)", [5, 3, 1]),
        ("x=range(0.1,0.4,0.1)", [0.1, 0.2, 0.30000000000000004, 0.4]),
    ],
)
def test_override_parses_to_its_value(line: str, values: list[object]) -> None:
    grid = space(line)
    texts = [override for point in grid.points() for override in grid.overrides(point)]
    read = [PARSER.parse_override(text).value() for text in texts]
    shown = [str(value) if isinstance(value, float) and not math.isfinite(value) else value for value in read]
    assert [(type(value), value) for value in shown] == [(type(value), value) for value in values]


def test_a_glob_is_the_choices_that_match() -> None:
    class Choices:
        def get_group_options(self, group_name: str, results_filter: object = None) -> list[str]:
            return ["adam", "adamw", "sgd"]

    parser = OverridesParser.create(config_loader=Choices())  # type: ignore[arg-type]
    grid = parse(parser.parse_overrides(["optimizer=glob(adam*)"]), {}, {})
    assert [grid.overrides(point) for point in grid.points()] == [["optimizer=adam"], ["optimizer=adamw"]]


@pytest.mark.parametrize(
    "lines, overrides",
    [(["a=1", "a=2"], ["a=2"]), (["a=1,2", "a=3"], ["a=3"]), (["a=1", "b=2", "a=3,4"], ["b=2", "a=3"])],
)
def test_the_last_word_on_a_key_counts(lines: list[str], overrides: list[str]) -> None:
    grid = space(*lines)
    assert grid.overrides(next(grid.points())) == overrides


@pytest.mark.parametrize("text", ["optimizer", "optimizer=", ""])
def test_invalid_conditions_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"is not a condition\.\nType it as optimizer=adam"):
        parse_condition(text)


@pytest.mark.parametrize(
    "line, message",
    [
        ("x=interval(1,inf)", "has no end"),
        (
            "x=tag(lgo,interval(1,2))",
            r"unknown tag\(lgo, ...\).\nRemove it, or type 'x=tag\(log, interval\(1.0, 2.0\)\)'$",
        ),
        ("x=tag(int,interval(1,8))", r"unknown tag\(int, ...\).\nRemove it, or type 'x=int\(interval\(1.0, 8.0\)\)'$"),
        ("x=interval(2,1)", "is empty"),
        ("x=tag(log,interval(0,1))", "must start above 0"),
        ("x=range(1,inf)", "has no end"),
        ("x=range(0,1,0)", "has no end"),
        ("x=range(5,1)", "has no values"),
    ],
)
def test_invalid_search_settings_are_refused(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        space(line)


def test_interval_in_a_grid_names_the_command() -> None:
    with pytest.raises(UserError, match="hydra/sweeper=optuna"):
        list(space("x=interval(0,1)").points())


@pytest.mark.parametrize(
    "line, interval",
    [
        ("x=interval(0,1)", Interval("x", 0.0, 1.0)),
        ("x=int(interval(1,5))", Interval("x", 1, 5)),
        ("x=int(interval(1.0, 5.0))", Interval("x", 1, 5)),
        ("x=tag(log,interval(1e-4,1e-1))", Interval("x", 1e-4, 1e-1, log=True)),
    ],
)
def test_intervals(line: str, interval: Interval) -> None:
    assert space(line).parameters == (interval,)
    assert isinstance(interval.low, int) == ("int(" in line)


def test_parameters_under_a_choice() -> None:
    conditional = {"opt=adam": ["opt.b=1,2"], "opt=sgd,nesterov": ["opt.m=3"]}
    grid = space("opt=adam,sgd,lion", conditional=conditional)
    assert [grid.overrides(p) for p in grid.points()] == [
        ["opt=adam", "opt.b=1"],
        ["opt=adam", "opt.b=2"],
        ["opt=sgd", "opt.m=3"],
        ["opt=lion"],
    ]


@pytest.mark.parametrize("chosen, count", [("adam", 2), ("sgd", 1)])
def test_a_choice_that_is_not_swept_counts_too(chosen: str, count: int) -> None:
    conditional = {"opt=adam": ["opt.b=1,2"]}
    assert len(list(space("lr=1", conditional=conditional, opt=chosen).points())) == count
    assert len(list(space(f"opt={chosen}", conditional=conditional, opt="other").points())) == count


def test_corners_hold_every_value() -> None:
    few = space("x=interval(0,1)", "n=1,2,3")
    assert len(few.corners()) == 6
    many = space(*(f"x{i}=1,2,3,4,5" for i in range(8)), "y=interval(0,1)").corners()
    assert len(many) < 500
    assert {point["x7"] for point in many} == {1, 2, 3, 4, 5}
    assert {point["y"] for point in many} == {0.0, 1.0}


def test_one_text_for_one_point() -> None:
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2.0, "a": 1.0})
    assert canonical({"a": 1}) != canonical({"a": True})
