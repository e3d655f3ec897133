"""Epochs and times at which a training reached its best value, a stable value and its target."""

from collections.abc import Sequence

import numpy as np

WINDOW = 3
"""Number of epochs in the moving mean."""
TOLERANCE = 0.01
"""Fraction of the final value."""


def epochs_to_stable(values: Sequence[float]) -> int | None:
    """Return the first epoch (from 1) from which the mean of the last 3 epochs stays within 1% of
    its final value.

    Returns None for fewer than three epochs.
    """
    if len(values) < WINDOW:
        return None
    means = np.convolve(values, np.full(WINDOW, 1 / WINDOW), "valid")
    far = (np.abs(means - means[-1]) > TOLERANCE * abs(means[-1])).nonzero()[0]
    return (int(far[-1]) + 1 if len(far) else 0) + WINDOW


def convergence_metrics(
    values: Sequence[float],
    seconds: Sequence[float],
    best_epoch: int,
    target: float | None,
    higher_is_better: bool,
) -> dict[str, float]:
    """Return time_to_best, epochs_to_stable, time_to_stable, epochs_to_target and time_to_target,
    as far as they exist.

    `values` and `seconds` have one element per epoch; times (s) count from the start of the first
    epoch.
    """
    elapsed = np.cumsum(seconds)
    metrics: dict[str, float] = {}
    if best_epoch:
        metrics["time_to_best"] = float(elapsed[best_epoch - 1])
    stable = epochs_to_stable(values)
    if stable is not None:
        metrics |= {"epochs_to_stable": stable, "time_to_stable": float(elapsed[stable - 1])}
    if target is not None:
        reached = np.asarray(values) >= target if higher_is_better else np.asarray(values) <= target
        if reached.any():
            epoch = int(reached.argmax()) + 1
            metrics |= {"epochs_to_target": epoch, "time_to_target": float(elapsed[epoch - 1])}
    return metrics
