"""Errors of a sampler: the study stops with two lines, and a later command continues it."""

from collections.abc import Iterator
from contextlib import contextmanager

from optuna.samplers import BaseSampler

from sweeps.errors import UserError


@contextmanager
def explain_faults(
    sampler: type[BaseSampler], advice: str = "Correct the sampler, then type the command again"
) -> Iterator[None]:
    """Raise UserError if a sampler raises an error, because samplers of other packages may raise anything."""
    try:
        yield
    except (Exception, SystemExit) as error:
        words = str(error).splitlines() or ["no message"]
        raise UserError(
            f"hydra.sweeper.sampler._target_={sampler.__module__}.{sampler.__qualname__}: "
            f"it raised {type(error).__name__}: {words[0]}\n"
            f"No trial is lost. {advice}"
        ) from error
