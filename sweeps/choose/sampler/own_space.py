"""The user's own function that suggests parameters, `hydra.sweeper.custom_search_space`, and its
values."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import IntDistribution, distribution_to_json

from sweeps.base.errors import UserError
from sweeps.choose.sampler.encoding import Encoding, quiet_about_lists
from sweeps.space.parameters import literal
from sweeps.space.space import COLLECTIONS
from sweeps.trial.job import Point

MAX_PRUNED = 200  # points that the function may leave out in a row


@dataclass
class OwnSpace:
    """The user's function, which adds values to a point of the swept parameters, or leaves the
    point out."""

    function: Callable[[optuna.Trial], object]
    name: str
    encoding: Encoding
    _left_out: str = ""  # what the function said of the last point that it left out

    def suggest_swept(self, trial: optuna.Trial) -> Point:
        """Return the sampler's true values of the swept parameters."""
        point = Point()
        for parameter, name in self.encoding.named:
            if self.encoding.space.exists(parameter, point):
                distribution = self.encoding.distributions[name]
                value = trial._suggest(name, distribution)
                # because a sampler of the user's may return numpy.int64, or 16.0
                is_whole = isinstance(distribution, IntDistribution)
                point[parameter.key] = int(value) if is_whole else value
        return point

    def accepts(self, trial: optuna.Trial) -> bool:
        """Call the function, and return whether the point is tried. Raises UserError if the
        function raises."""
        try:
            with quiet_about_lists():
                self.function(trial)
        except optuna.TrialPruned as error:
            self._left_out = _first_line(error)
            return False
        except (Exception, SystemExit, GeneratorExit) as error:
            # because the user's code may raise anything
            raise UserError(
                f"{self._setting}: it raised {type(error).__name__}: {_first_line(error)}\n"
                f"Correct {self.name}(cfg, trial)."
            ) from error
        return True

    def values(self, trial: optuna.Trial) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the function's values, and their distributions as JSON. Raises UserError if JSON
        changes one.

        A list or a dict is text, as it is typed.
        """
        values: dict[str, Any] = {}
        distributions = {}
        for name, distribution in trial.distributions.items():
            if name in self.encoding.distributions:
                continue
            choices: Sequence[Any] = getattr(distribution, "choices", ())
            for choice in choices:
                if isinstance(choice, str) and choice.startswith(COLLECTIONS):
                    raise UserError(
                        f"{self._setting}: it suggests the text {name}={choice!r}, which reads as a"
                        " list or a dict.\nSuggest the list or the dict itself, or a text that"
                        " begins with another sign."
                    )
                if not _is_plain(choice):
                    raise UserError(
                        f"{self._setting}: it suggests {name}={choice!r}, which JSON cannot hold as"
                        " it is.\nSuggest numbers, texts, true, false, null, lists, and dicts"
                        " whose keys are texts."
                    )
            value = trial.params[name]
            values[name] = literal(value) if isinstance(value, list | dict) else value
            distributions[name] = distribution_to_json(distribution)
        return values, distributions

    def without_points(self) -> UserError:
        """Return the error of a function that leaves out all points."""
        return UserError(
            f"{self._setting}: it raised TrialPruned for each of the last points, up to"
            f" {MAX_PRUNED}: {self._left_out}\nLet {self.name}(cfg, trial) leave out fewer points."
        )

    @property
    def _setting(self) -> str:
        return f"hydra.sweeper.custom_search_space={self.name}"


def _is_plain(value: Any) -> bool:
    """Return whether a value is the same after it was written as JSON, as a list is, and a tuple is
    not."""
    try:
        return repr(json.loads(json.dumps(value))) == repr(value)
    except (TypeError, ValueError, RecursionError):
        return False


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or ["no message"]
    return lines[0]
