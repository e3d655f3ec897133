"""Typed values that likely mean something else. They are reported, and not refused."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.base.wording import counted
from sweeps.hydra.mistakes import advise_sweep
from sweeps.hydra.settings import SweeperConf
from sweeps.hydra.sweeper_settings import target_of
from sweeps.hydra.units import range_of
from sweeps.space.exclusion import is_number
from sweeps.space.space import Choice, Interval, Parameter, SearchSpace, is_grid
from sweeps.study.plan.compose import Composer
from sweeps.study.run.choosing import total


def likely_mistakes(
    settings: SweeperConf,
    space: SearchSpace,
    config: DictConfig,
    words: Sequence[str],
    composer: Composer,
) -> Iterator[str]:
    """Yield settings that likely mean something else, such as a value typed twice, or more trials
    than points."""
    yield from _unordered(settings, space)
    yield from _far_target(settings)
    yield from _ranges_of_one(words)
    yield from _replaced_words(words)
    yield from _joined_choices(words, composer.options)
    yield from ranges_as_texts(space, composer)
    for parameter in space.parameters:
        if problem := _decimal_comma(parameter, config):
            yield problem
        if isinstance(parameter, Choice) and len(parameter.distinct) < len(parameter.values):
            values = counted(len(parameter.distinct), "value")
            yield f"{parameter.key}={parameter.typed} is {values}: each is tried once"
    n_trials = settings.n_trials if any(".n_trials=" in word for word in words) else None
    if n_trials and (count := total(settings, space)) < n_trials:
        kind = "grid" if is_grid(settings) else "search space"
        hint = "; to search, add hydra/sweeper=optuna" if is_grid(settings) else ""
        points = f"the {kind} has {counted(count, 'point')}"
        yield f"{points}: each is tried once, not hydra.sweeper.n_trials={n_trials}{hint}"


def _ranges_of_one(words: Sequence[str]) -> Iterator[str]:
    """Yield the typed ranges whose step leaves one value."""
    number = r"(-?[\d.]+(?:e-?\d+)?)"
    for word in words:
        match = re.fullmatch(
            rf"(.+)=range\({number}, *{number}\)", word.replace("start=", "").replace("stop=", "")
        )
        if match and 0 < (span := float(match[3]) - float(match[2])) <= 1:
            yield (
                f"{word} is one value, {match[2]}, because its step is 1. For several, type a step:"
                f" '{match[1]}=range({match[2]},{match[3]},{span / 2:g})'"
            )


def _unordered(settings: SweeperConf, space: SearchSpace) -> Iterator[str]:
    """Yield the parameters that hydra/sweeper/sampler=cmaes does not model."""
    unordered = []
    for parameter in space.parameters:
        is_ordered = isinstance(parameter, Interval) or parameter.ordered
        if parameter.condition or not is_ordered:
            unordered.append(parameter.key)
    is_cmaes = (settings.sampler or {}).get("_target_") == target_of("sampler", "cmaes")
    if is_cmaes and unordered:
        yield (
            "hydra/sweeper/sampler=cmaes models numbers only: it samples"
            f" {', '.join(unordered)} at random"
        )


def _far_target(settings: SweeperConf) -> Iterator[str]:
    """Yield a target in percent of a metric that is a fraction."""
    target = settings.target
    name = settings.objectives[0]
    if target is not None and name.endswith("accuracy") and 1 < target <= 100:
        yield (
            f"hydra.sweeper.target={target:g} is out of reach if {name} is a fraction of 1: use"
            f" {target / 100:g}"
        )


def with_likely_mistake(
    error: UserError,
    space: SearchSpace,
    config: DictConfig,
    words: Sequence[str],
    composer: Composer,
) -> UserError:
    """Return the error of a value with the notice that a decimal comma, or a list of choices, made
    the value of it."""
    text = str(error)
    for problem in _joined_choices(words, composer.options):
        if text.startswith(f"{problem.partition('=')[0]}."):
            return type(error)(f"{text.splitlines()[0]}\n{problem}")
    for parameter in space.parameters:
        problem = _decimal_comma(parameter, config)
        if problem and text.startswith(f"{parameter.key}="):
            return type(error)(f"{text.splitlines()[0].partition('; try')[0]}\n{problem}")
    return error


def _decimal_comma(parameter: Parameter, config: DictConfig) -> str:
    """Return that two whole numbers are likely one number with a decimal comma, or four are two;
    empty if not."""
    key = parameter.key
    texts = parameter.texts if isinstance(parameter, Choice) else ()
    whole = [text.strip("'") for text in texts]
    before = whole[::2]
    after = whole[1::2]
    if not whole or len(before) != len(after) or not all(text.isdecimal() for text in whole):
        return ""
    current = OmegaConf.select(config, key.lstrip("+"), throw_on_resolution_failure=False)
    has_leading_zero = any(len(text) > 1 and text.startswith("0") for text in after)
    if not isinstance(current, float) and not has_leading_zero:
        return ""
    if len(before) > 1 and {*before} != {"0"}:
        return ""
    points = ",".join(f"{first}.{second}" for first, second in zip(before, after, strict=True))
    count, meant = ("two", "one") if len(before) == 1 else (str(len(whole)), "numbers")
    return (
        f"{key}={','.join(whole)} is {count} values. For {meant} with a decimal point, type:"
        f" {key}={points}"
    )


def _replaced_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of the app that a later word with the same key replaces."""
    last: dict[str, str] = {}
    for word in words:
        key = word.partition("=")[0]
        # hydra. because a driver adds some, braces because Hydra merges them
        if key.startswith(("hydra.", "hydra/")) or "={" in word:
            continue
        earlier = last.get(key, word)
        if earlier != word:
            both = shlex.quote(f"{earlier},{word.partition('=')[2]}")
            advice = "" if "(" in both else f". To sweep all values, type: {both}"
            yield f"{word} replaces {earlier}{advice}"
        last[key] = word


def _joined_choices(words: Sequence[str], options: Callable[[str], Sequence[str]]) -> Iterator[str]:
    """Yield the groups with a list of choices, which is one trial with all of them."""
    for word in words:
        key, _, value = word.partition("=")
        is_list = value.startswith("[") and "," in value
        if is_list and not key.startswith("hydra/") and options(key):
            sweep = f"{key}={value.strip('[] ')}"
            yield f"{word} is one choice, of all these files. To sweep them, type: {sweep}"


def ranges_as_texts(space: SearchSpace, composer: Composer) -> Iterator[str]:
    """Yield the typed ranges such as 10..20 that are texts, of keys whose values are numbers."""
    for word in space.fixed:
        key, _, value = word.partition("=")
        if not range_of(value):
            continue
        others = [other for other in space.fixed if other != word]
        with suppress(UserError):
            config = composer.compose(others, 0)
            if is_number(OmegaConf.select(config, key, throw_on_resolution_failure=False)):
                yield f"{word} is a text. {advise_sweep(key, value, config)}"
