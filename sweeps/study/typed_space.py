"""The search space as it was typed: read, and what is wrong with it in words of what to type."""

import difflib
import math
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.errors import UserError
from sweeps.record.grammar import parse, parse_condition
from sweeps.record.space import Choice, Condition, Interval, Parameter, SearchSpace, text_of
from sweeps.settings import SweeperConf
from sweeps.study.compose import Composer
from sweeps.study.mistakes import keys
from sweeps.trial.job import Point

_CONDITIONS = "hydra.sweeper.conditional_params"
Check = Callable[[Point], object]
"""Raises UserError if a trial of these values cannot be."""


def read_space(
    composer: Composer, config: DictConfig, settings: SweeperConf, typed: Sequence[str], is_new: bool
) -> tuple[SearchSpace, list[str]]:
    """Return the search space, and what of its conditions is left out, in words.

    Raises:
        UserError: it makes no sense, or it `is_new` and a condition can never hold.
    """
    conditional = {
        parse_condition(text): composer.parse(_lines(under)) for text, under in settings.conditional_params.items()
    }
    constants = {one.key: value for one in conditional if (value := _value_of(one.key, config)) is not None}
    space = parse(composer.parse([*_lines(settings.params), *typed]), conditional, constants)
    for condition, under in conditional.items() if is_new else ():
        _refuse_idle(condition, [one.get_key_element() for one in under], space, composer, config)
    kept = {(one.key, one.condition) for one in space.parameters}
    left_out = [
        f"{one.input_line} under {condition} is left out: {one.get_key_element()} is given for all"
        for condition, under in conditional.items()
        for one in under
        if (one.get_key_element(), condition) not in kept
    ]
    return space, left_out


def _lines(params: dict[str, Any]) -> list[str]:
    return [f"{key}={value if isinstance(value, str) else text_of(value)}" for key, value in params.items()]


def _value_of(key: str, config: DictConfig) -> str | None:
    """What the configuration has for a key, as text; None if it does not have the key."""
    if key in (choices := config.hydra.runtime.choices):
        return str(choices[key])
    value = OmegaConf.select(config, key, default=...)
    return None if value is ... else text_of(value)


def _refuse_idle(
    condition: Condition, under: Sequence[str], space: SearchSpace, composer: Composer, config: DictConfig
) -> None:
    """Raise UserError if nothing can ever have the key of a condition, or one of its values."""
    key, said = condition.key, f"{_CONDITIONS} has {condition}: {condition.key}"
    swept = [one for one in space.parameters if one.key == key]
    texts = [text_of(value) for one in swept if isinstance(one, Choice) for value in one.values]
    texts += composer.options(key)
    if not texts and not swept:
        if key not in space.constants:
            raise UserError(
                f"{said} is not in the configuration, and is not swept\n{_ask_key(condition, space, config)}"
            )
        texts = [space.constants[key]]
    for value in condition.values:
        if value not in texts and not any(_lies_in(one, value) for one in swept):
            near = difflib.get_close_matches(value, texts, 1)
            ask = f"Did you mean {key}={near[0]}?" if near else f"It may be: {', '.join(dict.fromkeys(texts))}"
            raise UserError(f"{said} is never {value}, which {', '.join(under)} would need\n{ask}")


def _ask_key(condition: Condition, space: SearchSpace, config: DictConfig) -> str:
    known = [*dict.fromkeys([*(one.key for one in space.parameters), *keys(config)])]
    near = difflib.get_close_matches(condition.key, known, 1)
    meant = Condition(near[0], condition.values) if near else None
    return f"Did you mean {meant}?" if meant else "Name a key that is: all are in --help"


def _lies_in(parameter: Parameter, text: str) -> bool:
    """Whether a condition's value is one of an interval's."""
    with suppress(ValueError):
        return isinstance(parameter, Interval) and bool(parameter.find(float(text)))
    return False


def in_space(error: UserError, space: SearchSpace, point: Point, compose: Check, check: Check) -> UserError:
    """Return what is wrong with a point of this space, as what to change about the space."""
    for one in space.parameters:
        if isinstance(one, Interval) and one.key in point and _is_whole(one, point, check):
            return _fractions(one)
    return _lacking(error, space, compose) or error


def refuse_fractions(space: SearchSpace, points: Sequence[Point], check: Check) -> None:
    """Raise UserError for an interval whose ends are fine, while the numbers between two whole ones are not."""
    for one in space.parameters:
        point = next((point for point in points if one.key in point), None)
        if not isinstance(one, Interval) or one.whole or point is None:
            continue
        below = math.floor(one.low + 0.618 * (one.high - one.low))
        if below < one.low or below + 1 > one.high or _passes(check, {**point, one.key: below + 0.5}):
            continue
        if all(_passes(check, {**point, one.key: whole}) for whole in (below, below + 1)):
            raise _fractions(one)


def _fractions(interval: Interval) -> UserError:
    """Return what to type in place of an interval of fractions for a whole number."""
    key, low = interval.key, math.ceil(interval.low)
    whole = replace(interval, low=low, high=max(math.floor(interval.high), low + 1)).typed
    said = f"{key}={interval.typed} has fractions, and {key} is a whole number"
    if interval.condition:
        return UserError(f'{said}\nIn {_CONDITIONS} write under {interval.condition}: {{{key}: "{whole}"}}')
    return UserError(f"{said}\nType: {shlex.quote(f'{key}={whole}')}")


def _is_whole(one: Interval, point: Point, check: Check) -> bool:
    """Whether the app takes a whole number here, and not the same number with a point."""
    value = math.ceil(one.low)
    if one.whole or value > one.high or _passes(check, {**point, one.key: float(value)}):
        return False
    return _passes(check, {**point, one.key: value})


def _lacking(error: UserError, space: SearchSpace, compose: Check) -> UserError | None:
    """Of a key that only some choices of a group have: how to sweep it under those."""
    typed = dict(line.split("=", 1) for line in space.fixed) | {one.key: one.typed for one in space.parameters}
    key = next((one for one in typed if str(error).startswith(f"'{one}' is not in the configuration")), "")
    value = Point({one.key: one.values[0] for one in space.parameters if one.key == key})  # of what is fixed none
    for group in space.parameters:
        if not isinstance(group, Choice) or not key.startswith(f"{group.key}."):
            continue
        pairs = zip(group.texts, group.values, strict=True)
        having = [text for text, chosen in pairs if _passes(compose, {group.key: chosen, **value})]
        lacking = [text for text in group.texts if text not in having]
        if having and lacking:
            under = f"{group.key}={','.join(having)}".replace("=", r"\=").replace(",", r"\,")
            declared = f'+{_CONDITIONS}={{{under}: {{{key}: "{typed[key]}"}}}}'
            what = f"{group.key}={','.join(lacking)} has no '{key}'"
            return UserError(f"{what}. In place of {key}={typed[key]} type:\n{shlex.quote(declared)}")
    return None


def _passes(check: Check, point: Point) -> bool:
    try:
        check(point)
    except UserError:
        return False
    return True
