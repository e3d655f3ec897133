"""Optuna's samplers and pruners, built from the settings that name them."""

import difflib
import inspect
import math
import shlex
import warnings
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, cast

import numpy as np
import optuna
from hydra.errors import InstantiationException
from optuna.pruners import BasePruner, HyperbandPruner
from optuna.samplers import BaseSampler, CmaEsSampler, QMCSampler, TPESampler

from sweeps.base.errors import UserError
from sweeps.base.wording import reason
from sweeps.hydra.parts import call_target
from sweeps.space.space import SearchSpace, text_of

_LEAST: Mapping[type, Mapping[str, int]] = {
    BaseSampler: {"seed": 0},
    TPESampler: {"n_startup_trials": 0, "n_ei_candidates": 1},
    CmaEsSampler: {"n_startup_trials": 0, "popsize": 2},
    HyperbandPruner: {"min_resource": 1, "max_resource": 1, "reduction_factor": 2},
}
"""The least value of each setting that is a whole number, by the class that has it."""
_BASES = {"sampler": BaseSampler, "pruner": BasePruner}
_USUAL = {"sampler": "default", "pruner": "median"}
_NUMBERS = {name for bounds in _LEAST.values() for name in bounds}


class DefaultSampler(TPESampler):
    """A Gaussian process (`choose.surrogate`); TPE with several objectives, and where the process
    has no choice."""


