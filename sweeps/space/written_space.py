"""A search space that is written as YAML, in `hydra.sweeper.params` and its like: read as words of
Hydra's grammar.

A mapping may also be one of hydra-optuna-sweeper's older `search_space`: `{type: float, low: 0.1,
high: 1, log: true}`.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.space.exclusion import is_number
from sweeps.space.parameters import Interval, literal, literals, text_of

_ALSO = "hydra.sweeper.also"
_KINDS = ("float", "int", "categorical")
_OF_NUMBERS = {"type", "low", "high", "step", "log"}
_OF_CHOICES = {"type", "choices"}


def words_of(setting: str, written: Any, config: DictConfig) -> list[str]:
    """Return what is written under a setting as words that one would type, in the same order.

    `config` has the values that the app has now. Raises UserError for what is no space, or may mean
    two things.
    """
    if isinstance(written, list) and all(isinstance(word, str) and "=" in word for word in written):
        return [*written]
    if not isinstance(written, dict | None):
        raise UserError(
            f"{setting}={text_of(written)}: it must be a mapping.\nWrite keys with values, as in"
            " "
            '{lr: "0.1,0.2"}'
        )

    words: list[str] = []
    for key, value in (written or {}).items():
        words += _of_key(setting, str(key), value, config)
    return words


def words_of_grid(grid: Any, config: DictConfig) -> list[str]:
    """Return a grid of hydra.sweeper.also as words. Raises UserError if it is neither text nor a
    mapping."""
    words: list[str] = []
    if isinstance(grid, dict):
        words = words_of(_ALSO, grid, config)
    elif isinstance(grid, str):
        with suppress(ValueError):  # because a quote is open
            words = shlex.split(grid)

    for word in words:
        if word.lstrip("+~").startswith(("hydra.", "hydra/")):
            raise UserError(
                f"{_ALSO}: {word}: all trials share a setting of Hydra.\nType it outside of {_ALSO}"
            )
    if not words or not all("=" in word for word in words):
        raise UserError(
            f"{_ALSO}: '{grid}' is not a grid.\n"
            f"""Type each as text: '{_ALSO}=["optimizer=adam lr=0.001,0.01"]'"""
        )
    return words


def _of_key(setting: str, key: str, value: Any, config: DictConfig) -> list[str]:
    if isinstance(value, list):
        value = _several(setting, key, value, config)
    if not isinstance(value, dict) or not value:
        return [f"{key}={value if isinstance(value, str) else text_of(value)}"]
    if str(value.get("type")).lower() in _KINDS:
        return [f"{key}={_distribution(f'{setting}.{key}', key, value)}"]

    _refuse_untyped(setting, key, value, config)
    words: list[str] = []
    plain = key.lstrip("+")
    for name, part in value.items():
        inner = str(name).lstrip("+")
        plus = str(name).removesuffix(inner) or key.removesuffix(plain)
        words += _of_key(setting, f"{plus}{plain}.{inner}", part, config)
    return words


def _several(setting: str, key: str, values: Sequence[Any], config: DictConfig) -> str:
    """Return the elements of a list as several values; as one, as Hydra does, if the app's own
    value is a list.

    Raises UserError if the app's own value does not show which of the two is meant.
    """
    name = key.lstrip("+")
    own = OmegaConf.select(config, name, throw_on_missing=False)
    several = literals(values)
    single = literal(values)
    if name not in config.hydra.runtime.choices:
        has_lists = any(isinstance(value, list) for value in values)
        if isinstance(own, ListConfig) and not has_lists:
            return single
        if isinstance(own, bool | int | float | str) and values:
            return several
    raise UserError(
        f"{setting}.{key}: {single} may be several values, or one that is a list.\n"
        f"""Write several as the text "{several}", and one as the text "{single}\""""
    )


