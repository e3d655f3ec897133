"""The parser of Hydra's overrides: their text becomes a search space, or one point of it.

The grammar is Hydra's (https://hydra.cc/docs/advanced/override_grammar/extended/) with zip() and
logspace(): lists of choices, range(), glob() and logspace() are finite. Only a search can handle
interval(), with tag(log, ...) for a logarithmic scale.
"""

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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
    grids = [overrides, *also]
    last = [{override.get_key_element(): override for override in overrides} for overrides in grids]
    texts = [{key: override.input_line for key, override in grid.items()} for grid in last]
    common = {
        key: o
        for key, o in last[0].items()
        if all(other.get(key) == texts[0][key] for other in texts)
    }
    own = [[override for key, override in grid.items() if key not in common] for grid in last]
    zips = [override for override in common.values() if isinstance(override.value(), Zip)]
    fixed = {key: override for key, override in common.items() if not override.is_sweep_override()}
    parameters = [
        _parameter(o, None) for o in common.values() if o.is_sweep_override() and o not in zips
    ]
    typed = {key for grid in last for key in grid}
    for condition, under in conditional.items():
        parameters += [
            _parameter(override, condition)
            for override in under
            if override.get_key_element() not in typed
        ]
    constants = {**constants, **{key: text_of(override.value()) for key, override in fixed.items()}}
    # A dict, because a set would lose the order.
    typed_keys = dict.fromkeys(key for grid in last for key in grid)
    words = tuple(map(_word_of, fixed.values()))
    space = SearchSpace(tuple(parameters), words, constants, order=tuple(typed_keys))
    tables = [_rows(override) for override in zips]
    if len(grids) > 1:
        tables.append(
            [
                row
                for overrides in own
                for row in _combine([_rows(override) for override in overrides])
            ]
        )
    return _with_tables(space, tables, fixed) if tables else space


def _word_of(override: Override) -> str:
    """Return an override that all trials share as Hydra's sweeper writes it, such as `~unused=null`
    of `~unused`."""
    return f"{override.get_key_element()}={override.get_value_element_as_str()}"


Row = dict[str, tuple[Value, str]]
"""The value of each key that goes together with the others, and its text."""


def _rows(override: Override) -> list[Row]:
    """Return the values of an override, each with its key; of zip(...) those that go together."""
    if not isinstance(sweep := override.value(), Zip):
        parameter = _parameter(override, None)
        if isinstance(parameter, Interval):
            raise UserError(
                f"hydra.sweeper.also: {override.input_line} differs between the grids.\n"
                f"Type the same interval in each, or values: {parameter.key}=0.1,1.0"
            )
        return [
            {parameter.key: pair} for pair in zip(parameter.values, parameter.texts, strict=True)
        ]
    name = override.get_key_element()
    members = [_member(override, *member) for member in sweep.members.items()]
    lengths = {member.key: len(member.values) for member in members}
    if len(members) < 2 or len({*lengths.values()}) > 1:
        counts = ", ".join(
            f"{key} has {counted(length, 'value')}" for key, length in lengths.items()
        )
        problem = f"zip(...) needs two or more keys of equal length, but {counts or 'it has none'}"
        raise UserError(f"{name}: {problem}.\nType, for example: '{name}={ZIP}'")
    pairs = [zip(member.values, member.texts, strict=True) for member in members]
    rows = [dict(zip(lengths, row, strict=True)) for row in zip(*pairs, strict=True)]
    sweep.order(rows, str(override.input_line))
    return rows


def _member(override: Override, key: str, typed: Any) -> Choice:
    """Return a key of zip(...) with its values: a list, or a sweep with an end and an order."""
    name = override.get_key_element()
    is_sweep = isinstance(typed, ChoiceSweep | RangeSweep | Glob) and not isinstance(typed, Zip)
    if not (is_sweep or isinstance(typed, list)) or getattr(typed, "shuffle", False):
        raise UserError(
            f"{name}: {key} needs a list of values in zip(...).\nType brackets, as in lr=[0.1,0.01]"
        )
    values = typed if is_sweep else ChoiceSweep(list=typed)
    kind = ValueType.RANGE_SWEEP if isinstance(typed, RangeSweep) else ValueType.CHOICE_SWEEP
    try:
        single = OverridesParser.create().parse_override(f"{key}=0")
    except HydraException as error:
        raise UserError(
            f"{name}: '{key}' is no key.\nType, for example: optimizer=[adam,sgd]"
        ) from error
    loader = override.config_loader
    parameter = _parameter(
        replace(
            single,
            _value=values,
            value_type=kind,
            config_loader=loader,
            input_line=override.input_line,
        ),
        None,
    )
    assert isinstance(parameter, Choice)
    return parameter


def _combine(tables: Sequence[Sequence[Row]]) -> list[Row]:
    """Return all combinations of the tables' rows. Raises UserError if they are too many, or share
    a key."""
    if (count := math.prod(map(len, tables))) > _MOST_ROWS:
        problem = f"{count:.3g} combinations of hydra.sweeper.also and zip(...)"
        raise UserError(
            f"{problem} are more than {_MOST_ROWS:,}.\nType fewer values, or run several studies"
        )
    keys = [key.lstrip("+") for rows in tables for key in dict.fromkeys(chain(*rows))]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise UserError(
            f"{twice[0]} is typed twice, in zip(...) or hydra.sweeper.also.\nRemove one of the two"
        )
    return [dict(chain.from_iterable(row.items() for row in rows)) for rows in product(*tables)]


