"""Faults of a sampler or a pruner: the study stops with two lines, and a later command continues
it."""

from collections.abc import Iterator
from contextlib import contextmanager

from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from sweeps.base.errors import UserError

_ADVICE = (
    "Correct its code and type the command again with hydra.sweeper.extend=true, or type another"
    " setting and another hydra.sweeper.study_name"
)

Kind = type[BaseSampler] | type[BasePruner]


@contextmanager
def explain_faults(kind: Kind, advice: str = _ADVICE) -> Iterator[None]:
    """Raise UserError if a sampler or a pruner raises an error, because those of other packages may
    raise anything."""
    try:
        yield
    except (Exception, SystemExit, GeneratorExit) as error:
        words = str(error).splitlines() or ["no message"]
        raise fault(kind, f"it raised {type(error).__name__}: {words[0]}", advice) from error


def fault(kind: Kind, problem: str, advice: str = _ADVICE) -> UserError:
    """Return the error that names the sampler or the pruner, its problem, and what to do."""
    name = "pruner" if issubclass(kind, BasePruner) else "sampler"
    target = f"hydra.sweeper.{name}._target_={kind.__module__}.{kind.__qualname__}"
    return UserError(f"{target}: {problem}\nNo trial is lost. {advice}")
