"""Optuna's samplers and pruners, from the settings that name them."""

import inspect
import warnings
import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import optuna
from hydra._internal.utils import _locate
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler, QMCSampler, TPESampler

from sweeps.errors import UserError
from sweeps.record.space import SearchSpace
from sweeps.settings import SweeperConf


class DefaultSampler(TPESampler):
    """Chooses nine trials in ten by a Gaussian process (`choose.surrogate`), and the tenth by TPE, which looks
    elsewhere. With several objectives it is TPE alone.
    """


def build(kind: str, conf: Mapping[str, Any]) -> Any:
    """Return the sampler or the pruner that `conf` names. Raises UserError if it cannot be built."""
    if conf["_target_"] == "optuna.samplers.GPSampler" and find_spec("torch") is None:
        raise UserError("hydra/sweeper/sampler=gp needs PyTorch; install it with: pip install -c constraints.txt torch")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return instantiate(dict(conf))
    except InstantiationException as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(f"hydra/sweeper/{kind} cannot be built from {dict(conf)}: {last}") from error


def pruner_of(settings: SweeperConf) -> BasePruner | None:
    """Return the pruner; None if nothing is to be pruned."""
    pruner = build("pruner", settings.pruner) if settings.pruner else None
    return None if pruner is None or isinstance(pruner, NopPruner) else pruner


class Samplers:
    """Makes a sampler anew for each trial, seeded by the study's seed and the trial's number.

    So the same trials make the same choice, whatever process asks. A sampler that takes no seed is made once.
    """

    def __init__(self, conf: Any, directions: Sequence[str], space: SearchSpace, name: str) -> None:
        """`conf` names the sampler; None stands for Optuna's own choice. `name` is the study's: by it a study without a
        seed has one of its own.
        """
        self._conf = {"_target_": "optuna.samplers.TPESampler", **(conf or {})}
        several = len(directions) > 1
        self.kind: type[BaseSampler] = _locate(self._conf["_target_"])
        if issubclass(self.kind, TPESampler):
            self._conf |= _tpe(
                self.kind, self._conf, grouped=not several and any(p.condition for p in space.parameters)
            )
        self.models = self.kind is DefaultSampler and not several
        self.startup = int(self._conf.get("n_startup_trials", 10)) if issubclass(self.kind, TPESampler) else 0
        seeded = "seed" in inspect.signature(self.kind).parameters
        given = self._conf.get("seed")
        self._seed: int = zlib.crc32(name.encode()) if given is None else int(given)
        first = build("sampler", self._conf | ({"seed": self._seed} if seeded else {}))
        self._only = None if seeded else first

    def seed(self, number: int) -> int:
        """Return the seed for the choice of a trial."""
        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])

    def sampler(self, number: int, asked: int) -> BaseSampler:
        """Return the sampler that chooses a trial, before which so many configurations were asked for.

        TPE counts its random start by the trials that have ended: with many at a time it would last too long.
        """
        if self._only is not None:
            return cast(BaseSampler, self._only)
        seed = self._seed if issubclass(self.kind, QMCSampler) else self.seed(number)
        started = {"n_startup_trials": 1} if issubclass(self.kind, TPESampler) and asked >= self.startup else {}
        sampler: BaseSampler = build("sampler", {**self._conf, "seed": seed, **started})
        return sampler


def _tpe(kind: type, conf: Mapping[str, Any], grouped: bool) -> dict[str, Any]:
    """Return what TPE is set to where its user does not say.

    Parameters that exist together are modelled jointly (Falkner et al., BOHB, ICML 2018), under each condition by
    themselves. Ours does not take what runs for bad (the constant liar, Ginsbourger et al., 2010): as slow trials run
    longest, it then shuns what is slow, and no point is tried twice anyway (`benchmarks/search_learns.py`).
    """
    defaults: dict[str, Any] = {"group": True} if grouped and conf.get("multivariate", True) else {}
    defaults |= {"constant_liar": False} if kind is DefaultSampler else {}
    return {name: value for name, value in defaults.items() if name not in conf}
