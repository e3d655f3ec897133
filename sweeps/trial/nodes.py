"""The nodes that fail trials: derived from the outcomes of all attempts at the trials of a
study."""

from collections import Counter
from collections.abc import Iterable, Sequence

from sweeps.trial.job import Outcome, State

_MOST_FAILED_STARTS = 2
UNPROVEN = "and the setup lines have run on no other node"
"""The end of the reason to avoid a node that may not be at fault."""


def find_bad_nodes(outcomes: Iterable[Outcome], unproven: bool = False) -> dict[str, str]:
    """Return why each node that failed, or on which two trials could not begin, is bad.

    If a setup line fails on a node, the node is at fault if a trial has begun on another node. With
    `unproven`, the only node on which the line has run is one to avoid, too, because another node
    then shows which of both is wrong.
    """
    placed = [outcome for outcome in outcomes if outcome.node]
    good = {outcome.node for outcome in placed if outcome.started_at}
    refused = [outcome for outcome in placed if outcome.state is State.REFUSED]
    bad = _find_refusing_nodes([end for end in refused if not end.started_at], good, unproven)
    for outcome in placed:
        if outcome.node_failed and outcome.state is not State.REFUSED:
            bad[outcome.node] = "failed while it had a trial"
    return bad


def _find_refusing_nodes(
    refusals: Sequence[Outcome], good: set[str], unproven: bool
) -> dict[str, str]:
    """Return why each node is bad on which trials could not begin; `good` are nodes on which others
    have begun."""
    bad = {}
    counts = Counter(outcome.node for outcome in refusals)
    refusing = {outcome.node for outcome in refusals if not outcome.node_failed}
    proven = Counter(
        outcome.node for outcome in refusals if outcome.node_failed or good - {outcome.node}
    )
    for node, count in counts.items():
        if proven[node] >= _MOST_FAILED_STARTS:
            bad[node] = f"could not begin {proven[node]} trials"
        elif unproven and count >= _MOST_FAILED_STARTS and refusing == {node}:
            bad[node] = f"could not begin {count} trials, {UNPROVEN}"
    return bad
