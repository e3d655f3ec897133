"""Forecasts of times for counts that were not measured, from counts that were.

An epoch takes w/n + c + d log2(2n)/n + e n seconds for the count n, all factors >= 0. The terms
are: work that is divided; work that is not (G. Amdahl, AFIPS 1967), as with a constant global
batch; an exchange in log2(n) rounds per step, with fewer steps for more devices, as with a constant
batch per device (J. Gustafson, CACM 1988); and what each device costs all others. Ernest (S.
Venkataraman et al., NSDI 2016) fits 1/n, 1, log n and n by non-negative least squares. With fewer
steps, log n becomes log2(2n)/n, which is never 0. Paleo separates computing from exchanging (H. Qi
et al., ICLR 2017). Residuals are relative. A small price on each term's share of the time at the
largest count (Tikhonov) decides what the counts leave open, as two counts do. The prices were
chosen on tables: benchmarks/scaling_prediction.py.

The epochs until the objective is stable are a + b n, a and b >= 0, because the number of examples
needed grows linearly with the batch (S. McCandlish et al., arXiv:1812.06162, 2018).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from sweeps.show.scaling import Series

Numbers = NDArray[np.float64]
Form = dict[str, float]  # the price of each term's share

TIMES: Form = {"1/n": 0.0, "1": 0.035, "log2(2n)/n": 0.0035, "n": 0.3}
AMDAHL: Form = TIMES | {"1": 0.0035, "log2(2n)/n": 0.035}
EPOCHS: Form = {"1": 0.0, "n": 0.0}

_ERROR = 0.02  # smallest relative standard deviation of a forecast between measured counts
# relative growth of this error with each doubling beyond the measured counts
_ERROR_PER_DOUBLING = 0.5
_ERROR_OF_NO_LAW = (
    # relative standard deviation of a forecast from counts with a super-linear step, and per
    # doubling
    0.08
)
_NORMAL_90 = 1.645  # standard deviations on each side that contain 90% of a normal distribution
_WIDEST = math.log(10)  # largest half of an interval
_FAR = 4  # multiple of the largest measured count


@dataclass(frozen=True)
class Forecast:
    """A value with its 90% interval."""

    value: float
    low: float
    high: float
    is_cut: bool  # whether the interval was cut at a tenth and ten times the value


def forecast(
    measured: Iterable[tuple[float, float]],
    count: float,
    forms: Sequence[Form] = (TIMES, AMDAHL),
    noise: float = 0.0,
) -> Forecast:
    """Return the forecast of the value (> 0) for a count by the first form, from measured counts
    and values.

    The interval combines the errors of leaving one count out, the distance to the other forms, the
    relative deviation `noise`, and an addition beyond the measured counts.
    """
    counts, values = np.array([*measured], float).T
    middle, *alternatives = (_extrapolate(form, counts, values, count) for form in forms)
    doublings = max(0.0, math.log2(count / counts.max()), math.log2(counts.min() / count))
    deviations = [math.log(alternative / middle) for alternative in alternatives]
    deviations += [
        math.sqrt(_left_out_variance(forms[0], counts, values)),
        _ERROR * (1 + _ERROR_PER_DOUBLING * doublings),
        noise,
    ]
    # because no term of the law describes such a step
    if is_super_linear(zip(counts, values, strict=True)):
        deviations.append(_ERROR_OF_NO_LAW * (1 + doublings))
    return _with_interval(middle, _NORMAL_90 * math.hypot(*deviations))


def _left_out_variance(form: Form, counts: Numbers, values: Numbers) -> float:
    """Return the mean squared error of forecasting each count from the others."""
    errors = []
    for i, count in enumerate(counts):
        others = np.arange(len(counts)) != i
        predicted = _extrapolate(form, counts[others], values[others], count)
        errors.append(math.log(predicted / values[i]) ** 2)
    return fmean(errors)


def is_super_linear(measured: Iterable[tuple[float, float]]) -> bool:
    """Return whether a step to a larger count, of counts and times, is faster than the ratio of the
    counts allows."""
    steps = pairwise(sorted(measured))
    return any(
        more * shorter_s < fewer * longer_s * (1 - 1e-9)
        for (fewer, longer_s), (more, shorter_s) in steps
    )


def _with_interval(value: float, half: float, start: float = 0.0) -> Forecast:
    side = math.exp(min(half, _WIDEST))
    return Forecast(start + value, start + value / side, start + value * side, half > _WIDEST)


def predict_epoch_time(series: Series, count: float) -> Forecast | None:
    """Return the seconds of an epoch; None if a single count was measured."""
    measured = [(c.count, c.epoch_s) for c in series.counts]
    return (
        forecast(measured, count, noise=median(c.noise for c in series.counts))
        if len(dict(measured)) > 1
        else None
    )


def predict_time_to_stable(series: Series, count: float) -> Forecast | None:
    """Return the seconds until the objective is stable; None unless two counts have
    measurements."""
    counts = [c for c in series.counts if c.epochs_to_stable and c.time_to_stable_s]
    measured = [(c.count, c.epochs_to_stable or 0.0) for c in counts]
    epoch_time = predict_epoch_time(series, count)
    if len(dict(measured)) < 2 or epoch_time is None:
        return None
    rounding = 0.5 / median(epochs for _, epochs in measured)
    epochs = forecast(measured, count, [EPOCHS], rounding)
    starts_s = [
        (c.time_to_stable_s or 0.0) - (c.epochs_to_stable or 0.0) * c.epoch_s for c in counts
    ]
    half = math.hypot(
        math.log(epochs.high / epochs.value), math.log(epoch_time.high / epoch_time.value)
    )
    return _with_interval(epochs.value * epoch_time.value, half, max(0.0, median(starts_s)))


def find_doubts(series: Series, count: int) -> list[str]:
    """Return reasons not to trust the forecasts for a count."""
    counts = series.counts
    epoch_time = predict_epoch_time(series, count)
    if epoch_time is None:
        return ["one count is not enough: measure a second"]
    largest = counts[-1].count
    per_node = max(c.count // c.nodes for c in counts)
    capacity = per_node * max(c.nodes for c in counts)
    noise = max(c.noise for c in counts)
    effect = max(c.epoch_s for c in counts) / min(c.epoch_s for c in counts) - 1
    doubts = {
        "two counts fit any law: measure a third": len({c.count for c in counts}) == 2,
        f"epochs of one count deviate by {noise:.0%}, counts by only {effect:.0%}": noise > effect,
        (
            "the measurements fit no known law: the interval was cut at a tenth and ten times the"
            " value"
        ): epoch_time.is_cut,
        f"{count} is {count / largest:.3g} times the largest measured count": (
            count > _FAR * largest
        ),
        f"with {per_node} per node (the largest measured), {count} need more nodes than measured": (
            count > capacity
        ),
    }
    return [doubt for doubt, applies in doubts.items() if applies]


def _extrapolate(form: Form, counts: Numbers, values: Numbers, count: float) -> float:
    from scipy.optimize import nnls  # here, because the import takes half a second

    largest = counts.argmax()
    # so that a factor of 1 is the whole time at the largest
    scale = _terms(form, counts[largest]) / values[largest]
    relative = _terms(form, counts) / scale / values[:, None]
    penalized = np.vstack([relative, np.diag([*form.values()])])
    factors, _ = nnls(penalized, np.repeat([1.0, 0.0], [len(counts), len(form)]), maxiter=999)
    return float(_terms(form, count) / scale @ factors)


def _terms(form: Form, counts: Numbers | float) -> Numbers:
    """Return a column for each term."""
    n = np.asarray(counts, float)
    terms = {"1/n": 1 / n, "1": np.ones_like(n), "log2(2n)/n": np.log2(2 * n) / n, "n": n}
    return np.stack([terms[name] for name in form], axis=-1)
