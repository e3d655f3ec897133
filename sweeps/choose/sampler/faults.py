"""Errors of a sampler or a pruner: the study stops with two lines, and a later command continues it."""

from collections.abc import Iterator
from contextlib import contextmanager

from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from sweeps.errors import UserError

_ADVICE = "Correct its code and type the command again, or type another setting and another hydra.sweeper.study_name"


@contextmanager
def explain_faults(kind: type[BaseSampler] | type[BasePruner], advice: str = _ADVICE) -> Iterator[None]:
    """Raise UserError if a sampler or a pruner raises an error, because those of other packages may raise anything."""
    name = "pruner" if issubclass(kind, BasePruner) else "sampler"
    try:
        yield
    except (Exception, SystemExit) as error:
        words = str(error).splitlines() or ["no message"]
        raise UserError(
            f"hydra.sweeper.{name}._target_={kind.__module__}.{kind.__qualname__}: "
            f"it raised {type(error).__name__}: {words[0]}\n"
            f"No trial is lost. {advice}"
        ) from error
