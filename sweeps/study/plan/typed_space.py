"""The typed search space: how it is read, and what to type if it is wrong."""

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.functions import Zip
from sweeps.hydra.mistakes import CONDITIONS, explain_lacking
from sweeps.hydra.near import closest, keys
from sweeps.hydra.plain import plain
from sweeps.hydra.settings import SweeperConf
from sweeps.record.narrowed import has_untried
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import sweeps_line
from sweeps.space.exclusion import SETTING, Exclusion, is_number, written
from sweeps.space.grammar import parse, parse_condition
from sweeps.space.space import (
    Choice,
    Condition,
    Interval,
    Parameter,
    SearchSpace,
    is_grid,
    text_of,
    unused_exclusions,
)
from sweeps.space.written_space import words_of, words_of_grid
from sweeps.study.plan.compose import Composer
from sweeps.study.plan.listed_points import read_listed
from sweeps.trial.job import Point

_MOST_COMPOSED = 50  # choices of a parameter that are composed to find those that have a key

Check = Callable[[Point], object]
"""Raises UserError if a trial with this point cannot run."""


def read_space(
    composer: Composer,
    config: DictConfig,
    settings: SweeperConf,
    typed: Sequence[str],
    is_new: bool,
) -> tuple[SearchSpace, list[str]]:
    """Return the search space, and notes: what is left out, and what has no effect.

    Raises UserError if a parameter is wrong, or a condition of a new study can never be true.
    """
    conditional = {}
    for text, params in settings.conditional_params.items():
        words = words_of(f"{CONDITIONS}.{text}", params, config)
        conditional[parse_condition(text)] = composer.parse(words)
    values = {condition.key: _value_of(condition.key, config) for condition in conditional}
    constants = {key: value for key, value in values.items() if value is not None}

    first = [*words_of("hydra.sweeper.params", settings.params, config), *typed]
    also = [words_of_grid(grid, config) for grid in settings.also]
    grids = [composer.parse([*first, *words]) for words in ([], *also)]
    space = parse(grids[0], conditional, constants, grids[1:])
    _refuse_names_of_keys(chain(*grids), composer, config)
    if settings.points is not None:
        space = space.with_listed(read_listed(settings, composer, space))
    space = space.with_excluded(settings.exclude)
    if settings.custom_search_space and space.is_restricted:
        setting = "hydra.sweeper.exclude" if space.excluded else "zip(...)"
        raise UserError(
            f"{setting} and hydra.sweeper.custom_search_space conflict.\n"
            "Raise optuna.TrialPruned in the function instead, or remove one"
        )
    if is_new:
        _refuse_exclusions(space)
        if not is_grid(settings):
            _refuse_untried(space, config)
        for condition, overrides in conditional.items():
            names = [override.get_key_element() for override in overrides]
            _refuse_impossible(condition, names, space, composer, config)
    return space, _notes_on(space, conditional)


def _notes_on(space: SearchSpace, conditional: Mapping[Condition, Sequence[Override]]) -> list[str]:
    """Return what of the conditions has no effect in the search space."""
    unused = unused_exclusions(space)
    notes = [f"{SETTING}: '{text}' holds for no point of the search space" for text in unused]
    used = {(parameter.key, parameter.condition) for parameter in space.parameters}
    for condition, overrides in conditional.items():
        for override in overrides:
            name = override.get_key_element()
            if (name, condition) not in used:
                notes.append(
                    f"{override.input_line} under {condition} is left out: {name} is set for all"
                    " trials"
                )
    return notes


def _refuse_names_of_keys(
    overrides: Iterable[Override], composer: Composer, config: DictConfig
) -> None:
    """Raise UserError if the name of a zip(...) is a key or a group, because that key would not be
    set."""
    for override in overrides:
        name = override.get_key_element()
        is_zip = isinstance(override.value(), Zip)
        if is_zip and (override.key_or_group in keys(config) or composer.options(name)):
            raise UserError(
                f"{name}=zip(...): {name} is a key of the configuration, and would not be set.\n"
                f"Choose another name, as in {name}_and_more=zip(...)"
            )


def _refuse_exclusions(space: SearchSpace) -> None:
    """Raise UserError if a condition has a key or a value that is not swept, or if no point is
    left."""
    swept: dict[str, list[Parameter]] = {}
    for parameter in space.parameters:
        swept.setdefault(parameter.key.lstrip("+"), []).append(parameter)
    for exclusion in space.excluded:
        prefix = f"{SETTING}: '{exclusion.text}' has"
        _refuse_unknown(exclusion, prefix, [*swept])
        for key in exclusion.ordered:
            _refuse_order(key, prefix, swept[key])
        for key, value in exclusion.equalities:
            if not any(part.find(value) for part in swept[key]):
                raise _no_such_value(key, value, exclusion, prefix, swept[key])
    if space.excluded and next(space.all_points(), None) is None:
        raise UserError(
            f"{SETTING} leaves no point to try: "
            f"{', '.join(exclusion.text for exclusion in space.excluded)}"
            ".\nRemove a condition, or type more values"
        )


