"""Learning curves: what trials have reported, and where pruned and running trials would end."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from sweeps.base.files import Lines
from sweeps.choose.scores import Array, quantiles
from sweeps.record.study import TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.metrics_reader import MetricsReader

Curve = Mapping[int, float]
"""The losses that a trial reported, by step."""

_MIN_TRIALS = 5  # completed trials that show how much a report is worth


def finite_values(lines: Lines, metric: str) -> dict[int, float]:
    """Return the finite values of a metric, by step. Of two lines of a step the last one counts."""
    values = {line.step: line.metrics.get(metric, math.nan) for line in lines.values}
    return {step: value for step, value in values.items() if math.isfinite(value)}


@dataclass
class Reports:
    """A reader of the losses that trials report, which reads each line of their folders once."""

    metric: str
    maximizes: bool
    _curves: dict[int, dict[int, float]] = field(default_factory=dict)
    # of trials that may report more
    _readers: dict[int, MetricsReader] = field(default_factory=dict)

    def curve(self, trial: TrialRecord) -> Curve:
        """Return what a trial has reported. A file that cannot be read adds nothing: the loop tells
        the user."""
        number = trial.number
        is_over = trial.state.is_over
        if is_over and number in self._curves and number not in self._readers:
            return self._curves[number]
        curve = self._curves.setdefault(number, {})
        reader = self._readers.setdefault(number, MetricsReader(TrialFolder(trial.folder)))
        with suppress(OSError):
            lines = reader.unread()
            if not reader.mark_read(lines):
                curve.clear()
            sign = -1 if self.maximizes else 1
            for step, value in finite_values(lines, self.metric).items():
                curve[step] = sign * value
            if is_over:
                del self._readers[number]
        return curve


class Ends:
    """Estimates of final losses from last reports, by the curves of completed trials.

    If a report lies between the reports of completed trials at its step, the estimate lies between
    their ends, in the same order. Beyond all of them, the estimate lies as far beyond their ends.
    """

    def __init__(self, curves: Sequence[Curve], losses: Sequence[float]) -> None:
        """Learn from the curves and final losses of ended trials; the loss of a pruned trial is
        infinite."""
        pairs = zip(curves, losses, strict=True)
        completed = [(curve, loss) for curve, loss in pairs if curve and loss < math.inf]

        @cache
        def at(step: int) -> tuple[Array, Array, float]:
            """Return the sorted reports of completed trials at a step, their sorted ends, and the
            noise."""
            reported = [(curve[step], loss) for curve, loss in completed if step in curve]
            reports, ends = np.array(reported).reshape(-1, 2).T
            return np.sort(reports), np.sort(ends), _noise(reports, ends)

        self._at = at

    def estimate(self, curve: Curve) -> tuple[float, float]:
        """Return the estimated loss and its noise; infinite if no completed trial reported at that
        step.

        The noise is the variance of the error, in units of the variance of all losses' scores.
        """
        reports, ends, noise = self._at(max(curve, default=-1))
        if not curve or not len(reports):
            return math.inf, math.inf
        report = curve[max(curve)]
        nearest = np.clip(report, reports[0], reports[-1])
        end = np.interp(nearest, reports, ends) + report - nearest
        return float(end), noise

    def fill(self, curves: Sequence[Curve], losses: Sequence[float]) -> list[float]:
        """Return the losses, with an estimate in place of each infinite loss, which a pruned trial
        has."""
        filled = [*losses]
        for index, curve in enumerate(curves):
            if losses[index] == math.inf:
                filled[index], _ = self.estimate(curve)
        return filled


def fill_ends(curves: Sequence[Curve], losses: Sequence[float]) -> list[float]:
    """Return the losses, with an estimate in place of each infinite loss, which a paused trial has.

    The longest curve comes first, so that a trial that paused early is compared with those that
    went on, complete or paused later. A curve that no other passes ends where it is.
    """
    filled = [*losses]
    steps = sorted({max(curve) for curve in curves if curve}, reverse=True)
    for step in steps:
        ends = Ends(curves, filled)
        for index, curve in enumerate(curves):
            if losses[index] == math.inf and curve and max(curve) == step:
                end, _ = ends.estimate(curve)
                filled[index] = end if end < math.inf else curve[step]
    return filled


def _noise(reports: Array, ends: Array) -> float:
    """Return the noise that explains the correlation of the quantiles, lowered because few trials
    show it."""
    if len(ends) < _MIN_TRIALS or len(set(reports)) < 2 or len(set(ends)) < 2:
        return math.inf
    _, correlation = np.corrcoef(quantiles(reports), quantiles(ends))[0]
    correlation *= 1 - 1 / len(ends)
    return float(1 / correlation**2 - 1) if correlation > 0 else math.inf
