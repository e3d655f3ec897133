"""The GPUs of a machine or a job, and the part of them that one trial holds."""

import math
from collections.abc import Iterable, Iterator

from sweeps.base.errors import UserError
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf

_FULL = 1 + 1e-6  # because 49 * (1 / 49) is not 1


class Gpus:
    """GPUs of which a trial takes several, or a part of one."""

    def __init__(self, names: Iterable[str]) -> None:
        # the parts that trials hold of each GPU
        self._held: dict[str, list[float]] = {name: [] for name in names}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def take(self, gpus: float) -> list[str] | None:
        """Take `gpus` whole GPUs, or a part of the GPU with the most room; return their names, None
        without room.

        A part is 1 / n, where at most n trials may share the GPU; the largest part of a GPU
        decides.
        """
        part = min(gpus, 1.0)
        count = math.ceil(gpus)
        free = [
            name
            for name, held in self._held.items()
            if max([part, *held]) * (len(held) + 1) <= _FULL
        ]
        taken = sorted(free, key=lambda name: sum(self._held[name]))[:count]
        if len(taken) < count:
            return None
        for name in taken:
            self._held[name].append(part)
        return taken

    def release(self, names: Iterable[str], gpus: float) -> None:
        """Release what `take` returned for `gpus`."""
        for name in names:
            self._held[name].remove(min(gpus, 1.0))


def gpus_on_node(settings: LocalLauncherConf | SlurmLauncherConf, gpus: int) -> float:
    """Return how many GPUs a trial holds on a node: all `gpus` that it requests, or its part of one
    GPU.

    Raises UserError if the trial cannot share a GPU.
    """
    count = settings.trials_per_gpu
    if count == 1:
        return gpus
    typed = f"hydra.launcher.trials_per_gpu={count}"
    alone = "hydra.launcher.trials_per_gpu=1"
    if (processes := settings.nodes * settings.tasks_per_node) > 1:
        raise UserError(f"{typed}: a trial of {processes} processes shares no GPU.\nType {alone}")
    if not gpus:
        key = "(in an app without this key: hydra.launcher.gpus_per_node=1)"
        raise UserError(f"{typed}: the trial requests no GPU.\nAdd gpus=1 {key}")
    if gpus > 1:
        raise UserError(
            f"{typed} and gpus={gpus} conflict: trials share one GPU.\nType gpus=1, or {alone}"
        )
    return gpus / count
