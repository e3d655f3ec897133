"""When a training had arrived: at its best value, at a value that stays, at a wanted one."""

from collections.abc import Sequence

import numpy as np

WINDOW = 3
"""Epochs in the moving mean."""
TOLERANCE = 0.01
"""Share of the final value."""


def epochs_to_stable(values: Sequence[float]) -> int | None:
    """The first epoch, counted from 1, from which the mean of it and the two before stays within 1% of its final value.

    None for fewer than three epochs.
    """
    if len(values) < WINDOW:
        return None
    means = np.convolve(values, np.full(WINDOW, 1 / WINDOW), "valid")
    far = (np.abs(means - means[-1]) > TOLERANCE * abs(means[-1])).nonzero()[0]
    return (int(far[-1]) + 1 if len(far) else 0) + WINDOW


def arrivals(
    values: Sequence[float], seconds: Sequence[float], best_epoch: int, target: float | None, higher: bool
) -> dict[str, float]:
    """epochs_to_stable and time_to_stable, time_to_best, and if `target` was reached epochs_to_target, time_to_target.

    `values` is what each epoch is judged by, `seconds` how long it took; times count from the start of the first epoch.
    """
    since = np.cumsum(seconds)
    found: dict[str, float] = {}
    if best_epoch:
        found["time_to_best"] = float(since[best_epoch - 1])
    stable = epochs_to_stable(values)
    if stable is not None:
        found |= {"epochs_to_stable": stable, "time_to_stable": float(since[stable - 1])}
    if target is not None:
        reached = np.asarray(values) >= target if higher else np.asarray(values) <= target
        if reached.any():
            epoch = int(reached.argmax()) + 1
            found |= {"epochs_to_target": epoch, "time_to_target": float(since[epoch - 1])}
    return found