def _refuse_order(key: str, prefix: str, swept: Sequence[Parameter]) -> None:
    """Raise UserError if the order of a key is compared that has no numbers."""
    if not any(is_number(value) for part in swept for value in part.values):
        raise UserError(
            f"{prefix} an order of {key}, which has no numbers.\nCompare it by =, with:"
            f" {_all_typed(swept)}"
        )


def _no_such_value(
    key: str, value: Any, exclusion: Exclusion, prefix: str, swept: Sequence[Parameter]
) -> UserError:
    """Return the error of a condition on a value that a key never has."""
    if value is True and "true" not in exclusion.text.lower():
        example = shlex.quote(f"{key}={written(swept[0].values[0])}")
        return UserError(f"{prefix} {key} without a value.\nCompare it, as in {example}")
    near = closest(str(value), _texts_of(swept))
    advice = _meant(near) or f"Choose among: {_all_typed(swept)}"
    return UserError(f"{prefix} {key}={value}, which no trial has.\n{advice}")


def _all_typed(parameters: Sequence[Parameter]) -> str:
    return ", ".join(parameter.typed for parameter in parameters)


def _refuse_unknown(exclusion: Exclusion, prefix: str, swept: Sequence[str]) -> None:
    """Raise UserError if a condition compares a name that is no swept key, or compares with no
    number."""
    if name := exclusion.first_unknown:
        advice = _meant(_near_swept(name, swept)) or f"Choose among: {', '.join(swept)}"
        raise UserError(f"{prefix} {name}, which is not swept.\n{advice}")
    for name in exclusion.no_numbers:
        usual = f"Type a number, or one of: {', '.join(swept)}"
        advice = _meant(_near_swept(name, swept)) or usual
        raise UserError(f"{prefix} {name}, which is no number and is not swept.\n{advice}")


def _near_swept(name: str, swept: Iterable[str]) -> str:
    """Return the swept key that was likely meant; empty if none is near."""
    lowered = {key.lower(): key for key in swept}
    return lowered.get(closest(name.lower(), lowered), "")


def _meant(near: str) -> str:
    return f"Did you mean {near}?" if near else ""


def _texts_of(swept: Sequence[Parameter]) -> list[str]:
    """Return the values of choices, as text."""
    choices = [parameter.values for parameter in swept if isinstance(parameter, Choice)]
    return [*map(text_of, chain(*choices))]


def _refuse_untried(space: SearchSpace, config: DictConfig) -> None:
    """Raise UserError if a search never tries a point of the grids, because a sampler gives each
    key a value."""
    listed = {*chain(*space.listed)}
    for point in space.listed:
        part: Point = {}
        for parameter in (parameter for parameter in space.parameters if parameter.key in listed):
            key = parameter.key
            if key in point:
                part[key] = point[key]
            elif space.fit(parameter, parameter.values[0], part):
                value = _value_of(key.lstrip("+"), config)
                # Not of a group that is swept, because another choice may have the key.
                is_of_group = any(key.startswith(f"{other.key}.") for other in space.parameters)
                if value is None and not is_of_group and (near := closest(key, keys(config))):
                    raise UserError(
                        f"hydra.sweeper.also: '{key}' is not in the configuration"
                        f".\nDid you mean '{near}'?"
                    )
                advice = (
                    "Run a study for each grid"
                    if value is None
                    else f"Type it in each, as in {key}={value}"
                )
                raise UserError(f"hydra.sweeper.also: a search needs {key} in each grid.\n{advice}")


def refuse_narrowing(condition: str, space: SearchSpace, study: StudySnapshot) -> None:
    """Raise UserError if a condition is wrong, or would leave no untried point of a study that has
    begun."""
    narrowed = space.with_excluded([*(exclusion.text for exclusion in space.excluded), condition])
    # because earlier conditions were accepted
    alone = replace(narrowed, excluded=narrowed.excluded[-1:])
    _refuse_exclusions(alone)
    if condition in unused_exclusions(alone):
        _refuse_single_values(alone)
        swept = " ".join(f"{parameter.key}={parameter.typed}" for parameter in space.parameters)
        raise UserError(
            f"exclude '{condition}': it holds for no point.\nCompare with values that are swept:"
            f" {swept}"
        )
    if not has_untried(narrowed, study):
        advice = "To add values, type the study's command with them and hydra.sweeper.extend=true"
        if has_untried(space, study):
            advice = f"To start no further trial, type: {sweeps_line('stop', study.folder)}"
        raise UserError(f"exclude '{condition}': no untried point is left.\n{advice}")


