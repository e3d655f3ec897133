"""A search space that is written as YAML, from its mappings and lists to words, and what it may not be."""

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.functions import extend_grammar
from sweeps.space.written_space import words_of, words_of_grid
from tests.study.test_search_space import PARSER, space

extend_grammar()
SETTING = "hydra.sweeper.params"


@pytest.fixture
def config() -> DictConfig:
    return OmegaConf.create(
        """
        x: 1
        none: null
        opt: {lr: 0.1, name: a, hidden: [1]}
        range: {low: 0, high: 1}
        net: {width: 1}
        hydra: {runtime: {choices: {net: small, heads: [a, b]}}}
        """
    )


def read(written: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(f"params: {written}"))["params"]  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("null", []),
        ("{}", []),
        ('{x: "1,2"}', ["x=1,2"]),
        ("{x: 3, opt.lr: 1e-3, opt.name: true, none: null}", ["x=3", "opt.lr=0.001", "opt.name=True", "none=null"]),
        ('{x: ""}', ["x="]),
        ('{"+new": "1,2", "++x": 3, "~opt.lr": null}', ["+new=1,2", "++x=3", "~opt.lr=null"]),
        ('{opt: {lr: "0.1,0.2", name: b}}', ["opt.lr=0.1,0.2", "opt.name=b"]),
        ('{opt: {"+new": "1,2", "+more": {deep: 1}}}', ["+opt.new=1,2", "+opt.more.deep=1"]),
        ('{"+more": {deep: {er: 1}}}', ["+more.deep.er=1"]),
        ('{range: {low: "0,0.5", high: 1}}', ["range.low=0,0.5", "range.high=1"]),
        ("{x: {}}", ["x={}"]),
        ('["x=1,2", "opt.lr=3"]', ["x=1,2", "opt.lr=3"]),
        ("{opt.lr: [0.1, 0.2]}", ["opt.lr=0.1,0.2"]),
        ("{opt: {lr: [0.1, 0.2]}}", ["opt.lr=0.1,0.2"]),
        ('{opt.name: [a, "1", "a,b", true, null, ""]}', [r"opt.name=a,'1',a\,b,True,null,''"]),
        ("{x: [5]}", ["x=5"]),
        ("{opt.lr: [[1], [2, 3]]}", ["opt.lr=[1],[2,3]"]),
        ("{opt.hidden: [2, 3]}", ["opt.hidden=[2,3]"]),  # one value, as with Hydra's own sweeper
        ("{opt.hidden: []}", ["opt.hidden=[]"]),
        ("{x: {type: float, low: 0.1, high: 1}}", ["x=interval(0.1,1)"]),
        ("{x: {type: FLOAT, low: 1, high: 10, log: true, step: null}}", ["x=tag(log,interval(1,10))"]),
        ("{x: {type: int, low: 1, high: 9, log: true}}", ["x=tag(log,int(interval(1,9)))"]),
        ("{x: {type: int, low: 1, high: 9, step: 1, log: false}}", ["x=int(interval(1,9))"]),
        ("{x: {type: int, low: 3, high: 3}}", ["x=3"]),
        ('{opt: {name: {type: categorical, choices: [a, "1", null]}}}', ["opt.name=a,'1',null"]),
        ("{x: {type: categorical, choices: [[1, a], {b: '2'}]}}", ["x=[1,a],{b:'2'}"]),
        ("{opt: {name: {type: small}}}", ["opt.name.type=small"]),
    ],
)
def test_written_space_is_read_as_typed_words(written: str, words: list[str], config: DictConfig) -> None:
    assert words_of(SETTING, read(written), config) == words
    for word in words:
        assert PARSER.parse_override(word)


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("{type: int, low: 1, high: 8, step: 3}", [1, 4, 7]),
        ("{type: int, low: 1, high: 7, step: 3}", [1, 4, 7]),
        ("{type: float, low: 0.1, high: 0.4, step: 0.1}", [0.1, 0.2, 0.3, 0.4]),
        ("{type: float, low: 0, high: 1, step: 0.4}", [0.0, 0.4, 0.8]),
        ("{type: float, low: 0, high: 1, step: 1}", [0.0, 1.0]),
        ("{type: float, low: 1e-7, high: 3e-7, step: 1e-7}", [1e-7, 2e-7, 3e-7]),
    ],
)
def test_steps_end_at_the_high_end_or_before(written: str, values: list[float], config: DictConfig) -> None:
    (word,) = words_of(SETTING, read(f"{{x: {written}}}"), config)
    read_values = [point["x"] for point in space(word).points()]
    assert read_values == pytest.approx(values)
    assert [type(value) for value in read_values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('"x=1,2"', "it must be a mapping.\nWrite keys with values"),
        ("[x]", "=[x]: it must be a mapping.\nWrite"),
        ('["x=1", 2]', "it must be a mapping.\nWrite"),
        ("7", "=7: it must be a mapping.\nWrite"),
        (
            "{none: [1, 2]}",
            '.none: [1,2] may be several values, or one that is a list.\nWrite several as the text "1,2"',
        ),
        ("{new: [1, 2]}", "one that is a list.\nWrite"),
        ("{net: [small, large]}", "one that is a list.\nWrite"),
        ("{opt.hidden: [[1], [2]]}", "one that is a list.\nWrite"),
        ("{x: []}", "one that is a list.\nWrite"),
        ("{x: {low: 0, high: 1}}", "has no type.\nAdd type: float"),
        ("{x: {choices: [1, 2]}}", "has no type.\nAdd type: categorical"),
        ("{x: {type: int, low: 0}}", "x: int needs two numbers, low and high.\nWrite"),
        ("{x: {type: float, low: a, high: 1}}", "float needs two numbers"),
        ("{x: {type: float, low: 0, high: .inf}}", "float needs two numbers"),
        ("{x: {type: float, low: 0, high: 1, q: 1}}", "float has no 'q'.\nUse high, log, low, step, type"),
        ("{x: {type: categorical, low: 0, high: 1}}", "categorical has no 'high'.\nUse"),
        ("{x: {type: categorical}}", "categorical needs its choices.\nWrite"),
        ("{x: {type: categorical, choices: []}}", "categorical needs its choices.\nWrite"),
        ("{x: {type: float, low: 0, high: 1, step: 0.1, log: true}}", "has no step.\nRemove"),
        ("{x: {type: float, low: 0, high: 1, step: 2}}", "step=2 is not between 0 and high - low.\nWrite"),
        ("{x: {type: int, low: 0, high: 9, step: 0.5}}", "step=0.5 is no whole number.\nWrite"),
        ("{x: {type: int, low: 0.5, high: 9}}", "low=0.5 is no whole number.\nWrite"),
        ("{x: {type: float, low: 0, high: 1, log: 1}}", "log=1 is neither true nor false.\nWrite"),
    ],
)
def test_ambiguous_and_wrong_spaces_are_refused(written: str, message: str, config: DictConfig) -> None:
    with pytest.raises(UserError) as refusal:
        words_of(SETTING, read(written), config)
    assert message in str(refusal.value) and str(refusal.value).count("\n") == 1
    assert str(refusal.value).startswith(SETTING)


def test_grid_of_also_is_a_text_or_a_mapping(config: DictConfig) -> None:
    assert words_of_grid("x=1,2 'opt.name=a b'", config) == ["x=1,2", "opt.name=a b"]
    assert words_of_grid({"opt": {"lr": [0.1, 0.2]}}, config) == ["opt.lr=0.1,0.2"]
