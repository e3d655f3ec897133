"""Epochs in parts, whose metrics are reported before the epoch ends:
`trainer.report_every_steps`."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainers.compiled import Metrics, Train

CALL_S = 0.5
"""Duration of a call of the training pass that trains several parts, because each call costs about
a millisecond."""
CALL_OF_RANKS_S = 0.0
"""One part a call, because ranks whose calls have different numbers of steps wait for each other
forever."""


@dataclass(frozen=True)
class Part:
    """Consecutive steps of an epoch, and the metrics of these steps."""

    end: int  # steps of the epoch up to the end of the part
    examples: int
    seconds: float
    metrics: Metrics


def train_parts(
    train_pass: Train,
    order: np.ndarray,
    batch_size: int,
    epoch: int,
    every: int | None = None,
    pause_every: int | None = None,
    call_s: float = CALL_S,
) -> Iterator[Part]:
    """Train one epoch over the rows `order`, and yield its parts of `every` steps; None: one part.

    After each `pause_every` steps, a multiple of `every`, no further step is trained before the
    part is yielded. A call of `train_pass` trains as many parts as take about `call_s` seconds, at
    least one.
    """
    steps = -(-len(order) // batch_size)
    every = every or steps
    pause_every = pause_every or steps
    end = 0  # steps so far
    count = 1  # parts of the next call
    while end < steps:
        next_pause = (end // pause_every + 1) * pause_every
        call_end = min(end + every * count, next_pause, steps)
        rows = order[end * batch_size : call_end * batch_size]
        began = time.perf_counter()
        results = train_pass(rows, batch_size, epoch, end, every)
        seconds = (time.perf_counter() - began) / len(results)
        for metrics in results:
            start = end
            end = min(start + every, call_end)
            examples = min(end * batch_size, len(order)) - start * batch_size
            yield Part(end, examples, seconds, metrics)
        count = max(1, min(int(call_s / seconds), 8 * count))


def mean_metrics(parts: Sequence[Part]) -> Metrics:
    """Return the metrics of several parts together: their means, weighted by the number of
    examples."""
    if len(parts) == 1:
        return dict(parts[0].metrics)

    weights = [part.examples for part in parts]
    means = {}
    for name in parts[0].metrics:
        values = [part.metrics[name] for part in parts]
        means[name] = float(np.average(values, weights=weights))
    return means
