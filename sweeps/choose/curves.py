"""Learning curves: where pruned trials would have ended."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median

Curve = Mapping[int, float]
"""The losses that a trial reported, by step."""


def estimate_ends(curves: Sequence[Curve], losses: Sequence[float]) -> list[float]:
    """Return the losses, with an estimate in place of each infinite loss, which a pruned trial has.

    The estimate is the last report plus the median change of the completed trials from that step to their ends. Without
    such trials, the loss stays infinite.
    """
    trials = [*zip(curves, losses, strict=True)]

    @cache
    def median_change(step: int) -> float:
        changes = [loss - curve[step] for curve, loss in trials if loss < math.inf and step in curve]
        return median(changes) if changes else math.inf

    return [
        curve[last := max(curve)] + median_change(last) if loss == math.inf and curve else loss
        for curve, loss in trials
    ]
