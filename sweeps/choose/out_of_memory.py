"""Running out of memory is monotone: a point that needs at least as much memory as a failed trial
is infeasible."""

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.choose import Changes
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.space.space import canonical, without_plus
from sweeps.trial.job import Point, State

_AXIS = re.compile(r"([\w.]+)(?:/([\w.]+))?")


class OutOfMemory:
    """The points that ran out of memory; of two points that differ only on `axes`, the larger one
    needs more memory."""

    def __init__(self, axes: Sequence[str], config: DictConfig) -> None:
        """Parse the axes: keys such as `batch_size`, or quotients such as `batch_size/gpus`. Raises
        UserError."""
        matches = [_AXIS.fullmatch(axis.replace(" ", "")) for axis in axes]
        if wrong := [axis for axis, match in zip(axes, matches, strict=True) if match is None]:
            raise UserError(
                f"hydra.sweeper.memory_axes={wrong[0]}: an axis is one key, or two keys with a"
                " slash.\nType, for example:"
                " 'hydra.sweeper.memory_axes=[batch_size/gpus,model.filters]'"
            )
        self._axes = [(match[1], match[2]) for match in matches if match]
        self._config = config
        self._changes = Changes()
        # needs of each trial that ran out of memory
        self._needs_by_rest: dict[str, dict[int, tuple[float, ...]]] = {}
        # the same trials: text of the values that comparable points have in common
        self._rest_of: dict[int, str] = {}

    def refuse_unknown(self, swept: Sequence[str]) -> None:
        """Raise UserError if an axis has a key that is not in the configuration, not swept and in
        no swept group."""
        keys = chain.from_iterable(self._axes)
        for key in filter(None, keys):
            is_swept = any(key == name or key.startswith(f"{name}.") for name in swept)
            if not is_swept and OmegaConf.select(self._config, key, default=...) is ...:
                raise UserError(
                    f"hydra.sweeper.memory_axes: {key} is not in the configuration and not swept.\n"
                    "Choose another key, or none: hydra.sweeper.memory_axes=[]"
                )

    def explain_infeasible(self, study: StudySnapshot, point: Point) -> str:
        """Return why the point needs too much memory; empty if no trial shows this."""
        for number in self._changes.read_new(study) if self._axes else ():
            self._follow(study.rows[number])
        rest, needs = self._compare_by(point)
        for number, limits in self._needs_by_rest.get(rest, {}).items():
            if all(need >= limit for need, limit in zip(needs, limits, strict=True)):
                axes = " and ".join(
                    f"{top}/{bottom}" if bottom else top for top, bottom in self._axes
                )
                return (
                    f"by {axes} it needs at least as much memory as trial {number}, which ran out"
                    " of memory.\nTo try such trials anyway, type hydra.sweeper.memory_axes=[]"
                )
        return ""

    def _follow(self, trial: TrialRecord) -> None:
        if rest := self._rest_of.pop(trial.number, ""):  # because the trial is retried
            self._needs_by_rest[rest].pop(trial.number)
        if trial.state is not State.OUT_OF_MEMORY or trial.outside:
            return
        rest, needs = self._compare_by(trial.configuration)
        if needs:
            self._needs_by_rest.setdefault(rest, {})[trial.number] = needs
            self._rest_of[trial.number] = rest

    def _compare_by(self, point: Point) -> tuple[str, tuple[float, ...]]:
        """Return the values that comparable points have in common, as text, and the needs to
        compare them by."""
        values = without_plus(point)
        rest = dict(values)
        kinds = []
        needs = []
        for top, bottom in self._axes:
            if not {top, bottom} & set(values):
                continue
            above = _numbers(values.get(top, OmegaConf.select(self._config, top)))
            below = (
                _numbers(values.get(bottom, OmegaConf.select(self._config, bottom, default=1)))
                if bottom
                else [1]
            )
            if above and below and len(below) == 1:
                # because 0 GPUs use the memory of the CPU
                kinds.append((len(above), below[0] == 0))
                needs += [number / (below[0] or 1.0) for number in above]
                rest.pop(top, None)
                rest.pop(str(bottom), None)
        return f"{canonical(rest)} {kinds}", tuple(needs)


def _numbers(value: Any) -> list[float]:
    """Return a number, or a list of numbers that may be text, as a list; empty for any other
    value."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return []
    items = list(parsed) if isinstance(parsed, list) or OmegaConf.is_list(parsed) else [parsed]
    return (
        [float(item) for item in items] if all(type(item) in (int, float) for item in items) else []
    )
