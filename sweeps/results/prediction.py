"""Times at counts that nobody measured, from those at counts that somebody did.

An epoch takes w/n + c + d log2(2n)/n + e n, n the count, all factors >= 0: work that is shared out; what is not (G.
Amdahl, AFIPS 1967), as where a global batch stays the same; an exchange in log2(n) rounds for each of steps that grow
fewer, as with a batch for each that stays the same (J. Gustafson, CACM 1988); and what each one more costs all others.
Ernest (S. Venkataraman et al., NSDI 2016) fits 1/n, 1, log n and n by non-negative least squares; with fewer steps log
n becomes log2(2n)/n, which is never 0. To tell computing from exchanging is Paleo's way (H. Qi et al., ICLR 2017).
Residuals are relative. A term's share of the time at the largest count costs a little too (Tikhonov), which decides
what the counts leave open, as two do; how much was chosen on tables: benchmarks/scaling_prediction.py.

Epochs until the objective is stable are a + b n, a and b >= 0: the examples that are needed grow with the batch in a
straight line (S. McCandlish et al., arXiv:1812.06162, 2018).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from sweeps.results.scaling import Series

Numbers = NDArray[np.float64]
Form = dict[str, float]  # what a share of each term costs

TIMES: Form = {"1/n": 0.0, "1": 0.035, "log2(2n)/n": 0.0035, "n": 0.3}
AMDAHL: Form = TIMES | {"1": 0.0035, "log2(2n)/n": 0.035}
EPOCHS: Form = {"1": 0.0, "n": 0.0}

_ERROR = 0.02  # of a forecast amid what was measured (standard deviation, relative), at the least
_A_DOUBLING = 0.5  # by what share that grows with each doubling beyond
_NORMAL_90 = 1.645  # standard deviations on each side that hold 90% of a normal distribution
_WIDEST = math.log(10)  # of each side of an interval
_FAR = 4  # times the largest count measured


@dataclass(frozen=True)
class Forecast:
    """A value, and the ends of its 90% interval."""

    value: float
    low: float
    high: float
    cut: bool  # whether the interval would be wider still than from a tenth of the value to ten times


def forecast(
    measured: Iterable[tuple[float, float]], wanted: float, forms: Sequence[Form] = (TIMES, AMDAHL), noise: float = 0.0
) -> Forecast:
    """The value (> 0) at a count by the first form, from counts and values with the relative deviation `noise`.

    The interval is made of the errors by which each value is told from the others, of how far the forms are apart, and
    of what is added beyond the counts measured.
    """
    counts, values = np.array([*measured], float).T
    middle, *apart = (_told(form, counts, values, wanted) for form in forms)
    others = [np.arange(len(counts)) != i for i in range(len(counts))]
    told = [_told(forms[0], counts[some], values[some], n) for some, n in zip(others, counts, strict=True)]
    variance = np.mean(np.log(told / values) ** 2) + sum(math.log(other / middle) ** 2 for other in apart)
    doublings = max(0.0, math.log2(wanted / counts.max()), math.log2(counts.min() / wanted))
    half = _NORMAL_90 * math.sqrt(variance + (_ERROR * (1 + _A_DOUBLING * doublings)) ** 2 + noise**2)
    return _between(middle, half)


def _between(value: float, half: float, start: float = 0.0) -> Forecast:
    side = math.exp(min(half, _WIDEST))
    return Forecast(start + value, start + value / side, start + value * side, half > _WIDEST)


def epoch_time(series: Series, wanted: float) -> Forecast | None:
    """Seconds; None if a single count was measured."""
    measured = [(count.count, count.epoch_s) for count in series.counts]
    return forecast(measured, wanted, noise=median(c.noise for c in series.counts)) if len(dict(measured)) > 1 else None


def time_to_stable(series: Series, wanted: float) -> Forecast | None:
    """Seconds; None unless two counts tell theirs."""
    told = [(count, count.epochs_to_stable, count.time_to_stable_s) for count in series.counts]
    known = [(count, epochs, seconds) for count, epochs, seconds in told if epochs and seconds]
    an_epoch = epoch_time(series, wanted)
    if len({count.count for count, _, _ in known}) < 2 or an_epoch is None:
        return None
    rounded = 0.5 / median(epochs for _, epochs, _ in known)
    epochs = forecast([(count.count, number) for count, number, _ in known], wanted, [EPOCHS], rounded)
    starting = max(0.0, median(seconds - number * count.epoch_s for count, number, seconds in known))
    half = math.hypot(math.log(epochs.high / epochs.value), math.log(an_epoch.high / an_epoch.value))
    return _between(epochs.value * an_epoch.value, half, starting)


def doubts(series: Series, wanted: int) -> list[str]:
    """Why the forecasts at a count should not be believed."""
    counts, told = series.counts, epoch_time(series, wanted)
    if told is None:
        return ["one count tells nothing of others: measure a second"]
    largest, nodes = counts[-1].count, max(count.nodes for count in counts)
    of_a_node = max(count.count // count.nodes for count in counts)
    noise = max(count.noise for count in counts)
    effect = max(count.epoch_s for count in counts) / min(count.epoch_s for count in counts) - 1
    found = {
        "two counts fit any law: measure a third": len({count.count for count in counts}) == 2,
        f"epochs of one count deviate by {noise:.0%}, counts by {effect:.0%} at most": noise > effect,
        "what was measured follows no law that is known: the interval would be wider still": told.cut,
        f"{wanted} is {wanted / largest:.3g} times the largest count measured": wanted > _FAR * largest,
        f"with {of_a_node} a node, the most tried, {wanted} take more nodes than were used": wanted > of_a_node * nodes,
    }
    return [doubt for doubt, holds in found.items() if holds]


def _told(form: Form, counts: Numbers, values: Numbers, wanted: float) -> float:
    from scipy.optimize import nnls  # half a second, which a study that sweeps nothing counted does not wait for

    largest = counts.argmax()
    whole = _terms(form, counts[largest]) / values[largest]  # a factor of 1 is then all of the time at the largest
    relative = _terms(form, counts) / whole / values[:, None]
    penalized = np.vstack([relative, np.diag([*form.values()])])
    factors, _ = nnls(penalized, np.repeat([1.0, 0.0], [len(counts), len(form)]), maxiter=999)
    return float(_terms(form, wanted) / whole @ factors)


def _terms(form: Form, counts: Numbers | float) -> Numbers:
    """A column for each term."""
    n = np.asarray(counts, float)
    known = {"1/n": 1 / n, "1": np.ones_like(n), "log2(2n)/n": np.log2(2 * n) / n, "n": n}
    return np.stack([known[name] for name in form], axis=-1)
