"""The parser of Hydra's overrides: their text becomes a search space, or one point of it.

The grammar is Hydra's (https://hydra.cc/docs/advanced/override_grammar/extended/) with zip() and
logspace(): lists of choices, range(), glob() and logspace() are finite. Only a search can handle
interval(), with tag(log, ...) for a logarithmic scale.
"""

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Glob,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
    ValueType,
)
from hydra.errors import HydraException

from sweeps.base.errors import UserError
from sweeps.base.wording import counted
from sweeps.hydra.functions import ZIP, Logspace, Zip
from sweeps.hydra.parts import deletion_word
from sweeps.space.space import (
    Choice,
    Condition,
    Interval,
    Parameter,
    SearchSpace,
    canonical,
    text_of,
)
from sweeps.trial.job import Point, Value

_MOST_ROWS = 100_000


def parse(
    overrides: Sequence[Override],
    conditional: Mapping[Condition, Sequence[Override]],
    constants: Mapping[str, str],
    also: Sequence[Sequence[Override]] = (),
) -> SearchSpace:
    """Return the space. Later overrides of a key replace earlier overrides. Raises UserError if a
    value is wrong.

    `also` are the overrides of further grids. What all grids have in common is combined with the
    rest of each.
    """
    grids = [{o.get_key_element(): o for o in words} for words in (overrides, *also)]
    typed = dict.fromkeys(chain(*grids))  # not a set, which would lose the order
    common = _common(grids)

    fixed = {}
    tables = []
    parameters: list[Parameter] = []
    for key, override in common.items():
        if isinstance(override.value(), Zip):
            tables.append(_rows(override))
        elif override.is_sweep_override():
            parameters.append(_parameter(override))
        else:
            fixed[key] = override
    for condition, under in conditional.items():
        free = [override for override in under if override.get_key_element() not in typed]
        parameters += [_parameter(override, condition) for override in free]
    if also:
        own = [[_rows(grid[key]) for key in grid if key not in common] for grid in grids]
        tables.append([*chain.from_iterable(map(_combine, own))])

    values = {key: text_of(override.value()) for key, override in fixed.items()}
    words = [_fixed_word(key, override) for key, override in fixed.items()]
    constants = {**constants, **values}
    space = SearchSpace(tuple(parameters), tuple(words), constants, order=tuple(typed))
    return _with_tables(space, tables, fixed) if tables else space


def _common(grids: Sequence[Mapping[str, Override]]) -> dict[str, Override]:
    """Return the overrides that all grids have."""
    common = {}
    for key, override in grids[0].items():
        line = override.input_line
        if all(key in grid and grid[key].input_line == line for grid in grids):
            common[key] = override
    return common


def _fixed_word(key: str, override: Override) -> str:
    """Return an override of one value as the trials get it."""
    if override.value_type is None:
        return deletion_word(key)
    return f"{key}={override.get_value_element_as_str()}"


Row = dict[str, tuple[Value, str]]
"""The value of each key that goes together with the others, and its text."""


def _rows(override: Override) -> list[Row]:
    """Return the values of an override, each with its key; of zip(...) those that go together."""
    if not isinstance(sweep := override.value(), Zip):
        parameter = _parameter(override)
        if isinstance(parameter, Interval):
            raise UserError(
                f"hydra.sweeper.also: {override.input_line} differs between the grids.\n"
                f"Type the same interval in each, or values: {parameter.key}=0.1,1.0"
            )
        return _column(parameter)
    name = override.get_key_element()
    members = [_member(override, *member) for member in sweep.members.items()]
    lengths = [len(member.values) for member in members]
    if len(members) < 2 or len({*lengths}) > 1:
        counts = [f"{member.key} has {counted(len(member.values), 'value')}" for member in members]
        raise UserError(
            f"{name}: zip(...) needs two or more keys of equal length, but"
            f" {', '.join(counts) or 'it has none'}.\nType, for example: '{name}={ZIP}'"
        )
    rows = [*map(_joined, zip(*map(_column, members), strict=True))]
    sweep.order(rows, str(override.input_line))
    return rows


def _column(choice: Choice) -> list[Row]:
    pairs = zip(choice.values, choice.texts, strict=True)
    return [{choice.key: pair} for pair in pairs]


