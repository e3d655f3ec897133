"""Tables from override text to the points of a grid."""

import math
from collections.abc import Sequence
from itertools import islice

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from sweeps.base.errors import UserError
from sweeps.hydra.functions import extend_grammar
from sweeps.space.grammar import parse, parse_condition
from sweeps.space.space import Interval, SearchSpace, canonical

extend_grammar()
PARSER = OverridesParser.create()


def space(
    *lines: str, conditional: dict[str, list[str]] | None = None, also: Sequence[str] = (), **constants: str
) -> SearchSpace:
    under = {parse_condition(k): PARSER.parse_overrides(v) for k, v in (conditional or {}).items()}
    further = [PARSER.parse_overrides([*lines, *words.split()]) for words in also]
    return parse(PARSER.parse_overrides(list(lines)), under, constants, further)


@pytest.mark.parametrize(
    "line, overrides",
    [
        ("lr=0.1,1e-3", ["lr=0.1", "lr=0.001"]),
        ("n=1,2", ["n=1", "n=2"]),
        ("n=1,1.0,2", ["n=1", "n=2"]),
        ("n=1,true", ["n=1", "n=True"]),
        ("n=1,nan,NaN,-nan", ["n=1", "n=nan"]),
        ("n=inf,-inf,Inf", ["n=inf", "n=-inf"]),
        ("n=-0.0,0,0.0", ["n=-0.0"]),
        ("n=nan,'nan',inf,'inf'", ["n=nan", "n='nan'", "n=inf", "n='inf'"]),
        ("n=null,1", ["n=null", "n=1"]),
        ("n=range(1,4)", ["n=1", "n=2", "n=3"]),
        ("n=range(3)", ["n=0", "n=1", "n=2"]),
        ("n=range(0,1,0.5)", ["n=0.0", "n=0.5"]),
        ("h=[64],[128,64]", ["h=[64]", "h=[128,64]"]),
        ("s='a b','c,d'", ["s='a b'", "s='c,d'"]),
        ("+k=a,b", ["+k=a", "+k=b"]),
        ("g@pkg=a,b", ["g@pkg=a", "g@pkg=b"]),
        ("s=choice(x,y)", ["s=x", "s=y"]),
        ("lr=logspace(1e-4,1e-1,4)", ["lr=0.0001", "lr=0.001", "lr=0.01", "lr=0.1"]),
        ("lr=logspace(8,2,3)", ["lr=8.0", "lr=4.0", "lr=2.0"]),
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
    [(["a=1", "a=2"], ["a=2"]), (["a=1,2", "a=3"], ["a=3"]), (["a=1", "b=2", "a=3,4"], ["a=3", "b=2"])],
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
        ("x=interval(2,1)", r"must be the smaller one.\nType: 'x=interval\(1.0, 2.0\)'$"),
        ("x=interval(2,2)", r"must be the smaller one.\nFor this value alone, type: x=2.0$"),
        ("x=tag(log,interval(0,1))", r"must start above 0, not at 0.0.\nType a positive start"),
        ("x=range(1,inf)", "has no end"),
        ("x=range(0,1,0)", "has no end"),
        ("x=range(5,1)", "has no values"),
        ("x=logspace(0,1,3)", r"and a count.\nType, for example: 'x=logspace\(1e-4,1e-1,3\)'"),
        ("x=logspace(1,2,1)", "its count must be a whole number from 2 on"),
        ("p=zip(a=[1,2],b=[3])", r"but a has 2 values, b has 1 value.\nType, for example: 'p=zip\("),
        ("p=zip(a=[1,2])", "needs two or more keys of equal length"),
        ("p=zip(a=[1,2],b=interval(1,2))", "b needs a list of values"),
        ("p=zip(a=[1,2],b=shuffle(1,2))", "b needs a list of values"),
        ("x=logspace(1,2,3,4)", "needs low, high and count, not 4"),
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


def test_corners_are_a_sample_of_very_many_values() -> None:
    values = [point["x"] for point in space("x=range(0,20000)", "y=1,2").corners()]
    assert (len(values), values[0], values[-1]) == (100, 0, 19999)
    assert len(space("x=range(0,400)", "y=1,2").corners()) == 400


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
    assert canonical({"a": 10**400}) != canonical({"a": 2**53 + 1}) != canonical({"a": 2**53})


@pytest.mark.parametrize(
    "lines, overrides",
    [
        (["p=zip(model=choice(a,b),model.k=[1,2])"], ["model=a model.k=1", "model=b model.k=2"]),
        (["p=zip(+x=range(1,3),h=[[1,2],'c d'])"], ["+x=1 h=[1,2]", "+x=2 h='c d'"]),
        (
            ["p=zip(x=logspace(1,100,3),y=[1,2,3])", "s=0,1"],
            [f"s={s} x={10.0**i} y={i + 1}" for i in range(3) for s in (0, 1)],
        ),
        (
            ["p=zip(a=[1,2],b=[3,4])", "q=zip(c=[5,6],d=[7,8])"],
            ["a=1 b=3 c=5 d=7", "a=1 b=3 c=6 d=8", "a=2 b=4 c=5 d=7", "a=2 b=4 c=6 d=8"],
        ),
    ],
)
def test_zipped_values_go_together(lines: list[str], overrides: list[str]) -> None:
    grid = space(*lines)
    assert [" ".join(grid.overrides(point)) for point in grid.points()] == overrides
    assert all(map(grid.contains, grid.points()))


def test_shuffled_rows_have_one_order_for_all_drivers() -> None:
    line = f"p=shuffle(zip(a=range({50}),b=range({50})))"
    points = [*space(line).points()]
    assert points == [*space(line).points()] != sorted(points, key=lambda point: point["a"])
    assert all(point["a"] == point["b"] for point in points)


@pytest.mark.parametrize(
    "line", ["p=zip(a=[1],a=[2])", "p=zip([1],[2])", "p=zip(a=[1],b=[2]", "p=zip()", "p=sort(zip(a=[1],b=[2]))"]
)
def test_wrong_calls_are_refused_by_the_parser(line: str) -> None:
    with pytest.raises(HydraException):
        PARSER.parse_overrides([line])


def test_other_sweepers_refuse_zip_and_take_logspace() -> None:
    zipped, spaced = PARSER.parse_overrides(["p=zip(a=[1,2],b=[3,4])", "x=logspace(1,4,3)"])
    with pytest.raises(HydraException, match="needs hydra/sweeper=grid or hydra/sweeper=optuna"):
        [*zipped.sweep_string_iterator()]
    assert [*spaced.sweep_string_iterator()] == ["1.0", "2.0", "4.0"]


def test_key_beside_its_zip_is_refused() -> None:
    with pytest.raises(UserError, match=r"a is typed twice, once in zip\(...\).\nRemove one of the two"):
        space("p=zip(a=[1,2],b=[3,4])", "a=5")


def test_further_grids_keep_what_they_do_not_retype() -> None:
    grid = space("opt=sgd", "lr=1,2", "s=0,1", "e=9", also=["opt=adam lr=3", "opt=lion"])
    assert grid.fixed == ("e=9",)
    composed = [" ".join(grid.overrides(point)) for point in grid.points()]
    pairs = [("sgd", 1), ("sgd", 2), ("adam", 3), ("lion", 1), ("lion", 2)]
    assert composed == [f"opt={opt} lr={lr} s={s} e=9" for opt, lr in pairs for s in (0, 1)]


def test_sorted_logspace_is_descending_if_reversed() -> None:
    assert [*space("x=sort(logspace(1,4,3),reverse=true)").points()] == [{"x": 4.0}, {"x": 2.0}, {"x": 1.0}]


def test_grid_without_the_keys_of_further_grids_is_tried() -> None:
    grid = space("lr=1,2", also=["d=5"])
    assert [" ".join(grid.overrides(point)) for point in grid.points()] == ["lr=1", "lr=2", "lr=1 d=5", "lr=2 d=5"]
    assert all(map(grid.contains, grid.points()))
    assert not space("lr=1,2", also=["lr=1,2"]).listed


def test_further_grid_cannot_change_an_interval() -> None:
    assert len(space("x=interval(0,1)", "y=1", also=["y=2"]).listed) == 2
    with pytest.raises(UserError, match=r"x=interval\(0,1\) differs between the grids"):
        space("x=interval(0,1)", also=["x=interval(1,2)"])


@pytest.mark.parametrize(
    "condition, count",
    [
        ("n=1 and x>2", 5),
        ("n==1 and x>2", 5),
        ("not (n=1 or x<=2)", 5),
        ("m=a", 3),
        ("m in [a,'b']", 0),
        ("m not in [a] and x>=1", 3),
        ("1<x<3", 4),
        ("'opt.k'=1", 3),
        ("opt.k=1 or x=3", 2),
        ("nothing>1", 6),
        ("x>1 and n!=nan", 2),
    ],
)
def test_excluded_points_are_not_in_the_space(condition: str, count: int) -> None:
    numbers, zipped = space("n=1,2", "x=1,2,3"), space("x=1,2,3", "p=zip(m=[a,b],+opt.k=[1,2])")
    grid = zipped if "m" in condition or "k" in condition else numbers
    rest = grid.with_excluded([condition])
    assert len([*rest.points()]) == len([*rest.all_points()]) == count
    assert sum(map(rest.contains, grid.points())) == count


@pytest.mark.parametrize(
    "condition, count",
    [("x=nan", 4), ("x=NaN", 4), ("x!=nan", 1), ("x in [nan,-inf]", 3), ("x='nan'", 4), ("x=-inf", 4)],
)
def test_nan_and_infinity_are_compared_by_their_names(condition: str, count: int) -> None:
    grid = space("x=1,nan,'nan',inf,-inf")
    assert len([*grid.with_excluded([condition]).points()]) == count
    assert all(parameter.find(math.nan) for parameter in grid.parameters[:1])


@pytest.mark.parametrize(
    "condition", ["", "x>", "x>f(1)", "x if y else z", "x.y()", "[x]", "x+1>2", "lambda: 1", "x in y"]
)
def test_unreadable_conditions_are_refused(condition: str) -> None:
    with pytest.raises(UserError, match=r"cannot be read.\nCompare swept keys, as in 'gpus=1 and batch_size>512'"):
        space("x=1,2", "y=1,2").with_excluded([condition])


def test_fractions_spread_over_all_intervals_and_beside_conditions() -> None:
    search = space("x=interval(0,1)", "n=1,2", "y=tag(log,interval(1e-4,1))")
    points = [*islice(search.with_excluded(["x>y"]).all_points(), 50)]
    assert {point["n"] for point in points} == {1, 2}
    assert len({point["x"] for point in points}) > 20 and all(point["x"] <= point["y"] for point in points)
    assert not [*search.with_excluded(["x>=0"]).all_points()]
    assert search.with_excluded(["x<0.3 or x>0.6"]).corners()
