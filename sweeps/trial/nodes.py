"""The nodes that fail trials: derived from the outcomes of all attempts at the trials of a study."""

from collections import Counter
from collections.abc import Iterable

from sweeps.trial.job import Outcome, State

_MOST_FAILED_STARTS = 2


def find_bad_nodes(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Return why each node that failed, or on which two trials could not begin, is bad.

    If a setup line fails on a node, the node is at fault if a trial has begun on another node, or while the line has
    failed on no other node.
    """
    outcomes = [outcome for outcome in outcomes if outcome.node]
    good = {outcome.node for outcome in outcomes if outcome.started_at}
    refusals = [outcome for outcome in outcomes if outcome.state is State.REFUSED and not outcome.started_at]
    refusing = {outcome.node for outcome in refusals if not outcome.node_failed}
    bad = {o.node: "failed while it had a trial" for o in outcomes if o.node_failed and o.state is not State.REFUSED}
    counts = Counter(o.node for o in refusals if o.node_failed or good - {o.node} or refusing == {o.node})
    for node, count in counts.items():
        if count >= _MOST_FAILED_STARTS:
            bad.setdefault(node, f"could not begin {count} trials")
    return bad