def _joined(rows: Iterable[Row]) -> Row:
    return dict(chain.from_iterable(row.items() for row in rows))


def _member(override: Override, key: str, typed: Any) -> Choice:
    """Return a key of zip(...) with its values: a list, or a sweep with an end and an order."""
    name = override.get_key_element()
    values = ChoiceSweep(list=typed) if isinstance(typed, list) else typed
    is_sweep = isinstance(values, ChoiceSweep | RangeSweep | Glob) and not isinstance(values, Zip)
    if not is_sweep or getattr(values, "shuffle", False):
        raise UserError(
            f"{name}: {key} needs a list of values in zip(...).\nType brackets, as in lr=[0.1,0.01]"
        )
    try:
        single = OverridesParser.create().parse_override(f"{key}=0")
    except HydraException as error:
        raise UserError(
            f"{name}: '{key}' is no key.\nType, for example: optimizer=[adam,sgd]"
        ) from error
    is_range = isinstance(typed, RangeSweep)
    single._value = values
    single.value_type = ValueType.RANGE_SWEEP if is_range else ValueType.CHOICE_SWEEP
    single.config_loader = override.config_loader
    single.input_line = override.input_line
    return _choice(single)


def _combine(tables: Sequence[Sequence[Row]]) -> list[Row]:
    """Return all combinations of the tables' rows. Raises UserError if they are too many, or share
    a key."""
    if (count := math.prod(map(len, tables))) > _MOST_ROWS:
        raise UserError(
            f"{count:.3g} combinations of hydra.sweeper.also and zip(...) are more than"
            f" {_MOST_ROWS:,}.\nType fewer values, or run several studies"
        )
    keys = [key.lstrip("+") for rows in tables for key in dict.fromkeys(chain(*rows))]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise UserError(
            f"{twice[0]} is typed twice, in zip(...) or hydra.sweeper.also.\nRemove one of the two"
        )
    return [*map(_joined, product(*tables))]


def _with_tables(
    space: SearchSpace, tables: Sequence[Sequence[Row]], fixed: Iterable[str]
) -> SearchSpace:
    """Return the space with all combinations of the rows as its listed points, whose keys come
    before the others."""
    rows = _combine(tables)
    swept = [parameter.key for parameter in space.parameters if not parameter.condition]
    others = {key.lstrip("+") for key in [*fixed, *swept]}
    points = []
    texts = {}
    for row in rows:
        points.append({key: value for key, (value, _) in row.items()})
        texts.update({canonical({key: value}): text for key, (value, text) in row.items()})
    both = sorted(others.intersection(key.lstrip("+") for key in chain(*rows)))
    if both:
        raise UserError(f"{both[0]} is typed twice, once in zip(...).\nRemove one of the two")
    return space.with_listed(points, texts)


def space_of(parameters: Mapping[str, str]) -> SearchSpace:
    """Return the space of a study's definition, which has each parameter's name and its values as
    text."""
    space: list[Parameter] = []
    for name, values in parameters.items():
        key, _, text = name.partition(" under ")
        condition = parse_condition(text) if text else None
        if ends := re.fullmatch(r"(log )?interval\((\S+), (\S+)\)", values):
            low, high = (
                int(end) if end.lstrip("-").isdecimal() else float(end) for end in ends.groups()[1:]
            )
            space.append(Interval(key, low, high, bool(ends[1]), condition))
        else:
            override = OverridesParser.create().parse_override(f"{key}={values}")
            space.append(_parameter(override, condition))
    return SearchSpace(tuple(space), (), {})


def point_of(overrides: Sequence[Override]) -> Point:
    """Return a point as a person types it. Raises UserError if a key has several values, or
    none."""
    point: Point = {}
    for override in overrides:
        key = override.get_key_element()
        if override.is_sweep_override() or override.is_delete():
            raise UserError(f"{override.input_line}: type a single value, as in {key}=1")
        name = key.lstrip("+")
        if name in {earlier.lstrip("+") for earlier in point}:
            raise UserError(f"{name} has two values. Remove one")
        point[key] = _choice(override).values[0]
    return point


def parse_condition(text: str) -> Condition:
    """Return the condition of a text such as `optimizer=adam,nadam`."""
    key, _, values = text.partition("=")
    if not values:
        raise UserError(
            f"conditional_params: '{text}' is not a condition.\nType it as optimizer=adam,nadam"
        )
    return Condition(key.strip(), tuple(value.strip() for value in values.split(",")))