def _build(kind: str, conf: Mapping[str, Any]) -> Any:
    """Return the sampler or the pruner that `conf` names. Raises UserError if it cannot be
    built."""
    if conf["_target_"] == "optuna.samplers.GPSampler" and find_spec("torch") is None:
        raise UserError(
            "hydra/sweeper/sampler=gp: PyTorch is not installed.\nType: pip install -c"
            " constraints.txt torch"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            result = call_target(dict(conf))
    except (Exception, SystemExit, GeneratorExit) as error:
        # The cause, because Hydra 1.3's own message adds its names; Hydra 1.4 raises the cause
        # itself.
        cause = error.__cause__ if isinstance(error, InstantiationException) else None
        raise UserError(_explain(kind, conf, cause or error)) from error
    base = _BASES[kind]
    if not isinstance(result, base):
        raise UserError(
            f"hydra.sweeper.{kind}._target_={conf['_target_']}: it is no {kind} of Optuna.\n"
            f"Choose a subclass of optuna.{kind}s.{base.__name__}, or a function that returns one"
        )
    return result


def _resolve(kind: str, name: str) -> Any:
    """Return the class or the function that makes a sampler or a pruner. Raises UserError if it
    cannot be imported."""
    try:
        return resolve_name(name)
    except (Exception, SystemExit) as error:  # because the user's module may raise anything
        words = reason(error) if name else "it names nothing"
        raise UserError(
            f"hydra.sweeper.{kind}._target_={name}: it cannot be imported: {words}.\nType the name"
            f" of a class with its module, or in its place hydra/sweeper/{kind}={_USUAL[kind]}"
        ) from error


def _parameters(target: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or a function; any keyword if it has no signature, as
    classes in C."""
    try:
        return inspect.signature(target).parameters
    except (ValueError, TypeError):
        return {"settings": inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)}


def _explain(kind: str, conf: Mapping[str, Any], error: BaseException) -> str:
    """Return why a sampler or a pruner could not be built, and what to type."""
    section = f"hydra.sweeper.{kind}"
    target = conf["_target_"]
    parameters = _parameters(_resolve(kind, target))
    unknown = [name for name in conf if not name.startswith("_") and name not in parameters]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if unknown and not takes_any:
        return _explain_unknown(section, target, unknown, [*parameters])

    words = str(error).strip().partition("\n")[0]
    cause = f"{type(error).__name__}: {words}".rstrip(": .")
    advice = f"Correct its code, or type in its place hydra/sweeper/{kind}={_USUAL[kind]}"
    if isinstance(error, TypeError) and "missing" in words:
        advice = f"Add a setting with +{section}.NAME=VALUE"
    elif typed := _working_setting(conf, parameters, words):
        advice = f"Type: {shlex.quote(f'++{section}.{typed}')}"
    return f"{section}._target_={target}: it cannot be built: {cause}.\n{advice}"


def _explain_unknown(section: str, target: str, unknown: Sequence[str], names: list[str]) -> str:
    """Return that a class has none of the `unknown` settings, but those of `names`."""
    meant = f"; it has {', '.join(names) or 'none'}."
    for near in difflib.get_close_matches(unknown[0], names, 1):
        meant = f"; did you mean {near}?"
    removed = " ".join(f"~{section}.{name}" for name in unknown)
    problem = f"{section}.{unknown[0]}: {target} has no such setting{meant}"
    return f"{problem}\nRemove it, or add {removed}"


def _working_setting(
    conf: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], problem: str
) -> str:
    """Return a setting with its default, as typed, with which the sampler or the pruner can be
    built; empty if none."""
    # without the seed, because it is checked before; first those that the problem names
    settings = [name for name in conf if name in parameters and name != "seed"]
    for name in sorted(settings, key=lambda name: name not in problem):
        parameter = parameters[name]
        if parameter.default is parameter.empty:
            continue
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            call_target({**conf, name: parameter.default})
            return f"{name}={text_of(parameter.default)}"
    return ""


def _kind_of(target: Any, conf: Mapping[str, Any]) -> type[BaseSampler]:
    """Return the class of the sampler that a class or a function makes. Raises UserError if it
    makes none."""
    if inspect.isclass(target) and issubclass(target, BaseSampler):
        return target
    seed = {"seed": 0} if "seed" in _parameters(target) else {}
    return type(_build("sampler", {**seed, **conf}))


def _whole(setting: str, value: Any, least: int) -> int:
    """Return the value of a setting. Raises UserError if it is no whole number, or too small."""
    try:
        number = int(value if isinstance(value, float) and value.is_integer() else str(value))
    except ValueError as error:
        raise UserError(
            f"{setting}={value}: it must be a whole number.\nType, for example: {setting}=10"
        ) from error
    if number < least:
        raise UserError(
            f"{setting}={value}: it must be {least} or more.\nType at least {setting}={least}"
        )
    return number


def _read_numbers(section: str, conf: Mapping[str, Any], kind: type) -> dict[str, int]:
    """Return the settings that are whole numbers. Raises UserError if a number is out of its
    range."""
    numbers = {}
    for base, bounds in _LEAST.items():
        for name, least in bounds.items() if issubclass(kind, base) else ():
            if conf.get(name) is not None:
                numbers[name] = _whole(f"{section}.{name}", conf[name], least)
    sigma = conf.get("sigma0") if issubclass(kind, CmaEsSampler) else None
    if sigma is not None and not (isinstance(sigma, int | float) and 0 < sigma < math.inf):
        setting = f"{section}.sigma0"
        raise UserError(
            f"{setting}={sigma}: it must be a number above 0.\nType, for example: {setting}=0.2, or"
            f" {setting}=null"
        )
    return numbers


def pruner_of(conf: Mapping[str, Any]) -> BasePruner:
    """Return the pruner that `conf` names. Raises UserError if it cannot be built."""
    # because Optuna checks its numbers at a report, or never
    if conf["_target_"] == "optuna.pruners.HyperbandPruner":
        section = "hydra.sweeper.pruner"
        typed = {name: value for name, value in conf.items() if value != "auto"}
        numbers = _read_numbers(section, typed, HyperbandPruner)
        first = numbers.get("min_resource", 1)
        last = numbers.get("max_resource", math.inf)
        if first > last:
            problem = f"{section}.min_resource={first} is above {section}.max_resource={last}"
            raise UserError(f"{problem}.\nType at most {section}.min_resource={last}")
        conf = {**conf, **numbers}
    return cast(BasePruner, _build("pruner", conf))


def _refuse_directions(count: int) -> None:
    """Raise UserError if a study for CMA-ES has several objectives."""
    if count > 1:
        problem = f"CMA-ES has one objective, and this study has {count}"
        raise UserError(
            f"hydra/sweeper/sampler=cmaes: {problem}.\n"
            "Type hydra/sweeper/sampler=default or hydra/sweeper/sampler=nsgaii"
        )


class Samplers:
    """A new sampler for each trial, seeded by the study's seed and the trial's number.

    So the same trials always lead to the same choice. A sampler without a seed is built once.
    """

    def __init__(self, conf: Any, directions: Sequence[str], space: SearchSpace, name: str) -> None:
        """Read the sampler of `conf`; None is Optuna's default. Without a seed, the study's `name`
        decides the seed."""
        typed = {"_target_": "optuna.samplers.TPESampler", **(conf or {})}
        # because not every sampler has a seed, and TPE's numbers may not be null
        null = {name for name in _NUMBERS if typed.get(name) is None}
        self._conf = {name: value for name, value in typed.items() if name not in null}
        target = _resolve("sampler", self._conf["_target_"])
        self.kind = _kind_of(target, self._conf)
        count = len(directions)
        if issubclass(self.kind, CmaEsSampler):
            _refuse_directions(count)
        is_single = count < 2
        self.models = self.kind is DefaultSampler and is_single
        checked = target if target is self.kind else BaseSampler  # whose settings are the class's
        self._is_tpe = issubclass(checked, TPESampler)
        if self._is_tpe:
            self._conf = self._tpe_defaults(is_single, space) | self._conf
        self._conf |= _read_numbers("hydra.sweeper.sampler", self._conf, checked)
        self.startup = self._conf.get("n_startup_trials", 10) if self._is_tpe else 0

        self._seed = self._conf.get("seed", zlib.crc32(name.encode()))
        self._only: BaseSampler | None = None
        if "seed" not in _parameters(target):
            self._only = _build("sampler", self._conf)
        self.sampler(0, 0)  # because its settings are checked as it is built

    def _tpe_defaults(self, is_single: bool, space: SearchSpace) -> dict[str, Any]:
        """Return our defaults of TPE's settings.

        Parameters that exist together are modelled jointly, each condition apart (Falkner et al.,
        BOHB, ICML 2018). The constant liar (Ginsbourger et al., 2010) counts running trials as bad.
        Our sampler does not use it, because slow trials run longest, and slow points would be
        avoided (`benchmarks/search_learns.py`).
        """
        defaults = {}
        has_conditions = any(parameter.condition for parameter in space.parameters)
        if is_single and has_conditions and self._conf.get("multivariate", True):
            defaults["group"] = True
        if self.kind is DefaultSampler:
            defaults["constant_liar"] = False
        return defaults

    def seed(self, number: int) -> int:
        """Return the seed for the choice of a trial."""
        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])

    def sampler(self, number: int, count: int) -> BaseSampler:
        """Return the sampler for a trial after `count` proposed configurations.

        TPE would count ended trials as its random start, which takes too long if many trials run at
        a time.
        """
        if self._only is not None:
            return self._only
        seed = self._seed if issubclass(self.kind, QMCSampler) else self.seed(number)
        started = {"n_startup_trials": 1} if self._is_tpe and count >= self.startup else {}
        return cast(BaseSampler, _build("sampler", {**self._conf, "seed": seed, **started}))