def _with_tables(
    space: SearchSpace, tables: Sequence[Sequence[Row]], fixed: Iterable[str]
) -> SearchSpace:
    """Return the space with all combinations of the rows as its listed points, whose keys come
    before the others."""
    rows = _combine(tables)
    listed = dict.fromkeys(chain(*rows))
    swept = [parameter.key for parameter in space.parameters if not parameter.condition]
    if both := sorted(
        {key.lstrip("+") for key in listed} & {key.lstrip("+") for key in [*fixed, *swept]}
    ):
        raise UserError(f"{both[0]} is typed twice, once in zip(...).\nRemove one of the two")
    choices = []
    for key in listed:
        pairs = {canonical({key: row[key][0]}): row[key] for row in rows if key in row}
        values, words = zip(*pairs.values(), strict=True)
        choices.append(Choice(key, values, words))
    points = [{key: value for key, (value, _) in row.items()} for row in rows] if choices else []
    # one may be empty: a grid that adds no key of its own
    unique = {canonical(point): point for point in points}
    return replace(space, parameters=(*choices, *space.parameters), listed=tuple(unique.values()))


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
            space.append(
                _parameter(OverridesParser.create().parse_override(f"{key}={values}"), condition)
            )
    return SearchSpace(tuple(space), (), {})


def point_of(overrides: Sequence[Override]) -> Point:
    """Return a point as a person types it. Raises UserError if a key has several values, or
    none."""
    for override in overrides:
        if override.is_sweep_override() or override.is_delete():
            raise UserError(
                f"{override.input_line}: type a single value, as in {override.get_key_element()}=1"
            )
    names = [override.get_key_element().lstrip("+") for override in overrides]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} has two values. Remove one")
    return {
        override.get_key_element(): _parameter(override, None).values[0] for override in overrides
    }


def parse_condition(text: str) -> Condition:
    """Return the condition of a text such as `optimizer=adam,nadam`."""
    key, _, values = text.partition("=")
    if not values:
        raise UserError(
            f"conditional_params: '{text}' is not a condition.\nType it as optimizer=adam,nadam"
        )
    return Condition(key.strip(), tuple(value.strip() for value in values.split(",")))


def _parameter(override: Override, condition: Condition | None) -> Parameter:
    key = override.get_key_element()
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        return _interval(key, sweep, condition)
    if isinstance(sweep, RangeSweep):
        start = sweep.start or 0
        stop = sweep.stop or 0
        step = sweep.step
        if step == 0 or not all(map(math.isfinite, (start, stop, step))):
            advice = f"Type a start, a stop and a step: '{key}=range(1,10,2)'"
            raise UserError(f"{override.input_line} has no end.\n{advice}")
        if (count := abs((stop - start) / step)) > 1e6:
            raise UserError(
                f"{override.input_line} has {count:.3g} values, more than a million. Use a larger"
                " step"
            )
    if isinstance(sweep, Logspace) and sweep.problem:
        raise UserError(
            f"{override.input_line}: {sweep.problem}.\nType, for example:"
            f" '{key}=logspace(1e-4,1e-1,7)'"
        )
    elements = (
        list(override.sweep_iterator()) if override.is_sweep_override() else [override._value]
    )
    if not elements:
        advice = _advise_values(override)
        raise UserError(f"{override.input_line} has no values: nothing would run.\n{advice}")
    texts = tuple(text_of(element) for element in elements)
    values = tuple(_plain(element, text) for element, text in zip(elements, texts, strict=True))
    return Choice(
        key, values, texts, condition, numbers=isinstance(sweep, RangeSweep) and not sweep.shuffle
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
    return element if element is None or isinstance(element, bool | int | float | str) else text


def _interval(key: str, sweep: IntervalSweep, condition: Condition | None) -> Interval:
    low = sweep.start
    high = sweep.end
    log = "log" in sweep.tags
    if unknown := sorted(sweep.tags - {"log"}):
        interval = f"interval({low}, {high})"
        interval = f"int({interval})" if "int" in unknown else interval
        example = shlex.quote(
            f"{key}=tag(log, {interval})" if log or "int" not in unknown else f"{key}={interval}"
        )
        raise UserError(f"{key}: unknown tag({unknown[0]}, ...).\nRemove it, or type {example}")
    if low is None or high is None or not math.isfinite(high - low):
        raise UserError(
            f"{key}=interval({low}, {high}) has no end.\nType both ends: '{key}=interval(0.1,1.0)'"
        )
    if low >= high:
        advice = (
            f"Type: '{key}=interval({high}, {low})'"
            if low > high
            else f"For this value alone, type: {key}={low}"
        )
        raise UserError(
            f"{key}=interval({low}, {high}): the first number must be the smaller one.\n{advice}"
        )
    if log and low <= 0:
        problem = f"{key}: a logarithmic interval must start above 0, not at {low}"
        raise UserError(f"{problem}.\nType a positive start, or leave out tag(log, ...)")
    return Interval(key, low, high, log, condition)
