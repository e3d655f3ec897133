"""The nodes on which trials failed, from the outcomes of attempts."""

import pytest

from sweeps.trial.job import Outcome, State
from sweeps.trial.nodes import UNPROVEN, find_bad_nodes


def begun(node: str) -> Outcome:
    return Outcome(State.COMPLETED, started_at=1.0, node=node)


def lost(node: str, failed: bool = True) -> Outcome:
    return Outcome(State.LOST, started_at=1.0, node=node, node_failed=failed)


def refused(node: str, failed: bool = False) -> Outcome:
    return Outcome(State.REFUSED, node=node, node_failed=failed)


@pytest.mark.parametrize(
    ("outcomes", "bad"),
    [
        ([], []),
        ([lost("a")], ["a"]),
        ([lost("a", failed=False), lost("")], []),  # preempted, and a job of several nodes
        ([Outcome(State.LOST, node="a", node_failed=True)], ["a"]),  # BOOT_FAIL
        ([refused("a", failed=True)], []),
        ([refused("a", failed=True)] * 2, ["a"]),
        ([refused("a", failed=True), refused("b", failed=True)], []),
        ([begun("b"), *[refused("a")] * 2], ["a"]),
        ([begun("a"), *[refused("a")] * 2], []),  # a setup line that has run nowhere else
        ([refused("a")] * 2, []),
        ([*[refused("a")] * 2, *[refused("b")] * 2], []),  # a setup line that works nowhere
        ([*[refused("a")] * 2, *[refused("b")] * 2, begun("c")], ["a", "b"]),
    ],
)
def test_bad_nodes_are_derived_from_all_attempts(outcomes: list[Outcome], bad: list[str]) -> None:
    assert sorted(find_bad_nodes(outcomes)) == bad


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        ([refused("a")], None),
        ([refused("a")] * 2, f"could not begin 2 trials, {UNPROVEN}"),
        ([begun("b"), *[refused("a")] * 2], "could not begin 2 trials"),
        ([refused("b"), *[refused("a")] * 2], None),
    ],
)
def test_only_node_so_far_is_avoided_without_proof(outcomes: list[Outcome], reason: str | None) -> None:
    assert find_bad_nodes(outcomes, unproven=True).get("a") == reason
