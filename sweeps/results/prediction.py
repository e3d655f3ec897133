"""Times at counts that nobody measured, from those at counts that somebody did.

An epoch takes w/n + overhead, w the work and n the count. Two forms of overhead are fitted, both terms >= 0:

    c             what is not shared out (G. Amdahl, AFIPS 1967): a global batch that stays the same tends to it
    d log2(n)/n   an exchange in log2(n) rounds a step, with steps that grow fewer as n grows: a batch for each that
                  stays the same (J. Gustafson, CACM 1988)

The terms, and the non-negative least squares, are those of Ernest (S. Venkataraman et al., NSDI 2016); to tell
computing from exchanging is the way of Paleo (H. Qi et al., ICLR 2017). The forecast is the weighted geometric mean of
the two: a form weighs the more, the better it tells each measured count from the others. What decides where that does
not, and how wide the interval is, was chosen on published tables: benchmarks/scaling_prediction.py.

Epochs until the objective is stable are a + b n, a and b >= 0: the examples that are needed grow with the batch in a
straight line (S. McCandlish et al., arXiv:1812.06162, 2018).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from sweeps.results.scaling import Scaling, Series

Numbers = NDArray[np.float64]
Form = tuple[Callable[[Numbers], Numbers], float]  # its two terms at counts, and its weight where nothing else decides

AMDAHL: Form = (lambda n: np.stack([1 / n, np.ones_like(n)]), 1.0)
EXCHANGE: Form = (lambda n: np.stack([1 / n, np.log2(n) / n]), 3.0)
EPOCHS: Form = (lambda n: np.stack([np.ones_like(n), n]), 1.0)

_ERROR = 0.02  # of a forecast amid what was measured (standard deviation, relative), at the least
_A_DOUBLING = 0.5  # by what share that grows with each doubling beyond
_NORMAL_90 = 1.645  # standard deviations on each side that hold 90% of a normal distribution
_FAR = 4  # times the largest count measured


@dataclass(frozen=True)
class Forecast:
    """A value, and the ends of its 90% interval."""

    value: float
    low: float
    high: float


def forecast(
    measured: Mapping[int, float], wanted: float, forms: Sequence[Form] = (AMDAHL, EXCHANGE), noise: float = 0.0
) -> Forecast:
    """The value (> 0) at a count, from those at two or more counts, which have the relative deviation `noise`."""
    counts, values = np.array([*measured], float), np.array([*measured.values()], float)
    found = []
    for terms, prior in forms:
        error = float(np.sqrt(np.mean(np.square(_errors(terms, counts, values)))))
        found.append((math.log(_fit(terms, counts, values)(wanted)), error, prior / (error**2 + _ERROR**2)))
    logs, errors, weights = np.array(found).T
    middle = float(np.average(logs, weights=weights))
    variance = float(np.average(errors**2 + (logs - middle) ** 2, weights=weights))
    doublings = max(0.0, math.log2(wanted / counts.max()), math.log2(counts.min() / wanted))
    half = _NORMAL_90 * math.sqrt(variance + (_ERROR * (1 + _A_DOUBLING * doublings)) ** 2 + noise**2)
    return Forecast(*(math.exp(middle + side) for side in (0, -half, half)))


def epoch_time(series: Series, wanted: float) -> Forecast | None:
    """Seconds; None if a single count was measured."""
    if len(series.counts) < 2:
        return None
    measured = {count.count: count.epoch_s for count in series.counts}
    return forecast(measured, wanted, noise=median((c.longest_s - c.shortest_s) / c.epoch_s for c in series.counts) / 4)


def time_to_stable(series: Series, wanted: float) -> Forecast | None:
    """Seconds; None unless two counts tell theirs."""
    told = [(count, count.epochs_to_stable, count.time_to_stable_s) for count in series.counts]
    known = [(count, epochs, seconds) for count, epochs, seconds in told if epochs and seconds]
    an_epoch = epoch_time(series, wanted)
    if len(known) < 2 or an_epoch is None:
        return None
    rounded = 0.5 / median(epochs for _, epochs, _ in known)
    epochs = forecast({count.count: number for count, number, _ in known}, wanted, [EPOCHS], rounded)
    starting = max(0.0, median(seconds - number * count.epoch_s for count, number, seconds in known))
    trained = epochs.value * an_epoch.value
    half = math.hypot(math.log(epochs.high / epochs.value), math.log(an_epoch.high / an_epoch.value))
    return Forecast(*(starting + trained * math.exp(side) for side in (0, -half, half)))


def doubts(scaling: Scaling, series: Series, wanted: int) -> list[str]:
    """Why the forecasts at a count should not be believed."""
    counts = series.counts
    if len(counts) < 2:
        return ["one count tells nothing of others: measure a second"]
    largest, most = counts[-1].count, scaling.counted(counts[-1].count)
    spread = max((count.longest_s - count.shortest_s) / count.epoch_s for count in counts)
    effect = max(count.epoch_s for count in counts) / min(count.epoch_s for count in counts) - 1
    found = {
        "two counts fit any form: measure a third": len(counts) == 2,
        f"epochs of one count differ by up to {spread:.0%}, more than counts do ({effect:.0%})": spread > effect,
        f"{wanted} is {wanted / largest:.3g} times the largest count measured": wanted > _FAR * largest,
        f"more than {most} may take more nodes than any trial used, whose network is not in it": wanted > largest,
    }
    return [doubt for doubt, holds in found.items() if holds]


def _fit(terms: Callable[[Numbers], Numbers], counts: Numbers, values: Numbers) -> Callable[[float], float]:
    """The terms, times factors >= 0, with the least squares of relative residuals: of two terms, both or one."""
    best, at = math.inf, np.zeros(2)
    for kept in ([0, 1], [0], [1]):
        relative = (terms(counts)[kept] / values).T
        factors = np.zeros(2)
        factors[kept] = np.linalg.lstsq(relative, np.ones(len(counts)), rcond=None)[0]
        error = float(np.sum((relative @ factors[kept] - 1) ** 2))
        if factors.min() >= 0 and factors @ terms(np.ones(1)) > 0 and error < best:  # one takes some time too
            best, at = error, factors
    return lambda count: float((at @ terms(np.array([count], float)))[0])


def _errors(terms: Callable[[Numbers], Numbers], counts: Numbers, values: Numbers) -> list[float]:
    """Relative errors at each count: of what the others tell, or, of two counts, of what the fit leaves."""
    chosen = [np.arange(len(counts)) != i if len(counts) > 2 else np.full(2, True) for i in range(len(counts))]
    told = [_fit(terms, counts[some], values[some])(count) for some, count in zip(chosen, counts, strict=True)]
    return [*(np.array(told) / values - 1)]
