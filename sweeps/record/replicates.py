"""Replicates: the trials of one configuration under several seeds, and their joint outcome."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from sweeps.record.study import TrialRecord
from sweeps.trial.job import Outcome, State


def by_first(trials: Iterable[TrialRecord]) -> dict[int, list[TrialRecord]]:
    """Return the trials of each configuration, without the final race's, by the number of its first
    trial."""
    configurations: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        if not trial.race:
            configurations.setdefault(trial.number if trial.of is None else trial.of, []).append(
                trial
            )
    return configurations


def verdict(trials: Sequence[TrialRecord], repeats: int) -> Outcome | None:
    """Return the outcome of a configuration that runs under `repeats` seeds; None as long as it is
    open.

    The objective is the mean over the trials. A trial that is pruned or fails decides the outcome
    at once. Trials that were lost or timed out are left out of the mean.
    """
    ended = [trial for trial in trials if trial.state.is_over]
    decisive = [trial.attempts[-1] for trial in ended if trial.state.decides]
    if decisive:
        # first by time, because numbers start in any order
        return min(decisive, key=lambda outcome: outcome.ended_at)
    if len(ended) < repeats:
        return None
    completed = [trial.attempts[-1] for trial in ended if trial.result]
    if not completed:
        return ended[-1].attempts[-1]
    means = [
        fmean(values) for values in zip(*(outcome.objective for outcome in completed), strict=True)
    ]
    return replace(completed[0], state=State.COMPLETED, objective=means)