def _distribution(setting: str, key: str, written: Mapping[str, Any]) -> str:
    """Return the values of `{type: ..., ...}` in the grammar. Raises UserError if they are
    incomplete or conflict."""
    kind = str(written["type"]).lower()
    entries = _OF_CHOICES if kind == "categorical" else _OF_NUMBERS
    settings = {str(name): value for name, value in written.items() if value is not None}
    if unknown := sorted(settings.keys() - entries):
        raise UserError(
            f"{setting}: {kind} has no '{unknown[0]}'.\nUse {', '.join(sorted(entries))}"
        )

    if kind == "categorical":
        choices = settings.get("choices")
        if not isinstance(choices, list) or not choices:
            raise UserError(f"{setting}: categorical needs its choices.\nWrite choices: [a, b]")
        return literals(choices)

    return _numbers(setting, key, kind, settings)


def _numbers(setting: str, key: str, kind: str, settings: Mapping[str, Any]) -> str:
    """Return the numbers of an `int` or `float` distribution in the grammar."""
    low, high = _ends(setting, kind, settings)
    is_log = settings.get("log", False)
    if not isinstance(is_log, bool):
        raise UserError(
            f"{setting}: log={text_of(is_log)} is neither true nor false.\nWrite log: true"
        )
    if low == high:
        return text_of(low)
    step = settings.get("step")
    if step is None or (kind == "int" and step == 1):
        return Interval(key, low, high, is_log).typed
    return _steps(setting, low, high, step, is_log)


def _ends(setting: str, kind: str, settings: Mapping[str, Any]) -> tuple[float, float]:
    """Return the lowest and the highest number of a distribution, whole for `int`."""
    ends: list[Any] = [settings.get("low"), settings.get("high")]
    if not all(map(is_number, ends)) or not math.isfinite(ends[1] - ends[0]):
        raise UserError(
            f"{setting}: {kind} needs two numbers, low and high.\nWrite low: 0.1, high: 1"
        )
    for name, end in zip(("low", "high"), ends, strict=True):
        if kind == "int" and end != int(end):
            raise UserError(
                f"{setting}: {name}={end} is no whole number.\nWrite one, or type: float"
            )
    low, high = map(int if kind == "int" else float, ends)
    return low, high


def _steps(setting: str, low: float, high: float, step: Any, is_log: bool) -> str:
    """Return numbers with equal steps as a range, whose last number is at most `high`."""
    if is_log:
        raise UserError(
            f"{setting}: a logarithmic interval has no step.\nRemove step, or log: true"
        )
    if not is_number(step) or not 0 < step <= high - low:
        raise UserError(
            f"{setting}: step={text_of(step)} is not between 0 and high - low.\nWrite a step that"
            " fits"
        )
    if isinstance(low, int) and step != int(step):
        raise UserError(
            f"{setting}: step={step} is no whole number.\nWrite type: float, or a whole step"
        )

    # Decimal, because 0.1 + 2 * 0.1 is not 0.3.
    first = Decimal(str(low))
    width = Decimal(str(int(step) if isinstance(low, int) else float(step)))
    count = (Decimal(str(high)) - first) // width
    end = first + (count + 1) * width
    return f"range({first},{end},{width})"


def _refuse_untyped(setting: str, key: str, written: Mapping[str, Any], config: DictConfig) -> None:
    """Raise UserError for a distribution without its type, unless the app has such keys of its
    own."""
    names = {str(name) for name in written}
    kind = "categorical" if "choices" in names else "float"
    is_distribution = kind == "categorical" or {"low", "high"} <= names
    own = OmegaConf.select(config, key.lstrip("+"), throw_on_missing=False)
    is_known = names <= _OF_NUMBERS | _OF_CHOICES
    if is_known and is_distribution and not isinstance(own, DictConfig):
        example = "a,b" if kind == "categorical" else "interval(0.1, 1)"
        raise UserError(
            f"{setting}.{key}: {text_of(dict(written))} has no type.\nAdd type: {kind}, or write"
            f' a text, as in "{example}"'
        )
