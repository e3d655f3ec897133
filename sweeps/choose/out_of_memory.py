"""Running out of memory is monotone: what needs at least as much as a trial that did is not tried."""

import json
import re
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.choose import Changes
from sweeps.errors import UserError
from sweeps.record.space import canonical
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.trial.job import Point, State

_AXIS = re.compile(r"([\w.]+)(?:/([\w.]+))?")


class OutOfMemory:
    """The points that ran out of memory. Of two that are equal but for the values on `axes`, the one that has at least
    as much on each axis needs at least as much memory.
    """

    def __init__(self, axes: Sequence[str], config: DictConfig) -> None:
        """An axis is a key, or a key by another one: batch_size/gpus. Raises UserError: it is neither."""
        found = [_AXIS.fullmatch(axis.replace(" ", "")) for axis in axes]
        if wrong := [axis for axis, match in zip(axes, found, strict=True) if match is None]:
            said = f"hydra.sweeper.memory_axes={wrong[0]}: an axis is a key, or a key by another one"
            raise UserError(f"{said}: 'hydra.sweeper.memory_axes=[batch_size/gpus,model.filters]'")
        self._axes = [(match[1], match[2]) for match in found if match]
        self._config = config
        self._changes = Changes()
        self._ran_out: dict[str, dict[int, tuple[float, ...]]] = {}  # by what must be equal: trials and their needs
        self._alike: dict[int, str] = {}  # what must be equal, of each of these trials

    def refuse_unknown(self, swept: Sequence[str]) -> None:
        """Raise UserError if an axis has a key that is neither swept, nor below something that is, nor in the
        configuration.
        """
        for key in (key for axis in self._axes for key in axis if key):
            here = any(key == one or key.startswith(f"{one}.") for one in swept)
            if not here and OmegaConf.select(self._config, key, default=...) is ...:
                said = f"hydra.sweeper.memory_axes has {key}, which is not in the configuration and is not swept"
                raise UserError(f"{said}\nName a key that is, or none: hydra.sweeper.memory_axes=[]")

    def explain_infeasible(self, study: StudySnapshot, point: Point) -> str:
        """Return why there is not enough memory for this point, in words; empty if nobody knows."""
        for number in self._changes.read_new(study) if self._axes else ():
            self._follow(study.rows[number])
        alike, needs = self._needs(point)
        for number, known in self._ran_out.get(alike, {}).items():
            if all(need >= had for need, had in zip(needs, known, strict=True)):
                axes = " and ".join(f"{top}/{bottom}" if bottom else top for top, bottom in self._axes)
                return (
                    f"by {axes} it needs at least as much memory as trial {number}, which ran out of it\n"
                    "To have such trials tried: hydra.sweeper.memory_axes=[]"
                )
        return ""

    def _follow(self, trial: TrialRecord) -> None:
        if before := self._alike.pop(trial.number, ""):  # the trial runs once more
            self._ran_out[before].pop(trial.number)
        if trial.state is not State.OUT_OF_MEMORY or trial.outside:
            return
        alike, needs = self._needs(trial.configuration)
        if needs:
            self._ran_out.setdefault(alike, {})[trial.number] = needs
            self._alike[trial.number] = alike

    def _needs(self, point: Point) -> tuple[str, tuple[float, ...]]:
        """What must be equal for two points to be compared, as text, and the values to compare them by."""
        values = {key.lstrip("+"): value for key, value in point.items()}
        rest, kinds, needs = dict(values), [], []
        for top, bottom in self._axes:
            if not {top, bottom} & set(values):
                continue
            above = _numbers(values.get(top, OmegaConf.select(self._config, top)))
            below = _numbers(values.get(bottom, OmegaConf.select(self._config, bottom, default=1))) if bottom else [1]
            if above and below and len(below) == 1:
                kinds.append((len(above), below[0] == 0))  # batch_size/gpus: the memory of a CPU is another one
                needs += [number / (below[0] or 1.0) for number in above]
                rest.pop(top, None)
                rest.pop(str(bottom), None)
        return f"{canonical(rest)} {kinds}", tuple(needs)


def _numbers(value: Any) -> list[float]:
    """A number, or a list of numbers as text has it; else empty."""
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return []
    items = list(read) if isinstance(read, list) or OmegaConf.is_list(read) else [read]
    return [float(one) for one in items] if all(type(one) in (int, float) for one in items) else []