def _refuse_single_values(space: SearchSpace) -> None:
    """Raise UserError if the condition of a space compares an interval with a single value."""
    (exclusion,) = space.excluded
    for parameter in space.parameters:
        key = parameter.key.lstrip("+")
        for compared, value in exclusion.equalities:
            if compared == key and isinstance(parameter, Interval) and not parameter.whole:
                sign = ">" if value < parameter.high else "<"
                raise UserError(
                    f"exclude '{exclusion.text}': {key} is continuous, so that a single value"
                    f" excludes nothing.\nType a range, as in '{key} {sign} {value}'"
                )


def _value_of(key: str, config: DictConfig) -> str | None:
    """Return the value of a key in the configuration, as text; None if the configuration lacks the
    key."""
    if key in (choices := config.hydra.runtime.choices):
        return str(choices[key])
    value = OmegaConf.select(config, key, default=...)
    return None if value is ... else text_of(plain(value))


def _refuse_impossible(
    condition: Condition,
    names: Sequence[str],
    space: SearchSpace,
    composer: Composer,
    config: DictConfig,
) -> None:
    """Raise UserError if no trial can have the key of a condition, or one of its values."""
    key = condition.key
    swept = [parameter for parameter in space.parameters if parameter.key == key]
    texts = [*_texts_of(swept), *composer.options(key)]
    if not texts and not swept:
        texts = [_constant(condition, space, config)]
    for value in condition.values:
        if value not in texts and not any(_is_in(parameter, value) for parameter in swept):
            near = closest(value, texts)
            choices = ", ".join(dict.fromkeys(texts))
            advice = _meant(near and f"{key}={near}") or f"Choose one of: {choices}"
            raise UserError(
                f"{CONDITIONS} has {condition}: {key} is never {value}, which {', '.join(names)}"
                f" would need\n{advice}"
            )


def _constant(condition: Condition, space: SearchSpace, config: DictConfig) -> str:
    """Return the value of a condition's key, which is not swept. Raises UserError if the
    configuration lacks it."""
    key = condition.key
    if key in space.constants:
        return space.constants[key]
    others = [parameter.key for parameter in space.parameters]
    near = closest(key, dict.fromkeys([*others, *keys(config)]))
    meant = replace(condition, key=near)
    advice = _meant(near and str(meant)) or "Use a key of --help all"
    raise UserError(
        f"{CONDITIONS} has {condition}: {key} is not in the configuration, and is not swept\n"
        f"{advice}"
    )


def _is_in(parameter: Parameter, text: str) -> bool:
    """Return whether a condition's value is inside an interval."""
    with suppress(ValueError):
        return isinstance(parameter, Interval) and bool(parameter.find(float(text)))
    return False


def in_space(
    error: UserError, space: SearchSpace, point: Point, compose: Check, check: Check
) -> UserError:
    """Return the error of one point, with advice on the search space that was typed."""
    for interval in space.parameters:
        if isinstance(interval, Interval) and _is_whole(interval, point, check):
            return _fractions(interval)
    return (
        _lacking(error, space, compose)
        or _with_lists(error, space)
        or _with_all_values(error, space, point, check)
        or _with_typed(error, space)
    )


def refuse_fractions(space: SearchSpace, points: Sequence[Point], check: Check) -> None:
    """Raise UserError for an interval with valid ends if only its whole numbers are valid."""
    for interval in space.parameters:
        point = next((point for point in points if interval.key in point), None)
        if not isinstance(interval, Interval) or interval.whole or point is None:
            continue
        below = math.floor(interval.low + 0.618 * (interval.high - interval.low))
        if interval.low <= below < below + 1 <= interval.high:
            values = (below + 0.5, below, below + 1)
            valid = [_passes(check, {**point, interval.key: value}) for value in values]
            if valid == [False, True, True]:
                raise _fractions(interval)


def _fractions(interval: Interval) -> UserError:
    """Return the error of an interval of fractions for a key that needs a whole number."""
    key = interval.key
    low = math.ceil(interval.low)
    whole = replace(interval, low=low, high=max(math.floor(interval.high), low + 1)).typed
    problem = f"{key}={interval.typed} has fractions, and {key} is a whole number"
    advice = f"Type: {shlex.quote(f'{key}={whole}')}"
    if interval.condition:
        advice = f'In {CONDITIONS} type under {interval.condition}: {{{key}: "{whole}"}}'
    return UserError(f"{problem}\n{advice}")


