"""The trials of one configuration under several seeds: what they say of it together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from sweeps.record.study import TrialRecord
from sweeps.trial.job import Outcome, State


def by_first(trials: Iterable[TrialRecord]) -> dict[int, list[TrialRecord]]:
    """Return the trials of each configuration, without the final race's, by the number of its first trial."""
    configurations: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        if not trial.race:
            configurations.setdefault(trial.number if trial.of is None else trial.of, []).append(trial)
    return configurations


def verdict(trials: Sequence[TrialRecord], repeats: int) -> Outcome | None:
    """Return how a configuration ended that runs under so many seeds; None while that is open.

    A configuration is as good as the mean of its trials. A trial that is pruned or fails decides for all. What was lost
    or timed out says nothing: the mean is of the others.
    """
    ended = [trial for trial in trials if trial.state.is_over]
    decisive = [trial.attempts[-1] for trial in ended if trial.state.decides]
    if decisive:
        return min(decisive, key=lambda end: end.ended)  # the first to end, whatever its number
    if len(ended) < repeats:
        return None
    completed = [trial.attempts[-1] for trial in ended if trial.result]
    if not completed:
        return ended[-1].attempts[-1]
    means = [fmean(values) for values in zip(*(end.objective for end in completed), strict=True)]
    return replace(completed[0], state=State.COMPLETED, objective=means)
