"""The parser of Hydra's overrides: their text becomes a search space, or one point of it.

The grammar is Hydra's (https://hydra.cc/docs/advanced/override_grammar/extended/): lists of choices, range() and glob()
are finite. Only a search can handle interval(), with tag(log, ...) for a logarithmic scale.
"""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, QuotedString, RangeSweep

from sweeps.errors import UserError
from sweeps.record.space import Choice, Condition, Interval, Parameter, SearchSpace, text_of
from sweeps.trial.job import Point, Value


def parse(
    overrides: Sequence[Override], conditional: Mapping[Condition, Sequence[Override]], constants: Mapping[str, str]
) -> SearchSpace:
    """Return the space. Later overrides of a key replace earlier overrides. Raises UserError if a value is wrong."""
    last = {override.get_key_element(): override for override in overrides}
    fixed = {key: override for key, override in last.items() if not override.is_sweep_override()}
    parameters = [_parameter(o, None) for o in last.values() if o.is_sweep_override()]
    for condition, under in conditional.items():
        parameters += [_parameter(override, condition) for override in under if override.get_key_element() not in last]
    constants = {**constants, **{key: text_of(override.value()) for key, override in fixed.items()}}
    return SearchSpace(tuple(parameters), tuple(str(override.input_line) for override in fixed.values()), constants)


def space_of(parameters: Mapping[str, str]) -> SearchSpace:
    """Return the space of a study's definition, which has each parameter's name and its values as text."""
    space: list[Parameter] = []
    for name, values in parameters.items():
        key, _, text = name.partition(" under ")
        condition = parse_condition(text) if text else None
        if ends := re.fullmatch(r"(log )?interval\((\S+), (\S+)\)", values):
            low, high = (int(end) if end.lstrip("-").isdecimal() else float(end) for end in ends.groups()[1:])
            space.append(Interval(key, low, high, bool(ends[1]), condition))
        else:
            space.append(_parameter(OverridesParser.create().parse_override(f"{key}={values}"), condition))
    return SearchSpace(tuple(space), (), {})


def point_of(overrides: Sequence[Override]) -> Point:
    """Return a point as a person types it. Raises UserError if a key has several values, or none."""
    for override in overrides:
        if override.is_sweep_override() or override.is_delete():
            raise UserError(f"{override.input_line}: type a single value, as in {override.get_key_element()}=1")
    names = [override.get_key_element().lstrip("+") for override in overrides]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} has two values. Remove one")
    return {override.get_key_element(): _parameter(override, None).values[0] for override in overrides}


def parse_condition(text: str) -> Condition:
    """Return the condition of a text such as `optimizer=adam,nadam`."""
    key, _, values = text.partition("=")
    if not values:
        raise UserError(f"conditional_params: '{text}' is not a condition.\nType it as optimizer=adam,nadam")
    return Condition(key.strip(), tuple(value.strip() for value in values.split(",")))


def _parameter(override: Override, condition: Condition | None) -> Parameter:
    key, sweep = override.get_key_element(), override.value()
    if isinstance(sweep, IntervalSweep):
        return _interval(key, sweep, condition)
    if isinstance(sweep, RangeSweep):
        start, stop, step = sweep.start or 0, sweep.stop or 0, sweep.step
        if step == 0 or not all(map(math.isfinite, (start, stop, step))):
            raise UserError(f"{override.input_line} has no end.\nType a start, a stop and a step: {key}=range(1,10,2)")
        if (count := abs((stop - start) / step)) > 1e6:
            raise UserError(f"{override.input_line} has {count:.3g} values, more than a million. Use a larger step")
    elements = list(override.sweep_iterator()) if override.is_sweep_override() else [override._value]
    if not elements:
        raise UserError(f"{override.input_line} has no values: nothing would run")
    texts = tuple(text_of(element) for element in elements)
    values = tuple(_plain(element, text) for element, text in zip(elements, texts, strict=True))
    return Choice(key, values, texts, condition, numbers=isinstance(sweep, RangeSweep) and not sweep.shuffle)


def _plain(element: Any, text: str) -> Value:
    if isinstance(element, QuotedString):
        return element.text
    return element if element is None or isinstance(element, bool | int | float | str) else text


def _interval(key: str, sweep: IntervalSweep, condition: Condition | None) -> Interval:
    low, high, log = sweep.start, sweep.end, "log" in sweep.tags
    if unknown := sorted(sweep.tags - {"log"}):
        interval = f"interval({low}, {high})"
        interval = f"int({interval})" if "int" in unknown else interval
        example = shlex.quote(f"{key}=tag(log, {interval})" if log or "int" not in unknown else f"{key}={interval}")
        raise UserError(f"{key}: unknown tag({unknown[0]}, ...).\nRemove it, or type {example}")
    if low is None or high is None or not math.isfinite(high - low):
        raise UserError(f"{key}=interval({low}, {high}) has no end.\nType both ends: {key}=interval(0.1,1.0)")
    if low >= high:
        raise UserError(f"{key}=interval({low}, {high}) is empty: the first number must be the smaller one")
    if log and low <= 0:
        raise UserError(f"{key}: a logarithmic interval must start above 0, not at {low}")
    return Interval(key, low, high, log, condition)