def _parameter(override: Override, condition: Condition | None = None) -> Parameter:
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        return _interval(override.get_key_element(), sweep, condition)
    return _choice(override, condition)


def _choice(override: Override, condition: Condition | None = None) -> Choice:
    key = override.get_key_element()
    sweep = override.value()
    if isinstance(sweep, RangeSweep):
        _refuse_endless(override, sweep)
    if isinstance(sweep, Logspace) and sweep.problem:
        raise UserError(
            f"{override.input_line}: {sweep.problem}.\nType, for example: '{key}={sweep.example}'"
        )
    is_sweep = override.is_sweep_override()
    elements = list(override.sweep_iterator()) if is_sweep else [override._value]
    if not elements:
        raise UserError(
            f"{override.input_line} has no values: nothing would run.\n{_advise_values(override)}"
        )
    texts = tuple(map(text_of, elements))
    values = tuple(map(_plain, elements, texts))
    is_range = isinstance(sweep, RangeSweep) and not sweep.shuffle
    return Choice(key, values, texts, condition, numbers=is_range)


def _refuse_endless(override: Override, sweep: RangeSweep) -> None:
    width = (sweep.stop or 0) - (sweep.start or 0)
    if sweep.step == 0 or not math.isfinite(width) or not math.isfinite(sweep.step):
        key = override.get_key_element()
        raise UserError(
            f"{override.input_line} has no end.\nType a start, a stop and a step:"
            f" '{key}=range(1,10,2)'"
        )
    if (count := abs(width / sweep.step)) > 1e6:
        raise UserError(
            f"{override.input_line} has {count:.3g} values, more than a million. Use a larger step"
        )


def _advise_values(override: Override) -> str:
    """Return what to type in place of a range or a glob without values."""
    key = override.get_key_element()
    sweep = override.value()
    if isinstance(sweep, RangeSweep) and sweep.start is not None and sweep.stop is not None:
        step = -sweep.step if (sweep.stop - sweep.start) * sweep.step < 0 else sweep.step
        stop = sweep.stop + step if sweep.stop == sweep.start else sweep.stop
        return f"Type: '{key}=range({sweep.start},{stop},{step})'"
    loader = override.config_loader
    names = loader.get_group_options(override.key_or_group) if loader else []
    if names:
        return f"Choose among: {', '.join(names)}"
    problem = f"glob(...) lists choices of a group, and {key} is none. " * isinstance(sweep, Glob)
    return f"{problem}Type its values, as in {key}=1,2"


def _plain(element: Any, text: str) -> Value:
    if isinstance(element, QuotedString):
        return element.text
    return element if isinstance(element, bool | int | float | str | None) else text


def _interval(key: str, sweep: IntervalSweep, condition: Condition | None) -> Interval:
    low = sweep.start
    high = sweep.end
    log = "log" in sweep.tags
    interval = f"interval({low}, {high})"
    if unknown := sorted(sweep.tags - {"log"}):
        raise _unknown_tag(key, interval, unknown, log)
    if low is None or high is None or not math.isfinite(high - low):
        raise UserError(f"{key}={interval} has no end.\nType both ends: '{key}=interval(0.1,1.0)'")
    if low >= high:
        advice = f"For this value alone, type: {key}={low}"
        if low > high:
            advice = f"Type: '{key}=interval({high}, {low})'"
        raise UserError(f"{key}={interval}: the first number must be the smaller one.\n{advice}")
    if log and low <= 0:
        raise UserError(
            f"{key}: a logarithmic interval must start above 0, not at {low}.\nType a positive"
            " start, or leave out tag(log, ...)"
        )
    return Interval(key, low, high, log, condition)


def _unknown_tag(key: str, interval: str, tags: Sequence[str], log: bool) -> UserError:
    """Return the error of a tag that no interval has, with an example that was likely meant."""
    typed = f"int({interval})" if "int" in tags else interval
    if log or "int" not in tags:
        typed = f"tag(log, {typed})"
    example = shlex.quote(f"{key}={typed}")
    return UserError(f"{key}: unknown tag({tags[0]}, ...).\nRemove it, or type {example}")