def _is_whole(interval: Interval, point: Point, check: Check) -> bool:
    """Return whether the app accepts the lowest whole number of an interval, and rejects it as a
    float."""
    value = math.ceil(interval.low)
    if interval.key not in point or interval.whole or value > interval.high:
        return False
    takes_float = _passes(check, {**point, interval.key: float(value)})
    return not takes_float and _passes(check, {**point, interval.key: value})


def _lacking(error: UserError, space: SearchSpace, compose: Check) -> UserError | None:
    """Return the error of a key that only some choices of a group have: sweep the key under these;
    else None."""
    typed = {}
    for line in space.fixed:
        name, _, text = line.partition("=")
        typed[name] = text
    typed |= {swept.key: swept.typed for swept in space.parameters}
    lacks = [
        name for name in typed if str(error).startswith(f"'{name}' is not in the configuration")
    ]
    for key in lacks[:1]:
        # none if it is fixed
        value: Point = {
            swept.key: swept.values[0] for swept in space.parameters if swept.key == key
        }
        for group in _groups(space):
            pairs = zip(group.texts, group.values, strict=True)
            having = [
                text for text, chosen in pairs if _passes(compose, {group.key: chosen, **value})
            ]
            lacking = [text for text in group.texts if text not in having]
            if having and lacking:
                together = key in chain(*space.listed)
                words = explain_lacking(group.key, having, lacking, key, typed[key], together)
                return UserError(words)
    return None


def _groups(space: SearchSpace) -> Iterator[Choice]:
    """Yield the parameters that may choose other keys, and have few values."""
    for parameter in space.parameters:
        if isinstance(parameter, Interval) or parameter.ordered:
            continue
        if len(parameter.values) <= _MOST_COMPOSED:
            yield parameter


def _with_lists(error: UserError, space: SearchSpace) -> UserError | None:
    """Return the error of a key that takes lists, with a list of each typed value; else None."""
    problem = str(error).splitlines()[0]
    for parameter in space.parameters:
        key = re.escape(parameter.key)
        needs_list = re.match(rf"{key}=[^\[]*: must be a list", problem)
        if isinstance(parameter, Choice) and needs_list:
            lists = ",".join(f"[{text}]" for text in parameter.texts)
            return UserError(f"{problem}\nType: {shlex.quote(f'{parameter.key}={lists}')}")
    return None


def _with_all_values(
    error: UserError, space: SearchSpace, point: Point, check: Check
) -> UserError | None:
    """Return the error of one value with advice that has all values of its key, each as it is
    advised; else None."""
    text = str(error)
    listed = {*chain(*space.listed)}
    for parameter in space.parameters:
        key = parameter.key
        advised = re.compile(rf"\b((?:Type:|Did you mean|try) )'?{re.escape(key)}=([^\s?']+)'?")
        place = advised.search(text) if text.startswith(f"{key}=") else None
        if not isinstance(parameter, Choice) or place is None or key in listed:
            continue
        if parameter.condition or len(parameter.values) > _MOST_COMPOSED:
            return None
        texts = []
        for value, typed in zip(parameter.values, parameter.texts, strict=True):
            texts.append(_advised_text(advised, partial(check, {**point, key: value}), typed))
        if "" in texts:
            return error
        words = shlex.quote(f"{key}={','.join(dict.fromkeys(texts))}")
        return UserError(f"{text[: place.start()]}{place[1]}{words}{text[place.end() :]}")
    return None


def _advised_text(advised: re.Pattern[str], check: Callable[[], object], typed: str) -> str:
    """Return the value that the error of a check advises, empty if it advises none; the typed value
    if the check passes."""
    try:
        check()
    except UserError as error:
        match = advised.search(str(error))
        return match[2] if match else ""
    return typed


def _with_typed(error: UserError, space: SearchSpace) -> UserError:
    """Return the error with the typed values in its advice on a key, instead of the value of one
    point."""
    text = str(error)
    advice = re.search(r"\n(To add a new key|Type): '?([^=\s]+)=.*$", text)
    if not advice:
        return error
    start, name = advice.groups()
    for parameter in space.parameters:
        key = parameter.key
        is_plus_advised = f"+{key}" == name or key == f"+{name}"
        if not is_plus_advised and not text.startswith(f"'{key}' is not in"):
            continue
        problem = text[: advice.start()]
        if key in chain(*space.listed):
            new = "To add a new key, type" if start.startswith("To") else "Type"
            return UserError(f"{problem}\n{new} in its place: {name}")
        if not parameter.condition:
            return UserError(f"{problem}\n{start}: {shlex.quote(f'{name}={parameter.typed}')}")
    return error


def _passes(check: Check, point: Point) -> bool:
    try:
        check(point)
    except UserError:
        return False
    return True
