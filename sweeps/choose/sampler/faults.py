"""Faults of a sampler or a pruner: the study stops with two lines, and a later command continues
it."""

from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from sweeps.base.errors import UserError

_ADVICE = (
    "Correct its code and type the command again with hydra.sweeper.extend=true, or type another"
    " setting and another hydra.sweeper.study_name"
)

Kind = type[BaseSampler] | type[BasePruner]


class explain_faults:  # noqa: N801, because it is used as a function
    """Raise UserError if a sampler or a pruner raises an error, because those of other packages may
    raise anything."""

    def __init__(self, kind: Kind, advice: str = _ADVICE) -> None:
        self._kind = kind
        self._advice = advice

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (Exception, SystemExit, GeneratorExit)):
            words = str(error).splitlines() or ["no message"]
            raise fault(
                self._kind, f"it raised {type(error).__name__}: {words[0]}", self._advice
            ) from error


def fault(kind: Kind, problem: str, advice: str = _ADVICE) -> UserError:
    """Return the error that names the sampler or the pruner, its problem, and what to do."""
    name = "pruner" if issubclass(kind, BasePruner) else "sampler"
    target = f"hydra.sweeper.{name}._target_={kind.__module__}.{kind.__qualname__}"
    return UserError(f"{target}: {problem}\nNo trial is lost. {advice}")
